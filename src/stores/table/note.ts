// stores/table/note.ts: writes beside a job's state, fenced; the fence stays.
import type { Note } from '../../job/change.js'
import type { LogLine, StepResult } from '../../job/job.js'
import type { Refused } from '../../store/store.js'
import { mayChange } from '../apply.js'
import type { News } from './news.js'
import { copyOf } from '../../job/record.js'
import { replace } from './table.js'
import type { Table } from './table.js'
import { fenced, missing } from '../verdicts.js'

/** Writes a note, or says why not. */
export function note(table: Table, change: Note, news: News): Refused | undefined {
  const row = table.rows.get(change.id)
  if (row === undefined) return missing(change.id)
  const before = row.job
  if (!mayChange(before, change.fence, change.held, news.now)) return fenced(before)

  if (change.progress !== undefined || change.data !== undefined || change.memo !== undefined) {
    const job = copyOf(before)
    if (change.progress !== undefined) job.progress = change.progress
    if (change.data !== undefined) job.data = change.data ?? undefined
    if (change.memo !== undefined) job.memo = change.memo
    replace(table, row, job)
  }
  if (change.progress !== undefined) {
    news.tell('progress', row.job, { progress: change.progress, about: change.about })
  }
  if (change.steps !== undefined) for (const step of change.steps) remember(table, before.id, step)
  if (change.tells !== undefined) for (const { type, about } of change.tells) news.tell(type, row.job, { about })
  if (change.logs !== undefined && change.logs.length > 0) {
    const lines = change.logs.map((line): LogLine => ({ at: news.now, attempt: before.attempt, line }))
    append(table, before.id, lines)
  }
  return undefined
}

/** Keeps what a step came to. */
function remember(table: Table, id: string, { name, result }: StepResult): void {
  const steps = table.steps.get(id) ?? new Map<string, StepResult['result']>()
  const [had, was] = [steps.has(name), steps.get(name)]
  table.steps.set(id, steps.set(name, result))
  if (!table.journal.open) return
  table.journal.add(() => {
    if (had) steps.set(name, was)
    else steps.delete(name)
  })
}

/** Log lines only ever grow, so that taking some back is cutting them off. */
function append(table: Table, id: string, lines: readonly LogLine[]): void {
  const logs = table.logs.get(id)
  if (logs === undefined) table.logs.set(id, [...lines])
  else for (const line of lines) logs.push(line)
  if (!table.journal.open) return
  table.journal.add(() => {
    if (logs === undefined) table.logs.delete(id)
    else logs.length -= lines.length
  })
}

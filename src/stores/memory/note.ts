// stores/memory/note.ts: writes progress, logs, steps and other data beside a job's state; fenced, but keeps the fence.
import type { Note } from '../../job/change.js'
import { LOGS_KEPT } from '../../job/job.js'
import type { LogLine, StepResult } from '../../job/job.js'
import type { Refused } from '../../store/store.js'
import { mayChange } from '../../job/apply.js'
import type { Notices } from './notices.js'
import { copyOf } from '../../job/record.js'
import { replace } from './table.js'
import type { Table } from './table.js'
import { fenced, missing } from '../verdicts.js'

/** Writes a note, or returns why it is refused. */
export function note(table: Table, change: Note, notices: Notices): Refused | undefined {
  const row = table.rows.get(change.id)
  if (row === undefined) return missing(change.id)
  const before = row.job
  if (!mayChange(before, change.fence, change.held, notices.now)) return fenced(before)

  if (change.progress !== undefined || change.data !== undefined || change.memo !== undefined) {
    const job = copyOf(before)
    if (change.progress !== undefined) job.progress = change.progress
    if (change.data !== undefined) job.data = change.data ?? undefined
    if (change.memo !== undefined) job.memo = change.memo
    replace(table, row, job)
  }
  if (change.progress !== undefined) {
    notices.addEvent('progress', row.job, { progress: change.progress, about: change.about })
  }
  if (change.steps !== undefined) for (const step of change.steps) writeStep(table, before.id, step)
  if (change.tells !== undefined) for (const { type, about } of change.tells) notices.addEvent(type, row.job, { about })
  if (change.logs !== undefined && change.logs.length > 0) {
    appendLogs(table, before.id, change.logs, { at: notices.now, attempt: before.attempt })
  }
  return undefined
}

/** Stores the result of a step. */
function writeStep(table: Table, id: string, { name, result }: StepResult): void {
  const steps = table.steps.get(id) ?? new Map<string, StepResult['result']>()
  const [had, was] = [steps.has(name), steps.get(name)]
  table.steps.set(id, steps.set(name, result))
  if (!table.journal.open) return
  table.journal.add(() => {
    if (had) steps.set(name, was)
    else steps.delete(name)
  })
}

/** Appends lines to a job's log. The oldest lines are dropped, and restored if the group is refused. */
function appendLogs(table: Table, id: string, lines: readonly string[], by: Omit<LogLine, 'index' | 'line'>): void {
  const logs = table.logs.get(id) ?? []
  table.logs.set(id, logs)
  const last = logs.at(-1)?.index ?? 0
  lines.forEach((line, at) => logs.push({ index: last + at + 1, ...by, line }))
  const dropped = logs.length > LOGS_KEPT ? logs.splice(0, logs.length - LOGS_KEPT) : []
  if (!table.journal.open) return
  table.journal.add(() => {
    logs.unshift(...dropped)
    logs.length -= lines.length
    if (logs.length === 0) table.logs.delete(id)
  })
}

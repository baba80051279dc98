// stores/sqlite/note.ts: writes beside a job's state, fenced; the fence stays.
import type { Note } from '../../job/change.js'
import { LOGS_KEPT } from '../../job/job.js'
import type { JobRecord } from '../../job/job.js'
import type { Refused } from '../../store/store.js'
import { mayChange } from '../apply.js'
import { fenced, missing } from '../verdicts.js'
import { isBulky, nullable } from './rows.js'
import type { Transaction } from './transaction.js'

/** Writes a note, or says why not. */
export function note(tx: Transaction, change: Note): Refused | undefined {
  if (noteHeld(tx, change)) return undefined
  const { sql, news, now } = tx
  const found = tx.ground.lightById(change.id)
  if (found === undefined) return missing(change.id)
  const { seq, job } = found
  if (!mayChange(job, change.fence, change.held, now)) return fenced(job)

  if (change.data !== undefined) writeData(tx, seq, change.data)
  if (change.progress !== undefined) sql.setProgress.run(change.progress, seq)
  if (change.memo !== undefined) sql.setMemo.run(change.memo, seq)
  for (const { name, result } of change.steps ?? []) sql.addStep.run(seq, name, nullable(result))
  tell(news, job, change)
  if (change.logs !== undefined && change.logs.length > 0) {
    let n = sql.lastLog.get(seq)![0] as number
    const dropped = Math.max(0, change.logs.length - LOGS_KEPT) // counted, and not written: they would be dropped below
    n += dropped
    for (let at = dropped; at < change.logs.length; at++) sql.addLog.run(seq, ++n, now, job.attempt, change.logs[at]!)
    if (n > LOGS_KEPT) sql.dropLogs.run(seq, n - LOGS_KEPT)
  }
  return undefined
}

/** Whether a note by the holder writes no more than memo and progress. */
export function isPlainNote({ held, data, steps, logs }: Note): boolean {
  return held && data === undefined && steps === undefined && logs === undefined
}

/** Writes memo and progress of a job that was claimed through this connection, if it still is: it need not be read for that. */
function noteHeld({ sql, news, now, held }: Transaction, change: Note): boolean {
  const { memo, progress } = change
  if (!isPlainNote(change) || (memo ?? progress) === undefined) return false
  const found = held.get(change.id)
  if (found === undefined || found.job.fence !== change.fence) return false
  const { changes } = sql.noteHeld.run(nullable(memo), nullable(progress), found.seq, change.fence, now)
  if (Number(changes) !== 1) return false
  tell(news, found.job, change)
  return true
}

/** Writes what a holder said just before the end that is written with it: what is only told needs no row. */
export function sayHeld(tx: Transaction, job: JobRecord, change: Note): boolean {
  if ((change.memo ?? change.progress) !== undefined) return noteHeld(tx, change)
  tell(tx.news, job, change)
  return true
}

function tell(news: Transaction['news'], job: JobRecord, { progress, about, tells }: Note): void {
  if (progress !== undefined) news.tell('progress', job, { progress, about })
  for (const each of tells ?? []) news.tell(each.type, job, { about: each.about })
}

/** Gives a job other data; `null` for none. */
export function writeData({ sql }: Transaction, seq: number, data: string | null): void {
  const bulky = isBulky(data)
  sql.setData.run(bulky ? null : data, Number(bulky), seq)
  sql.removeBody.run(seq)
  if (bulky) sql.insertBody.run(seq, data)
}

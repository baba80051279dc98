// stores/sqlite/note.ts: writes progress, logs, steps and other data beside a job's state; fenced, but keeps the fence.
import type { Note } from '../../job/change.js'
import { LOGS_KEPT } from '../../job/job.js'
import type { JobRecord } from '../../job/job.js'
import type { Refused } from '../../store/store.js'
import { mayChange } from '../../job/apply.js'
import { fenced, missing } from '../../engine/verdicts.js'
import { isBulky, nullable } from './rows.js'
import type { Transaction } from './transaction.js'

/** Writes a note, or returns why it is refused. */
export function note(tx: Transaction, change: Note): Refused | undefined {
  if (noteHeld(tx, change)) return undefined
  const { sql, notices, now } = tx
  const found = tx.cache.lightById(change.id)
  if (found === undefined) return missing(change.id)
  const { seq, job } = found
  if (!mayChange(job, change.fence, change.held, now)) return fenced(job)

  if (change.data !== undefined) writeData(tx, seq, change.data)
  if (change.progress !== undefined) sql.setProgress.run(change.progress, seq)
  if (change.memo !== undefined) sql.setMemo.run(change.memo, seq)
  for (const { name, result } of change.steps ?? []) sql.addStep.run(seq, name, nullable(result))
  addEvents(notices, job, change)
  if (change.logs !== undefined && change.logs.length > 0) {
    let n = sql.lastLog.get(seq)![0] as number
    // These lines are counted, but not written, because they would be dropped below.
    const dropped = Math.max(0, change.logs.length - LOGS_KEPT)
    n += dropped
    for (let at = dropped; at < change.logs.length; at++) sql.addLog.run(seq, ++n, now, job.attempt, change.logs[at]!)
    if (n > LOGS_KEPT) sql.dropLogs.run(seq, n - LOGS_KEPT)
  }
  return undefined
}

/** Whether a note of the lease holder writes only memo and progress. */
export function isPlainNote({ held, data, steps, logs }: Note): boolean {
  return held && data === undefined && steps === undefined && logs === undefined
}

/**
 * Writes memo and progress of a job that was claimed through this connection, without reading it. Returns false if the
 * job has lost its lease.
 */
function noteHeld({ sql, notices, now, leased }: Transaction, change: Note): boolean {
  const { memo, progress } = change
  if (!isPlainNote(change) || (memo ?? progress) === undefined) return false
  const found = leased.get(change.id)
  if (found === undefined || found.job.fence !== change.fence) return false
  const { changes } = sql.noteHeld.run(nullable(memo), nullable(progress), found.seq, change.fence, now)
  if (Number(changes) !== 1) return false
  addEvents(notices, found.job, change)
  return true
}

/** Writes the note before a completion. A note that only announces events writes no row. */
export function noteBeforeCompletion(tx: Transaction, job: JobRecord, change: Note): boolean {
  if ((change.memo ?? change.progress) !== undefined) return noteHeld(tx, change)
  addEvents(tx.notices, job, change)
  return true
}

function addEvents(notices: Transaction['notices'], job: JobRecord, { progress, about, tells }: Note): void {
  if (progress !== undefined) notices.addEvent('progress', job, { progress, about })
  for (const event of tells ?? []) notices.addEvent(event.type, job, { about: event.about })
}

/** Sets the data of a job; `null` for none. */
export function writeData({ sql }: Transaction, seq: number, data: string | null): void {
  const bulky = isBulky(data)
  sql.setData.run(bulky ? null : data, Number(bulky), seq)
  sql.removeBody.run(seq)
  if (bulky) sql.insertBody.run(seq, data)
}

// stores/sqlite/move.ts: moves a job to another state, or removes it; fenced.
import type { Move } from '../../job/change.js'
import { ERRORS_KEPT, isFinished } from '../../job/job.js'
import type { ErrorInfo, FinishedState, JobRecord } from '../../job/job.js'
import type { Refused } from '../../store/store.js'
import { failedAttempt, leaseIsOver, mayChange, moveRecord, reopen, revives, revocation } from '../../job/apply.js'
import { broken, duplicate, fenced, missing } from '../../engine/verdicts.js'
import { addEdges, badEdgesOf, chainEnd, newEdges, writeReopened } from './edges.js'
import { keyHolder, takeKey } from './dedup.js'
import { writeData } from './note.js'
import type { SqlRow } from './driver.js'
import { movedColumns, nullable } from './rows.js'
import type { Found } from './rows.js'
import type { Transaction } from './transaction.js'

/** Moves a job, or returns why the move is refused. Nothing is written before all checks have passed. */
export function move(tx: Transaction, change: Move): Refused | undefined {
  const { id, to } = change
  if (change.held && to !== 'removed' && change.waitsFor === undefined) {
    const leased = tx.leased.get(id)
    if (leased !== undefined && leased.job.fence === change.fence && settle(tx, leased, to, change)) return undefined
  }
  tx.leased.delete(id)
  const found = tx.cache.lightById(id)
  if (found === undefined) return missing(id)
  const { job: before } = found
  if (!mayChange(before, change.fence, change.held, tx.now)) return fenced(before)
  if (change.reaps === true && !leaseIsOver(before, tx.now)) return fenced(before)
  const existing = change.waitsFor === undefined ? [] : tx.sql.edgesOf.all(found.seq)
  const added = change.waitsFor === undefined ? undefined : newEdges(tx, id, change.waitsFor, existing.map(chainIn))
  if (typeof added === 'string') return missing(added)
  const reopened = change.reopens ? reopen(badEdgesOf(tx, found), (chain) => chainEnd(tx, chain)) : undefined
  if (typeof reopened === 'string') return broken(reopened)
  const { dedup } = before
  if (dedup !== undefined && revives(before.state, to)) {
    const holder = keyHolder(tx, dedup.key)
    if (holder !== undefined && holder !== id) return duplicate(holder, tx.cache.byId(holder)?.job)
    if (holder === undefined && dedup.window === undefined) takeKey(tx, dedup.key, id, undefined)
  }

  if (to === 'removed') remove(tx, found)
  else {
    const closed = change.closesBroken ? Number(tx.sql.closeBroken.run(found.seq).changes) : 0
    const after = moveRecord(before, to, change, closed, tx, tx.now, added, reopened)
    tx.sql.move.run(...movedColumns(after), found.seq)
    if (reopened !== undefined) writeReopened(tx, found.seq, reopened)
    if (added !== undefined) addEdges(tx, found.seq, added, existing.length)
    afterMove(tx, found, after, change)
  }
  if (before.state === 'active' && !change.held && to !== 'active') revokeLease(tx, found, change)
  return undefined
}

const chainIn = ([chain]: SqlRow): { readonly chain: string } => ({ chain: chain as string })

/**
 * Moves a job that was claimed through this connection without reading it: the update checks fence and lease. Returns
 * false if the job has lost its lease.
 */
function settle(tx: Transaction, leased: Found, to: Exclude<Move['to'], 'removed'>, change: Move): boolean {
  const { seq, job: before } = leased
  const after = moveRecord(before, to, change, 0, tx, tx.now)
  const { changes } = isPlainCompletion(change)
    ? tx.sql.completeHeld.run(tx.now, nullable(after.result), seq, before.fence)
    : tx.sql.moveHeld.run(...movedColumns(after), seq, before.fence, tx.now)
  if (Number(changes) === 0) return false
  if (to !== 'active') tx.leased.delete(before.id)
  afterMove(tx, leased, after, change)
  return true
}

/** Whether a settlement only completes its job, with or without a result. */
export function isPlainCompletion({ to, held, set, why, closesBroken }: Move): boolean {
  if (to !== 'completed' || !held || why !== undefined || closesBroken) return false
  return (
    set.staleIn === undefined &&
    set.deleteIn === undefined &&
    set.attempt === undefined &&
    set.stalls === undefined &&
    set.run === undefined &&
    set.data === undefined &&
    set.priority === undefined &&
    set.error === undefined &&
    set.memo === undefined &&
    set.stale === undefined
  )
}

/** Writes what follows from a move: history, keys, counters and notices. */
function afterMove(tx: Transaction, { seq, lane, job: before }: Found, after: JobRecord, change: Move): void {
  const { set, why } = change
  if (set.data !== undefined) writeData(tx, seq, set.data)
  if (set.memo !== undefined) tx.sql.setMemo.run(set.memo, seq)
  if (set.error) addFailure(tx, seq, before, after, set.error)
  if (before.dedup !== undefined && isFinished(after.state)) tx.sql.freeKey.run(before.dedup.key, before.id)
  if (why !== undefined) tx.notices.addReason(why, before.worker, after)
  tx.jobChanged(lane, after, before.state, before.dueAt)
  if (after.kind !== 'job') return
  if (after.state !== before.state && isFinished(after.state)) {
    tx.counts.lifetime(lane.queue, after.state satisfies FinishedState)
  }
  if (why === 'retrying') tx.counts.lifetime(lane.queue, 'retried')
  else if (why === 'stalled') tx.counts.lifetime(lane.queue, 'stalled')
}

/** Adds a failed attempt to the history, and drops the oldest if there are too many. */
function addFailure(tx: Transaction, seq: number, before: JobRecord, after: JobRecord, error: ErrorInfo): void {
  const { fence, attempt, at } = failedAttempt(before, error, tx.now)
  tx.sql.addFailure.run(seq, fence, attempt, at, JSON.stringify(error))
  if (before.errors.length >= ERRORS_KEPT) tx.sql.dropFailures.run(seq, after.errors[0]!.fence)
}

function remove(tx: Transaction, { seq, lane, job }: Found): void {
  const { sql } = tx
  if (job.fence > tx.numbers.fence) tx.numbers.fence = job.fence
  sql.removeJob.run(seq)
  sql.removeBody.run(seq)
  sql.removeLogs.run(seq)
  sql.removeSteps.run(seq)
  if (job.errors.length > 0) sql.removeFailures.run(seq)
  if (Number(sql.removeEdges.run(seq).changes) > 0) tx.cache.openEdges = undefined
  if (job.dedup !== undefined) sql.freeKey.run(job.dedup.key, job.id)
  tx.counts.lane(lane.id, job.kind === 'job' ? job.state : 'schedule', -1)
  if (job.state === 'active') tx.leaseEnded(lane)
  if (job.group !== undefined) tx.cache.groups.forget(lane.queue, job.group)
  tx.notices.addEvent('removed', job)
}

/**
 * Revokes the lease of a running job that another caller moved: notifies the lease holder, and counts the lease against
 * limits until it expires.
 */
function revokeLease(tx: Transaction, { lane, job }: Found, move: Move): void {
  const { id, fence, worker, leaseUntil, group } = job
  const running = leaseUntil !== undefined && leaseUntil > tx.now
  if (running) {
    if (Number(tx.sql.dropOrphan.run(id, fence).changes) > 0) tx.counts.lane(lane.id, 'orphaned', -1)
    tx.sql.addOrphan.run(id, fence, lane.id, leaseUntil, nullable(group), nullable(worker))
    tx.counts.lane(lane.id, 'orphaned', 1)
    tx.cache.orphans = true
  }
  if (worker !== undefined) tx.notices.revoked.push({ id, fence, worker, ...revocation(move, running) })
}

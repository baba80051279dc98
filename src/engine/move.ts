// engine/move.ts: moves a job to another state, or removes it; fenced.
import { leaseIsOver, mayChange, moveRecord, reopen, revives, revocation } from '../job/apply.js'
import type { Move } from '../job/change.js'
import { isFinished } from '../job/job.js'
import type { JobRecord } from '../job/job.js'
import { holdsOverlapKey } from '../job/schedules/schedule.js'
import type { Refused } from '../store/store.js'
import { newEdges } from './insert.js'
import { broken, duplicate, fenced, missing } from './verdicts.js'
import type { Commit, Stored } from './workspace.js'

/** The fields of a job before it was moved: the workspace may overwrite its record. */
type Before = Pick<JobRecord, 'id' | 'state' | 'dueAt' | 'fence' | 'worker' | 'leaseUntil' | 'dedup'>

/** Moves a job, or returns why the move is refused. Nothing is written before all checks have passed. */
export function move(commit: Commit, change: Move): Refused | undefined {
  const { workspace, now } = commit
  const { id, to } = change
  if (settle(commit, change)) return undefined
  const row = workspace.find(id)
  if (row === undefined) return missing(id)
  const { job } = row
  if (!mayChange(job, change.fence, change.held, now)) return fenced(job)
  if (change.reaps === true && !leaseIsOver(job, now)) return fenced(job)
  const existing = change.waitsFor === undefined ? [] : workspace.chainsOf(row)
  const added = change.waitsFor === undefined ? undefined : newEdges(workspace, id, change.waitsFor, existing)
  if (typeof added === 'string') return missing(added)
  const reopened = change.reopens
    ? reopen(workspace.failedEdges(row), (chain) => workspace.chainState(chain))
    : undefined
  if (typeof reopened === 'string') return broken(reopened)
  const { dedup } = job
  if (dedup !== undefined && revives(job.state, to)) {
    const holder = workspace.keyHolder(dedup.key)
    if (holder !== undefined && holder !== id && !holdsOverlapKey(job))
      return duplicate(holder, workspace.record(holder))
    if (holder === undefined && dedup.window === undefined) workspace.takeKey(dedup.key, id, undefined)
  }

  const before = fieldsOf(job)
  if (to === 'removed') remove(commit, row)
  else {
    const closed = change.closesBroken ? workspace.closeBroken(row) : 0
    const after = moveRecord(job, to, change, closed, workspace.orders, now, added, reopened)
    workspace.write(row, after, change.set)
    if (reopened !== undefined) workspace.reopenEdges(row, reopened.changed)
    if (added !== undefined) workspace.addEdges(row, added, existing.length)
    afterMove(commit, row, before, after, change)
  }
  if (before.state === 'active' && !change.held && to !== 'active') revokeLease(commit, row, before, change)
  return undefined
}

function fieldsOf({ id, state, dueAt, fence, worker, leaseUntil, dedup }: JobRecord): Before {
  return { id, state, dueAt, fence, worker, leaseUntil, dedup }
}

/** Moves a job for its lease holder without reading it, if the workspace can. Returns whether it did. */
function settle(commit: Commit, change: Move): boolean {
  const { workspace, now } = commit
  const { leased } = workspace
  if (leased === undefined) return false
  const { id, to } = change
  if (change.held && to !== 'removed' && change.waitsFor === undefined) {
    const row = leased.find(id, change.fence)
    if (row !== undefined) {
      const after = moveRecord(row.job, to, change, 0, workspace.orders, now)
      if (leased.settle(row, after, change)) {
        afterMove(commit, row, row.job, after, change)
        return true
      }
    }
  }
  leased.forget(id)
  return false
}

/** What follows from a move that is not a removal: the dedup key, notices and counters. */
function afterMove({ workspace, notices }: Commit, row: Stored, before: Before, after: JobRecord, { why }: Move): void {
  if (before.dedup !== undefined && isFinished(after.state)) workspace.freeKey(before.dedup.key, before.id)
  if (why !== undefined) notices.addReason(why, before.worker, after)
  notices.jobChanged(after, before.state, before.dueAt)
  if (after.kind !== 'job') return
  if (after.state !== before.state && isFinished(after.state)) workspace.count(row, after.state)
  if (why === 'retrying') workspace.count(row, 'retried')
  else if (why === 'stalled') workspace.count(row, 'stalled')
}

function remove({ workspace, notices }: Commit, row: Stored): void {
  const { job } = row
  workspace.remove(row)
  if (job.dedup !== undefined) workspace.freeKey(job.dedup.key, job.id)
  if (job.state === 'active') notices.leaseEnded(job.queue)
  notices.addEvent('removed', job)
}

/**
 * Revokes the lease of a running job that another caller moved: notifies the lease holder, and counts the lease against
 * limits until it expires.
 */
function revokeLease({ workspace, now, notices }: Commit, row: Stored, before: Before, change: Move): void {
  const { id, fence, worker, leaseUntil } = before
  const running = leaseUntil !== undefined && leaseUntil > now
  if (running) workspace.addOrphan(row, { fence, worker }, leaseUntil)
  if (worker !== undefined) notices.revoked.push({ id, fence, worker, ...revocation(change, running) })
}

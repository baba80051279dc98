// stores/memory/move.ts: moves a job to another state, or removes it; fenced.
import type { Move, NewEdge } from '../../job/change.js'
import { isFinished } from '../../job/job.js'
import type { JobRecord, JobState } from '../../job/job.js'
import type { Refused } from '../../store/store.js'
import { leaseIsOver, mayChange, moveRecord, reopen, revives, revocation } from '../../job/apply.js'
import type { EdgeRow } from './edges.js'
import { edgesOf } from './insert.js'
import { chainState } from './release.js'
import type { Notices } from './notices.js'
import type { Row } from './row.js'
import { drop, replace } from './table.js'
import type { Table } from './table.js'
import { broken, duplicate, fenced, missing } from '../verdicts.js'

/** Moves a job, or returns why the move is refused. Nothing is written before all checks have passed. */
export function move(table: Table, change: Move, notices: Notices): Refused | undefined {
  const row = table.rows.get(change.id)
  if (row === undefined) return missing(change.id)
  const before = row.job
  const { state: from, dueAt: due, fence, worker, leaseUntil, dedup } = before
  const { now } = notices
  if (!mayChange(before, change.fence, change.held, now)) return fenced(before)
  if (change.reaps === true && !leaseIsOver(before, now)) return fenced(before)

  const { to } = change
  const added = change.waitsFor === undefined ? undefined : newEdges(table, change.id, change.waitsFor)
  if (typeof added === 'string') return missing(added)
  const reopened = change.reopens ? reopen(table.edges.of(change.id), (chain) => chainState(table, chain)) : undefined
  if (typeof reopened === 'string') return broken(reopened)
  if (dedup !== undefined && revives(from, to)) {
    const holder = table.keys.holder(dedup.key, now)
    if (holder !== undefined && holder.id !== change.id) return duplicate(holder.id, table.rows.get(holder.id)?.job)
    if (holder === undefined && dedup.window === undefined) {
      table.keys.take({ key: dedup.key, id: change.id, until: undefined })
    }
  }

  if (to === 'removed') remove(table, row, notices)
  else {
    const closed = change.closesBroken ? table.edges.closeBroken(change.id) : 0
    replace(table, row, moveRecord(before, to, change, closed, table.orders, now, added, reopened))
    for (const { edge, to: state } of reopened?.changed ?? []) table.edges.setState(edge, state)
    if (added !== undefined) table.edges.add(change.id, added)
    if (change.why !== undefined) notices.addReason(change.why, worker, row.job)
    notices.jobChanged(row, from, due)
    countMove(table, row, from, change.why)
  }
  if (dedup !== undefined && (to === 'removed' || isFinished(to))) table.keys.free(dedup.key, change.id)
  if (from === 'active' && !change.held && to !== 'active') {
    revokeLease(table, row, { fence, worker, leaseUntil }, change, notices)
  }
  return undefined
}

function newEdges(table: Table, id: string, waitsFor: readonly NewEdge[]): readonly EdgeRow[] | string {
  return edgesOf(table, id, waitsFor, table.edges.of(id))
}

function remove(table: Table, row: Row, notices: Notices): void {
  const { job } = row
  if (job.fence > table.highestFence) table.highestFence = job.fence
  drop(table, row)
  table.edges.drop(job.id)
  const logs = table.logs.get(job.id)
  if (logs !== undefined) {
    table.logs.delete(job.id)
    if (table.journal.open) table.journal.add(() => void table.logs.set(job.id, logs))
  }
  const steps = table.steps.get(job.id)
  if (steps !== undefined) {
    table.steps.delete(job.id)
    if (table.journal.open) table.journal.add(() => void table.steps.set(job.id, steps))
  }
  if (job.state === 'active') notices.leaseEnded(row.lane.name.queue)
  notices.addEvent('removed', job)
}

function countMove(table: Table, row: Row, from: JobState, why: Move['why']): void {
  if (row.job.kind !== 'job') return
  const { lifetime } = row.lane.name.queue
  const { state } = row.job
  const ended = state !== from && isFinished(state) ? state : undefined
  const also = why === 'retrying' ? 'retried' : why === 'stalled' ? 'stalled' : undefined
  if (ended !== undefined) lifetime[ended]++
  if (also !== undefined) lifetime[also]++
  if (!table.journal.open) return
  table.journal.add(() => {
    if (ended !== undefined) lifetime[ended]--
    if (also !== undefined) lifetime[also]--
  })
}

/** The lease of a job before a move revoked it. */
type Lease = Pick<JobRecord, 'fence' | 'worker' | 'leaseUntil'>

/**
 * Revokes the lease of a running job that another caller moved: notifies the lease holder, and counts the lease against
 * limits until it expires.
 */
function revokeLease(table: Table, row: Row, before: Lease, move: Move, notices: Notices): void {
  const { id } = row.job
  const running = before.leaseUntil !== undefined && before.leaseUntil > notices.now
  if (running) table.orphans.add(id, before, row, before.leaseUntil)
  if (before.worker === undefined) return
  notices.addRevoked({ id, fence: before.fence, worker: before.worker, ...revocation(move, running) })
}

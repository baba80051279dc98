// server/store-protocol/named-moves.ts: the moves of jobs that nobody holds and that callers without `admin` may send: a job
// that holds a deduplication key is replaced, the oldest of a full group makes room, a signal is sent or awaited.
import type { Change, Move, NewJob } from '../../job/change.js'
import type { JobRecord } from '../../job/job.js'
import { drop, isDenied, replace } from '../../job/lifecycle.js'
import { headerOf } from '../../job/record.js'
import { deliverSignal, isSignalId } from '../../job/signals.js'
import { exactText } from '../../store/wire/exact-json.js'
import type { Group } from '../../store/batch.js'
import type { Facts } from './facts.js'

/** Why a move cannot be one of them, whatever its job is; undefined: it may be. */
export function maybeNamedMove(move: Move): string | undefined {
  const { to, id, set } = move
  if (isSignalId(id)) return to === 'completed' || to === 'delayed' ? undefined : 'move rows of signals'
  if (to === 'cancelled') return set.error?.code === 'JOB_DROPPED' ? undefined : 'cancel jobs'
  return to === 'waiting' || to === 'delayed' || to === 'waiting-children'
    ? undefined
    : 'move jobs that it does not hold'
}

/** Whether a move is one of them. */
export function isNamedMove(move: Move, job: JobRecord, group: Group, facts: Facts, works: boolean): boolean {
  if (job.fence !== move.fence) return false
  if (job.kind === 'signal') return isSignalMove(move, job, group, works)
  if (job.kind !== 'job' || isSignalId(job.id)) return false
  return move.to === 'cancelled' ? isDrop(job, group, facts) : group.length === 1 && isReplace(move, job)
}

/** What the library itself makes of the request is what the group must hold. */
function holdsAll(group: Group, expected: readonly Change[]): boolean {
  const sent = new Set(group.map(exactText))
  return expected.length > 0 && expected.every((change) => sent.has(exactText(change)))
}

function isSignalMove(move: Move, row: JobRecord, group: Group, works: boolean): boolean {
  if (move.to === 'completed') return holdsAll(group, deliverSignal(row, move.set.result))
  const { data, run, ...rest } = move.set
  return (
    works && data !== undefined && data !== null && run !== undefined && Object.keys(rest).length === 0 && !isOdd(move)
  )
}

/** The oldest job of a group that is full makes room for one that the same group of changes adds. */
function isDrop(job: JobRecord, group: Group, facts: Facts): boolean {
  const { queue, group: whose } = job
  if (whose === undefined || job.attempt > 0) return false
  const adds = group.some(
    (change) => change.kind === 'insert' && change.job.queue === queue && change.job.group === whose,
  )
  const { group: each, groups = {} } = facts.limits(queue)
  const { whenFull } = { ...each, ...(Object.hasOwn(groups, whose) ? groups[whose] : undefined) }
  return adds && whenFull === 'drop-oldest' && holdsAll(group, drop(headerOf(job)))
}

/** A job that holds a deduplication key and has not begun gets the data, the priority and the time of a newer one. */
function isReplace(move: Move, job: JobRecord): boolean {
  const { data, priority, run, expires } = move.set
  if (job.dedup === undefined || data === undefined || priority === undefined) return false
  const by = { data: data ?? undefined, priority, run: run ?? undefined, expires: expires ?? undefined }
  const expected = replace(job, by as NewJob)
  return !isDenied(expected) && holdsAll([move], expected)
}

function isOdd({ closesBroken, waitsFor, reopens, reaps, why }: Move): boolean {
  return closesBroken || waitsFor !== undefined || reopens !== undefined || reaps !== undefined || why !== undefined
}

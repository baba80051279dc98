// job/retention.ts: when a finished job may be removed, and what its removal waits for.
import { move } from './change.js'
import type { Change, Move } from './change.js'
import type { FinishedState, JobHeader, JobRecord, Keep, KeepByState, Millis, Time } from './job.js'
import { isFinished } from './job.js'
import { removeAndRelease } from './moves.js'
import { deliveryPending, redeliveryAsked } from './webhooks.js'

const DAY: Millis = 86_400_000

/** How long finished jobs are kept by default: 7 days, or 30 if they failed. */
export const DEFAULT_KEEP: Readonly<Record<FinishedState, Keep>> = {
  completed: { deleteAfter: 7 * DAY, byQueue: true },
  failed: { deleteAfter: 30 * DAY, byQueue: true },
  cancelled: { deleteAfter: 7 * DAY, byQueue: true },
}

/** The longest time that an unfinished delivery keeps its job. */
const MAX_DELIVERY_WAIT: Millis = DAY

/** The shortest and the longest time by which a removal is postponed at once. */
const MIN_POSTPONE: Millis = 60_000
const MAX_POSTPONE: Millis = DAY

/**
 * The header of a job whose due rules need no payload. Only `isPlain` turns a header into one, so that a rule that
 * needs more does not compile without the record.
 */
export type PlainJob = JobHeader & { readonly kind: 'job' }

/**
 * Whether the due rules of a job need no payload. Schedules and signals hold in it what they are due for, and the memo
 * of a finished job with a webhook shows whether its end has been delivered.
 */
export function isPlain(job: JobHeader): job is PlainJob {
  return job.kind === 'job' && !(isFinished(job.state) && job.extras?.webhook !== undefined)
}

/** The rule for how long a finished job is kept: its own stamp, or else the rule of its queue. */
function keepOf(job: JobHeader, rule: KeepByState): Keep | undefined {
  return isFinished(job.state) ? (job.keep?.[job.state] ?? rule[job.state]) : undefined
}

/** When a finished job may be removed, by its own age; undefined: never, or it has not finished. */
function expiry(job: JobHeader, rule: KeepByState): Time | undefined {
  const deleteAfter = keepOf(job, rule)?.deleteAfter
  return deleteAfter === undefined || job.finishedAt === undefined ? undefined : job.finishedAt + deleteAfter
}

/** Whether a finished job is old enough to be removed, and its end needs no more delivery. */
export function expired(job: JobRecord | PlainJob, rule: KeepByState, now: Time): boolean {
  const at = expiry(job, rule)
  return at !== undefined && at <= now && !awaitsDelivery(job, at, now)
}

/** How many jobs of its queue and name that ended in this state are kept, by a rule of the job itself; undefined: all. */
export function countOf(job: Pick<JobHeader, 'keep'>, state: FinishedState): number | undefined {
  return job.keep?.[state]?.count
}

/** Whether a finished job may be removed because there are enough newer ones: it has such a rule, and was delivered. */
export function mayMakeRoom(job: JobRecord, now: Time): boolean {
  if (!isFinished(job.state) || countOf(job, job.state) === undefined) return false
  return !awaitsDelivery(job, job.finishedAt ?? now, now)
}

/** Whether a finished job has no rule of its own for the state it ended in. */
export function isUnstamped(job: JobHeader): boolean {
  return isFinished(job.state) && job.keep?.[job.state] === undefined && job.deleteAt === undefined
}

/** Whether a due job is to be removed by the retention of its queue, rather than by a rule of its own. */
export function isRetired(job: JobHeader, now: Time): boolean {
  return isByQueue(job) && job.deleteAt !== undefined && job.deleteAt <= now && !becomesStale(job, now)
}

/** Whether the retention of its queue defines how long a finished job is kept. */
export function isByQueue(job: JobHeader): boolean {
  return isFinished(job.state) && job.keep?.[job.state]?.byQueue === true
}

/** Whether a finished job is to be marked as stale: that comes before its removal, however late upkeep runs. */
function becomesStale(job: JobHeader, now: Time): boolean {
  return job.staleAt !== undefined && !job.stale && job.staleAt <= now
}

/** Whether the end of a job has yet to be delivered to its webhook, and the time to wait for that is not over. */
function awaitsDelivery(job: JobRecord | PlainJob, since: Time, now: Time): boolean {
  if (!('memo' in job)) return false
  return now < Math.max(since, redeliveryAsked(job) ?? since) + MAX_DELIVERY_WAIT && deliveryPending(job)
}

/** Decides about a due finished job by itself: it becomes stale, is removed, or waits for its delivery. */
export function retire(job: JobRecord | PlainJob, now: Time): Change[] {
  if (becomesStale(job, now) || job.deleteAt === undefined || job.deleteAt > now) {
    return [move(job, job.state, { why: 'stale', set: { stale: true } })]
  }
  const since = expiry(job, {}) ?? job.deleteAt
  if (!awaitsDelivery(job, since, now)) return [move(job, 'removed')]
  return [postpone(job, Math.min(15 * MIN_POSTPONE, Math.max(1000, now - since)), now)] // soon at first, then at growing intervals
}

/**
 * Postpones the last job of a chain, which may not be removed before the jobs ahead of it: soon at first, then by
 * growing intervals.
 */
export function postponeLast(job: JobHeader, now: Time): Move {
  const age = now - (job.finishedAt ?? now)
  return postpone(job, Math.min(MAX_POSTPONE, Math.max(MIN_POSTPONE, age)), now)
}

/** Removes jobs together; with them a signal that was never sent. */
export function removeFamily(jobs: readonly JobHeader[]): Change[] {
  return jobs.flatMap(removeAndRelease)
}

/** Postpones what a finished job is due for, because it has to wait for other jobs. */
export function postpone(job: JobHeader, by: Millis, now: Time): Move {
  return move(job, job.state, {
    set: {
      ...(job.staleAt !== undefined && job.staleAt <= now && !job.stale && { staleIn: by }),
      ...(job.deleteAt !== undefined && job.deleteAt <= now && { deleteIn: by }),
    },
  })
}

/** By how long to postpone a job that may only be removed together with another. */
export function keepFor(other: JobHeader, own: JobHeader, rule: KeepByState, now: Time): Millis {
  const at = expiry(other, rule) ?? now + (keepOf(own, rule)?.deleteAfter ?? 0)
  return Math.min(MAX_POSTPONE, Math.max(MIN_POSTPONE, at - now))
}

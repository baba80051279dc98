// job/retention.ts: when a finished job may go, and what it waits for before it does.
import type { Change, Move } from './change.js'
import type { FinishedState, JobHeader, JobRecord, Keep, KeepByState, Millis, Time } from './job.js'
import { isFinished } from './job.js'
import { leave, move } from './moves.js'
import { deliveryPending, redeliveryAsked } from './webhooks.js'

const DAY: Millis = 86_400_000

/** How long finished jobs are kept of which nobody said how long: 7 days, or 30 if they failed. */
export const DEFAULT_KEEP: Readonly<Record<FinishedState, Keep>> = {
  completed: { deleteAfter: 7 * DAY, byQueue: true },
  failed: { deleteAfter: 30 * DAY, byQueue: true },
  cancelled: { deleteAfter: 7 * DAY, byQueue: true },
}

/** A delivery that is lost keeps its job no longer than this. */
const DELIVERY_WAITS: Millis = DAY

/** The least and the most that a removal is put off at a time. */
const LEAST_PUT_OFF: Millis = 60_000
const MOST_PUT_OFF: Millis = DAY

/**
 * The header of a job that time moves without a look at its payload. Only `isPlain` makes one of a header, so that a rule that needs
 * more does not compile without the record.
 */
export type PlainJob = JobHeader & { readonly kind: 'job' }

/**
 * Whether time moves a job without a look at its payload. Schedules and signals hold what they are due for, and the memo
 * of a finished job with a webhook says whether its end has been delivered.
 */
export function isPlain(job: JobHeader): job is PlainJob {
  return job.kind === 'job' && !(isFinished(job.state) && job.extras?.webhook !== undefined)
}

/** What says how long a finished job is kept: its own stamp, or else the rule of its queue. */
function keepOf(job: JobHeader, rule: KeepByState): Keep | undefined {
  return isFinished(job.state) ? (job.keep?.[job.state] ?? rule[job.state]) : undefined
}

/** When a finished job may go, by its own age; undefined: never, or it has not finished. */
function expiry(job: JobHeader, rule: KeepByState): Time | undefined {
  const deleteAfter = keepOf(job, rule)?.deleteAfter
  return deleteAfter === undefined || job.finishedAt === undefined ? undefined : job.finishedAt + deleteAfter
}

/** Whether a finished job is past the age at which it may go, and nobody has yet to tell of its end. */
export function expired(job: JobRecord | PlainJob, rule: KeepByState, now: Time): boolean {
  const at = expiry(job, rule)
  return at !== undefined && at <= now && !awaitsDelivery(job, at, now)
}

/** Whether nobody has said of this job how long it is kept in the state it ended in. */
export function isUnstamped(job: JobHeader): boolean {
  return isFinished(job.state) && job.keep?.[job.state] === undefined && job.deleteAt === undefined
}

/** Whether a due job is to be removed by the retention of its queue, rather than by what was said of it alone. */
export function isRetired(job: JobHeader, now: Time): boolean {
  return isByQueue(job) && job.deleteAt !== undefined && job.deleteAt <= now && !becomesStale(job, now)
}

/** Whether the retention of its queue says how long a finished job is kept. */
export function isByQueue(job: JobHeader): boolean {
  return isFinished(job.state) && job.keep?.[job.state]?.byQueue === true
}

/** Whether a finished job is to be marked as stale: that comes first, however late anybody looks. */
function becomesStale(job: JobHeader, now: Time): boolean {
  return job.staleAt !== undefined && !job.stale && job.staleAt <= now
}

/** Whether the end of a job has yet to be told to its webhook, and that is not to be waited for in vain. */
function awaitsDelivery(job: JobRecord | PlainJob, since: Time, now: Time): boolean {
  if (!('memo' in job)) return false
  return now < Math.max(since, redeliveryAsked(job) ?? since) + DELIVERY_WAITS && deliveryPending(job)
}

/** What time does to a finished job that is due, by itself: it becomes stale, goes, or waits for its delivery. */
export function retire(job: JobRecord | PlainJob, now: Time): Change[] {
  if (becomesStale(job, now) || job.deleteAt === undefined || job.deleteAt > now) {
    return [move(job, job.state, { why: 'stale', set: { stale: true } })]
  }
  const since = expiry(job, {}) ?? job.deleteAt
  if (!awaitsDelivery(job, since, now)) return [move(job, 'removed')]
  return [putOff(job, Math.min(15 * LEAST_PUT_OFF, Math.max(1000, now - since)), now)] // soon at first, then less and less
}

/** The last job of a chain, which may not go before those ahead of it, is looked at again: soon at first, then less and less. */
export function putOffEnd(job: JobHeader, now: Time): Move {
  const age = now - (job.finishedAt ?? now)
  return putOff(job, Math.min(MOST_PUT_OFF, Math.max(LEAST_PUT_OFF, age)), now)
}

/** Jobs go together; a signal that never came goes with them. */
export function retired(jobs: readonly JobHeader[]): Change[] {
  return jobs.flatMap(leave)
}

/** A finished job is looked at again later: what it was due for has to wait for others. */
export function putOff(job: JobHeader, by: Millis, now: Time): Move {
  return move(job, job.state, {
    set: {
      ...(job.staleAt !== undefined && job.staleAt <= now && !job.stale && { staleIn: by }),
      ...(job.deleteAt !== undefined && job.deleteAt <= now && { deleteIn: by }),
    },
  })
}

/** For how long a job is put off that may go only together with another. */
export function waitFor(other: JobHeader, own: JobHeader, rule: KeepByState, now: Time): Millis {
  const at = expiry(other, rule) ?? now + (keepOf(own, rule)?.deleteAfter ?? 0)
  return Math.min(MOST_PUT_OFF, Math.max(LEAST_PUT_OFF, at - now))
}

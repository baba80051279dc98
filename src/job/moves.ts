// job/moves.ts: the changes that the rules of `lifecycle.ts` return: a move, an end, a release, the end of a lost lease.
import { move } from './change.js'
import type { Change, MoveFields, Put, Release } from './change.js'
import { withFingerprint } from './errors/fingerprint.js'
import { pauseKey } from './holds.js'
import type { NewHold } from './holds.js'
import type { ErrorInfo, FinishedState, JobHeader, Keep, Millis } from './job.js'
import { isFinished } from './job.js'
import { deliveryOfEnd } from './webhooks.js'

/** How a job ends, besides its state. */
interface EndOptions {
  readonly held?: boolean
  readonly reaps?: true
  readonly closesBroken?: boolean
  readonly chainGoesOn?: boolean
  readonly next?: readonly Change[]
}

/** The plain settlement, by far the most frequent. */
export const HELD: EndOptions = { held: true }

/**
 * Ends a job: its move, its follow-up jobs, the delivery to its webhook, the release of its dependents, and its removal
 * if it is not kept.
 */
export function end(job: JobHeader, to: FinishedState, set: MoveFields, options: EndOptions = NO_OPTIONS): Change[] {
  const keep = kept(job.keep?.[to])
  // Fast path with the result of the general code below: this runs once for every job.
  const delivery = job.extras === undefined ? undefined : deliveryOfEnd(job, to, set)
  if (keep === undefined && options === HELD && delivery === undefined)
    return [move(job, to, { held: true, set }), release(job, to)]
  const changes: Change[] = [
    move(job, to, {
      held: options.held ?? false,
      reaps: options.reaps,
      closesBroken: options.closesBroken ?? false,
      set: keep === undefined ? set : keeping(set, keep),
    }),
  ]
  if (options.next !== undefined && options.next.length > 0) changes.push(...options.next)
  if (delivery !== undefined) changes.push(delivery)
  if (!options.chainGoesOn) changes.push(release(job, to))
  // A job whose end has yet to be delivered waits for that; and the last of a chain waits for the jobs before it, which
  // upkeep checks.
  const goes = keep?.deleteAfter === 0 && keep.byQueue === undefined && delivery === undefined
  if (goes && (!isContinuation(job) || options.chainGoesOn === true))
    changes.push({ ...move(job, 'removed'), fence: job.fence + 1 })
  return changes
}

/**
 * Whether other jobs of its chain came before a job. The last job of a chain holds the chain's outcome, so one that
 * continues a chain is removed with those before it or after them: else the chain would seem to have ended with the one
 * before.
 */
export function isContinuation({ chainIndex }: Pick<JobHeader, 'chainIndex'>): boolean {
  return chainIndex > 0
}

/** Returns the rule if it limits how long the job is kept; undefined for a job kept for ever. */
function kept(keep: Keep | undefined): Keep | undefined {
  return keep === undefined || (keep.staleAfter === undefined && keep.deleteAfter === undefined) ? undefined : keep
}

/** Spelled out, as in `create`: with retention, this runs once for every job. */
function keeping(set: MoveFields, keep: Keep): MoveFields {
  return {
    stalls: set.stalls,
    result: set.result,
    error: set.error,
    ...(set.memo !== undefined && { memo: set.memo }),
    staleIn: keep.staleAfter,
    deleteIn: keep.deleteAfter,
  }
}

/** Adds a hold to a queue. */
export function holding(queue: string, hold: NewHold): Put {
  return { kind: 'put', key: pauseKey(queue), value: undefined, version: 0, events: [], hold }
}

/** Removes a job; its dependents learn that it will not end well. */
export function removeAndRelease(job: JobHeader): Change[] {
  return isFinished(job.state) ? [move(job, 'removed')] : [move(job, 'removed'), release(job, 'cancelled')]
}

/** Ends the chain of a job. */
function release(job: JobHeader, outcome: FinishedState): Release {
  return { kind: 'release', chain: job.chainId, outcome }
}

const NO_OPTIONS: EndOptions = {}

/** Decides about a job whose lease has expired: its worker is dead, frozen or disconnected. */
export function leaseExpired(job: JobHeader): Change[] {
  return stalled(job, true, `The lease of worker ${job.worker} ran out`)
}

/** What to do with a job whose worker is known to be dead. */
export type Recovery = 'retry' | 'fail'

/**
 * Decides about a job whose worker is known to be dead although its lease still runs: retried as if the lease had
 * expired, or failed for good, because it is unknown how far its handler came. The caller must give up the lease as
 * well, because it counts against limits until then.
 */
export function orphaned(job: JobHeader, recovery: Recovery): Change[] {
  const died = `Worker ${job.worker}, which held it, has died`
  if (recovery === 'retry') return stalled(job, undefined, died)
  const message = `${died} in attempt ${job.attempt} of ${job.attempts}.`
  const error = withFingerprint({ name: 'MillraceError', code: 'WORKER_DIED', message })
  return end(job, 'failed', { error, stalls: job.stalls + 1 })
}

/** Grants another attempt, if there is one left; a prefetched job gets its attempt back. */
function stalled(job: JobHeader, reaps: true | undefined, why: string): Change[] {
  const stalls = job.stalls + 1
  if (job.ahead) return [move(job, 'waiting', { reaps, why: 'stalled', set: { stalls, attempt: job.attempt - 1 } })]
  if (job.attempt < job.attempts) return [move(job, 'waiting', { reaps, why: 'stalled', set: { stalls } })]
  const error: ErrorInfo = {
    name: 'MillraceError',
    code: 'JOB_EXHAUSTED',
    message: `${why} in attempt ${job.attempt} of ${job.attempts}: exhausted.`,
  }
  return end(job, 'failed', { error: withFingerprint(error), stalls }, reaps && { reaps })
}

/** How a group ends an attempt at a job without success. */
export type Failure =
  /** The job has failed for good. */
  | { readonly kind: 'failed'; readonly error: ErrorInfo }
  /** The handler threw, and the job runs again after that time. */
  | { readonly kind: 'retrying'; readonly error: ErrorInfo; readonly in: Millis }
  /** The lease holder is gone, and the job may run again at once. */
  | { readonly kind: 'stalled' }

/**
 * The failure that a group writes to a job; undefined if it writes none. A job that gets its attempt back, as a
 * prefetched one does, has not failed.
 */
export function failureIn({ id }: Pick<JobHeader, 'id'>, group: readonly Change[]): Failure | undefined {
  for (const change of group) {
    if (change.kind !== 'move' || change.id !== id) continue
    const { to, why, set } = change
    if (why === 'stalled') return set.attempt === undefined ? { kind: 'stalled' } : undefined
    if (set.error === undefined || set.error === null) return undefined
    if (to === 'failed') return { kind: 'failed', error: set.error }
    if (why !== 'retrying') return undefined
    return { kind: 'retrying', error: set.error, in: set.run && 'in' in set.run ? set.run.in : 0 }
  }
  return undefined
}

// job/lifecycle.ts: every rule about how a job may change. Pure: no clock, no ids, no I/O.
import { create, move, NOTHING } from './change.js'
import type { Change, Insert, Move, MoveFields, NewEdge, NewJob, Note, When } from './change.js'
import type { Edge, ErrorInfo, JobHeader, JobRecord, JobState, Millis, StepResult, Time } from './job.js'
import { withFingerprint } from './errors/fingerprint.js'
import { isFinished, jobStates, unfinishedStates } from './job.js'
import type { NewHold } from './holds.js'
import type { JsonText } from './values/json.js'
import { dependencyBroke } from './dependencies.js'
import { backlogStates } from './limits.js'
import { end, HELD, holding, leaseExpired, removeAndRelease } from './moves.js'
import { copyOf } from './record.js'
import { retire } from './retention.js'
import type { PlainJob } from './retention.js'
import { SCHEDULE, holdsOverlapKey, rescheduled, firingOf, readSpec, writeProgress } from './schedules/schedule.js'
import type { RefusedRuns, RunSpec } from './schedules/schedule.js'
import { SIGNAL, signalDue } from './signals.js'

// How a job begins is a rule as well; it is written in change.ts, because the rules of deliveries and signals need it.
export { create }
export type { JobSpec } from './change.js'

/** How one attempt ended. */
export type Outcome =
  /**
   * The handler returned. `also` is committed with the settlement: jobs to insert, and drops that make room for them. A
   * `continuation` is the chain's next job.
   */
  | {
      readonly kind: 'returned'
      readonly result: JsonText | undefined
      readonly also: readonly Change[]
      readonly continuation?: Insert
    }
  /** The handler threw, or ran past its timeout. */
  | { readonly kind: 'threw'; readonly error: ErrorInfo; readonly retryable: boolean; readonly retryIn: Millis }
  /** The handler asked to run again later; these steps are kept for that attempt. */
  | {
      readonly kind: 'snoozed'
      readonly for: Millis | { readonly at: Time }
      readonly steps?: readonly StepResult[]
    }
  /**
   * The handler asked to run again when these chains have ended; `also` is inserted before. `signal`: it waits for a
   * signal.
   */
  | {
      readonly kind: 'waits'
      readonly for: readonly NewEdge[]
      readonly also: readonly Change[]
      readonly signal?: true
    }
  /** The handler asked that no such job starts for a time, its own included. */
  | { readonly kind: 'held'; readonly hold: NewHold }
  /** A shutdown ended it, or the job was prefetched and never started. */
  | { readonly kind: 'interrupted' }

/** An attempt that ended well. */
export type Returned = Extract<Outcome, { kind: 'returned' }>

/** A request that the rules deny, with a reason for people to read. */
export interface Denied {
  readonly denied: string
}

/** The decision on a request: changes (none if the job is already in that state), or a denial. */
export type Decision = readonly Change[] | Denied

/** Whether the rules denied a request. */
export function isDenied(decision: Decision): decision is Denied {
  return 'denied' in decision
}

/**
 * The states in which a request can change a job, and whose jobs an operation on many of them visits. An update that is
 * not for a single job is only for those that have not started.
 */
export const statesFor = {
  cancel: unfinishedStates,
  retry: ['failed', 'cancelled'],
  promote: ['delayed'],
  update: backlogStates,
  remove: jobStates,
  recover: ['active'],
} as const satisfies Record<string, readonly JobState[]>

/**
 * A new job whose date may have passed already: the store decides by its own clock whether it is delayed, as if its
 * last dependency had just ended.
 */
export function waitingIfDue(insert: Insert): Insert {
  return { ...insert, job: { ...insert.job, state: 'waiting-children' } }
}

/**
 * The state that a job enters when its last dependency has ended well: `delayed` if its date is still ahead, else
 * `waiting`.
 */
export function released(runAt: Time | undefined, now: Time): 'waiting' | 'delayed' {
  return runAt !== undefined && runAt > now ? 'delayed' : 'waiting'
}

/**
 * Gives a job without open dependencies a time to run at: it is delayed until then, or waits if that time has come.
 * Only the store knows whether a date has passed: it decides as if the job's last dependency had just ended.
 */
function delayUntil(
  job: JobRecord,
  how: Pick<Partial<Move>, 'held' | 'why'> & { readonly set: MoveFields & { readonly run: When } },
): Move {
  const { run } = how.set
  if ('at' in run) return move(job, 'waiting-children', how)
  return run.in > 0 ? move(job, 'delayed', how) : move(job, 'waiting', { ...how, place: 'new' })
}

/** A waiting job as it is after a claim. */
export function claimed(job: JobRecord, by: { worker: string; lease: Millis; ahead: boolean; now: Time }): JobRecord {
  const next = copyOf(job)
  next.state = 'active'
  next.fence++
  next.attempt++
  next.worker = by.worker
  next.leaseUntil = next.dueAt = by.now + by.lease
  next.ahead = by.ahead
  next.startedAt = by.now
  return next
}

/** Whether a lease can be renewed. One that has expired can, until its job is moved. */
export function mayRenew({ state, fence }: JobRecord, leaseFence: number): boolean {
  return state === 'active' && fence === leaseFence
}

/** A leased job as it is after a renewal. Once its handler has started, it no longer counts as prefetched. */
export function renewed(job: JobRecord, { until, started }: { until: Time; started: boolean }): JobRecord {
  const next = copyOf(job)
  next.leaseUntil = next.dueAt = until
  if (started) next.ahead = false
  return next
}

/** Whether a waiting job may be prefetched. Only one that loses nothing if the worker dies before it starts. */
export function mayLeaseAhead(job: Pick<JobRecord, 'attempts' | 'stalls'>): boolean {
  return job.attempts > 1 && job.stalls === 0
}

/**
 * When a job expires unless it is started before; undefined: never. A job that was claimed counts as started until its
 * attempt is given back; one that slept or waited in its handler has begun its work, and no longer expires.
 */
function expiryOf({ attempt, expiresAt }: Pick<JobRecord, 'attempt' | 'expiresAt'>): Time | undefined {
  return attempt > 0 ? undefined : expiresAt
}

/** Whether a job that is not active has expired: it is never claimed. */
export function hasExpired(job: Pick<JobRecord, 'attempt' | 'expiresAt'>, now: Time): boolean {
  const at = expiryOf(job)
  return at !== undefined && at <= now
}

/** The error of a job that expired. */
const EXPIRED: ErrorInfo = Object.freeze({
  name: 'MillraceError',
  code: 'JOB_EXPIRED',
  message: 'The job was not started before it expired.',
})

/** When a job is next due, derived from its other times; undefined when nothing happens to it by time alone. */
export function dueAt(job: JobRecord): Time | undefined {
  switch (job.state) {
    case 'delayed':
      return earliest(job.runAt, expiryOf(job))
    case 'active':
      return job.leaseUntil
    case 'waiting-children':
      return earliest(job.brokenAt, expiryOf(job))
    case 'waiting':
      return expiryOf(job)
    default:
      if (job.stale) return job.deleteAt
      return earliest(job.staleAt, job.deleteAt)
  }
}

function earliest(a: Time | undefined, b: Time | undefined): Time | undefined {
  if (a === undefined) return b
  return b === undefined ? a : Math.min(a, b)
}

/** Has a job no longer expire, if it would: its handler has begun its work. */
function unexpiring({ expiresAt }: JobRecord): Pick<MoveFields, 'expires'> | undefined {
  return expiresAt === undefined ? undefined : { expires: null }
}

/**
 * Decides what an outcome does to its job. The group is fenced: it is applied only if the job was not moved since its
 * claim, and then whole, so that no job ends without its follow-up jobs.
 */
export function settle(job: JobRecord, outcome: Outcome): Change[] {
  switch (outcome.kind) {
    case 'returned': {
      const { also, continuation } = outcome
      const set = outcome.result === undefined ? NOTHING : { result: outcome.result }
      if (also.length === 0 && continuation === undefined) return end(job, 'completed', set, HELD)
      const next = continuation === undefined ? also : [...also, continuation]
      return end(job, 'completed', set, { held: true, chainGoesOn: continuation !== undefined, next })
    }
    case 'threw':
      if (outcome.retryable && job.attempt < job.attempts) {
        const run = { in: outcome.retryIn }
        return [delayUntil(job, { held: true, why: 'retrying', set: { run, error: withFingerprint(outcome.error) } })]
      }
      return end(job, 'failed', { error: withFingerprint(outcome.error) }, HELD)
    case 'snoozed': {
      const run = typeof outcome.for === 'number' ? { in: outcome.for } : outcome.for
      const snooze = delayUntil(job, { held: true, set: { run, attempt: job.attempt - 1, ...unexpiring(job) } })
      return outcome.steps === undefined ? [snooze] : [note(job, { steps: outcome.steps }), snooze]
    }
    case 'waits': {
      const set = { attempt: job.attempt - 1, ...unexpiring(job) }
      return [...outcome.also, { ...move(job, 'waiting-children', { held: true, set }), waitsFor: outcome.for }]
    }
    case 'held': // in its old place, where the hold keeps it
      return [move(job, 'waiting', { held: true, set: { attempt: job.attempt - 1 } }), holding(job.queue, outcome.hold)]
    case 'interrupted': // a shutdown is not the job's fault: the job gets the attempt back
      return [move(job, 'waiting', { held: true, set: { attempt: job.attempt - 1 } })]
  }
}

/**
 * Makes a new job the next of another's chain, and a child of the same parent. A run of a schedule is over when its
 * chain is: the next job takes over the dedup key that prevents the next run.
 */
export function continueChain(job: JobRecord, { job: next, edges }: Insert): Insert {
  const { chainId, parentId } = job
  const dedup = holdsOverlapKey(job) ? job.dedup : next.dedup
  return { kind: 'insert', job: { ...next, chainId, chainIndex: job.chainIndex + 1, parentId, dedup }, edges }
}

/**
 * Completes any unfinished job without a return of its handler: an approval, a callback. A worker that is running it
 * learns that it was completed elsewhere.
 */
export function complete(job: JobRecord, { result, also, continuation }: Returned): Decision {
  if (isFinished(job.state)) return { denied: `is ${job.state}; only an unfinished job can be completed` }
  if (job.kind === SCHEDULE) return NO_JOB
  // Writes nothing about its phases: its handler may be writing them at this moment. `phasesOf` goes by the worker.
  return end(job, 'completed', result === undefined ? NOTHING : { result }, {
    closesBroken: job.brokenAt !== undefined,
    chainGoesOn: continuation !== undefined,
    next: continuation === undefined ? also : [...also, continuation],
  })
}

/**
 * Fails any unfinished job for good without its handler: a caller knows that it cannot end well. A worker that is
 * running it learns that it was ended elsewhere. A finished job stays as it is.
 */
export function fail(job: JobRecord, error: ErrorInfo): Decision {
  if (isFinished(job.state)) return { denied: `is ${job.state}; only an unfinished job can be failed` }
  if (job.kind === SCHEDULE) return NO_JOB
  return end(job, 'failed', { error: withFingerprint(error) }, { closesBroken: job.brokenAt !== undefined })
}

/**
 * Changes nothing, but is refused unless the job is unchanged since it was read (and its lease is held, for a call by a
 * worker), and locks the job until the transaction ends.
 */
export function lock(job: JobRecord, held: boolean): Note {
  return { kind: 'note', id: job.id, fence: job.fence, held }
}

/**
 * Decides what happens to a job whose `dueAt` has come; its header is enough where `isPlain` returns true. `edges` are
 * its dependencies, needed where one of them broke; `owned` is, for a signal, whether its job is in the store.
 */
export function due(job: JobRecord | PlainJob, now: Time, edges: readonly Edge[] = [], owned = true): Change[] {
  if (job.dueAt === undefined || job.dueAt > now) return []
  if (job.kind === SIGNAL) return signalDue(job, owned)
  if (job.state !== 'active' && !isFinished(job.state) && hasExpired(job, now)) return expire(job)
  switch (job.state) {
    case 'delayed':
      return job.kind === SCHEDULE ? fireSchedule(job, now) : [move(job, 'waiting', { place: 'new' })]
    case 'active':
      return leaseExpired(job)
    case 'waiting-children':
      return dependencyBroke(job, edges)
    case 'waiting':
      return []
    default:
      return retire(job, now)
  }
}

/**
 * Fires a due schedule: inserts its runs and sets its next time, in one group, so that no time is lost or doubled by a
 * crash. The schedule's own move is the first change, so that of several concurrent callers all but one are refused by
 * its fence. If the store refuses the group because of its runs, the caller sends one without those that were
 * `refused`: only its end stops a schedule.
 */
export function fireSchedule(
  job: JobRecord,
  now: Time,
  refused?: RefusedRuns,
  unfinished?: readonly JobRecord[],
): Change[] {
  const { runs, cancels, after, missed, next, progress } = firingOf(job, now, refused, unfinished)
  const { key, run: pattern } = readSpec(job)
  const before = cancels.flatMap((run) => endOf(run, `Schedule '${key}' made its next run, with overlap: 'cancel'.`))
  const added = [...before, ...runs.map((run) => insertRun(run, after))]
  const result = writeProgress(progress)
  const moves =
    next === undefined
      ? end(job, 'completed', { result }, { next: added })
      : [move(job, 'delayed', { set: { run: { at: next }, result } }), ...added]
  if (missed === undefined) return moves
  const { at: scheduledAt, ...rest } = missed
  const about = JSON.stringify({ name: pattern.name, key, scheduledAt, ...rest })
  const event = { type: 'schedule-missed', about } as const
  return [{ kind: 'note', id: job.id, fence: job.fence, held: false, events: [event] }, ...moves]
}

/** The insert of a run of a schedule, which waits until these chains have ended, in whatever way. */
export function insertRun(run: RunSpec, after: readonly string[]): Insert {
  const insert = create({ ...run, edges: after.map((on) => ({ on, policy: 'ignore' })) })
  return run.run === undefined ? insert : waitingIfDue(insert)
}

/** Cancels an unfinished job for a reason. */
function endOf(job: JobRecord, reason: string): readonly Change[] {
  const decision = cancel(job, reason)
  return isDenied(decision) ? [] : decision
}

/** Changes an existing schedule to the new definition, for times to come; the same definition changes nothing. */
export function reschedule(job: JobRecord, by: NewJob, now: Time): Decision {
  const changed = rescheduled(job, by.data, now)
  if (changed === undefined) return []
  if (changed.next === undefined) return { denied: 'has no time left to run at: its end is over' }
  const set = { data: by.data ?? null, result: writeProgress(changed.progress), run: { at: changed.next } }
  return changed.ended ? end(job, 'completed', set) : [move(job, 'delayed', { set })]
}

/** Cancels any unfinished job, at once and only once, with the reason if one is given. A finished job stays as it is. */
export function cancel(job: JobHeader, reason?: string): Decision {
  if (job.kind === SCHEDULE) return NO_JOB
  const set = reason === undefined ? {} : { error: { name: CANCELLED_FOR, message: reason, code: 'JOB_CANCELLED' } }
  return isFinished(job.state) ? [] : end(job, 'cancelled', set, { closesBroken: job.brokenAt !== undefined })
}

/** The name of the error that holds the reason of a cancellation. No handler fails with it. */
const CANCELLED_FOR = 'JobCancelled'

/** The reason of a cancellation, read from the job's error, where the caller gave one. */
export function cancelReason(error: ErrorInfo | null | undefined): string | undefined {
  return error?.name === CANCELLED_FOR ? error.message : undefined
}

/** Cancels a job that has not started, to make room in its group for a newer one. */
export function drop(job: JobHeader): Change[] {
  const { queue, name } = job
  const changes = end(job, 'cancelled', { error: droppedFrom(job.group) }, { closesBroken: job.brokenAt !== undefined })
  return changes.map((change) => (change.kind === 'move' ? { ...change, dropped: { queue, name } } : change))
}

/** Cancels a job that was not started in time. */
function expire(job: JobHeader): Change[] {
  return end(job, 'cancelled', { error: EXPIRED }, { closesBroken: job.brokenAt !== undefined })
}

/** Whether the error of a cancelled job is the reason why it was cancelled; else it is that of an earlier attempt. */
export function isCancelReason(error: ErrorInfo | undefined): boolean {
  return cancelReason(error) !== undefined || error?.code === EXPIRED.code
}

/** The error of a job that was dropped from its group. */
export function droppedFrom(group: string | undefined): ErrorInfo {
  return {
    name: 'MillraceError',
    code: 'JOB_DROPPED',
    message: `Group '${group}' was at the bound of its backlog, and a newer job took the place of this one.`,
  }
}

/**
 * Starts a failed or cancelled job over, with all its attempts: at once, or after a delay; but not before its
 * dependencies have ended, in the state they have when this is applied.
 */
export function retry(job: JobRecord, after: Millis = 0): Decision {
  if (job.kind === SCHEDULE) return NO_JOB
  if (!isIn(statesFor.retry, job.state)) {
    return { denied: `is ${job.state}; only a failed or cancelled job can be retried` }
  }
  const run = after > 0 ? { in: after } : null
  // Started over by hand: the caller wants the job to run.
  const set = { attempt: 0, stalls: 0, error: null, run, ...unexpiring(job) }
  return [{ ...move(job, 'waiting-children', { place: 'new', set }), reopens: true }]
}

/** Lets a delayed job run now. */
export function promote(job: JobRecord): Decision {
  if (job.kind === SCHEDULE) return NO_JOB
  if (job.state === 'waiting') return []
  if (!isIn(statesFor.promote, job.state)) return { denied: `is ${job.state}; only a delayed job can be promoted` }
  return [move(job, 'waiting', { place: 'new' })]
}

/** What can be changed of an existing job. */
export interface Edit {
  readonly data?: JsonText | null
  readonly priority?: number
  readonly run?: When
}

/** Changes a job before it runs. An active job uses new data in its next attempt, a failed one in its retry. */
export function update(job: JobRecord, edit: Edit): Decision {
  if (job.kind === SCHEDULE) return NO_JOB
  const onlyData = edit.priority === undefined && edit.run === undefined
  if (job.state === 'completed') return { denied: 'is completed; add a new job instead' }
  if (onlyData && edit.data === undefined) return []
  if (job.state === 'active') {
    if (!onlyData) return { denied: 'is active; only its data can be changed now' }
    if (edit.data === undefined) return []
    return [{ kind: 'note', id: job.id, fence: job.fence, held: false, data: edit.data }]
  }
  if (isFinished(job.state)) {
    if (!onlyData) return { denied: `is ${job.state}; retry it first, then change when it runs` }
    return [move(job, job.state, { set: edit })]
  }
  const { run } = edit
  if (run === undefined || job.state === 'waiting-children') return [move(job, job.state, { set: edit })]
  return [delayUntil(job, { set: { ...edit, run } })]
}

/** Removes a job in any state; the jobs that depend on it learn that it will not end well. */
export function remove(job: JobHeader): Decision {
  if (job.kind !== SCHEDULE || isFinished(job.state)) return removeAndRelease(job)
  // The first move raises the fence: upkeep that has read this schedule must not move a later one of the same key.
  return [...end(job, 'cancelled', NOTHING), { ...move(job, 'removed'), fence: job.fence + 1 }]
}

/**
 * Gives an existing job that has not started the data, priority, time and expiry of a newer one with the same dedup
 * key; one that has started stays as it is.
 */
export function replace(standing: JobRecord, by: NewJob): Decision {
  if (standing.attempt > 0 || standing.state === 'active' || isFinished(standing.state)) return []
  const { run, expires } = by
  const expiry = expires === undefined ? unexpiring(standing) : { expires }
  const set = { data: by.data ?? null, priority: by.priority, ...expiry }
  if (standing.state === 'waiting-children') {
    return [move(standing, 'waiting-children', { set: { ...set, run: run ?? null } })]
  }
  if (run !== undefined) return [delayUntil(standing, { set: { ...set, run } })]
  const place = standing.state === 'delayed' ? 'new' : 'old'
  return [move(standing, 'waiting', { place, set: { ...set, run: null } })]
}

/** What a worker writes about a job while it runs. */
export type NoteFields = Pick<Note, 'progress' | 'about' | 'logs' | 'memo' | 'steps' | 'events'>

/** The note that writes this, fenced by the worker's lease. */
export function note(job: JobRecord, fields: NoteFields): Note {
  return { kind: 'note', id: job.id, fence: job.fence, held: true, ...fields }
}

function isIn(states: readonly JobState[], state: JobState): boolean {
  return states.includes(state)
}

const NO_JOB: Denied = {
  denied: 'is a schedule, not a job: queue.unschedule ends it, queue.schedule changes it, and its runs are jobs',
}

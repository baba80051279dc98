// job/lifecycle.ts: every rule about how a job may change. Pure: no clock, no ids, no I/O.
import type { Change, Insert, Move, MoveFields, NewEdge, NewJob, Note, When } from './change.js'
import type {
  Edge,
  EdgePolicy,
  ErrorInfo,
  FailurePolicy,
  JobHeader,
  JobRecord,
  Millis,
  StepResult,
  Time,
} from './job.js'
import { isFinished } from './job.js'
import type { JsonText } from './json.js'
import { end, HELD, leave, move, NOTHING } from './moves.js'
import { copyOf } from './record.js'
import { retire } from './retention.js'
import type { PlainJob } from './retention.js'
import { SCHEDULE, keepsRunsAway, rescheduled, firingOf, writeProgress } from './schedule.js'
import type { RefusedRuns } from './schedule.js'
import { SIGNAL, signalDue } from './signals.js'
import { leaseRanOut } from './stalls.js'

/** How one attempt ended. */
export type Outcome =
  /** The handler returned. `also` is inserted (and dropped for that) with the settlement; a `continuation` carries the chain on. */
  | {
      readonly kind: 'returned'
      readonly result: JsonText | undefined
      readonly also: readonly Change[]
      readonly continuation?: Insert
    }
  /** The handler threw, or ran past its timeout. */
  | { readonly kind: 'threw'; readonly error: ErrorInfo; readonly retryable: boolean; readonly retryIn: Millis }
  /** The handler asked to run again later, and then remembers these steps. */
  | {
      readonly kind: 'snoozed'
      readonly for: Millis | { readonly at: Time }
      readonly steps?: readonly StepResult[]
    }
  /** The handler asked to run again when these have ended; `also` is inserted before. `signal`: it is one that it waits for. */
  | {
      readonly kind: 'waits'
      readonly for: readonly NewEdge[]
      readonly also: readonly Change[]
      readonly signal?: true
    }
  /** A shutdown ended it, or it was leased ahead and never started. */
  | { readonly kind: 'interrupted' }

/** An attempt that ended well. */
export type Returned = Extract<Outcome, { kind: 'returned' }>

/** A wish that the rules do not allow, with the reason for people. */
export interface Denied {
  readonly denied: string
}

/** What a wish comes to: changes (none, when it is so already), or a denial. */
export type Decision = readonly Change[] | Denied

/** Whether the rules denied a wish. */
export function isDenied(decision: Decision): decision is Denied {
  return 'denied' in decision
}

/** What a new job is made of, besides what follows from the rules. */
export type JobSpec = Omit<NewJob, 'state' | 'chainId' | 'chainIndex'> & { readonly edges: readonly NewEdge[] }

/** A job enters `waiting-children` with dependencies, `delayed` with a time to run at, and `waiting` otherwise. */
export function create(spec: JobSpec, chain?: { readonly id: string; readonly index: number }): Insert {
  const { edges } = spec
  return {
    kind: 'insert',
    // Spelled out: this runs for every job added, and a spread costs more than all the rest of it.
    job: {
      id: spec.id,
      kind: spec.kind,
      queue: spec.queue,
      name: spec.name,
      version: spec.version,
      data: spec.data,
      state: edges.length > 0 ? 'waiting-children' : spec.run === undefined ? 'waiting' : 'delayed',
      priority: spec.priority,
      lifo: spec.lifo,
      attempts: spec.attempts,
      backoff: spec.backoff,
      timeout: spec.timeout,
      run: spec.run,
      chainId: chain?.id ?? spec.id,
      chainIndex: chain?.index ?? 0,
      parentId: spec.parentId,
      group: spec.group,
      dedup: spec.dedup,
      keep: spec.keep,
      extras: spec.extras,
    },
    edges,
  }
}

/** A new job whose date may have come already: the store decides by its own clock whether it is delayed, as if dependencies had ended. */
export function perhapsDue(insert: Insert): Insert {
  return { ...insert, job: { ...insert.job, state: 'waiting-children' } }
}

/** Where a job goes whose last dependency has ended well: on, or into its delay if its date is still ahead. */
export function released(runAt: Time | undefined, now: Time): 'waiting' | 'delayed' {
  return runAt !== undefined && runAt > now ? 'delayed' : 'waiting'
}

/**
 * Gives a job that waits for no other a time to run at: it is delayed until then, or waits if that has come. Only the store
 * knows whether a date has: it decides as if the job's last dependency had just ended.
 */
function put(
  job: JobRecord,
  how: Pick<Partial<Move>, 'held' | 'why'> & { readonly set: MoveFields & { readonly run: When } },
): Move {
  const { run } = how.set
  if ('at' in run) return move(job, 'waiting-children', how)
  return run.in > 0 ? move(job, 'delayed', how) : move(job, 'waiting', { ...how, place: 'new' })
}

/** What a claim makes of a waiting job. */
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

/** Whether a waiting job may be leased before there is a slot for it: only one that a dead worker can cost nothing. */
export function mayLeaseAhead(job: Pick<JobRecord, 'attempts' | 'stalls'>): boolean {
  return job.attempts > 1 && job.stalls === 0
}

/** When a job next wants attention, by its other times; undefined when nothing can happen to it by time alone. */
export function dueAt(job: JobRecord): Time | undefined {
  switch (job.state) {
    case 'delayed':
      return job.runAt
    case 'active':
      return job.leaseUntil
    case 'waiting-children':
      return job.brokenAt
    case 'waiting':
      return undefined
    default:
      if (job.stale || job.staleAt === undefined) return job.deleteAt
      return job.deleteAt === undefined ? job.staleAt : Math.min(job.staleAt, job.deleteAt)
  }
}

/**
 * Decides what an outcome does to its job. The group is fenced: it lands only if nobody moved the job since it was
 * claimed, and then whole, so no job ends without its successors.
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
        return [put(job, { held: true, why: 'retrying', set: { run, error: outcome.error } })]
      }
      return end(job, 'failed', { error: outcome.error }, HELD)
    case 'snoozed': {
      const run = typeof outcome.for === 'number' ? { in: outcome.for } : outcome.for
      const snooze = put(job, { held: true, set: { run, attempt: job.attempt - 1 } })
      return outcome.steps === undefined ? [snooze] : [note(job, { steps: outcome.steps }), snooze]
    }
    case 'waits': {
      const set = { attempt: job.attempt - 1 }
      return [...outcome.also, { ...move(job, 'waiting-children', { held: true, set }), waitsFor: outcome.for }]
    }
    case 'interrupted': // our shutdown is not the job's fault: it gets the attempt back
      return [move(job, 'waiting', { held: true, set: { attempt: job.attempt - 1 } })]
  }
}

/**
 * Makes a new job the next of another's chain, and a child of the same parent. A run of a schedule is over when its chain is:
 * the key that keeps the next run away goes on with it.
 */
export function continueChain(job: JobRecord, { job: next, edges }: Insert): Insert {
  const { chainId, parentId } = job
  const dedup = keepsRunsAway(job) ? job.dedup : next.dedup
  return { kind: 'insert', job: { ...next, chainId, chainIndex: job.chainIndex + 1, parentId, dedup }, edges }
}

/**
 * Ends any unfinished job well, though no handler of it returned: an approval, a callback. Whoever is running it learns
 * that it was completed elsewhere.
 */
export function complete(job: JobRecord, { result, also, continuation }: Returned): Decision {
  if (isFinished(job.state)) return { denied: `is ${job.state}; only an unfinished job can be completed` }
  if (job.kind === SCHEDULE) return NO_JOB
  // Of its phases nothing is written: its handler may be writing of them at this moment. `phasesOf` goes by the worker.
  return end(job, 'completed', result === undefined ? NOTHING : { result }, {
    closesBroken: job.brokenAt !== undefined,
    chainGoesOn: continuation !== undefined,
    next: continuation === undefined ? also : [...also, continuation],
  })
}

/**
 * Changes nothing, but is refused unless the job stands as it was seen (and is held, where a worker asks), and keeps
 * others from it until the transaction ends.
 */
export function lock(job: JobRecord, held: boolean): Note {
  return { kind: 'note', id: job.id, fence: job.fence, held }
}

/**
 * What time does to a job whose `dueAt` has come; its header is enough where `isPlain` says so. `edges` are its dependencies, needed where one of them broke; `owned` says
 * of a signal whether its job is in the store.
 */
export function due(job: JobRecord | PlainJob, now: Time, edges: readonly Edge[] = [], owned = true): Change[] {
  if (job.dueAt === undefined || job.dueAt > now) return []
  if (job.kind === SIGNAL) return signalDue(job, owned)
  switch (job.state) {
    case 'delayed':
      return job.kind === SCHEDULE ? fireSchedule(job, now) : [move(job, 'waiting', { place: 'new' })]
    case 'active':
      return leaseRanOut(job)
    case 'waiting-children':
      return dependencyBroke(job, edges)
    case 'waiting':
      return []
    default:
      return retire(job, now)
  }
}

/**
 * What a due schedule does: its runs and its own next time, in one group, so that no time is lost or doubled whoever dies.
 * Its own move is the first, so that of many who come together all but one are refused by its fence. A group that the
 * store refuses for its runs is followed by one without those that were `refused`: nothing stops a schedule but its end.
 */
export function fireSchedule(job: JobRecord, now: Time, refused?: RefusedRuns): Change[] {
  const { runs, next, progress } = firingOf(job, now, refused)
  const inserts = runs.map((run) => create({ ...run, edges: [] }))
  const result = writeProgress(progress)
  if (next === undefined) return end(job, 'completed', { result }, { next: inserts })
  return [move(job, 'delayed', { set: { run: { at: next }, result } }), ...inserts]
}

/** Makes a standing schedule what a new one says, for times to come; the same one changes nothing. */
export function reschedule(job: JobRecord, by: NewJob, now: Time): Decision {
  const changed = rescheduled(job, by.data, now)
  if (changed === undefined) return []
  if (changed.next === undefined) return { denied: 'has no time left to run at: its end is over' }
  const set = { data: by.data ?? null, result: writeProgress(changed.progress), run: { at: changed.next } }
  return changed.ended ? end(job, 'completed', set) : [move(job, 'delayed', { set })]
}

function dependencyBroke(job: JobHeader, edges: readonly Edge[]): Change[] {
  const broken = edges.filter((edge) => edge.state === 'broken')
  // What is cancelled first breaks its own edge, and with the last one the job is decided upon.
  if (broken.length === 0 || unneeded(edges).length > 0) return []
  if (broken.some((edge) => onFailure(edge.policy) === 'remove')) {
    if (job.chainIndex === 0) return leave(job)
    // It goes with its chain, which would seem to have ended well without it.
    return end(job, 'cancelled', { deleteIn: 0 }, { closesBroken: true })
  }
  const fatal = broken.find((edge) => onFailure(edge.policy) === 'fail')
  if (fatal === undefined) return [move(job, 'waiting-children', { closesBroken: true })]
  const error: ErrorInfo = {
    name: 'MillraceError',
    code: 'DEPENDENCY_FAILED',
    message: `Job ${fatal.chain}, which this one waits for, failed or was cancelled.`,
  }
  return end(job, 'failed', { error }, { closesBroken: true })
}

/** What the failure of a dependency means. */
function onFailure(policy: EdgePolicy): FailurePolicy {
  return (goesWithAll(policy) ? policy.slice(0, -'-all'.length) : policy) as FailurePolicy
}

/** Whether a job goes on without a dependency that ended badly. */
export function ignoresFailure(policy: EdgePolicy): boolean {
  return onFailure(policy) === 'ignore'
}

function goesWithAll(policy: EdgePolicy): boolean {
  return policy.endsWith('-all')
}

/** The chains that are to be cancelled before a job is decided upon that fails, or is removed, with all behind its edges. */
export function unneeded(edges: readonly Edge[]): readonly string[] {
  const ends = edges.some(
    ({ state, policy }) => state === 'broken' && goesWithAll(policy) && onFailure(policy) !== 'ignore',
  )
  return ends
    ? edges.filter(({ state, policy }) => state === 'open' && goesWithAll(policy)).map(({ chain }) => chain)
    : []
}

/** Cancels any unfinished job, at once and once, for a reason if one is given. A finished one stays as it is. */
export function cancel(job: JobHeader, reason?: string): Decision {
  if (job.kind === SCHEDULE) return NO_JOB
  const set = reason === undefined ? {} : { error: { name: CANCELLED_FOR, message: reason, code: 'JOB_CANCELLED' } }
  return isFinished(job.state) ? [] : end(job, 'cancelled', set, { closesBroken: job.brokenAt !== undefined })
}

/** The name of the error that holds why a job was cancelled. No handler fails with it. */
const CANCELLED_FOR = 'JobCancelled'

/** Why a job was cancelled, by its error, where whoever cancelled it gave a reason. */
export function cancelReason(error: ErrorInfo | null | undefined): string | undefined {
  return error?.name === CANCELLED_FOR ? error.message : undefined
}

/** Ends a job that has not begun, for a newer one of its group, which has no room for both. */
export function drop(job: JobHeader): Change[] {
  return end(job, 'cancelled', { error: droppedFrom(job.group) }, { closesBroken: job.brokenAt !== undefined })
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
 * Starts a failed or cancelled job over, with all its attempts: at once, or after a while; but not before its dependencies
 * have ended, as they stand when it lands.
 */
export function retry(job: JobRecord, after: Millis = 0): Decision {
  if (job.kind === SCHEDULE) return NO_JOB
  if (job.state !== 'failed' && job.state !== 'cancelled') {
    return { denied: `is ${job.state}; only a failed or cancelled job can be retried` }
  }
  const run = after > 0 ? { in: after } : null
  const set = { attempt: 0, stalls: 0, error: null, run }
  return [{ ...move(job, 'waiting-children', { place: 'new', set }), reopens: true }]
}

/** Lets a delayed job run now. */
export function promote(job: JobRecord): Decision {
  if (job.kind === SCHEDULE) return NO_JOB
  if (job.state === 'waiting') return []
  if (job.state !== 'delayed') return { denied: `is ${job.state}; only a delayed job can be promoted` }
  return [move(job, 'waiting', { place: 'new' })]
}

/** What can be changed of a job that was added. */
export interface Edit {
  readonly data?: JsonText | null
  readonly priority?: number
  readonly run?: When
}

/** Changes a job before it runs. A running one takes new data for its next attempt, a failed one for its retry. */
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
  return [put(job, { set: { ...edit, run } })]
}

/** Removes a job whatever its state; whoever waits for it learns that it will not end well. */
export function remove(job: JobHeader): Decision {
  if (job.kind !== SCHEDULE || isFinished(job.state)) return leave(job)
  // Its fence goes up first: upkeep that has looked at it must not move one of the same key that comes after it.
  return [...end(job, 'cancelled', NOTHING), { ...move(job, 'removed'), fence: job.fence + 1 }]
}

/** Gives a standing job that has not started what a newer one with the same dedup key says; a started one stands. */
export function replace(standing: JobRecord, by: NewJob): Decision {
  if (standing.attempt > 0 || standing.state === 'active' || isFinished(standing.state)) return []
  const set = { data: by.data ?? null, priority: by.priority }
  const { run } = by
  if (standing.state === 'waiting-children') {
    return [move(standing, 'waiting-children', { set: { ...set, run: run ?? null } })]
  }
  if (run !== undefined) return [put(standing, { set: { ...set, run } })]
  const place = standing.state === 'delayed' ? 'new' : 'old'
  return [move(standing, 'waiting', { place, set: { ...set, run: null } })]
}

/** What a worker has to say about a job while it runs. */
export type NoteFields = Pick<Note, 'progress' | 'about' | 'logs' | 'memo' | 'steps' | 'tells'>

/** What a worker writes about a job while it runs. */
export function note(job: JobRecord, said: NoteFields): Note {
  return { kind: 'note', id: job.id, fence: job.fence, held: true, ...said }
}

const NO_JOB: Denied = {
  denied: 'is a schedule, not a job: queue.unschedule ends it, queue.schedule changes it, and its runs are jobs',
}

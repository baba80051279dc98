// stores/apply.ts: what a change makes of a record. Pure, and the same for every store that applies changes in this process.
import type { Move, NewJob, When } from '../job/change.js'
import { ERRORS_KEPT, isFinished } from '../job/job.js'
import type {
  AttemptError,
  Edge,
  EdgeError,
  EdgeState,
  ErrorInfo,
  FinishedState,
  JobRecord,
  JobState,
  Time,
} from '../job/job.js'
import { cancelReason, dueAt, ignoresFailure, released } from '../job/lifecycle.js'
import { copyOf } from '../job/record.js'
import type { Draft } from '../job/record.js'
import type { Group, Revoked } from '../store/store.js'

/** Gives fresh places: behind all others, or, for a job that goes last in first out, before them. */
export interface Orders {
  next(lifo: boolean): number
  /** The turn of a job with a group. */
  turn(queue: string, group: string, priority: number): number
}

/** Orders that were givenOrder already. */
export function givenOrder(ord: number): Orders {
  return { next: () => ord, turn: () => ord }
}

/** A fresh place for a job that begins to wait. */
function placeOf(job: JobRecord, places: Orders): number {
  return job.group === undefined ? places.next(job.ord < 0) : places.turn(job.queue, job.group, job.priority)
}

const NO_EDGES: readonly Edge[] = Object.freeze([])
const NO_ERRORS: readonly AttemptError[] = Object.freeze([])

/** A moment by the clock of this commit. */
function momentOf(when: When, now: Time): Time {
  return 'at' in when ? when.at : now + when.in
}

/** Whether a job's lease has run out, so that it may be taken from its holder. */
export function leaseIsOver(job: JobRecord, now: Time): boolean {
  return job.state === 'active' && job.leaseUntil !== undefined && job.leaseUntil <= now
}

/** Whether a change made for `fence`, and for the lease if `held`, may be applied to a job. */
export function mayChange(job: JobRecord, fence: number, held: boolean, now: Time): boolean {
  return (
    job.fence === fence && (!held || (job.state === 'active' && job.leaseUntil !== undefined && job.leaseUntil > now))
  )
}

/** Whether a move takes a finished job back into work, so that it needs its dedup key again. */
export function revives(from: JobState, to: Move['to']): boolean {
  return to !== 'removed' && isFinished(from) && !isFinished(to)
}

/**
 * Whether a group may be refused after some of it was applied, so that its steps must be written down. A single change
 * cannot, nor can a settlement: a release is never refused, and neither is the removal of a job just finished.
 */
export function mayRollBack(group: Group): boolean {
  const first = group[0]
  for (let at = 1; at < group.length; at++) {
    const change = group[at]!
    if (change.kind === 'release') continue
    const follows =
      change.kind === 'move' &&
      change.to === 'removed' &&
      !change.held &&
      !change.reaps &&
      first?.kind === 'move' &&
      first.to !== 'removed' &&
      isFinished(first.to) &&
      first.id === change.id &&
      first.fence + 1 === change.fence
    if (!follows || at !== group.length - 1) return true
  }
  return false
}

/** The last job of a chain that has ended, as far as edges want to know of it. */
export type ChainEnd = Pick<JobRecord, 'result' | 'error'> & { readonly state: FinishedState }

/** What the end of a chain, if it has come, makes of an edge. */
export function edgeTo(end: ChainEnd | undefined): Pick<Edge, 'state' | 'result' | 'error'> {
  if (end === undefined) return OPEN
  if (end.state === 'completed') return { state: 'ended', result: end.result, error: undefined }
  return { state: 'broken', result: undefined, error: end.state === 'failed' ? edgeError(end.error) : undefined }
}

/** How a chain stands: as its last job ended, unfinished (undefined), or without any job. */
export type ChainState = ChainEnd | 'gone' | undefined

/** What opening a job's edges again comes to: the edges that change, and what that makes of the job. */
export interface Reopened<E extends Edge> {
  readonly turned: readonly { readonly edge: E; readonly to: Pick<Edge, 'state' | 'result' | 'error'> }[]
  /** By how much the number of its pending dependencies changes. */
  readonly pending: number
  /** Whether it has broken edges still. */
  readonly broken: boolean
}

/** Opens again the edges of a job that ended badly, as their chains stand; or answers the chain that keeps it from starting over. */
export function reopen<E extends Edge>(
  edges: readonly E[],
  stateOf: (chain: string) => ChainState,
): Reopened<E> | string {
  const turned: { edge: E; to: Pick<Edge, 'state' | 'result' | 'error'> }[] = []
  let pending = 0
  let broken = false
  for (const edge of edges) {
    if (edge.state !== 'broken' && edge.state !== 'closed') continue
    const stands = stateOf(edge.chain)
    if (stands === 'gone' || (stands !== undefined && stands.state !== 'completed')) {
      if (!ignoresFailure(edge.policy)) return edge.chain
      if (edge.state === 'broken') broken = true
      continue
    }
    const to = edgeTo(stands)
    turned.push({ edge, to })
    pending += (to.state === 'open' ? 1 : 0) - (edge.state === 'broken' ? 1 : 0)
  }
  return { turned, pending, broken }
}

const OPEN = { state: 'open', result: undefined, error: undefined } as const

/** An error without its stack. */
function edgeError(error: ErrorInfo | undefined): EdgeError | undefined {
  if (error === undefined) return undefined
  const { name, message, code } = error
  return code === undefined ? { name, message } : { name, message, code }
}

/** The record of a new job; `edges` are the states of its dependencies, if it has any. */
export function createRecord(
  job: NewJob,
  edges: readonly EdgeState[] | undefined,
  places: Orders,
  fence: number,
  now: Time,
): Draft {
  let pending = 0
  let broken = false
  if (edges !== undefined) {
    for (const edge of edges) {
      if (edge !== 'ended') pending++
      if (edge === 'broken') broken = true
    }
  }
  let runAt = job.run === undefined ? undefined : momentOf(job.run, now)
  let state: JobState = job.state
  if (pending > 0) state = 'waiting-children'
  else if (edges !== undefined || state === 'waiting-children') state = released(runAt, now)
  if (state === 'waiting') runAt = undefined

  const record: Draft = {
    id: job.id,
    kind: job.kind,
    queue: job.queue,
    name: job.name,
    version: job.version,
    data: job.data,
    state,
    priority: job.priority,
    ord: job.group === undefined ? places.next(job.lifo) : 0,
    fence,
    attempt: 0,
    attempts: job.attempts,
    backoff: job.backoff,
    timeout: job.timeout,
    worker: undefined,
    runAt,
    leaseUntil: undefined,
    brokenAt: broken ? now : undefined,
    staleAt: undefined,
    stale: false,
    deleteAt: undefined,
    dueAt: undefined,
    chainId: job.chainId,
    chainIndex: job.chainIndex,
    parentId: job.parentId,
    group: job.group,
    pending,
    stalls: 0,
    ahead: false,
    dedup: job.dedup,
    keep: job.keep,
    extras: job.extras,
    memo: undefined,
    progress: undefined,
    result: undefined,
    error: undefined,
    errors: NO_ERRORS,
    createdAt: now,
    startedAt: undefined,
    finishedAt: undefined,
  }
  if (job.group !== undefined && state === 'waiting') record.ord = placeOf(record, places)
  record.dueAt = dueAt(record)
  return record
}

/** What a move to a state makes of a record; `closed` is the number of broken edges that it decided, `added` are new ones, and `reopened` the old ones. */
export function moveRecord(
  before: JobRecord,
  wanted: JobState,
  { set, place, closesBroken, held }: Move,
  closed: number,
  places: Orders,
  now: Time,
  added: readonly Edge[] = NO_EDGES,
  reopened?: Reopened<Edge>,
): Draft {
  const job = copyOf(before)
  job.fence++
  if (set.attempt !== undefined) job.attempt = set.attempt
  if (set.stalls !== undefined) job.stalls = set.stalls
  if (set.data !== undefined) job.data = set.data ?? undefined
  if (set.priority !== undefined) job.priority = set.priority
  if (set.run !== undefined) job.runAt = set.run === null ? undefined : momentOf(set.run, now)
  if (set.error === null) job.error = undefined
  else if (set.error !== undefined) {
    job.error = set.error
    job.errors = [...before.errors.slice(1 - ERRORS_KEPT), failedAttempt(before, set.error, now)]
  }
  if (closesBroken) {
    job.pending -= closed
    job.brokenAt = undefined
  }
  if (reopened !== undefined) {
    job.pending += reopened.pending
    if (!reopened.broken) job.brokenAt = undefined
  }
  for (const { state } of added) {
    if (state !== 'ended') job.pending++
    if (state === 'broken') job.brokenAt = now
  }

  // Its last dependency may have ended since the move was decided; then nothing would ever wake it.
  const goesOn = wanted === 'waiting-children' && job.pending === 0
  const to = goesOn ? released(job.runAt, now) : wanted
  job.state = to
  const enters = before.state !== to
  if (to === 'waiting') {
    job.runAt = undefined
    // A turn is one among those of its priority.
    const elsewhere = job.group !== undefined && job.priority !== before.priority
    if (enters ? place === 'new' || goesOn || elsewhere : elsewhere) job.ord = placeOf(job, places)
  }
  if (to !== 'active') {
    job.leaseUntil = undefined
    job.ahead = false
    if (!isFinished(to) || (enters && to === 'completed' && !held)) job.worker = undefined
  }

  if (enters && isFinished(before.state)) {
    job.finishedAt = job.staleAt = job.deleteAt = job.result = undefined
    job.stale = false
  }
  if (enters && isFinished(to)) job.finishedAt = now
  if (set.result !== undefined) job.result = set.result
  if (set.memo !== undefined) job.memo = set.memo
  if (set.staleIn !== undefined) job.staleAt = now + set.staleIn
  if (set.deleteIn !== undefined) job.deleteAt = now + set.deleteIn
  if (set.stale) job.stale = true
  job.dueAt = dueAt(job)
  return job
}

/** The entry that an error leaves in the history of a job, made in the attempt that ends with it. */
export function failedAttempt(job: JobRecord, error: ErrorInfo, now: Time): AttemptError {
  return { ...error, fence: job.fence, attempt: job.attempt, at: now }
}

/** Whether the end of a chain changes an edge: open ones, and those that a bad end left behind if this is a good one. */
export function concerns(state: EdgeState, outcome: FinishedState): boolean {
  return state === 'open' || (outcome === 'completed' && state !== 'ended')
}

/**
 * What the end of a chain makes of a job that depends on it, by an edge that was open or broken; `broken`: other edges of
 * it are.
 */
export function notifyDependent(
  before: JobRecord,
  outcome: FinishedState,
  from: EdgeState,
  broken: boolean,
  places: Orders,
  now: Time,
): Draft {
  const waits = before.state === 'waiting-children'
  const job = copyOf(before)
  if (outcome !== 'completed') {
    job.brokenAt = now // kept in whatever state it is: a later retry looks at it
    if (waits) job.fence++
  } else {
    job.pending--
    if (from === 'broken' && !broken) job.brokenAt = undefined
    if (waits && (from === 'broken' || job.pending === 0)) job.fence++
    if (waits && job.pending === 0) {
      job.state = released(job.runAt, now)
      if (job.state === 'waiting') {
        job.runAt = undefined
        job.ord = placeOf(job, places)
      }
    }
  }
  job.dueAt = dueAt(job)
  return job
}

/** What the holder of a lease is notifyDependent when its job is moveRecord by somebody else; `runs`: the lease was not over. */
export function revocation({ to, set }: Move, runs: boolean): Pick<Revoked, 'reason' | 'cancelReason'> {
  if (to === 'removed') return { reason: to }
  if (to === 'cancelled') {
    const why = cancelReason(set.error)
    return why === undefined ? { reason: to } : { reason: to, cancelReason: why }
  }
  return { reason: to === 'completed' || (to === 'failed' && runs) ? 'completed-elsewhere' : 'lease-lost' }
}

// job/apply.ts: what a change makes of a job record, and of the records that depend on it.
import type { Change, Move, NewJob, When } from './change.js'
import { attemptEnd, withError, withQuietEnd } from './history.js'
import { isFinished } from './job.js'
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
} from './job.js'
import { ignoresFailure } from './dependencies.js'
import { cancelReason, dueAt, released } from './lifecycle.js'
import { copyOf } from './record.js'
import type { Draft } from './record.js'
import { readySince } from './waits.js'

/** Assigns order numbers: after all others, or before them for a LIFO job. */
export interface Orders {
  next(lifo: boolean): number
  /** The fair order of a job with a group. */
  turn(queue: string, group: string, priority: number): number
}

/** Orders that always return an order number that was assigned earlier. */
export function givenOrder(ord: number): Orders {
  return { next: () => ord, turn: () => ord }
}

/** A new order number for a job that starts to wait. */
function nextOrder(job: JobRecord, orders: Orders): number {
  return job.group === undefined ? orders.next(job.ord < 0) : orders.turn(job.queue, job.group, job.priority)
}

const NO_EDGES: readonly Edge[] = Object.freeze([])
const NO_ERRORS: readonly AttemptError[] = Object.freeze([])

/** Resolves a relative time against the clock of this commit. */
function timeOf(when: When, now: Time): Time {
  return 'at' in when ? when.at : now + when.in
}

/** Whether a job's lease has expired, so that it may be revoked. */
export function leaseIsOver(job: JobRecord, now: Time): boolean {
  return job.state === 'active' && job.leaseUntil !== undefined && job.leaseUntil <= now
}

/** Whether a change decided on `fence` may be applied to a job. `held` requires a lease that has not expired as well. */
export function mayChange(job: JobRecord, fence: number, held: boolean, now: Time): boolean {
  return (
    job.fence === fence && (!held || (job.state === 'active' && job.leaseUntil !== undefined && job.leaseUntil > now))
  )
}

/** Whether a move takes a finished job back into work, so that the job needs its dedup key again. */
export function revives(from: JobState, to: Move['to']): boolean {
  return to !== 'removed' && isFinished(from) && !isFinished(to)
}

/**
 * Whether a group may be refused after part of it was applied, so that its steps need an undo log. A single change
 * cannot be. A settlement cannot be either: neither a release nor the removal of a job that has just finished is ever
 * refused.
 */
export function mayRollBack(group: readonly Change[]): boolean {
  const first = group[0]
  for (let at = 1; at < group.length; at++) {
    const change = group[at]!
    if (change.kind === 'release') continue
    const removesFinished =
      change.kind === 'move' &&
      change.to === 'removed' &&
      !change.held &&
      !change.reaps &&
      first?.kind === 'move' &&
      first.to !== 'removed' &&
      isFinished(first.to) &&
      first.id === change.id &&
      first.fence + 1 === change.fence
    if (!removesFinished || at !== group.length - 1) return true
  }
  return false
}

/** The last job of a chain that has ended, reduced to the fields that edges copy. */
export type ChainEnd = Pick<JobRecord, 'result' | 'error'> & { readonly state: FinishedState }

/** The state of an edge whose chain has ended like this; `undefined` means that the chain has not ended. */
export function edgeTo(end: ChainEnd | undefined): Pick<Edge, 'state' | 'result' | 'error'> {
  if (end === undefined) return OPEN
  if (end.state === 'completed') return { state: 'ended', result: end.result, error: undefined }
  return { state: 'broken', result: undefined, error: end.state === 'failed' ? edgeError(end.error) : undefined }
}

/** The state of a chain: its last job if it has ended, `undefined` while it is unfinished, `'gone'` if it has no job. */
export type ChainState = ChainEnd | 'gone' | undefined

/** The result of reopening a job's edges: the edges that change, and their effect on the job. */
export interface Reopened<E extends Edge> {
  readonly changed: readonly { readonly edge: E; readonly to: Pick<Edge, 'state' | 'result' | 'error'> }[]
  /** The change in the number of pending dependencies. */
  readonly pending: number
  /** Whether the job still has broken edges. */
  readonly broken: boolean
}

/**
 * Reopens the broken and closed edges of a job according to the current state of their chains. Returns the id of a
 * chain that keeps the job from starting over, if there is one.
 */
export function reopen<E extends Edge>(
  edges: readonly E[],
  stateOf: (chain: string) => ChainState,
): Reopened<E> | string {
  const changed: { edge: E; to: Pick<Edge, 'state' | 'result' | 'error'> }[] = []
  let pending = 0
  let broken = false
  for (const edge of edges) {
    if (edge.state !== 'broken' && edge.state !== 'closed') continue
    const chainState = stateOf(edge.chain)
    if (chainState === 'gone' || (chainState !== undefined && chainState.state !== 'completed')) {
      if (!ignoresFailure(edge.policy)) return edge.chain
      if (edge.state === 'broken') broken = true
      continue
    }
    const to = edgeTo(chainState)
    changed.push({ edge, to })
    pending += (to.state === 'open' ? 1 : 0) - (edge.state === 'broken' ? 1 : 0)
  }
  return { changed, pending, broken }
}

const OPEN = { state: 'open', result: undefined, error: undefined } as const

/** Copies an error without its stack. */
function edgeError(error: ErrorInfo | undefined): EdgeError | undefined {
  if (error === undefined) return undefined
  const { name, message, code } = error
  return code === undefined ? { name, message } : { name, message, code }
}

/** Creates the record of a new job. `edges` are the states of its dependencies, if it has any. */
export function createRecord(
  job: NewJob,
  edges: readonly EdgeState[] | undefined,
  orders: Orders,
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
  let runAt = job.run === undefined ? undefined : timeOf(job.run, now)
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
    ord: job.group === undefined ? orders.next(job.lifo) : 0,
    fence,
    attempt: 0,
    attempts: job.attempts,
    backoff: job.backoff,
    timeout: job.timeout,
    worker: undefined,
    runAt,
    expiresAt: job.expires === undefined ? undefined : timeOf(job.expires, now),
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
    history: undefined,
    createdAt: now,
    startedAt: undefined,
    finishedAt: undefined,
  }
  if (job.group !== undefined && state === 'waiting') record.ord = nextOrder(record, orders)
  record.dueAt = dueAt(record)
  return record
}

/**
 * Applies a move to a record. `closed` is the number of broken edges that the move closes, `added` are its new edges,
 * and `reopened` are the edges that it reopens.
 */
export function moveRecord(
  before: JobRecord,
  wanted: JobState,
  change: Move,
  closed: number,
  orders: Orders,
  now: Time,
  added: readonly Edge[] = NO_EDGES,
  reopened?: Reopened<Edge>,
): Draft {
  const { set, place, closesBroken, held } = change
  const job = copyOf(before)
  job.fence++
  if (set.attempt !== undefined) job.attempt = set.attempt
  if (set.stalls !== undefined) job.stalls = set.stalls
  if (set.data !== undefined) job.data = set.data ?? undefined
  if (set.priority !== undefined) job.priority = set.priority
  if (set.run !== undefined) job.runAt = set.run === null ? undefined : timeOf(set.run, now)
  if (set.expires !== undefined) job.expiresAt = set.expires === null ? undefined : timeOf(set.expires, now)
  const ended = attemptEnd(before, change)
  if (set.error === null) job.error = undefined
  else if (set.error !== undefined) {
    job.error = set.error
    job.errors = withError(before, set.error, ended, job.runAt, now)
  }
  if (ended !== undefined && !set.error) job.history = withQuietEnd(before, ended, job.runAt, now)
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

  // The last dependency may have ended after the move was decided. Nothing else would wake the job then.
  const isReady = wanted === 'waiting-children' && job.pending === 0
  const to = isReady ? released(job.runAt, now) : wanted
  job.state = to
  const enters = before.state !== to
  if (to === 'waiting') {
    job.runAt = enters ? readySince(before.state, job.runAt, now) : before.runAt
    // A fair order is valid within one priority only.
    const newPriority = job.group !== undefined && job.priority !== before.priority
    if (enters ? place === 'new' || isReady || newPriority : newPriority) job.ord = nextOrder(job, orders)
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

/**
 * A record after changes of its own lease holder, as the lease holder can know it: the store's clock and the job's
 * dependents may make a small difference. A job that these changes remove is returned as it was before its removal.
 */
export function afterOwnChanges(before: JobRecord, group: readonly Change[], now: Time): JobRecord {
  let job = before
  for (const change of group) {
    if (change.kind === 'note' && change.id === job.id) {
      const { progress = job.progress, memo = job.memo, data = job.data } = change
      job = { ...copyOf(job), progress, memo, data: data ?? undefined }
    } else if (change.kind === 'move' && change.id === job.id && change.to !== 'removed') {
      job = moveRecord(job, change.to, change, 0, givenOrder(job.ord), now)
    }
  }
  return job
}

/**
 * Whether the end of a chain changes an edge: always if the edge is open, and if the chain completed also if it is
 * broken or closed.
 */
export function affects(state: EdgeState, outcome: FinishedState): boolean {
  return state === 'open' || (outcome === 'completed' && state !== 'ended')
}

/** Whether a job that waits for so many dependencies is released. */
function isReleased(pending: number): boolean {
  return pending === 0
}

/** Whether the end of a chain only takes one from the pending dependencies of a dependent, and changes nothing else. */
export function onlyCountsDown(
  outcome: FinishedState,
  from: EdgeState,
  { pending, dependentState }: { readonly pending: number; readonly dependentState: JobState },
): boolean {
  return (
    outcome === 'completed' && from === 'open' && (!isReleased(pending - 1) || dependentState !== 'waiting-children')
  )
}

/**
 * Applies the end of a chain to a job that depends on it by an edge in state `from` (open or broken). `broken` says
 * whether other edges of the job are broken.
 */
export function notifyDependent(
  before: JobRecord,
  outcome: FinishedState,
  from: EdgeState,
  broken: boolean,
  orders: Orders,
  now: Time,
): Draft {
  const waits = before.state === 'waiting-children'
  const job = copyOf(before)
  if (outcome !== 'completed') {
    job.brokenAt = now // kept in every state, because a later retry reads it
    if (waits) job.fence++
  } else {
    job.pending--
    if (from === 'broken' && !broken) job.brokenAt = undefined
    if (waits && (from === 'broken' || isReleased(job.pending))) job.fence++
    if (waits && isReleased(job.pending)) {
      job.state = released(job.runAt, now)
      if (job.state === 'waiting') {
        job.runAt = readySince('waiting-children', job.runAt, now)
        job.ord = nextOrder(job, orders)
      }
    }
  }
  job.dueAt = dueAt(job)
  return job
}

/** Why a lease was revoked. */
export interface Revocation {
  /** What happened to the job. */
  readonly reason: 'cancelled' | 'removed' | 'completed-elsewhere' | 'lease-lost'
  /** Why it was cancelled (`cancelReason` of the move's error), where a reason was given. */
  readonly cancelReason?: string
}

/**
 * The reason to report to a lease holder whose job another caller moved; `running` says whether the lease was still
 * valid.
 */
export function revocation({ to, set }: Move, running: boolean): Revocation {
  if (to === 'removed') return { reason: to }
  if (to === 'cancelled') {
    const why = cancelReason(set.error)
    return why === undefined ? { reason: to } : { reason: to, cancelReason: why }
  }
  return { reason: to === 'completed' || (to === 'failed' && running) ? 'completed-elsewhere' : 'lease-lost' }
}

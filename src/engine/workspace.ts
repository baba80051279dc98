// engine/workspace.ts: what the engine needs of a store while it applies a batch. A store gives rows and takes rows; the
// engine decides. A workspace gets back only rows, edges and cursors that it returned itself.
import type { Orders, ChainState } from '../job/apply.js'
import type { Move, Note } from '../job/change.js'
import type { Edge, EdgeState, JobRecord, JobState, Time } from '../job/job.js'
import type { Rate, TakenTokens } from '../job/limits.js'
import type { Draft } from '../job/record.js'
import type { Cell, Group, Verdict } from '../store/store.js'
import type { Lifetime } from '../store/tally.js'
import type { Handlers } from './handler-index.js'
import type { Notices, Waiting } from './notices.js'

/** A job that a workspace has found. A write may change its record in place: read what is needed before. */
export interface Stored {
  /** Payloads that changes do not need may be absent: data, memo, progress, and the errors of failed attempts. */
  readonly job: JobRecord
}

/** An edge to a chain, with what its release needs to know of the dependent. */
export interface StoredEdge {
  readonly state: EdgeState
  /** The number of pending dependencies of the dependent, and its state. */
  readonly pending: number
  readonly dependentState: JobState
}

/** The waiting jobs of one queue, name and version, either with or without groups. */
export interface ReadyLane {
  readonly name: string
  readonly version: number
  /** For jobs with a group, which are in fair order. */
  readonly shared: boolean
}

/**
 * Reads the waiting jobs of a lane, or of one group in it, in claim order, without those that have expired (`hasExpired`
 * in job/lifecycle.ts). The other fields are of its first job.
 */
export interface LaneCursor {
  readonly priority: number
  readonly ord: number
  /** Insertion order over all queues. */
  readonly seq: number
  /** The group, if the lane is shared. */
  readonly group: string | undefined
  /** What decides whether the job may be leased ahead. */
  readonly limits: Pick<JobRecord, 'attempts' | 'stalls'>
  /** Reads the job whole. */
  read(): Stored
  /** Moves on to the next job. Returns false if there is none, or if `more` is false and none has been read yet. */
  next(more: boolean): boolean
  /**
   * Skips the first job, because of its group. Returns the cursors that take the place of this one: itself, none, or one
   * per group other than those that are `excluded`.
   */
  skip(excluded: (group: string) => boolean): readonly LaneCursor[]
}

/**
 * Jobs that were claimed through this workspace, as they were claimed. While the fence is the same, such a job differs
 * in its lease and its notes alone, so that its holder's changes need not read it. Writes check fence and lease, and
 * return false if the job has lost its lease.
 */
export interface LeasedRows {
  find(id: string, fence: number): Stored | undefined
  settle(row: Stored, after: Draft, change: Move): boolean
  note(row: Stored, change: Note): boolean
  forget(id: string): void
}

/**
 * Shorter ways to apply the plain cases, many at a time. Each has the same effect as the engine, which applies what they
 * leave.
 */
export interface FastPaths {
  /** Applies the groups from index `from` on, as far as it can. Returns their verdicts. */
  groups(commit: Commit, groups: readonly Group[], from: number): readonly Verdict[]
  /** Applies the inserts of a group from index `from` on, as far as it can. Returns their records. */
  inserts(commit: Commit, group: Group, from: number): readonly JobRecord[]
}

/**
 * Thrown by a workspace for a row, a key or a cell that another open transaction holds: the group, or the renewal, that
 * needs it is refused as `busy`.
 */
export class Busy extends Error {
  override readonly name = 'Busy'
}

/** A commit in progress. */
export interface Commit {
  readonly workspace: Workspace
  /** The store's clock, which is the same for the whole commit. */
  readonly now: Time
  readonly notices: Notices
  readonly fast?: FastPaths
}

/** A commit in progress that can claim. */
export interface ClaimCommit extends Commit {
  readonly workspace: ClaimWorkspace
}

/** The rows of a store during one commit, as far as groups and renewals need them. */
export interface Workspace extends Waiting {
  /** Assigns order numbers. */
  readonly orders: Orders
  /** The highest fence of any job at its removal. New jobs start there, whatever their id. */
  readonly highestFence: number
  readonly leased?: LeasedRows
  /** Any call may throw `Busy`, so that every group may have to be rolled back. Default false. */
  readonly mayBeBusy?: boolean

  /** Marks the state to which `rollbackGroup` returns. Ended by exactly one of the two others. */
  beginGroup(): void
  keepGroup(): void
  rollbackGroup(): void

  /** The job of this id, to be changed. */
  find(id: string): Stored | undefined
  /** The whole record of a job, as a copy. */
  record(id: string): JobRecord | undefined
  /** The record of a job that this commit has inserted, as a copy; `changed`: the job may have been changed since. */
  inserted(job: JobRecord, changed: boolean): JobRecord
  /** Adds a job. Returns undefined, and adds nothing, if its id is taken. */
  insert(job: Draft): Stored | undefined
  /** Replaces the record of a job; `set` are the fields that the change sets, of which payloads must be written. */
  write(row: Stored, after: Draft, set?: Move['set']): void
  /** Removes a job with its edges, logs and steps. */
  remove(row: Stored): void
  /** Writes the data, progress, memo, steps and log lines of a note. */
  note(row: Stored, change: Note): void
  /** Writes a lease as `renewed` does, if `mayRenew` allows it (job/lifecycle.ts). Returns whether it did. */
  renew(id: string, fence: number, until: Time, started: boolean): boolean
  /** Counts something that has happened in the queue of a job. */
  count(row: Stored, what: keyof Lifetime): void

  /** The chain and the name of the job of this id. */
  chainOf(id: string): Pick<JobRecord, 'chainId' | 'name'> | undefined
  chainState(chain: string): ChainState
  /** The chains that a job has edges to. */
  chainsOf(row: Stored): readonly string[]
  /** The edges of a job that are broken or closed. It may return others as well. */
  failedEdges(row: Stored): readonly Edge[]
  /** The edges to a chain that have not ended, in the insertion order of their dependents. */
  edgesOn(chain: string): readonly StoredEdge[]
  dependentOf(edge: StoredEdge): Stored
  /** Adds edges to a job, which has `existing` edges. */
  addEdges(row: Stored, edges: readonly Edge[], existing: number): void
  setEdge(edge: StoredEdge, to: Pick<Edge, 'state' | 'result' | 'error'>): void
  /** Sets edges that `failedEdges` returned. */
  reopenEdges(
    row: Stored,
    changed: readonly { readonly edge: Edge; readonly to: Pick<Edge, 'state' | 'result' | 'error'> }[],
  ): void
  /** Closes the broken edges of a job. Returns how many there were. */
  closeBroken(row: Stored): number
  anyBroken(row: Stored): boolean
  /** Takes one from the pending dependencies of a dependent. */
  countDown(edge: StoredEdge): void

  /** The job that has a dedup key now. */
  keyHolder(key: string): string | undefined
  takeKey(key: string, id: string, until: Time | undefined): void
  /** Frees the key of a job, unless the key has a window. */
  freeKey(key: string, id: string): void
  /** Removes some of the keys whose window is over. */
  sweepKeys(): void

  /** Counts a revoked lease against limits until it ends. */
  addOrphan(row: Stored, lease: Pick<JobRecord, 'fence' | 'worker'>, until: Time): void
  /** Ends a revoked lease. Returns its queue, or undefined if there is no such lease. */
  endOrphan(id: string, fence: number): string | undefined
  /** Ends the revoked leases that have expired. Returns their queues. */
  expireOrphans(): readonly string[]

  cell(key: string): Cell | undefined
  putCell(key: string, cell: Cell | undefined): void
  backlog(queue: string): number
  groupBacklog(queue: string, group: string): number
  /** The oldest job of a group that counts towards its backlog, as a copy. */
  oldestOfGroup(queue: string, group: string): JobRecord | undefined
}

/** The rows of a store during one commit, with its waiting jobs. */
export interface ClaimWorkspace extends Workspace {
  /** The lanes of a queue that have waiting jobs; it may leave out those that nothing handles. */
  readyLanes(queue: string, handlers: Handlers): Iterable<ReadyLane>
  /** Opens a lane of `readyLanes`: one cursor, or, if that is as fast, one per group. `size` jobs may be claimed from it. */
  openLane(lane: ReadyLane, size: number, groupsLimited: boolean): readonly LaneCursor[]
  /** Claims a job that a cursor has read. */
  claim(row: Stored, job: Draft): void
  /** Ends a claim of a worker: what `claim` has not written yet is written. */
  endClaim(worker: string): void
  /** Records that a turn was claimed from a queue. */
  advanceTurn(queue: string, priority: number, turn: number): void
  /** The leases that count against limits: of active jobs, and revoked ones. */
  leasesByName(queue: string): Map<string, number>
  leasesByGroup(queue: string): Map<string, number>
  takenTokens(queue: string, key: string): TakenTokens
  /** Stores the tokens of a rate, of which there is at least one. */
  takeTokens(queue: string, key: string, tokens: TakenTokens, rate: Rate): void
}

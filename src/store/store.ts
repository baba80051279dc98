// store/store.ts: the port. A store applies changes and answers for order, fences, counting dependencies down, dedup
// keys and durability. It decides nothing else: what may happen to a job is in job/lifecycle.ts.
import type { Change, NoteEvent } from '../job/change.js'
import type {
  Edge,
  ErrorInfo,
  JobHeader,
  JobKind,
  JobRecord,
  JobState,
  LogLine,
  Millis,
  MovedJob,
  StepResult,
  Time,
} from '../job/job.js'
import type { JsonText } from '../job/json.js'
import type { Runtime, Stop } from './runtime.js'

/** Changes that land whole or are refused whole, applied in order, each seeing the ones before it. */
export type Group = readonly Change[]

/** Extends a lease, or gives it up. */
export interface Renewal {
  readonly id: string
  readonly fence: number
  /** From now; 0 says that the handler of a job that was taken away has ended, so it stops counting against limits. */
  readonly lease: Millis
  /** Its handler has begun: a job leased ahead is one no longer. */
  readonly started: boolean
}

/** A name that a worker handles. */
export interface Handled {
  /** The job's name; `undefined`: every name not listed otherwise in the same ask. */
  readonly name: string | undefined
  /** The versions it knows; `undefined`: all. */
  readonly versions?: readonly number[]
  /** The lease to give. */
  readonly lease: Millis
}

/** A worker's wish for jobs. */
export interface Ask {
  readonly worker: string
  readonly queues: readonly string[]
  readonly handles: readonly Handled[]
  /** Jobs to start at once. */
  readonly want: number
  /**
   * Further jobs to lease ahead of free slots. Never given: jobs with one attempt, jobs that have stalled before, and
   * jobs under a limit.
   */
  readonly ahead: number
}

/** Everything that was asked for at one moment: one atomic, durable write. */
export interface Batch {
  /** Who sends it. */
  readonly writer: string
  /** Counts up by one for each batch of this writer, from 1. */
  readonly seq: number
  readonly groups: readonly Group[]
  readonly renewals: readonly Renewal[]
  readonly asks: readonly Ask[]
}

/** Why a group was refused. */
export type Why = 'fence' | 'duplicate' | 'missing' | 'broken' | 'full' | 'version' | 'busy'

/** The group is in. */
export interface Landed {
  readonly ok: true
  /** The jobs inserted, as they stand after the group, in order. */
  readonly inserted: readonly JobRecord[]
}

/** What every refusal says. */
interface Refusal {
  readonly ok: false
  /** The job (or the cell's key) over which it was refused. */
  readonly id: string
  readonly cell?: Cell
}

/** Refused because the job was moved since, or its holder's lease has run out; `job` is what stands there now. */
export interface RefusedAsMoved extends Refusal {
  readonly why: 'fence'
  readonly job?: MovedJob
}

/**
 * Refused for another reason:
 *
 * - `duplicate`: the id or the dedup key is taken, by the job `id`; `job` is that job unless it has been removed.
 * - `missing`: no such job.
 * - `broken`: the job cannot start over, because the chain `id` that it depends on stands ended badly or is gone; the first
 *   such chain in the order of its edges.
 * - `full`: the backlog of the queue is at its bound; or that of the job's group, and `job` is the oldest in it.
 * - `version`: the cell has another version; `cell` is what stands there now.
 * - `busy`: somebody's open transaction holds a row; try this group again.
 */
export interface RefusedOtherwise extends Refusal {
  readonly why: Exclude<Why, 'fence'>
  readonly job?: JobRecord
}

/** The group left no trace. */
export type Refused = RefusedAsMoved | RefusedOtherwise

/** What became of a group or a renewal. */
export type Verdict = Landed | Refused

/** The answer to a batch, in the batch's order. */
export interface Receipt {
  readonly writer: string
  readonly seq: number
  /** The store's time of the commit. */
  readonly now: Time
  readonly groups: readonly Verdict[]
  readonly renewals: readonly Verdict[]
  /** For each ask the jobs claimed, in the order in which they should start; those leased ahead come last. */
  readonly asks: readonly (readonly JobRecord[])[]
  /**
   * When to ask again: an ask was given less than there is, because of a rate that lets more through from then on, or because
   * somebody held a waiting job who may release it without a notice.
   */
  readonly again?: Time
}

/** A versioned setting. */
export interface Cell {
  readonly key: string
  readonly value: JsonText
  /** 1 when first written, then up by one with each `Put`. */
  readonly version: number
  /** When it was last written. */
  readonly at: Time
}

/** Which jobs to find. Every field given must match; lists match any of theirs. */
export interface Query {
  readonly queue?: string
  readonly states?: readonly JobState[]
  readonly names?: readonly string[]
  readonly chain?: string
  readonly parent?: string
  readonly group?: string
  readonly kind?: JobKind
  /** Continue after this place. */
  readonly cursor?: string
  /** `oldest` first (by insertion) unless told otherwise. */
  readonly order?: 'oldest' | 'newest'
  /** At most this many, 100 unless told otherwise. */
  readonly limit?: number
  /** At most about this many bytes of text; the job that reaches them is the last of its page. 8 MiB unless told otherwise. */
  readonly bytes?: number
}

/**
 * One page, and where the next begins; no `cursor` when there is none. The cursor alone says whether there is more: a page
 * that is shorter than its limit may have been cut by its bytes.
 */
export interface Page<T> {
  readonly items: readonly T[]
  readonly cursor?: string
}

/** What lies beside a job. `outcomes` are the results and errors of its edges, which come with `edges` alone. */
export type DetailsPart = 'edges' | 'outcomes' | 'dependents' | 'logs' | 'steps' | 'kin'

/** What to read of the things beside jobs. */
export interface DetailsQuery {
  readonly jobs?: readonly string[]
  /** Which parts to read, all of them unless told otherwise. A part that was not asked for is empty, and `kin` is false. */
  readonly parts?: readonly DetailsPart[]
  /** Keys of cells. */
  readonly cells?: readonly string[]
  /** All cells whose keys begin so, in the order of their keys, as far as `bytes` go. */
  readonly cellsUnder?: string
  /** With `cellsUnder`: cells behind this key, as `moreCells` of an answer gave it (default: from the first). */
  readonly cellsAfter?: string
  /** Workers whose revoked leases to list: those that count against limits though their job was moved by somebody else. */
  readonly revokedFrom?: readonly string[]
  /** Which lines of their logs: those behind this place (default: from the first that is kept), and at most so many (default: all). */
  readonly logs?: { readonly after?: number; readonly limit?: number }
  /** Edges behind this place, as `more` of an answer gave it (default: from the first), and at most so many, one at least (default: all). */
  readonly edges?: { readonly after?: number; readonly limit?: number }
  /** Steps behind this place, as `more` of an answer gave it (default: from the first). */
  readonly steps?: { readonly after?: number }
  /** At most about this many bytes of text about jobs, and as many of cells under a prefix. 8 MiB unless told otherwise. */
  readonly bytes?: number
}

/** What lies beside one job. */
export interface JobDetails {
  readonly id: string
  /** What it depends on, in the order given when it was added; with results and errors if `outcomes` are asked for. */
  readonly edges: readonly Edge[]
  /** Who depends on its chain; without results and errors. */
  readonly dependents: readonly Edge[]
  /** In the order in which they were written, the last `LOGS_KEPT` of them, as far as asked for. */
  readonly logs: readonly LogLine[]
  /** What its steps came to, in the order in which they first ended. */
  readonly steps: readonly StepResult[]
  /** Whether there are other jobs of its chain, or children of it. */
  readonly kin: boolean
  /** The lists that were cut by bytes, or edges by their limit, and the place behind which each goes on. */
  readonly more?: { readonly edges?: number; readonly logs?: number; readonly steps?: number }
}

/**
 * The answer to a `DetailsQuery`: jobs in the order asked for (empty where there is no such job), cells by key.
 *
 * A list of edges with outcomes, of logs or of steps is cut where it reaches the bytes asked for, with its first entry in any
 * case. The job with which the answer reaches them is the last one, and those behind it are left out. `readDetails` in
 * store/read-pages.ts reads the rest. So are cells under a prefix, of which `readCells` reads the rest; those asked for by their
 * keys are all there.
 */
export interface Details {
  readonly jobs: readonly JobDetails[]
  readonly cells: readonly Cell[]
  /** Where the cells under a prefix were cut: the key behind which they go on. */
  readonly moreCells?: string
  /** Where `revokedFrom` was given: such leases, at most `REVOKED_LISTED`, neither given up nor over. */
  readonly revoked?: readonly RevokedLease[]
}

/** A lease that counts against limits though its job was moved by somebody else. */
export interface RevokedLease {
  readonly id: string
  /** The fence that the holder had. */
  readonly fence: number
}

/** The most revoked leases that are listed at a time. */
export const REVOKED_LISTED = 500

/** How often each thing has happened in a queue since it was made; never goes down. */
export interface Lifetime {
  readonly added: number
  readonly completed: number
  readonly failed: number
  readonly cancelled: number
  /** By the rules, after a failure; not by hand. */
  readonly retried: number
  readonly stalled: number
}

/** The counts of one queue. */
export interface QueueTally {
  readonly queue: string
  /** Jobs by name and state; names and states without jobs may be absent. Schedules are not counted. */
  readonly names: Readonly<Record<string, Readonly<Partial<Record<JobState, number>>>>>
  /** By name, the leases that count against limits: of active jobs, and of those taken away whose handlers may still run. */
  readonly leases: Readonly<Record<string, number>>
  readonly lifetime: Lifetime
}

/** What wants attention. */
export interface Due {
  /** The store's time. */
  readonly now: Time
  /** Jobs whose `dueAt` has come, the longest due first, without their payloads: `get` reads those that a rule needs. */
  readonly jobs: readonly JobHeader[]
  /** When the next one comes; absent when none is known. */
  readonly next?: Time
}

/** Which jobs `due` looks at. */
export interface DueQuery {
  readonly queues: readonly string[]
  /** Ids to leave out: the jobs running in the asking worker. */
  readonly except: readonly string[]
  readonly limit: number
}

/** The events that a commit announces. */
export type StoreEventType =
  | JobState
  | 'progress'
  | NoteEvent['type']
  | 'retrying'
  | 'stalled'
  | 'stale'
  | 'removed'
  | 'drained'
  | 'paused'
  | 'resumed'
  | 'worker-started'
  | 'worker-stopping'
  | 'worker-stopped'

/** Something that a commit made true. */
export interface StoreEvent {
  /** Its place in the stream. */
  readonly cursor: string
  readonly type: StoreEventType
  /** The job; empty for events of queues and workers. */
  readonly id: string
  /** Its chain, unless it is the first job of that. */
  readonly chain?: string
  readonly queue: string
  /** The job's name; empty where there is none. */
  readonly name: string
  readonly at: Time
  /** Which attempt: of `active`, `completed`, `failed` and `retrying`. */
  readonly attempt?: number
  readonly worker?: string
  readonly runAt?: Time
  readonly result?: JsonText
  readonly progress?: JsonText
  /** What else there is to say: of `progress` with phases, and of what only notes announce. */
  readonly about?: JsonText
  readonly error?: ErrorInfo
}

/** A lease that was taken away from its holder. */
export interface Revoked {
  readonly id: string
  /** The fence that the holder had. */
  readonly fence: number
  readonly worker: string
  readonly reason: 'cancelled' | 'removed' | 'completed-elsewhere' | 'lease-lost'
  /** Why it was cancelled (`cancelReason` of the move's error), where a reason was given. */
  readonly cancelReason?: string
}

/** What a watcher is told after a commit. Hints may come late, twice or not at all; events may not. */
export interface Notice {
  /** Queues in which work became claimable. */
  readonly work: readonly string[]
  /** Times (leases aside) at which something in a queue will be due, sooner than may be known. */
  readonly due: readonly { readonly queue: string; readonly at: Time }[]
  readonly revoked: readonly Revoked[]
  /** Leases may have been taken away of which nothing was or will be told: whoever holds some finds out by renewing them. */
  readonly missed?: true
  /** In order and without gaps; empty for watchers of hints alone. */
  readonly events: readonly StoreEvent[]
  /** Events between the cursor asked for and the first one here are no longer held. */
  readonly gap: boolean
}

/** What to watch. */
export interface WatchOptions {
  /** Events as well as hints; false unless told otherwise. While anybody asks for them, commits record them. */
  readonly events?: boolean
  /** Resume after this cursor; absent: from now on. */
  readonly from?: string
}

/** A user's transaction; what it is depends on the store. */
export type Tx = unknown

/** A key that exists in types alone. */
declare const transactions: unique symbol

/**
 * Where jobs live. Every implementation passes the suite in `millrace/conformance`.
 *
 * Two callers must never be given the same job; nothing is told before it is durable; and a store never decides how a
 * job may change. A lease, a delay or a window is over when its time is at or before the store's clock.
 */
export interface Store<Given = unknown, Taken = Given> {
  /**
   * In types alone: `Given` is what `transact` gives to its work, `Taken` all that may be given as `tx`. Both are `never`
   * where the store has no transactions, and unknown where it is not known which store it is.
   */
  readonly [transactions]?: { readonly given: Given; readonly taken: Taken }

  /** For messages: `memory`, `sqlite`, `postgres`. */
  readonly name: string
  /** What it is able to do. */
  readonly can: {
    readonly transactions: boolean
    readonly share: 'process' | 'machine' | 'network'
    /** Changes to send at a time, and jobs to ask for beyond free slots, where more would hold up the process. Default 500 changes, and any number of jobs. */
    readonly portion?: number
    /** Batches after which a writer goes on under another name, where the row of one that writes again and again grows slow. Default: never. */
    readonly tenure?: number
    /** Batches of different writers are worked on side by side, so that asks need not wait for settlements. Default false. */
    readonly parallel?: boolean
    /** A transaction of its driver may be over before the first turn of the event loop. Default false. */
    readonly synchronous?: boolean
  }
  /** The world it lives in; the system's when absent. Queues and workers on this store live in the same. */
  readonly runtime?: Runtime

  /** Creates or migrates what it needs. Idempotent; every other call waits for it. */
  open(): Promise<void>

  /**
   * One atomic durable write. Groups are applied in order, each whole or not at all, and a refused one does not touch
   * its neighbours; then renewals; asks are answered last and see all of it.
   *
   * The writer is locked first. A batch with the writer's last number again is answered with the same receipt, claimed
   * jobs included, and applies nothing; one with a lower number is refused (`WRITER_BEHIND`). So a caller that did not
   * get an answer can send the batch again, and a late original cannot land after its replay. Whoever wants no more than its
   * claims sends it again with its asks alone: if the original has landed, the answer holds what it claimed; if not, the asks
   * are applied now, and the groups never.
   *
   * A writer that has been silent
   * for ten minutes may be forgotten. What a store writes down to answer a batch again holds no data of jobs, which would outlive them.
   *
   * A new job's fence is above every fence that a removed job of the same id has had, so that a worker that still believes
   * in the old one is refused.
   *
   * A rejected promise means that the outcome is not known, unless the error says otherwise. A batch that is too large for the
   * store is rejected with `DATA_TOO_LARGE`, each time that it is sent, and nothing of it has landed: the caller sends less at once.
   *
   * Claims: of all waiting jobs in the queues and names asked for, those with the lowest `(priority, ord)`; each
   * becomes active with fence and attempt up by one, leased to the worker by the store's clock. What is paused or at
   * its limit is passed over without reading its jobs. Places (`ord`) count through the whole store, and dependents
   * released by one commit get theirs in the order in which they were added.
   *
   * Jobs with a group stand in a line apart, one for each queue, by `(priority, ord, insertion)`; their places are turns
   * (`stores/fair-order.ts`), given when they begin to wait, or wait anew, or with another priority. Of the heads of all lines,
   * the one with the lowest priority goes first, then the one inserted first.
   *
   * An insert is refused for the first of: its id, its dedup key, a missing dependency, a full queue. A dedup key with a
   * window is free when the window is over, whatever became of the job.
   */
  commit(batch: Batch, tx?: Tx): Promise<Receipt>

  /**
   * The jobs with these ids, in this order; undefined where there is none. A store reads large ones in portions: outside of
   * a transaction, not all of them need be as they were at one moment.
   */
  get(ids: readonly string[], tx?: Tx): Promise<readonly (JobRecord | undefined)[]>

  /**
   * Jobs in the order of their insertion. Paging neither skips nor repeats a job that matched all along. A page is cut by
   * its limit and by its bytes, and holds one job at least if there is any.
   */
  find(query: Query, tx?: Tx): Promise<Page<JobRecord>>

  /** Edges, logs and cells. */
  details(query: DetailsQuery, tx?: Tx): Promise<Details>

  /** Counts of the queues named, or of all; a queue never used has none. */
  tally(queues?: readonly string[], tx?: Tx): Promise<readonly QueueTally[]>

  /**
   * What wants attention now, and when to look again: `next` is the earliest time still ahead, of jobs in these queues
   * and not in `except`. A list cut short by `limit` says nothing of what was cut. It reads no payloads, so that due jobs
   * cost the same whatever they hold.
   */
  due(query: DueQuery): Promise<Due>

  /**
   * Calls `listener` after commits, from this process or another that shares the store. A listener never runs inside
   * a commit, is never called after it was stopped, and may throw without harm to others. Commits sent through this
   * store after `watch` returned are told.
   *
   * A subscriber that resumes is given what it missed in pages, each bounded in number and in bytes (one commit may be
   * larger) and in a turn of the event loop of its own. Where that cannot be read there is a gap for this subscriber alone,
   * and no commit fails for it. A read of events that failed is made again. A commit that was under way when watching began
   * is announced, or there is a gap once it has ended.
   *
   * The events held for those who resume are bounded in number and in bytes; the oldest go first.
   *
   * Each change announces its `why`, then the state entered if that is another, with the error of a job that failed or was
   * cancelled for a reason; a claim that leaves a queue without
   * waiting jobs announces `drained`.
   */
  watch(options: WatchOptions, listener: (notice: Notice) => void): Stop

  /**
   * Runs `work` in a transaction, which ends with it: committed if it answers, rolled back if it throws, and then rejects
   * with what was thrown. Given the `tx` of an open one as `within`, it is a savepoint of that. Only stores that can.
   *
   * What `work` was given is of no use once the transaction, or the savepoint, is over: no statement by it reaches the database,
   * not one that was queued or prepared before, neither by itself nor in the next transaction on the same connection. Work that
   * throws while a savepoint inside it is still at work, or is being made, has been broken off, and the same holds for whoever
   * goes on there. A connection whose state is not known is never used again.
   *
   * `commit`, `get`, `find`, `details` and `tally` take such a `tx`, or a transaction that the user has open on the same
   * database. A batch with one carries groups alone; its writer and number mean nothing, since whoever rolls back need
   * not be answered twice. A refused group does not spoil the transaction. What cannot be written to is refused with
   * `INVALID_TRANSACTION`, what is over with `TRANSACTION_ENDED`, what is elsewhere with `OTHER_DATABASE`. Where the
   * driver is synchronous, all is written before the call returns its promise.
   */
  transact?<T>(work: (tx: Given) => Promise<T>, within?: Tx): Promise<T>

  /** Lets go of everything. Idempotent; calls after it are refused with `STORE_CLOSED`. */
  close(): Promise<void>
}

/** What `transact` of a store gives; `never` where it has no transactions. */
export type GivenBy<S extends Store> = NonNullable<S[typeof transactions]>['given']

/** What a store takes as `tx`; `never` where it has no transactions. */
export type TakenBy<S extends Store> = NonNullable<S[typeof transactions]>['taken']

// store/store.ts: the port. A store applies changes and guarantees order, fences, dependency counts, dedup keys and
// durability. It makes no other decision: job/lifecycle.ts decides what may happen to a job.
import type { Revocation } from '../job/apply.js'
import type { StoreEvent } from '../job/events.js'
import type { HoldEnd } from '../job/holds.js'
import type { Edge, ErrorInfo, JobHeader, JobKind, JobRecord, JobState, LogLine, StepResult, Time } from '../job/job.js'
import type { Batch, Cell, Receipt } from './batch.js'
import type { Runtime, Stop } from './runtime.js'
import type { QueueTally, TallyOptions } from './tally.js'

export type {
  Group,
  Renewal,
  Handled,
  Ask,
  Batch,
  Why,
  Landed,
  RefusedAsMoved,
  RefusedOtherwise,
  Refused,
  Verdict,
  Receipt,
  Cell,
} from './batch.js'

/** Which jobs to find. Every field given must match; a list matches any of its values. */
export interface Query {
  /** In this queue. */
  readonly queue?: string
  /** In one of these states. */
  readonly states?: readonly JobState[]
  /** With one of these names. */
  readonly names?: readonly string[]
  /** Of this chain. */
  readonly chain?: string
  /** Children of this job. */
  readonly parent?: string
  /** Of this group. */
  readonly group?: string
  /** Of this kind. */
  readonly kind?: JobKind
  /** With all of these tags. */
  readonly tags?: readonly string[]
  /** With at least one of these tags. */
  readonly anyTag?: readonly string[]
  /** With this worker. */
  readonly worker?: string
  /** With an id that begins with this text. */
  readonly idPrefix?: string
  /** Added in this range. */
  readonly created?: TimeRange
  /** Whose last attempt started in this range. */
  readonly started?: TimeRange
  /** Finished in this range. */
  readonly finished?: TimeRange
  /** Whose last error has this code. */
  readonly errorCode?: string
  /** Whose last error has this fingerprint. */
  readonly fingerprint?: string
  /** Continue after this cursor. */
  readonly cursor?: string
  /**
   * By insertion, `oldest` or `newest` first; or `finished`: only those that failed or were cancelled, by the time they
   * did, the last one first, then by insertion, the newest first. Default `oldest`.
   */
  readonly order?: 'oldest' | 'newest' | 'finished'
  /** At most this many jobs. Default 100. */
  readonly limit?: number
  /** Count the jobs that match instead of reading them: the page has a `count` and no items, and `limit` is not used. */
  readonly count?: true
  /** At most about this many bytes of text; the job that reaches the limit is the last of its page. Default 8 MiB. */
  readonly bytes?: number
}

/** A range of time, open at the end that is absent. */
export interface TimeRange {
  /** At this time or later. */
  readonly from?: Time
  /** Before this time. */
  readonly to?: Time
}

/**
 * One page, and where the next begins; no `cursor` when there is none. Only the cursor shows whether there is more: a
 * page that is shorter than its limit, or empty, may have been cut by its bytes, or by the rows that one call looks at.
 */
export interface Page<T> {
  /** The jobs of the page. */
  readonly items: readonly T[]
  /** Where the next page begins. */
  readonly cursor?: string
  /** How many jobs match, of those that this call looked at; only of a query that counts. */
  readonly count?: number
}

/**
 * The data stored beside a job. `outcomes` are the results and errors of its edges, which are returned only together
 * with `edges`. `related` is whether it has related jobs.
 */
export type DetailsPart = 'edges' | 'outcomes' | 'dependents' | 'logs' | 'steps' | 'related'

/** Which data beside jobs to read, and which cells. */
export interface DetailsQuery {
  /** Ids of jobs. */
  readonly jobs?: readonly string[]
  /** Which parts to read. Default: all. A part that is left out is empty, and `related` is false. */
  readonly parts?: readonly DetailsPart[]
  /** Keys of cells. */
  readonly cells?: readonly string[]
  /** All cells whose keys begin with this prefix, in the order of their keys, up to `bytes`. */
  readonly cellsUnder?: string
  /** With `cellsUnder`: cells after this key, the `moreCells` of an earlier answer. Default: from the first. */
  readonly cellsAfter?: string
  /** Workers whose revoked leases to list: leases that count against limits although another writer moved their job. */
  readonly revokedFrom?: readonly string[]
  /** The failing jobs of a queue, by the fingerprints of their last errors. */
  readonly failures?: FailuresQuery
  /** Log lines after this index (default: from the first that is kept), and at most `limit` of them (default: all). */
  readonly logs?: { readonly after?: number; readonly limit?: number }
  /**
   * Edges after this position, the `more` of an earlier answer (default: from the first), and at most `limit` of them,
   * at least one (default: all).
   */
  readonly edges?: { readonly after?: number; readonly limit?: number }
  /** Steps after this position, the `more` of an earlier answer. Default: from the first. */
  readonly steps?: { readonly after?: number }
  /** At most about this many bytes of text about jobs, and as many of cells under a prefix. Default 8 MiB. */
  readonly bytes?: number
}

/** Which failing jobs to count: those whose last attempt failed, and that have not completed since. */
export interface FailuresQuery {
  /** The queue. */
  readonly queue: string
  /** Fingerprints after this one, in byte order. Default: from the first. */
  readonly after?: string
  /** At most this many fingerprints. */
  readonly limit: number
}

/** The failing jobs of one fingerprint. */
export interface FailureCount {
  /** The fingerprint. */
  readonly fingerprint: string
  /** How many jobs; if `more`, at least so many. */
  readonly count: number
  /** The jobs were not counted to the end. */
  readonly more: boolean
  /** When the job that was added first failed last. */
  readonly first: Time
  /** When the job that was added last failed last. */
  readonly last: Time
  /** That job. */
  readonly id: string
  /** Its name. */
  readonly name: string
  /** Its error. */
  readonly error: ErrorInfo
}

/** The data stored beside one job. */
export interface JobDetails {
  /** The job. */
  readonly id: string
  /** What it depends on, in the order given when it was added; with results and errors if `outcomes` are requested. */
  readonly edges: readonly Edge[]
  /** The edges of jobs that depend on its chain; without results and errors. */
  readonly dependents: readonly Edge[]
  /** In the order in which they were written, the last `LOGS_KEPT` of them, as far as requested. */
  readonly logs: readonly LogLine[]
  /** The results of its steps, in the order in which they first ended. */
  readonly steps: readonly StepResult[]
  /** Whether its chain has other jobs, or the job has children. */
  readonly related: boolean
  /** The lists that were cut by bytes, or edges by their limit, and the position after which each continues. */
  readonly more?: { readonly edges?: number; readonly logs?: number; readonly steps?: number }
}

/**
 * The answer to a `DetailsQuery`: jobs in the order requested (empty where there is no such job), cells by key.
 *
 * A list of edges with outcomes, of logs or of steps is cut where it reaches the requested bytes, but always holds its
 * first entry. The job with which the answer reaches the bytes is the last one, and those after it are left out.
 * `readDetails` in store/read-pages.ts reads the rest. Cells under a prefix are cut likewise, and `readCells` reads the
 * rest; cells requested by their keys are all returned.
 */
export interface Details {
  /** One entry for each job, in the order requested. */
  readonly jobs: readonly JobDetails[]
  /** The cells, by key. */
  readonly cells: readonly Cell[]
  /** Where the cells under a prefix were cut: the key after which they continue. */
  readonly moreCells?: string
  /** Where `revokedFrom` was given: such leases that are neither given up nor expired, at most `REVOKED_LISTED`. */
  readonly revoked?: readonly RevokedLease[]
  /** Where `failures` was given: the fingerprints, in byte order. Each call counts a bounded number of jobs. */
  readonly failures?: readonly FailureCount[]
}

/** A lease that counts against limits although another writer moved its job. */
export interface RevokedLease {
  /** The job. */
  readonly id: string
  /** The fence that the holder had. */
  readonly fence: number
}

/** The most revoked leases that one answer lists. */
export const REVOKED_LISTED = 500

/** What is due. */
export interface Due {
  /** The store's time. */
  readonly now: Time
  /** Jobs whose `dueAt` has come, the longest due first, without their payloads: `get` reads those that a rule needs. */
  readonly jobs: readonly JobHeader[]
  /** When the next job is due; absent when none is known. */
  readonly next?: Time
}

/** Which jobs `due` looks at. */
export interface DueQuery {
  /** The queues to look at. */
  readonly queues: readonly string[]
  /** Ids to leave out: the jobs that the calling worker is running. */
  readonly except: readonly string[]
  /** At most this many jobs. */
  readonly limit: number
}

/** A lease that was revoked. */
export interface Revoked extends Revocation {
  /** The job. */
  readonly id: string
  /** The fence that the holder had. */
  readonly fence: number
  /** The lease holder. */
  readonly worker: string
}

/** What a watcher receives after a commit. Hints may come late, twice or not at all; events may not. */
export interface Notice {
  /** Queues in which work became claimable. */
  readonly work: readonly string[]
  /** Times (except those of leases) at which something in a queue will be due, possibly sooner than the watcher knows. */
  readonly due: readonly { readonly queue: string; readonly at: Time }[]
  /** Leases that this commit revoked. */
  readonly revoked: readonly Revoked[]
  /** Holds that this commit added or extended: what was leased before and has not started is to be handed back. */
  readonly held?: readonly HoldEnd[]
  /** Leases may have been revoked without a notice. Lease holders find out by renewing theirs. */
  readonly missed?: true
  /** In order and without gaps; empty for watchers of hints alone. */
  readonly events: readonly StoreEvent[]
  /** Events between the requested cursor and the first one here are no longer kept. */
  readonly gap: boolean
}

/** What to watch. */
export interface WatchOptions {
  /** Deliver events as well as hints. Default false. Commits record events while any watcher wants them. */
  readonly events?: boolean
  /** Resume after this cursor. Default: from now on. */
  readonly from?: string
}

/** A user transaction; its type depends on the store. */
export type Tx = unknown

/** A key that exists in types only. */
declare const transactions: unique symbol

/**
 * Where jobs are stored. Every implementation passes the suite in `millrace/conformance`.
 *
 * Two callers must never receive the same job; nothing is announced before it is durable; and a store never decides how
 * a job may change. A lease, a delay or a window is over when its time is at or before the store's clock.
 */
export interface Store<Given = unknown, Taken = Given> {
  /**
   * Exists in types only. `Given` is what `transact` passes to its work, `Taken` is everything accepted as `tx`. Both
   * are `never` where the store has no transactions, and unknown where the store's type is not known.
   */
  readonly [transactions]?: { readonly given: Given; readonly taken: Taken }

  /** For messages: `memory`, `sqlite`, `postgres`. */
  readonly name: string
  /** What the store supports. */
  readonly can: {
    readonly transactions: boolean
    readonly share: 'process' | 'machine' | 'network'
    /**
     * Changes to send in one batch, and jobs to claim beyond free slots, where more would block the process. Default
     * 500 changes, and any number of jobs.
     */
    readonly portion?: number
    /**
     * Batches after which a writer changes its name, where a row that is written again and again grows slow. Default:
     * never.
     */
    readonly tenure?: number
    /**
     * The store works on batches of different writers in parallel, so that claims need not wait for settlements.
     * Default false.
     */
    readonly parallel?: boolean
    /** A transaction of its driver may end before the first turn of the event loop. Default false. */
    readonly synchronous?: boolean
    /** `elsewhere`: what is due is handled by whoever serves the store, so that workers on it do no upkeep. Default: by workers. */
    readonly upkeep?: 'elsewhere'
    /**
     * `itself`: a call that gets no answer is sent again by the store, for as long as its settings say, before it fails
     * as `STORE_UNAVAILABLE`. Default: the caller sends it again.
     */
    readonly retries?: 'itself'
  }
  /** What the ids of workers on this store begin with, so that the store can tell whose jobs they hold. Default: nothing. */
  readonly identity?: string
  /** Its clock, timers and randomness; the system's when absent. Queues and workers on this store use the same. */
  readonly runtime?: Runtime

  /** Creates or migrates the schema. Idempotent; every other call waits for it. */
  open(): Promise<void>

  /**
   * One atomic, durable write. Groups are applied in order, each whole or not at all, and a refused group does not
   * affect its neighbours; then leases are renewed; claims come last and see all of it.
   *
   * The store locks the writer first. It answers a batch that repeats the writer's last number with the same receipt,
   * claimed jobs included, and applies nothing; it refuses one with a lower number (`WRITER_BEHIND`). So a caller that
   * got no answer can send the batch again, and a late original cannot be applied after its replay. A caller that wants
   * only its claims sends the batch again with its claims alone: if the original was applied, the answer holds what it
   * claimed; if not, the claims are applied now, and the groups never.
   *
   * A store may forget a writer that has been silent for ten minutes. What a store records in order to answer a batch
   * again holds no data of jobs, because it would outlive them.
   *
   * A new job's fence is above every fence that a removed job of the same id has had, so that a worker that still holds
   * the old one is refused.
   *
   * A rejected promise means that the batch may or may not have been applied, unless the error says otherwise. A batch
   * that is too large for the store is rejected with `DATA_TOO_LARGE`, each time that it is sent, and nothing of it was
   * applied: the caller sends less at once.
   *
   * Claims: of all waiting jobs in the queues and names claimed, those with the lowest `(priority, ord)`; each becomes
   * active with fence and attempt up by one, leased to the worker by the store's clock. What is paused or at its limit
   * is skipped without reading its jobs. Order numbers (`ord`) count through the whole store, and dependents released
   * by one commit get theirs in the order in which they were added.
   *
   * A claim returns at most about 8 MiB of jobs, whatever they hold, and at least one; the job that reaches the limit is
   * the last. Jobs that did not fit stay waiting, and count against no limit.
   *
   * Jobs with a group have a lane of their own, one for each queue, ordered by `(priority, ord, insertion)`; their
   * order numbers are turns (`job/limits.ts`), assigned when they begin to wait, or wait again, or get another
   * priority. Of the heads of all lanes, the one with the lowest priority goes first, then the one inserted first.
   *
   * An insert is refused for the first of: its id, its dedup key, a missing dependency, a full queue. A dedup key with
   * a window is free when the window is over, whatever the state of the job.
   */
  commit(batch: Batch, tx?: Tx): Promise<Receipt>

  /**
   * The jobs with these ids, in this order; undefined where there is none. A store reads large jobs in portions:
   * outside of a transaction, they need not all be as they were at one moment.
   */
  get(ids: readonly string[], tx?: Tx): Promise<readonly (JobRecord | undefined)[]>

  /**
   * Jobs in the order of their insertion. Paging neither skips nor repeats a job that matches throughout. A page is cut
   * by its limit and by its bytes, and holds at least one job if there is any.
   *
   * A query with `tags` or any field after it reads the narrowest index that holds all matches and checks the rest row
   * by row, at most `ROWS_LOOKED` rows a call: its page may be empty although there are more. Where such a query has a
   * range of time, jobs added while the store's clock was off by more than ten minutes may be left out.
   */
  find(query: Query, tx?: Tx): Promise<Page<JobRecord>>

  /** Edges, logs and cells. */
  details(query: DetailsQuery, tx?: Tx): Promise<Details>

  /**
   * Counts of the queues named, or of all; a queue that was never used has none. With `heads` also what stands first in
   * each index, read from there: neither depends on the number of jobs.
   */
  tally(queues?: readonly string[], tx?: Tx, options?: TallyOptions): Promise<readonly QueueTally[]>

  /**
   * What is due now, and when to look again: `next` is the earliest time still ahead, of jobs in these queues and not
   * in `except`. A list cut by `limit` shows nothing of what was cut. The store reads no payloads here, so that due
   * jobs cost the same whatever their size.
   */
  due(query: DueQuery): Promise<Due>

  /**
   * Calls `listener` after commits, from this process or another that shares the store. A listener never runs inside a
   * commit, is never called after it was stopped, and may throw without harm to others. Commits sent through this store
   * after `watch` returned are announced.
   *
   * A subscriber that resumes receives what it missed in pages, each limited in number and in bytes (one commit may be
   * larger) and in a turn of the event loop of its own. Where those events cannot be read there is a gap for this
   * subscriber alone, and no commit fails for it. A failed read of events is retried. A commit that was under way when
   * watching began is announced, or there is a gap once it has ended.
   *
   * The events kept for subscribers that resume are limited in number and in bytes; the oldest are dropped first.
   *
   * Each change announces its `why`, then the state entered if that is another, with the error of a job that failed or
   * was cancelled for a reason; a claim that leaves a queue without waiting jobs announces `drained`.
   */
  watch(options: WatchOptions, listener: (notice: Notice) => void): Stop

  /**
   * Runs `work` in a transaction, which ends with it: it commits if `work` resolves; if `work` throws, it rolls back
   * and rejects with the same error. Given the `tx` of an open transaction as `within`, it is a savepoint of that. Only
   * for stores with `can.transactions`.
   *
   * The `tx` passed to `work` is unusable once the transaction, or the savepoint, is over: no statement through it
   * reaches the database, not even one queued or prepared before, neither by itself nor in the next transaction on the
   * same connection. Work that throws while a savepoint inside it is still running, or is being created, is aborted,
   * and the same holds for code that continues in that savepoint. A connection whose state is not known is never used
   * again.
   *
   * `commit`, `get`, `find`, `details` and `tally` take such a `tx`, or a transaction that the user has open on the
   * same database. A batch with one carries groups alone; its writer and number mean nothing, because a caller that
   * rolls back needs no replay. A refused group does not spoil the transaction. A transaction that cannot be written to
   * is refused with `INVALID_TRANSACTION`, one that is over with `TRANSACTION_ENDED`, one on another database with
   * `OTHER_DATABASE`. Where the driver is synchronous, everything is written before the call returns its promise.
   */
  transact?<T>(work: (tx: Given) => Promise<T>, within?: Tx): Promise<T>

  /** Releases all resources. Idempotent; calls after it are refused with `STORE_CLOSED`. */
  close(): Promise<void>
}

/** A store that `await using` closes; the stores of this package are. */
export type DisposableStore<Given = unknown, Taken = Given> = Store<Given, Taken> & AsyncDisposable

/** A store that a server serves: its upkeep is done there. */
export interface RemoteStore extends DisposableStore<never> {
  /** What the store supports: its upkeep is done elsewhere. */
  readonly can: Store['can'] & { readonly upkeep: 'elsewhere' }
}

/** What `transact` of a store passes to its work; `never` where it has no transactions. */
export type GivenBy<S extends Store> = NonNullable<S[typeof transactions]>['given']

/** What a store accepts as `tx`; `never` where it has no transactions. */
export type TakenBy<S extends Store> = NonNullable<S[typeof transactions]>['taken']

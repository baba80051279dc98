// job/job.ts: the job record, its states, and the data stored beside it, as readonly data.
import type { Backoff } from './retry.js'
import type { JsonText } from './values/json.js'

/** A length of time in milliseconds. */
export type Millis = number

/** A moment, in milliseconds since 1970. */
export type Time = number

/** The states that a job ends in. */
export const finishedStates = ['completed', 'failed', 'cancelled'] as const

/** One of the states that a job ends in. */
export type FinishedState = (typeof finishedStates)[number]

/** The states of a job that has not ended. */
export const unfinishedStates = ['waiting', 'delayed', 'waiting-children', 'active'] as const

/** The states a job can be in. Stale is a date on a finished job, not a state. */
export const jobStates = [...unfinishedStates, ...finishedStates] as const

/** One of the seven states of a job. */
export type JobState = (typeof jobStates)[number]

/**
 * What a row is: work for a handler, a schedule that inserts such work when it is due, or a signal that a job waits
 * for.
 */
export type JobKind = 'job' | 'schedule' | 'signal'

/** A failure as it is stored: JSON, so that it reads the same from every process. */
export interface ErrorInfo {
  /** The error's class name, `'Error'` when it has none. */
  readonly name: string
  /** The error's message. */
  readonly message: string
  /** The error's stable code, where it has one. */
  readonly code?: string
  /** Equal for errors of one cause; of an error that was recorded as a job's failure. See `fingerprint.ts`. */
  readonly fingerprint?: string
  /** The stack, where there was one. */
  readonly stack?: string
  /** The error's `cause`, where it had one. Causes are kept up to 5 deep. */
  readonly cause?: ErrorInfo
  /** The first of an AggregateError's `errors`. With all causes, at most 8. */
  readonly errors?: readonly ErrorInfo[]
}

/**
 * How an attempt ended that did not complete its job:
 *
 * - `failed`: the handler threw, and the job failed for good.
 * - `retried`: the handler threw, and the job runs again.
 * - `snoozed`: the job asked to run again later: `ctx.snooze`, `ctx.sleep`, `job.update({ delay })`.
 * - `waited`: the job waits for other jobs or for a signal.
 * - `handed-back`: the worker returned the job, because of a shutdown or a hold, or by hand.
 * - `stalled`: the lease expired.
 * - `cancelled`: the job was cancelled.
 * - `ended-elsewhere`: another caller completed or failed the job.
 */
export type AttemptEnd =
  | 'failed'
  | 'retried'
  | 'snoozed'
  | 'waited'
  | 'handed-back'
  | 'stalled'
  | 'cancelled'
  | 'ended-elsewhere'

/** One failed attempt in a job's history. */
export interface AttemptError extends ErrorInfo {
  /** The fence of the attempt that failed; no two entries of a job share one. */
  readonly fence: number
  /** Which attempt it was; the first is 1. */
  readonly attempt: number
  /** When it was recorded, by the store's clock. */
  readonly at: Time
  /** How the attempt ended; absent if the job was not active, as one that was cancelled while it waited. */
  readonly outcome?: AttemptEnd
  /** When the attempt started, by the store's clock. */
  readonly startedAt?: Time
  /** The worker that held its lease. */
  readonly worker?: string
  /** When the job was to run again, of an attempt that is retried. */
  readonly runAt?: Time
}

/** The most attempts of a job whose producer gives no number. */
export const DEFAULT_ATTEMPTS = 3

/** How many failed attempts a record keeps; the oldest are dropped first. */
export const ERRORS_KEPT = 50

/** How long a finished job is kept. */
export interface Keep {
  /** Marked stale this long after it finished; absent: never. */
  readonly staleAfter?: Millis
  /** Removed this long after it finished, 0 in the same commit; absent: never. */
  readonly deleteAfter?: Millis
  /** Removed when this many newer jobs of its queue and name have ended in the same state; absent: never. */
  readonly count?: number
  /**
   * Set by the retention of its queue: the job is then removed with its whole chain or flow, and never in the commit
   * that ends it.
   */
  readonly byQueue?: true
}

/** How long a job is kept in each state it can end in; stamped on it when it is added. */
export type KeepByState = { readonly [State in FinishedState]?: Keep }

/** Where to report the end of a job, stamped on it when it is added. */
export interface Webhook {
  /** Where to send it. */
  readonly url: string
  /** The states that are reported. */
  readonly on: readonly FinishedState[]
  /** Attempts to deliver, the first included. */
  readonly attempts: number
  /** How long to wait between attempts; undefined: the default. */
  readonly backoff: Backoff | undefined
  /** For one attempt. */
  readonly timeout: Millis
}

/** Data for the code that runs and ends a job: stamped on it when it is added, and never changed. */
export interface Extras {
  /** The phases of its handler, in their order. */
  readonly phases?: readonly string[]
  /** Where to report its end. */
  readonly webhook?: Webhook
  /** The trace in which it was added, as W3C's `traceparent`. */
  readonly trace?: string
  /** Texts to find it by; see `tags.ts`. */
  readonly tags?: readonly string[]
}

/** A dedup key as a job carries it. */
export interface Dedup {
  /** The key together with its scope; see `dedupKey` in `queue/`. */
  readonly key: string
  /** Holds the key for this long from the add, whatever the state of the job; absent: until the job has finished. */
  readonly window?: Millis
}

/**
 * A job as a store holds it. JSON values (`data`, `result`, `progress`) stay text here: they were checked once, no code
 * can change them by reference, and only code that needs them pays for parsing.
 */
export interface JobRecord {
  /** Its id, unique in the store. */
  readonly id: string
  /** What the row is. */
  readonly kind: JobKind
  /** Its queue. */
  readonly queue: string
  /** The name that selects its handler. */
  readonly name: string
  /** The version of its declaration. */
  readonly version: number
  /** Its data, as JSON. */
  readonly data: JsonText | undefined
  /** Its state. */
  readonly state: JobState
  /** Lower goes first. */
  readonly priority: number
  /**
   * Order within a priority, assigned by the store: FIFO counts up from 0, LIFO counts down; with a group, its turn
   * (`job/limits.ts`).
   */
  readonly ord: number
  /**
   * Assigned by the store; goes up whenever the job is claimed, moved or cancelled. A change decided on an older fence
   * is refused.
   */
  readonly fence: number
  /** Attempts started and not given back; 0 before the first claim. */
  readonly attempt: number
  /** Attempts allowed, the first included; may be Infinity. */
  readonly attempts: number
  /** How long to wait between attempts; undefined: as its handler declares. */
  readonly backoff: Backoff | undefined
  /** How long one attempt may run; undefined: as its handler declares. */
  readonly timeout: Millis | undefined
  /**
   * The lease holder, or the last one of a finished job; undefined if a job was completed by another caller than its
   * lease holder.
   */
  readonly worker: string | undefined
  /**
   * When it may start; undefined: as soon as it is claimed. Of a job that began to wait after it was added, and from its
   * claim on: since when it could be claimed.
   */
  readonly runAt: Time | undefined
  /** When it is cancelled unless it was started before; undefined: never. */
  readonly expiresAt: Time | undefined
  /** When its lease expires, of an active job. */
  readonly leaseUntil: Time | undefined
  /** When a dependency failed or was cancelled, until upkeep has decided what follows. */
  readonly brokenAt: Time | undefined
  /** When it becomes stale. */
  readonly staleAt: Time | undefined
  /** `staleAt` has passed and was announced. */
  readonly stale: boolean
  /** When it is removed. */
  readonly deleteAt: Time | undefined
  /** When it is next due; derived by `dueAt` in `lifecycle.ts` from the times above. */
  readonly dueAt: Time | undefined
  /** The id of the first job of its chain. */
  readonly chainId: string
  /** Its position in the chain, from 0. */
  readonly chainIndex: number
  /** The job that added it as a child, the schedule whose run it is, or the job that a signal is for. */
  readonly parentId: string | undefined
  /** The group whose job it is; the groups of a queue take turns. */
  readonly group: string | undefined
  /** Dependencies that have neither ended well nor been decided on. */
  readonly pending: number
  /** How often its lease expired. */
  readonly stalls: number
  /** Prefetched: leased before there was a free slot for it, and not known to have started. */
  readonly ahead: boolean
  /** Its dedup key. */
  readonly dedup: Dedup | undefined
  /** How long it is kept when it has finished. */
  readonly keep: KeepByState | undefined
  /** Data for the code that runs it. */
  readonly extras: Extras | undefined
  /** State of its phases and deliveries: see `memo.ts`. Stores do not read it. */
  readonly memo: JsonText | undefined
  /** Its last progress, as JSON. */
  readonly progress: JsonText | undefined
  /** What its handler returned, as JSON. */
  readonly result: JsonText | undefined
  /** Its last error; of a cancelled job the reason. */
  readonly error: ErrorInfo | undefined
  /** Failed attempts, oldest first, the last `ERRORS_KEPT` of them. */
  readonly errors: readonly AttemptError[]
  /** Attempts that ended without an error: see `history.ts`. Stores do not read it. */
  readonly history: JsonText | undefined
  /** When it was added. */
  readonly createdAt: Time
  /** When its last attempt started. */
  readonly startedAt: Time | undefined
  /** When it finished. */
  readonly finishedAt: Time | undefined
}

/**
 * A job without its payload: without what users and attempts put into it, which can be a megabyte and more. Enough for
 * most rules about time.
 */
export type JobHeader = Omit<JobRecord, 'data' | 'memo' | 'progress' | 'result' | 'error' | 'errors' | 'history'>

/**
 * A job in a refusal because it was moved: its header, and why it was cancelled. Hundreds may be refused at once, as
 * after a process was suspended, and a receipt with all of their payloads would be too large.
 */
export type MovedJob = JobHeader & {
  /** Of a cancelled job alone, where a reason was given. */
  readonly error?: ErrorInfo
}

/** What can happen to a dependent when its dependency fails or is cancelled. The first is the default. */
export const failurePolicies = ['fail', 'ignore', 'remove'] as const

/** What happens to a dependent when its dependency fails or is cancelled. */
export type FailurePolicy = (typeof failurePolicies)[number]

/**
 * What an edge does on a failure: the policy and, with `-all`, that unfinished chains behind such edges are cancelled
 * before the failure of another one of them fails or removes the job.
 */
export type EdgePolicy = FailurePolicy | `${FailurePolicy}-all`

/**
 * `open`: not ended. `ended`: ended well. `broken`: failed or cancelled, undecided. `closed`: failed or cancelled, and
 * decided on.
 */
export type EdgeState = 'open' | 'ended' | 'broken' | 'closed'

/** The error of a dependency; its stack and its causes stay with the failed job. */
export type EdgeError = Pick<ErrorInfo, 'name' | 'message' | 'code'>

/** A dependency: one job waits for one chain. */
export interface Edge {
  /** The job that waits. */
  readonly dependent: string
  /** The chain it waits for. */
  readonly chain: string
  /** The name of the job given as the dependency, which may be any job of the chain. */
  readonly name: string
  /** What happens to the dependent if the chain fails or is cancelled. */
  readonly policy: EdgePolicy
  /** Whether the chain has ended, and how. */
  readonly state: EdgeState
  /** The result of the chain's last job, on an edge that has ended; it stays when that job is removed. */
  readonly result: JsonText | undefined
  /**
   * The error of the chain's last job, on an edge that is broken or closed; undefined where that job was cancelled or
   * removed.
   */
  readonly error: EdgeError | undefined
}

/** The result of a handler's step, kept for later attempts. */
export interface StepResult {
  /** The name of the step. */
  readonly name: string
  /** What it returned, as JSON. */
  readonly result: JsonText | undefined
  /** How long it ran, as its worker measured it. */
  readonly ran?: Millis
  /** When it ended, by the store's clock; a store returns it where `ran` was given, and ignores it in a note. */
  readonly endedAt?: Time
}

/** How many lines of its log a job keeps; the oldest are dropped first. */
export const LOGS_KEPT = 1000

/** One line that a handler logged. */
export interface LogLine {
  /** Its number in the log, from 1; dropped lines are counted. */
  readonly index: number
  /** When it was written, by the store's clock. */
  readonly at: Time
  /** The attempt that wrote it; the first is 1. */
  readonly attempt: number
  /** The text. */
  readonly line: string
}

/** Whether a job in this state can be claimed. */
export function isClaimable(state: JobState | undefined): boolean {
  return state === 'waiting'
}

/** Whether a job in this state has a lease. */
export function isLeased(state: JobState | undefined): boolean {
  return state === 'active'
}

/** The index of a state in `jobStates`. A switch, because a lookup by text is several times slower. */
export function stateIndex(state: JobState): number {
  switch (state) {
    case 'waiting':
      return 0
    case 'delayed':
      return 1
    case 'waiting-children':
      return 2
    case 'active':
      return 3
    case 'completed':
      return 4
    case 'failed':
      return 5
    case 'cancelled':
      return 6
  }
}

/** Whether a state is one that a job ends in. */
export function isFinished(state: JobState): state is FinishedState {
  return state === 'completed' || state === 'failed' || state === 'cancelled'
}

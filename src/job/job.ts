// job/job.ts: the job record, its states, and what lies beside it, as readonly data.
import type { Backoff } from './retry.js'
import type { JsonText } from './json.js'

/** A length of time in milliseconds. */
export type Millis = number

/** A moment, in milliseconds since 1970. */
export type Time = number

/** The states a job can be in. Stale is a date on a finished job, not a state. */
export const jobStates = [
  'waiting',
  'delayed',
  'waiting-children',
  'active',
  'completed',
  'failed',
  'cancelled',
] as const

/** One of the seven states of a job. */
export type JobState = (typeof jobStates)[number]

/** The states that a job ends in. */
export type FinishedState = 'completed' | 'failed' | 'cancelled'

/** What a row is: work for a handler, a schedule that inserts such work when it is due, or a signal that a job waits for. */
export type JobKind = 'job' | 'schedule' | 'signal'

/** A failure as it is stored: JSON, so that it reads the same from every process. */
export interface ErrorInfo {
  /** The error's class name, `'Error'` when it has none. */
  readonly name: string
  /** What the error said. */
  readonly message: string
  /** The error's stable code, where it has one. */
  readonly code?: string
  /** The stack, where there was one. */
  readonly stack?: string
  /** What caused it: the error's `cause`, where it had one. Causes are kept up to 5 deep. */
  readonly cause?: ErrorInfo
  /** What it sums up: the first of an AggregateError's `errors`. With all causes, at most 8. */
  readonly errors?: readonly ErrorInfo[]
}

/** One failed attempt in a job's history. */
export interface AttemptError extends ErrorInfo {
  /** The fence of the attempt that failed; no two entries of a job share one. */
  readonly fence: number
  /** Which attempt it was; the first is 1. */
  readonly attempt: number
  /** When it was recorded, by the store's clock. */
  readonly at: Time
}

/** How many failed attempts a record remembers; the oldest go first. */
export const ERRORS_KEPT = 50

/** How long a finished job is kept. */
export interface Keep {
  /** Marked stale this long after it finished; absent: never. */
  readonly staleAfter?: Millis
  /** Removed this long after it finished, 0 in the same commit; absent: never. */
  readonly deleteAfter?: Millis
  /** Said by the retention of its queue: it then goes with its whole chain or flow, and never in the commit of its end. */
  readonly byQueue?: true
}

/** How long a job is kept in each state it can end in; stamped on it when it is added. */
export type KeepByState = { readonly [State in FinishedState]?: Keep }

/** Where the end of a job is told, stamped on it when it is added. */
export interface Webhook {
  readonly url: string
  /** The ends that are told. */
  readonly on: readonly FinishedState[]
  /** Attempts to deliver, the first included. */
  readonly attempts: number
  readonly backoff: Backoff | undefined
  /** For one attempt. */
  readonly timeout: Millis
}

/** What a job carries for those who run and end it: stamped on it when it is added, and never changed. */
export interface Extras {
  /** The phases of its handler, in their order. */
  readonly phases?: readonly string[]
  readonly webhook?: Webhook
  /** The trace it was added in, as W3C's `traceparent`. */
  readonly trace?: string
}

/** A dedup key as a job carries it. */
export interface Dedup {
  /** The key together with its scope; see `dedupKey` in `queue/`. */
  readonly key: string
  /** Holds the key for this long from the add, whatever becomes of the job; absent: until the job has finished. */
  readonly window?: Millis
}

/**
 * A job as a store holds it. JSON values (`data`, `result`, `progress`) stay text here: they were guarded once, nobody
 * can change them by reference, and only who needs them pays for parsing.
 */
export interface JobRecord {
  readonly id: string
  readonly kind: JobKind
  readonly queue: string
  readonly name: string
  readonly version: number
  readonly data: JsonText | undefined
  readonly state: JobState
  /** Lower goes first. */
  readonly priority: number
  /** Place within a priority, given by the store: FIFO counts up from 0, LIFO counts down; with a group, its turn (`stores/fair-order.ts`). */
  readonly ord: number
  /** Given by the store; goes up whenever the job is claimed, moved or cancelled; a change made for an older fence is refused. */
  readonly fence: number
  /** Attempts begun and not given back; 0 before the first claim. */
  readonly attempt: number
  /** Attempts allowed, the first included; may be Infinity. */
  readonly attempts: number
  readonly backoff: Backoff | undefined
  readonly timeout: Millis | undefined
  /** Who holds it, or held it when it finished; nobody, of a job that was completed by another hand than its holder's. */
  readonly worker: string | undefined
  readonly runAt: Time | undefined
  readonly leaseUntil: Time | undefined
  /** When a dependency failed or was cancelled and nobody has yet decided what that means. */
  readonly brokenAt: Time | undefined
  readonly staleAt: Time | undefined
  /** `staleAt` has passed and was announced. */
  readonly stale: boolean
  readonly deleteAt: Time | undefined
  /** When it next wants attention; derived by `dueAt` in `lifecycle.ts` from the times above. */
  readonly dueAt: Time | undefined
  /** The id of the first job of its chain. */
  readonly chainId: string
  readonly chainIndex: number
  readonly parentId: string | undefined
  /** Whose job it is, among those who share the queue by turns. */
  readonly group: string | undefined
  /** Dependencies that have neither ended well nor been decided upon. */
  readonly pending: number
  /** How often its lease ran out. */
  readonly stalls: number
  /** Leased before there was a free slot for it, and not known to have started. */
  readonly ahead: boolean
  readonly dedup: Dedup | undefined
  readonly keep: KeepByState | undefined
  readonly extras: Extras | undefined
  /** What was written down about its phases and deliveries: see `memo.ts`. Stores do not read it. */
  readonly memo: JsonText | undefined
  readonly progress: JsonText | undefined
  readonly result: JsonText | undefined
  readonly error: ErrorInfo | undefined
  /** Failed attempts, oldest first, the last `ERRORS_KEPT` of them. */
  readonly errors: readonly AttemptError[]
  readonly createdAt: Time
  readonly startedAt: Time | undefined
  readonly finishedAt: Time | undefined
}

/**
 * A job without its payload: without what users and attempts put into it, of which there can be a megabyte and more. What
 * a rule about time needs of most jobs.
 */
export type JobHeader = Omit<JobRecord, 'data' | 'memo' | 'progress' | 'result' | 'error' | 'errors'>

/**
 * What those are told of a job who were refused because it was moved: its header, and why it was cancelled. Hundreds may be
 * refused at once, as after a process slept, and an answer with all of their payloads would be too large.
 */
export type MovedJob = JobHeader & {
  /** Of a cancelled job alone, where a reason was given. */
  readonly error?: ErrorInfo
}

/** What happens to a dependent when its dependency fails or is cancelled. */
export type FailurePolicy = 'fail' | 'ignore' | 'remove'

/**
 * What an edge says of a failure: the policy and, with `-all`, that what is unfinished behind such edges is cancelled
 * before the failure of another one of them fails or removes the job.
 */
export type EdgePolicy = FailurePolicy | `${FailurePolicy}-all`

/** `open`: not ended. `ended`: ended well. `broken`: ended badly, undecided. `closed`: ended badly, and decided upon. */
export type EdgeState = 'open' | 'ended' | 'broken' | 'closed'

/** What a dependency failed with; its stack and its causes stay with it. */
export type EdgeError = Pick<ErrorInfo, 'name' | 'message' | 'code'>

/** One job's wait for one chain. */
export interface Edge {
  /** The job that waits. */
  readonly dependent: string
  /** The chain it waits for. */
  readonly chain: string
  /** The name of the job that was to be waited for: of any job of the chain. */
  readonly name: string
  readonly policy: EdgePolicy
  readonly state: EdgeState
  /** What the last job of the chain returned, of an edge that has ended; it stays when that job is removed. */
  readonly result: JsonText | undefined
  /** What it failed with, of an edge that is broken or closed; undefined where it was cancelled or removed. */
  readonly error: EdgeError | undefined
}

/** What a step of a handler came to, remembered for its later attempts. */
export interface StepResult {
  readonly name: string
  readonly result: JsonText | undefined
}

/** How many lines of its log a job keeps; the oldest go first. */
export const LOGS_KEPT = 1000

/** One line that a handler logged. */
export interface LogLine {
  /** Its place in the log, from 1; lines that were dropped are counted. */
  readonly index: number
  /** When it was written, by the store's clock. */
  readonly at: Time
  /** The attempt that wrote it; the first is 1. */
  readonly attempt: number
  /** What it said. */
  readonly line: string
}

/** Whether a state is one that a job ends in. */
export function isFinished(state: JobState): state is FinishedState {
  return state === 'completed' || state === 'failed' || state === 'cancelled'
}

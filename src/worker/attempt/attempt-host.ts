// worker/attempt/attempt-host.ts: what an attempt needs of its worker and of its batch.
import type { Outcome } from '../../job/lifecycle.js'
import type { Adder } from '../../queue/add.js'
import type { JobDefinition } from '../../queue/define.js'
import type { JobOperations } from '../../queue/operations/job-operations.js'
import type { Telemetry } from '../../queue/telemetry.js'
import type { Verdict } from '../../store/store.js'
import type { Job } from '../../queue/job.js'
import type { AbortReason, JobContext, Middleware, LostReason } from './context.js'
import type { Leases } from '../leases.js'
import type { PublishedNote } from './pending-notes.js'
import type { Settings } from '../options.js'

/** What an attempt needs of its worker. */
export interface AttemptHost<Attempt> {
  readonly operations: JobOperations
  readonly settings: Settings
  readonly middleware: readonly Middleware[]
  /** Measures what is run. */
  readonly telemetry: Telemetry | undefined
  definitionOf(name: string): JobDefinition | undefined
  /** Adds jobs to a queue. */
  adder(queue: string): Adder
  leases(): Leases
  /** The lease is lost. */
  lost(attempt: Attempt, ...why: LostReason): void
  /** The handler has ended, and its settlement was committed in its own transaction. */
  committed(attempt: Attempt, outcome: Outcome): void
  /** The handler has ended with this outcome. */
  ended(attempt: Attempt, outcome: Outcome): void
  /** The handler has ended, but its lease is lost. */
  endedLost(attempt: Attempt): void
  /** The handler does not end: its slot is given up. */
  stuck(attempt: Attempt, outcome: Outcome): void
  /** A note is durable, or was refused. */
  noted(attempt: Attempt, note: PublishedNote, verdict: Verdict): void
  /** Counts bytes of notes that wait for the store, or (negative) that no longer do. */
  countNotes(bytes: number): void
  /** A user's callback threw. */
  callbackFailed(attempt: Attempt, what: string, cause: unknown): void
}

/** What an attempt needs of the batch that it runs in. */
export interface AttemptBatch<Attempt> {
  /** The attempt is ready; resolves to its own result when the call of the batch has ended. */
  join(attempt: Attempt, job: Job, ctx: JobContext): Promise<unknown>
  /** The attempt was aborted. */
  aborted(attempt: Attempt, reason: AbortReason): void
  /** The attempt has ended. Returns false if its handler continues for other jobs. */
  ended(attempt: Attempt): boolean
}

// worker/attempt/attempt-host.ts: what an attempt needs of its worker.
import type { Outcome } from '../../job/lifecycle.js'
import type { Adder } from '../../queue/add.js'
import type { JobDefinition } from '../../queue/define.js'
import type { JobOperations } from '../../queue/operations/job-operations.js'
import type { Telemetry } from '../../queue/telemetry.js'
import type { Verdict } from '../../store/store.js'
import type { Job } from '../../queue/job.js'
import type { AbortReason, JobContext, Middleware, Why } from './context.js'
import type { Leases } from '../leases.js'
import type { NoteOutcome } from './pending-notes.js'
import type { Settings } from '../options.js'

/** What an attempt needs of its worker. */
export interface AttemptHost<Attempt> {
  readonly desk: JobOperations
  readonly settings: Settings
  readonly middleware: readonly Middleware[]
  /** Who measures what is run. */
  readonly telemetry: Telemetry | undefined
  definitionOf(name: string): JobDefinition | undefined
  /** Adds jobs to a queue. */
  adder(queue: string): Adder
  leases(): Leases
  /** The job is no longer this worker's. */
  lost(attempt: Attempt, ...why: Why): void
  /** The handler has ended, and what it comes to was committed in its own transaction. */
  committed(attempt: Attempt, outcome: Outcome): void
  /** The handler has ended, and this is what it comes to. */
  ended(attempt: Attempt, outcome: Outcome): void
  /** The handler has ended, but the job was no longer this worker's. */
  endedLost(attempt: Attempt): void
  /** The handler does not end: its slot is to be given up. */
  stuck(attempt: Attempt, outcome: Outcome): void
  /** A note is durable, or was refused. */
  noted(attempt: Attempt, said: NoteOutcome, verdict: Verdict): void
  /** A callback of the user's threw. */
  misbehaved(attempt: Attempt, what: string, cause: unknown): void
}

/** What an attempt needs of the batch that it is run in. */
export interface Joined<Attempt> {
  /** It is ready to run; resolves to its own result, when all are. */
  join(attempt: Attempt, job: Job, ctx: JobContext): Promise<unknown>
  /** Its handler was told to stop. */
  aborted(attempt: Attempt, reason: AbortReason): void
  /** It has ended; false where its handler goes on for others. */
  ended(attempt: Attempt): boolean
}

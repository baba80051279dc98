// worker/batches/types.ts: what a handler of many jobs at once is given, and what can be said about its batches.
import { parseDuration } from '../../job/duration.js'
import type { Duration } from '../../job/duration.js'
import { MillraceError } from '../../job/errors.js'
import type { Millis } from '../../job/job.js'
import { refuseUnknown } from '../../job/names.js'
import type { BackoffOptions } from '../../job/retry.js'
import { quote } from '../../job/quote.js'
import type { Job } from '../../queue/job.js'
import type { JobContext, JobSignal } from '../attempt/context.js'

/** How jobs of one name are gathered for one call of their handler. */
export interface BatchOptions {
  /** The most jobs in a call, from 1 to 10,000. */
  readonly size: number
  /** How long to gather, from its first job on, before a smaller batch goes. Default 0: it goes with what there is. */
  readonly wait?: Duration
}

/** What belongs to one job of a batch: as `JobContext`, without transactions. */
export interface BatchedContext extends Pick<JobContext, 'signal' | 'progress' | 'log'> {
  /**
   * Gives this job's attempt back and runs it again after that time, whatever the call comes to. Answers an error to put
   * in its place.
   */
  snooze(duration: Duration): Error
}

/** What a handler is given beside its jobs. `Extra` is what middleware added to the context of each. */
export interface BatchContext<AJob extends Job = Job, Extra = unknown> {
  /** Aborts when no job of the batch is worth going on for: each was cancelled, lost or timed out, or the worker closes. */
  readonly signal: JobSignal
  /** What belongs to one of the jobs: its own signal, its progress, its log. */
  of(job: AJob): BatchedContext & Extra
  /** Does something for each job, all at once, and answers what it came to, errors in their places: `return ctx.each(…)`. */
  each<Result>(
    work: (job: AJob, ctx: BatchedContext & Extra) => Result | Promise<Result>,
  ): Promise<(Awaited<Result> | Error)[]>
  /** Ends this call here, gives all attempts back, and runs the jobs again after that time. Never returns. */
  snooze(duration: Duration): never
}

/**
 * Runs many jobs of one name: answers a result, or an `Error`, in the place of each. What it throws fails all of them, each
 * by its own rules of retrying.
 */
export type BatchHandler<AJob extends Job = Job, Return = unknown, Extra = unknown> = (
  jobs: readonly AJob[],
  ctx: BatchContext<AJob, Extra>,
) => readonly (Return | Error)[] | Promise<readonly (Return | Error)[]>

/** A handler of batches with settings for its name alone. */
export interface BatchHandlerOptions<AJob extends Job = Job, Return = unknown, Extra = unknown> {
  /** Runs many jobs in one call: answers a result, or an `Error`, in the place of each. */
  readonly runBatch: BatchHandler<AJob, Return, Extra>
  /** How its jobs are gathered. Default: the worker's `batch`. */
  readonly batch?: BatchOptions
  /** The lease of this name's jobs. Default: the worker's. */
  readonly lease?: Duration
  /** How long each of its jobs may run, for those that do not say. Default: no bound. */
  readonly timeout?: Duration
  /** The wait before a job's next attempt, for jobs that do not say. Default: exponential from 1 s, full jitter. */
  readonly backoff?: BackoffOptions | Duration
}

/** A handler of batches, and how they are gathered. */
export interface ParsedBatch {
  readonly run: BatchHandler
  readonly size: number
  readonly wait: Millis
}

/** More jobs than this in one call only hold up everybody else. */
const LARGEST = 10_000

/** Checks what was said about batches. */
export function parseBatch(options: BatchOptions, where: string): Omit<ParsedBatch, 'run'> {
  if (typeof options !== 'object' || options === null) {
    throw new MillraceError('INVALID_OPTION', `${where} must be { size, wait }, not ${quote(options)}.`)
  }
  refuseUnknown(options, ['size', 'wait'], where)
  const { size, wait = 0 } = options
  if (!Number.isSafeInteger(size) || size < 1 || size > LARGEST) {
    throw new MillraceError(
      'INVALID_OPTION',
      `${where}: size must be a whole number from 1 to ${LARGEST}, not ${quote(size)}.`,
    )
  }
  return { size, wait: parseDuration(wait, `${where}: wait`) }
}

/** The error for what a batch has none of. */
export function notInBatch(call?: string): MillraceError {
  return new MillraceError(
    'NOT_IN_BATCH',
    call === undefined
      ? 'A handler of batches has no ctx.prepare and no ctx.complete: its jobs settle one by one. ' +
          'Use a handler of one job, or queue.transaction for writes of its own.'
      : `A handler of batches has no ${call}: its jobs run together. Use a handler of one job.`,
  )
}

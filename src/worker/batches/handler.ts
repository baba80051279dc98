// worker/batches/handler.ts: handlers of many jobs at once: their context, their types, and the options of batches.
import { parseDuration } from '../../job/values/duration.js'
import type { Duration } from '../../job/values/duration.js'
import { MillraceError, quote } from '../../job/errors/errors.js'
import type { Millis } from '../../job/job.js'
import { refuseUnknown } from '../../job/values/names.js'
import type { BackoffOptions } from '../../job/retry.js'
import type { Job } from '../../queue/job.js'
import type { JobContext, JobSignal } from '../attempt/context.js'
import type { HoldOptions } from '../attempt/hold.js'

/** How jobs of one name are gathered for one call of their handler. */
export interface BatchOptions {
  /** The most jobs in a call, from 1 to 10,000. */
  readonly size: number
  /** How long to gather, from the first job on, before a smaller batch starts. Default 0: starts with what there is. */
  readonly wait?: Duration
}

/** The context of one job of a batch: like `JobContext`, without transactions. */
export interface BatchedContext extends Pick<JobContext, 'signal' | 'progress' | 'log'> {
  /**
   * Runs this job again after that time, whatever the result of the call; the attempt does not count. Returns an error
   * to put in the place of its result.
   */
  snooze(duration: Duration): Error
  /**
   * Holds jobs like this one for that time, as `ctx.hold` in a handler of one job, and runs this one afterwards,
   * whatever the result of the call. Returns an error to put in the place of its result.
   */
  hold(duration: Duration, options?: HoldOptions): Error
}

/** The context of a call. `Extra` is what middleware added to the context of each job. */
export interface BatchContext<AJob extends Job = Job, Extra = unknown> {
  /** Aborts when every job of the batch was cancelled, lost or timed out, or when the worker closes. */
  readonly signal: JobSignal
  /** The context of one of the jobs: its own signal, progress and log. */
  of(job: AJob): BatchedContext & Extra
  /** Runs a function for all jobs at once; returns the results, errors in their places: `return ctx.each(…)`. */
  each<Result>(
    work: (job: AJob, ctx: BatchedContext & Extra) => Result | Promise<Result>,
  ): Promise<(Awaited<Result> | Error)[]>
  /** Ends this call here and runs the jobs again after that time; the attempts do not count. Never returns. */
  snooze(duration: Duration): never
  /** Ends this call here, holds jobs like these for that time and runs these afterwards. Never returns. */
  hold(duration: Duration, options?: HoldOptions): never
}

/**
 * Runs many jobs of one name: returns a result, or an `Error`, in the place of each. If it throws, all of them fail,
 * each by its own retry rules.
 */
export type BatchHandler<AJob extends Job = Job, Return = unknown, Extra = unknown> = (
  jobs: readonly AJob[],
  ctx: BatchContext<AJob, Extra>,
) => readonly (Return | Error)[] | Promise<readonly (Return | Error)[]>

/** A handler of batches with options for its job name. */
export interface BatchHandlerOptions<AJob extends Job = Job, Return = unknown, Extra = unknown> {
  /** Runs many jobs in one call: returns a result, or an `Error`, in the place of each. */
  readonly runBatch: BatchHandler<AJob, Return, Extra>
  /** How its jobs are gathered. Default: the worker's `batch`. */
  readonly batch?: BatchOptions
  /** The lease of jobs with this name. Default: the worker's. */
  readonly lease?: Duration
  /** How long each job may run, unless it has its own timeout. Default: no limit. */
  readonly timeout?: Duration
  /** The wait before the next attempt, unless the job has its own. Default: exponential from 1 s, full jitter. */
  readonly backoff?: BackoffOptions | Duration
}

/** A handler of batches, and how they are gathered. */
export interface ParsedBatch {
  readonly run: BatchHandler
  readonly size: number
  readonly wait: Millis
}

/** The largest batch. More jobs in one call only delay all others. */
const LARGEST = 10_000

/** Checks the options of batches. */
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

/** The error of a call that batches do not have. */
export function notInBatch(call?: string): MillraceError {
  return new MillraceError(
    'NOT_IN_BATCH',
    call === undefined
      ? 'A handler of batches has no ctx.prepare and no ctx.complete: its jobs settle one by one. ' +
          'Use a handler of one job, or queue.transaction for writes of its own.'
      : `A handler of batches has no ${call}: its jobs run together. Use a handler of one job.`,
  )
}

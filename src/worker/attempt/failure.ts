// worker/attempt/failure.ts: the outcome of a failed handler: whether to retry, and when; and the errors of attempts.
import { MillraceError, isMillraceError } from '../../job/errors.js'
import { describeError, isUnrecoverable } from '../../job/failure.js'
import type { JobRecord, Millis } from '../../job/job.js'
import type { Outcome } from '../../job/lifecycle.js'
import { backoffDelay, defaultBackoff } from '../../job/retry.js'
import type { Backoff } from '../../job/retry.js'
import { quote } from '../../job/quote.js'
import type { JobOperations } from '../../queue/operations/job-operations.js'
import { Job } from '../../queue/job.js'
import type { ParsedHandler, Settings } from '../options.js'

/** How a failed phase may be retried. */
export interface PhaseFailure {
  readonly backoff: Backoff | undefined
  /** How often it has failed, this time included. */
  readonly failures: number
  /** Whether the phase may be tried again. */
  mayRetry(error: unknown): boolean
}

/** What the outcome of a failure depends on. */
export interface FailureContext {
  readonly record: JobRecord
  readonly handler: ParsedHandler
  readonly operations: JobOperations
  readonly settings: Settings
  /** The phase that failed, of a job in phases. */
  readonly phase: PhaseFailure | undefined
  /** A user's callback threw. */
  callbackFailed(what: string, cause: unknown): void
}

/** Whether the worker's `retryable` allows a retry. */
export function worthRetrying(
  { record, operations, settings, callbackFailed }: FailureContext,
  error: unknown,
): boolean {
  // OWN_JOB: a handler that ends its own job inside its transaction would do so again.
  if (isUnrecoverable(error) || isMillraceError(error, 'OWN_JOB')) return false
  const { retryable } = settings
  if (retryable === undefined) return true
  try {
    const decision: unknown = retryable(error, new Job(operations, record))
    if (isThenable(decision)) {
      decision.then(undefined, () => {})
      throw new TypeError("it answered a promise; it must answer 'retry' or 'fatal' at once")
    }
    if (decision !== 'retry' && decision !== 'fatal') {
      throw new TypeError(`it answered ${quote(decision)}; it must answer 'retry' or 'fatal'`)
    }
    return decision === 'retry'
  } catch (cause) {
    callbackFailed('retryable', cause)
    return true
  }
}

/** The outcome of a failed attempt. */
export function failure(context: FailureContext, error: unknown, worth: boolean): Outcome {
  const retryable = worth && context.phase?.mayRetry(error) !== false
  return { kind: 'threw', error: describeError(error), retryable, retryIn: retryable ? backoff(context, error) : 0 }
}

/**
 * The wait before the retry. A backoff strategy that is missing or throws is reported, and the default is used instead.
 */
function backoff(
  { record, handler, operations, settings, phase, callbackFailed }: FailureContext,
  error: unknown,
): Millis {
  const { random } = operations.connection.runtime
  try {
    if (phase?.backoff !== undefined) {
      return backoffDelay(phase.backoff, phase.failures, random, settings.custom, error)
    }
    const formula = record.backoff ?? handler.backoff ?? defaultBackoff
    return backoffDelay(formula, record.attempt, random, settings.custom, error)
  } catch (cause) {
    callbackFailed('backoff', cause)
    return backoffDelay(defaultBackoff, record.attempt, random)
  }
}

/** Whether a value can be awaited. */
export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === 'object' && value !== null && typeof (value as { then?: unknown }).then === 'function'
}

/** Throws unless the value is a function. */
export function checkCallback(work: unknown, call: string): void {
  if (typeof work === 'function') return
  throw new MillraceError('INVALID_OPTION', `${call}: work must be a function.`)
}

/** The error of a result that cannot be stored although the work is done. It would be refused again. */
export function notStored(who: string, error: unknown): unknown {
  if (!isMillraceError(error)) return error
  const { code, message, details } = error
  const text = `${who} has done its work, but what it returned cannot be stored: ${message}`
  return new MillraceError(code, text, { cause: error, details })
}

/** The error of a call made after the lease is lost. */
export function leaseLost({ id, name }: JobRecord, why: string): MillraceError {
  return new MillraceError('LEASE_LOST', `Nothing was written for job ${id} ('${name}'): ${why}.`, { details: { id } })
}

/** The error of a handler, or of one of its phases, that exceeded its timeout. */
export function tookTooLong(timeout: Millis, phase?: string): MillraceError {
  const who = phase === undefined ? 'The handler' : `Phase '${phase}'`
  return new MillraceError('JOB_TIMEOUT', `${who} ran past its timeout of ${timeout} ms.`)
}

// worker/attempt/failure.ts: what a failure of a handler comes to: whether it is worth another attempt, and when.
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

/** What a phase says about its failure. */
export interface PhaseFailing {
  readonly backoff: Backoff | undefined
  /** How often it has failed, this time included. */
  readonly failures: number
  /** Whether it may be tried again, as far as the phase is concerned. */
  mayRetry(error: unknown): boolean
}

/** Whose failure it is, and who decides. */
export interface Failing {
  readonly record: JobRecord
  readonly handler: ParsedHandler
  readonly desk: JobOperations
  readonly settings: Settings
  /** The phase that failed, of a job in phases. */
  readonly phase: PhaseFailing | undefined
  /** A callback of the user's threw. */
  misbehaved(what: string, cause: unknown): void
}

/** Whether the worker's rule thinks a failure worth another attempt. */
export function worthRetrying({ record, desk, settings, misbehaved }: Failing, error: unknown): boolean {
  // Who wishes for the end of the own job would wish for it the next time as well.
  if (isUnrecoverable(error) || isMillraceError(error, 'OWN_JOB')) return false
  const { retryable } = settings
  if (retryable === undefined) return true
  try {
    const answer: unknown = retryable(error, new Job(desk, record))
    if (isThenable(answer)) {
      answer.then(undefined, () => {})
      throw new TypeError("it answered a promise; it must answer 'retry' or 'fatal' at once")
    }
    if (answer !== 'retry' && answer !== 'fatal') {
      throw new TypeError(`it answered ${quote(answer)}; it must answer 'retry' or 'fatal'`)
    }
    return answer === 'retry'
  } catch (cause) {
    misbehaved('retryable', cause)
    return true
  }
}

/** The outcome of a failed attempt. */
export function failure(failing: Failing, error: unknown, worth: boolean): Outcome {
  const retryable = worth && failing.phase?.mayRetry(error) !== false
  return { kind: 'threw', error: describeError(error), retryable, retryIn: retryable ? backoff(failing, error) : 0 }
}

/** A strategy that is missing or throws costs the job nothing but its formula: the default takes its place. */
function backoff({ record, handler, desk, settings, phase, misbehaved }: Failing, error: unknown): Millis {
  const { random } = desk.connection.runtime
  try {
    if (phase?.backoff !== undefined) {
      return backoffDelay(phase.backoff, phase.failures, random, settings.custom, error)
    }
    const formula = record.backoff ?? handler.backoff ?? defaultBackoff
    return backoffDelay(formula, record.attempt, random, settings.custom, error)
  } catch (cause) {
    misbehaved('backoff', cause)
    return backoffDelay(defaultBackoff, record.attempt, random)
  }
}

/** Whether something can be waited for. */
export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === 'object' && value !== null && typeof (value as { then?: unknown }).then === 'function'
}

/** Refuses what is not a callback. */
export function checkCallback(work: unknown, call: string): void {
  if (typeof work === 'function') return
  throw new MillraceError('INVALID_OPTION', `${call}: work must be a function.`)
}

/** The error for a result that is refused when the work is done already; it would be refused again. */
export function notStored(who: string, error: unknown): unknown {
  if (!isMillraceError(error)) return error
  const { code, message, details } = error
  const text = `${who} has done its work, but what it returned cannot be stored: ${message}`
  return new MillraceError(code, text, { cause: error, details })
}

/** The error for what comes when a job is no longer this worker's. */
export function leaseLost({ id, name }: JobRecord, why: string): MillraceError {
  return new MillraceError('LEASE_LOST', `Nothing was written for job ${id} ('${name}'): ${why}.`, { details: { id } })
}

/** The error of a handler, or of one of its phases, that ran past its timeout. */
export function tookTooLong(timeout: Millis, phase?: string): MillraceError {
  const who = phase === undefined ? 'The handler' : `Phase '${phase}'`
  return new MillraceError('JOB_TIMEOUT', `${who} ran past its timeout of ${timeout} ms.`)
}

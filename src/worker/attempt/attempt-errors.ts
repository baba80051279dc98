// worker/attempt/attempt-errors.ts: the errors of attempts, and checks that several of their calls share.
import { MillraceError, isMillraceError } from '../../job/errors/errors.js'
import type { JobRecord, Millis } from '../../job/job.js'
import type { Backoff } from '../../job/retry.js'

/** How a failed phase may be retried. */
export interface PhaseFailure {
  readonly backoff: Backoff | undefined
  /** How often it has failed, this time included. */
  readonly failures: number
  /** Whether the phase may be tried again. */
  mayRetry(error: unknown): boolean
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

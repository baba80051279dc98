// worker/attempt/outcome.ts: the outcome of an attempt, from what its handler returned or threw.
import { isInstance, isMillraceError, quote } from '../../job/errors/errors.js'
import { describeError, isUnrecoverable } from '../../job/errors/failure.js'
import type { Millis } from '../../job/job.js'
import { encodeJson } from '../../job/values/json.js'
import type { JsonText } from '../../job/values/json.js'
import type { Outcome } from '../../job/lifecycle.js'
import { backoffDelay, defaultBackoff } from '../../job/retry.js'
import { Job } from '../../queue/job.js'
import type { Attempt } from './attempt.js'
import { refuseEndlessWait, returned } from './children.js'
import type { Children } from './children.js'
import { EarlyExit } from './early-exit.js'
import { isThenable, notStored } from './attempt-errors.js'
import type { HandlerAttempt } from './handler-attempt.js'
import { validateResult } from './payload.js'
import type { ValidResult } from './payload.js'

/** The outcome of an attempt; undefined if its lease is lost or it was given up, so that there is nothing to write. */
export type AttemptOutcome = Outcome | undefined

/** The outcome of an attempt whose handler returned; a promise if calls that it made are still pending. */
export function returnedOutcome(attempt: HandlerAttempt, value: unknown): AttemptOutcome | Promise<AttemptOutcome> {
  if (attempt.done) return undefined
  const { steps, transactions, children } = attempt
  const running = steps?.handlerEnded()
  if (running !== undefined) return running.then(() => returnedOutcome(attempt, value))
  const unawaited = steps?.unawaitedFailure
  if (unawaited !== undefined) return thrownOutcome(attempt, unawaited.error)
  if (attempt.uncaughtExit !== undefined) return thrownOutcome(attempt, attempt.uncaughtExit)
  if (attempt.lost !== undefined || attempt.timeoutError !== undefined || attempt.endsEarly) {
    return thrownOutcome(attempt, undefined)
  }
  if (attempt.postponed !== undefined) return { kind: 'snoozed', for: attempt.postponed }
  const floating = transactions?.unawaitedFailure
  if (floating !== undefined) return failure(attempt, floating, false) // a retry would only repeat it
  // The handler did not await its own calls: they are part of it all the same.
  const busy =
    children?.own.isBusy === true
      ? children.own.close()
      : transactions?.isBusy === true
        ? transactions.callsSettled()
        : undefined
  if (busy === undefined) return validOutcome(attempt, value === undefined ? transactions?.value : value)
  return busy.then(
    () => returnedOutcome(attempt, value),
    (error: unknown) => thrownOutcome(attempt, error),
  )
}

/** Validates a result against its schema. */
function validOutcome(attempt: HandlerAttempt, value: unknown): Outcome | Promise<Outcome> {
  const schema = attempt.definition?.output
  if (schema === undefined) return completed(attempt, value)
  const decide = (valid: ValidResult): Outcome => {
    if ('value' in valid) return completed(attempt, valid.value)
    // A job that continues its chain may leave the result to the next job.
    if (value === undefined && attempt.transactions?.followUps?.goesOn === true) return completed(attempt, undefined)
    return failure(attempt, valid.error, false)
  }
  const valid = validateResult(schema, value)
  return valid instanceof Promise ? valid.then(decide) : decide(valid)
}

function completed(attempt: HandlerAttempt, value: unknown): Outcome {
  let result: JsonText | undefined
  try {
    result = value === undefined ? undefined : encodeJson(value, 'result')
  } catch (error) {
    return failure(attempt, notStored('The handler', error), false)
  }
  const { transactions } = attempt
  // What an open transaction has added is in it already.
  return returned(result, transactions?.isOpen === true ? transactions.followUps : attempt.followUps)
}

/** The outcome of an attempt whose handler threw; a promise if steps are still running, or if it asked to wait. */
export function thrownOutcome(attempt: HandlerAttempt, thrown: unknown): AttemptOutcome | Promise<AttemptOutcome> {
  if (attempt.done) return undefined
  const { steps, children, uncaughtExit } = attempt
  const running = steps?.handlerEnded()
  if (running !== undefined) return running.then(() => thrownOutcome(attempt, thrown))
  if (attempt.lost !== undefined) return undefined
  const error = steps === undefined ? thrown : steps.thrown(thrown)
  if (uncaughtExit === undefined) {
    if (attempt.stepOutcome !== undefined) return attempt.stepOutcome
    if (children?.waits === true) return waitOutcome(attempt, children)
    if (attempt.held !== undefined) return { kind: 'held', hold: attempt.held }
    if (attempt.snoozed !== undefined) return { kind: 'snoozed', for: attempt.snoozed }
  }
  if (attempt.timeoutError !== undefined) return failure(attempt, attempt.timeoutError, true)
  if (attempt.reason === 'shutdown') return { kind: 'interrupted' }
  if (uncaughtExit !== undefined && (error === uncaughtExit || isInstance(error, EarlyExit))) {
    return failure(attempt, uncaughtExit, false) // a retry would only repeat it
  }
  // Not `===` alone: `throw undefined` is not a refusal.
  const refused =
    (attempt.refusedPayload !== undefined && error === attempt.refusedPayload) || steps?.isFatal(error) === true
  return failure(attempt, error, !refused && worthRetrying(attempt, error))
}

function waitOutcome(attempt: HandlerAttempt, children: Children): Promise<AttemptOutcome> {
  return refuseEndlessWait(attempt.parts.operations, attempt.record, children).then(
    () => (attempt.done ? undefined : children.outcome()),
    (error: unknown) => (attempt.done ? undefined : failure(attempt, error, worthRetrying(attempt, error))),
  )
}

/**
 * The outcome of a failure that is found only after the handler has returned. Data that is too large stays too large,
 * so that is not retried.
 */
export function lateFailure(attempt: Attempt, error: unknown): Outcome {
  return failure(attempt, error, !isMillraceError(error, 'DATA_TOO_LARGE') && worthRetrying(attempt, error))
}

/** The outcome of a failed attempt, which is retried if that is `worth` it and its phase may be retried. */
export function failure(attempt: Attempt, error: unknown, worth: boolean): Outcome {
  const retryable = worth && attempt.phases?.phaseFailure?.mayRetry(error) !== false
  return { kind: 'threw', error: describeError(error), retryable, retryIn: retryable ? backoff(attempt, error) : 0 }
}

/** Whether the worker's `retryable` allows a retry. */
function worthRetrying(attempt: Attempt, error: unknown): boolean {
  // OWN_JOB: a handler that ends its own job inside its transaction would do so again.
  if (isUnrecoverable(error) || isMillraceError(error, 'OWN_JOB')) return false
  const { operations, settings } = attempt.parts
  if (settings.retryable === undefined) return true
  try {
    const decision: unknown = settings.retryable(error, new Job(operations, attempt.record))
    if (isThenable(decision)) {
      decision.then(undefined, () => {})
      throw new TypeError("it answered a promise; it must answer 'retry' or 'fatal' at once")
    }
    if (decision !== 'retry' && decision !== 'fatal') {
      throw new TypeError(`it answered ${quote(decision)}; it must answer 'retry' or 'fatal'`)
    }
    return decision === 'retry'
  } catch (cause) {
    attempt.callbackFailed('retryable', cause)
    return true
  }
}

/**
 * The wait before the retry. A backoff strategy that is missing or throws is reported, and the default is used instead.
 */
function backoff(attempt: Attempt, error: unknown): Millis {
  const { record, handler, parts } = attempt
  const { custom } = parts.settings
  const { random } = parts.connection.runtime
  const phase = attempt.phases?.phaseFailure
  try {
    if (phase?.backoff !== undefined) return backoffDelay(phase.backoff, phase.failures, random, custom, error)
    const formula = record.backoff ?? handler.backoff ?? defaultBackoff
    return backoffDelay(formula, record.attempt, random, custom, error)
  } catch (cause) {
    attempt.callbackFailed('backoff', cause)
    return backoffDelay(defaultBackoff, record.attempt, random)
  }
}

// store/commit-errors.ts: what the errors of a commit say about the batch: whether it can have landed, and whether to send it again.
import { MillraceError, isMillraceError } from '../job/errors.js'
import type { ErrorCode } from '../job/errors.js'
import { describeError } from '../job/failure.js'
import type { Millis } from '../job/job.js'
import type { Store } from './store.js'

/** Errors by which a store says that a batch did not land and will not for now, so that it is no use to send it again. */
const nothingLanded: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'STORE_CLOSED',
  'WRITER_BEHIND',
  'DATA_TOO_LARGE',
  'TRANSACTION_TOO_LARGE',
  'MISSING_DRIVER',
  'SCHEMA_TOO_NEW',
  'DATABASE_PATH_MISSING',
  'DATABASE_IS_DIRECTORY',
  'DATABASE_NOT_WRITABLE',
  'DATABASE_INVALID',
  'DATABASE_FULL',
  'DATABASE_LOCKED',
  'TRANSACTION_STALE',
  'DATABASE_CORRUPT',
  'DATABASE_GONE',
  'DATABASE_OVERWRITTEN',
  'SECOND_SQLITE',
  'DATABASE_FORBIDDEN',
  'DATABASE_MISSING',
  'SCHEMA_MISSING',
  'POOL_TOO_SMALL',
])

/** Whether an error says that the batch did not land: for its own try alone. */
export function saysNothingLanded(error: unknown): error is MillraceError {
  return isMillraceError(error) && nothingLanded.has(error.code)
}

/** Errors by which a store says that a try did not reach it: nothing landed by it, and another one may. */
const nothingSent: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['DATABASE_UNREACHABLE', 'POOL_EXHAUSTED'])

/** How long a batch that does not reach the store is sent again. */
export const UNSENT_TRIED: Millis = 2_000

/** Whether an error says that the batch was not even sent: for its own try alone. */
export function saysNothingSent(error: unknown): boolean {
  return isMillraceError(error) && nothingSent.has(error.code)
}

/**
 * Whether an error is told as it is, whatever came before: the store is closed, or has moved on; or the batch is too large,
 * which it was each time that it was sent.
 */
export function isFinal(error: unknown): error is MillraceError {
  if (!isMillraceError(error)) return false
  return error.code === 'STORE_CLOSED' || error.code === 'WRITER_BEHIND' || error.code === 'DATA_TOO_LARGE'
}

/** Whether less may land where all of it does not: too many bytes, or more locks than the server has room for. */
export function isTooLarge(error: unknown): boolean {
  return isMillraceError(error, 'DATA_TOO_LARGE') || isMillraceError(error, 'TRANSACTION_TOO_LARGE')
}

/** The error for a store that did not answer. */
export function unavailable(store: Pick<Store, 'name'>, cause: unknown): MillraceError {
  const said = describeError(cause).message
  return new MillraceError(
    'STORE_UNAVAILABLE',
    `The ${store.name} store did not answer (${said}); whether a write landed is not known.`,
    { cause },
  )
}

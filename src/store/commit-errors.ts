// store/commit-errors.ts: what the error of a commit shows about its batch: whether it may have been applied, and
// whether to send it again.
import { MillraceError, isMillraceError } from '../job/errors/errors.js'
import type { ErrorCode } from '../job/errors/errors.js'
import { describeError } from '../job/errors/failure.js'
import type { Millis } from '../job/job.js'
import type { Store } from './store.js'

/** Errors of batches that were not applied, and would not be if they were sent again now. */
const notApplied: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
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
  'THREAD_NOT_STARTED',
  'SECOND_SQLITE',
  'DATABASE_FORBIDDEN',
  'DATABASE_MISSING',
  'SCHEMA_MISSING',
  'POOL_TOO_SMALL',
  'FORBIDDEN',
  'UNAUTHORIZED',
  'READ_ONLY',
  'INVALID_REQUEST',
  'PROTOCOL_MISMATCH',
  'HOST_NOT_ALLOWED',
  'ROUTE_NOT_FOUND',
])

/** Whether an error shows that the batch was not applied. Holds only for the try that failed with it. */
export function isNotApplied(error: unknown): error is MillraceError {
  return isMillraceError(error) && notApplied.has(error.code)
}

/** Errors of tries that did not reach the store: nothing was applied, and another try may succeed. */
const notSent: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'DATABASE_UNREACHABLE',
  'POOL_EXHAUSTED',
  'SERVER_UNREACHABLE',
])

/** How long a batch that does not reach the store is sent again. */
export const UNSENT_RETRY_TIME: Millis = 2_000

/** Whether an error shows that the batch was not even sent. Holds only for the try that failed with it. */
export function isNotSent(error: unknown): boolean {
  return isMillraceError(error) && notSent.has(error.code)
}

/**
 * Whether an error is reported unchanged, whatever earlier tries failed with: the store is closed, or has a later batch
 * of the writer; or the batch is too large, as it was on each try.
 */
export function isFinal(error: unknown): error is MillraceError {
  if (!isMillraceError(error)) return false
  return error.code === 'STORE_CLOSED' || error.code === 'WRITER_BEHIND' || error.code === 'DATA_TOO_LARGE'
}

/** Whether a store that sends batches again by itself has given one up. */
export function isGivenUp(error: unknown): boolean {
  return isMillraceError(error) && (error.code === 'STORE_UNAVAILABLE' || error.code === 'SERVER_UNREACHABLE')
}

/** Whether a smaller batch may be applied: this one had too many bytes, or needed more locks than the server has. */
export function isTooLarge(error: unknown): boolean {
  return isMillraceError(error, 'DATA_TOO_LARGE') || isMillraceError(error, 'TRANSACTION_TOO_LARGE')
}

/** The groups and the claims of a batch that a server names as refused, by their indexes. Nothing was applied. */
export function faultsIn(
  error: unknown,
): { readonly groups: ReadonlySet<number>; readonly asks: ReadonlySet<number> } | undefined {
  if (!isMillraceError(error) || !isNotApplied(error)) return undefined
  const { at, parts } = error.details as { readonly at?: unknown; readonly parts?: unknown }
  const named = Array.isArray(parts) ? (parts as readonly unknown[]) : [at]
  const groups = new Set<number>()
  const asks = new Set<number>()
  for (const each of named) {
    const found = typeof each === 'string' ? /^(?:body\.)?(groups|asks)\[(\d+)\]/.exec(each) : null
    if (found !== null) (found[1] === 'groups' ? groups : asks).add(Number(found[2]))
  }
  return groups.size + asks.size === 0 ? undefined : { groups, asks }
}

/** The error for a store that did not answer. */
export function unavailable(store: Pick<Store, 'name'>, cause: unknown): MillraceError {
  const reason = describeError(cause).message
  return new MillraceError(
    'STORE_UNAVAILABLE',
    `The ${store.name} store did not answer (${reason}); the write may or may not have been applied.`,
    { cause },
  )
}

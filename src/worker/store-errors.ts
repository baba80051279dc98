// worker/store-errors.ts: which store errors persist until they are fixed, so that a worker reports each of them once.
import { isMillraceError } from '../job/errors.js'
import type { ErrorCode, MillraceError } from '../job/errors.js'

/** This process cannot recover from them: it must be restarted, with another package or path. */
const permanent: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'STORE_CLOSED',
  'MISSING_DRIVER',
  'DATABASE_IS_DIRECTORY',
  'DATABASE_INVALID',
  'DATABASE_CORRUPT',
  'DATABASE_OVERWRITTEN',
  'INVALID_OPTION',
  'UNKNOWN_OPTION',
  'POOL_TOO_SMALL',
])

/** They last until the database or its environment is fixed; then work continues. */
const untilFixed: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'DATABASE_PATH_MISSING',
  'DATABASE_NOT_WRITABLE',
  'DATABASE_FULL',
  'DATABASE_FORBIDDEN',
  'DATABASE_MISSING',
  'DATABASE_GONE',
  'SECOND_SQLITE',
  'SCHEMA_MISSING',
  'SCHEMA_TOO_NEW',
])

/** Whether retrying is pointless. */
export function isPermanent(error: unknown): error is MillraceError {
  return isMillraceError(error) && permanent.has(error.code)
}

/** The store errors that a worker has reported since the store last responded. */
export class StoreErrors {
  #lastReported: string | undefined

  /** Whether to report an error: always, except for a persistent error that was the last one reported. */
  isNew(error: unknown): boolean {
    if (!isMillraceError(error) || !(permanent.has(error.code) || untilFixed.has(error.code))) return true
    const text = `${error.code}: ${error.message}`
    if (text === this.#lastReported) return false
    this.#lastReported = text
    return true
  }

  /** The store has responded: report the next error even if it is the same. */
  responded(): void {
    this.#lastReported = undefined
  }
}

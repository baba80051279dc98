// worker/store-errors.ts: which errors of a store stay until somebody sees to them, so that a worker says them once and not for ever.
import { isMillraceError } from '../job/errors.js'
import type { ErrorCode, MillraceError } from '../job/errors.js'

/** Nothing this process does makes them go away: it has to be made anew, with another package or path. */
const forGood: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
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

/** They stay until somebody has changed the database, or what is around it; then work goes on. */
const untilMended: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
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

/** Whether there is no use in trying again. */
export function isForGood(error: unknown): error is MillraceError {
  return isMillraceError(error) && forGood.has(error.code)
}

/** What a worker has said of its store since that last answered. */
export class StoreErrors {
  #said: string | undefined

  /** Whether an error is to be said: one that stays is, if it is not the one that was said last. */
  isNews(error: unknown): boolean {
    if (!isMillraceError(error) || !(forGood.has(error.code) || untilMended.has(error.code))) return true
    const told = `${error.code}: ${error.message}`
    if (told === this.#said) return false
    this.#said = told
    return true
  }

  /** The store has answered: what is wrong from now on is new. */
  over(): void {
    this.#said = undefined
  }
}

// worker/store-errors.ts: reports the errors of a worker's store: those that persist until they are fixed once.
import { MillraceError, isInstance, isMillraceError } from '../job/errors/errors.js'
import type { ErrorCode } from '../job/errors/errors.js'
import type { Emitter } from '../queue/events/events.js'
import { unavailable } from '../store/commit-errors.js'
import type { Store } from '../store/store.js'

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

/** Reports the errors of a worker's store, and each persistent one once until the store responds again. */
export class StoreErrors {
  readonly #store: Store
  readonly #emitter: Emitter
  readonly #concerns: (error: unknown) => boolean
  #lastReported: string | undefined

  /** `concerns` is called with every error first: it returns whether to report it. */
  constructor(store: Store, emitter: Emitter, concerns: (error: unknown) => boolean) {
    this.#store = store
    this.#emitter = emitter
    this.#concerns = concerns
  }

  /** The store failed. */
  report(error: unknown): void {
    if (!this.#concerns(error) || !this.#isNew(error)) return
    this.#emitter.error(isInstance(error, MillraceError) ? error : unavailable(this.#store, error))
  }

  /** The store has responded: report the next error even if it is the same. */
  responded(): void {
    this.#lastReported = undefined
  }

  /** Whether to report an error: always, except for a persistent error that was the last one reported. */
  #isNew(error: unknown): boolean {
    if (!isMillraceError(error) || !(permanent.has(error.code) || untilFixed.has(error.code))) return true
    const text = `${error.code}: ${error.message}`
    if (text === this.#lastReported) return false
    this.#lastReported = text
    return true
  }
}

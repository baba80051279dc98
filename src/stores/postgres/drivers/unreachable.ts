// stores/postgres/drivers/unreachable.ts: why there was no connection. Whatever it was, nothing had been sent.
import { MillraceError, isMillraceError } from '../../../job/errors.js'
import { describeError } from '../../../job/failure.js'
import type { Millis } from '../../../job/job.js'
import { sqlStateOf } from '../errors.js'

/** Where a server is, as options of a driver say it. */
export interface Target {
  readonly host?: unknown
  readonly port?: unknown
  readonly connectionString?: unknown
}

/** The server answered that it takes no connection for now: there are too many, or it is starting or stopping. */
const REFUSES: ReadonlySet<string> = new Set(['53300', '57P01', '57P02', '57P03'])

/** Whether the server answered with something that is to be seen to: a wrong password, a database that is not there. */
export function isAnswer(error: unknown): boolean {
  const state = sqlStateOf(error)
  return state !== undefined && !REFUSES.has(state)
}

/**
 * Finds out whether the server takes another connection, which tells a pool that is in use from a server that does not answer.
 * Those who ask at once share the answer.
 */
export function connectable(connect: () => Promise<void>): () => Promise<boolean> {
  let asking: Promise<boolean> | undefined
  return () =>
    (asking ??= connect()
      .then(
        () => true,
        // It answers, though it refuses; or no connection could be tried, because there is no driver to make one with.
        (error: unknown) => sqlStateOf(error) !== undefined || isMillraceError(error),
      )
      .finally(() => void (asking = undefined)))
}

/** The error for a server that no connection could be made to. */
export function unreachable(target: Target, cause: unknown): MillraceError {
  const address = addressOf(target)
  return new MillraceError(
    'DATABASE_UNREACHABLE',
    `Cannot connect to ${address} (${reasonOf(cause)}). Nothing was written; check the address, and that PostgreSQL listens there.`,
    { cause, details: { address } },
  )
}

/** The error for a pool whose connections were all in use for too long. */
export function exhausted(max: number, waited: Millis | undefined, cause: unknown): MillraceError {
  return new MillraceError(
    'POOL_EXHAUSTED',
    `All ${max} connections of the pool were in use${waited === undefined ? '' : ` for ${waited} ms`} (${reasonOf(cause)}). ` +
      'Nothing was written; give connections back, or make the pool larger.',
    { cause, details: { max } },
  )
}

/** Refuses a pool in which a transaction would wait for the connection that it has itself. */
export function refuseSmallPool(max: unknown): void {
  if (typeof max !== 'number' || Number.isNaN(max) || max >= 2) return
  throw new MillraceError(
    'POOL_TOO_SMALL',
    `The pool has at most ${max} connection, and a transaction keeps one while the store needs another. Give it at least 2; 5 or more where handlers use transactions.`,
    { details: { max } },
  )
}

function addressOf({ host, port, connectionString }: Target): string {
  if (typeof connectionString === 'string') {
    try {
      const url = new URL(connectionString)
      return `${url.hostname || 'localhost'}:${url.port || 5432}`
    } catch {
      // A form that only the driver knows.
    }
  }
  const first = (said: unknown): string | number | undefined => {
    const one: unknown = Array.isArray(said) ? said[0] : said
    return typeof one === 'string' || typeof one === 'number' ? one : undefined
  }
  return `${first(host) ?? process.env.PGHOST ?? 'localhost'}:${first(port) ?? process.env.PGPORT ?? 5432}`
}

/** What a driver said; of several addresses that were tried, the first that failed. */
function reasonOf(cause: unknown): string {
  const { errors } = (cause ?? {}) as { errors?: unknown }
  const first: unknown = Array.isArray(errors) ? errors[0] : undefined
  return describeError(first ?? cause).message
}

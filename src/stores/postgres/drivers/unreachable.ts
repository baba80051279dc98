// stores/postgres/drivers/unreachable.ts: why there was no connection. In all these cases nothing was sent.
import { MillraceError, isMillraceError } from '../../../job/errors/errors.js'
import { describeError } from '../../../job/errors/failure.js'
import type { Millis } from '../../../job/job.js'
import { sqlStateOf } from '../errors.js'

/** The address of a server, in the options of a driver. */
export interface Target {
  readonly host?: unknown
  readonly port?: unknown
  readonly connectionString?: unknown
}

/** SQLSTATEs of a server that accepts no connection for now: there are too many, or it is starting or stopping. */
const REFUSING_STATES: ReadonlySet<string> = new Set(['53300', '57P01', '57P02', '57P03'])

/** Whether the server answered with an error that the user has to fix: a wrong password, a missing database. */
export function isActionable(error: unknown): boolean {
  const state = sqlStateOf(error)
  return state !== undefined && !REFUSING_STATES.has(state)
}

/**
 * Finds out whether the server accepts another connection: that distinguishes an exhausted pool from a server that does not
 * answer. Concurrent callers share one attempt.
 */
export function connectionProbe(connect: () => Promise<void>): () => Promise<boolean> {
  let attempt: Promise<boolean> | undefined
  return () =>
    (attempt ??= connect()
      .then(
        () => true,
        // The server answered, even if it refuses; or nothing could be tried, because the driver's package is missing.
        (error: unknown) => sqlStateOf(error) !== undefined || isMillraceError(error),
      )
      .finally(() => void (attempt = undefined)))
}

/** The error for a server that cannot be reached. */
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

/** Refuses a pool in which a transaction would wait for the connection that it holds itself. */
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
      // A form that only the driver can parse.
    }
  }
  const first = (value: unknown): string | number | undefined => {
    const one: unknown = Array.isArray(value) ? value[0] : value
    return typeof one === 'string' || typeof one === 'number' ? one : undefined
  }
  return `${first(host) ?? process.env.PGHOST ?? 'localhost'}:${first(port) ?? process.env.PGPORT ?? 5432}`
}

/** The message of an error; if several addresses were tried, that of the first. */
function reasonOf(cause: unknown): string {
  const { errors } = (cause ?? {}) as { errors?: unknown }
  const first: unknown = Array.isArray(errors) ? errors[0] : undefined
  return describeError(first ?? cause).message
}

// stores/postgres/errors.ts: classifies the server's errors and converts them to errors of the catalogue.
import { MillraceError, isMillraceError } from '../../job/errors/errors.js'
import { describeError } from '../../job/errors/failure.js'
import type { Batch, Group } from '../../store/store.js'
import { bytesOf } from '../../store/batch-size.js'
import { wrongLevel } from './drivers/isolation.js'

/**
 * An SQLSTATE of the server. Prisma's own codes have the same form and differ in the first digit; some of Node's (EPIPE)
 * have no digit.
 */
const sqlState = /^(?!P[1-9])(?=.*\d)[0-9A-Z]{5}$/

/** The SQLSTATE of an error, if the server gave one. */
export function sqlStateOf(error: unknown, depth = 0): string | undefined {
  if (typeof error !== 'object' || error === null || depth > MAX_DEPTH) return undefined
  try {
    const { code, originalCode, cause, meta } = error as Record<'code' | 'originalCode' | 'cause' | 'meta', unknown>
    for (const each of [code, originalCode]) if (typeof each === 'string' && sqlState.test(each)) return each
    // Prisma and others wrap the server's error.
    const { driverAdapterError } = (meta ?? {}) as { driverAdapterError?: unknown }
    return sqlStateOf(meta, depth + 1) ?? sqlStateOf(driverAdapterError, depth + 1) ?? sqlStateOf(cause, depth + 1)
  } catch {
    return undefined // an object that a user threw, whose properties cannot be read
  }
}

/** How many causes `sqlStateOf` follows: they may form a cycle. */
const MAX_DEPTH = 5

/** Whether the server itself returned the error, so that the connection still works. */
export function isServerError(error: unknown): boolean {
  const { code, severity } = error as { code?: unknown; severity?: unknown }
  return typeof code === 'string' && code.length === 5 && /\d/.test(code) && severity !== 'FATAL'
}

/** Whether a prepared statement was not found on its connection, because a pooler mixes connections. */
export function isPreparedStatementLost(error: unknown): boolean {
  const state = sqlStateOf(error)
  return state === '26000' || state === '42P05' || state === '08P01'
}

/** The SQLSTATE for a lane id that this process has cached and the server does not have. */
export const LANE_LOST = 'MR007'

/** Whether a schema, table or function does not exist. */
export function isMissing(error: unknown): boolean {
  const state = sqlStateOf(error)
  return state === '3F000' || state === '42P01' || state === '42883'
}

/** Whether the same call may succeed when retried: lock timeout, deadlock, or serialization failure. */
export function isTransient(error: unknown): boolean {
  const state = sqlStateOf(error)
  return state === '55P03' || state === '40P01' || state === '40001'
}

const messageOf = (error: unknown): string => describeError(error).message

/** Converts an error of the server to one of the catalogue; returns it unchanged if the write may have been applied. */
export function toStoreError(error: unknown, schema: string): unknown {
  if (isMillraceError(error)) return error
  const fail = (code: ConstructorParameters<typeof MillraceError>[0], message: string): MillraceError =>
    new MillraceError(code, message, { cause: error })
  switch (sqlStateOf(error)) {
    case '25006':
      return fail(
        'DATABASE_NOT_WRITABLE',
        `PostgreSQL is read-only just now (${messageOf(error)}). Nothing was written; connect to the primary, or let it accept writes again.`,
      )
    case '42501':
    case '28000':
    case '28P01':
      return fail(
        'DATABASE_FORBIDDEN',
        `PostgreSQL does not allow it (${messageOf(error)}). Nothing was written; check the user, its password, and its rights on schema '${schema}'.`,
      )
    case '3D000':
      return fail('DATABASE_MISSING', `${messageOf(error)}: create the database first; Millrace makes only its schema.`)
    case '3F000':
    case '42P01':
    case '42883':
      return fail(
        'SCHEMA_MISSING',
        `Schema '${schema}' is not there, or not as this version of Millrace needs it (${messageOf(error)}). Run the SQL of migrationSql(), or leave 'migrate' on.`,
      )
    case '53100':
      return fail(
        'DATABASE_FULL',
        `The disk of PostgreSQL is full (${messageOf(error)}). Nothing was written; free some space.`,
      )
    case '53200':
      return fail(
        'TRANSACTION_TOO_LARGE',
        `PostgreSQL has no room left for the locks of this transaction (${messageOf(error)}): every id and dedup key of your own takes one. Nothing was written; roll it back and add fewer at once, or raise max_locks_per_transaction.`,
      )
    case '54000':
      return tooLarge(error)
    case '40001':
      return fail(
        'TRANSACTION_STALE',
        `Others have written since this transaction began, so that PostgreSQL cannot go on with it (${messageOf(error)}). Nothing was written; roll it back and run it again, or begin it at read committed.`,
      )
    case '55P03':
    case '40P01':
      return fail(
        'DATABASE_LOCKED',
        `Somebody's open transaction holds what this write needs (${messageOf(error)}). Nothing was written; end that transaction, and try again.`,
      )
    case 'MR003':
      return wrongLevel(isolationIn(error), error)
    case 'XX000':
      return messageOf(error).startsWith('invalid memory alloc request size') ? tooLarge(error) : error
    default:
      return error
  }
}

function tooLarge(cause: unknown): MillraceError {
  const message = `PostgreSQL takes no more than 256 MiB at once (${messageOf(cause)}). Nothing was written; keep the bulk elsewhere and send a reference to it.`
  return new MillraceError('DATA_TOO_LARGE', message, { cause })
}

/** Encodes a text to send. Throws `DATA_TOO_LARGE` if it exceeds the length of a string, so that no one retries it. */
export function encoded<T>(make: () => T): T {
  try {
    return make()
  } catch (error) {
    throw error instanceof RangeError ? tooLarge(error) : error
  }
}

/** The largest JSON value of PostgreSQL, in bytes; a batch is sent as one. */
const MAX_BYTES = 2 ** 28

/** Throws for groups that are certainly too large, before the server spends time on parsing them. */
export function refuseTooLarge(groups: readonly Group[], most: number = MAX_BYTES): void {
  let bytes = 0
  for (const group of groups) bytes += bytesOf(group)
  if (bytes >= most) throw tooLarge(new Error(`a batch of ${bytes} bytes`))
}

/** The isolation level that an SQL function has rejected. */
export function isolationIn(error: unknown): string {
  return messageOf(error).replace('isolation ', '')
}

/** The error for a batch that arrives after a later batch of its writer was applied. */
export function writerBehind({ writer, seq }: Batch, cause: unknown): MillraceError {
  const { detail } = cause as { detail?: string }
  const last = Number(detail)
  const message = `Writer ${writer} sent batch ${seq} after batch ${last} was applied; it was not applied.`
  return new MillraceError('WRITER_BEHIND', message, { details: { writer, seq, last }, cause })
}

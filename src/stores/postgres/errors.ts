// stores/postgres/errors.ts: what the server's errors mean, and how a user is told.
import { MillraceError, isMillraceError } from '../../job/errors.js'
import { describeError } from '../../job/failure.js'
import type { Batch, Group } from '../../store/store.js'
import { bytesOf } from '../../store/batch-size.js'
import { wrongLevel } from './drivers/isolation.js'

/** A code of the server's; Prisma's own look alike but for their first digit, and some of Node's (EPIPE) but for having none. */
const serversCode = /^(?!P[1-9])(?=.*\d)[0-9A-Z]{5}$/

/** The server's own code for an error, where it gave one. */
export function stateOf(error: unknown, depth = 0): string | undefined {
  if (typeof error !== 'object' || error === null || depth > DEEPEST) return undefined
  try {
    const { code, originalCode, cause, meta } = error as Record<'code' | 'originalCode' | 'cause' | 'meta', unknown>
    for (const each of [code, originalCode]) if (typeof each === 'string' && serversCode.test(each)) return each
    // Prisma and others wrap it.
    const { driverAdapterError } = (meta ?? {}) as { driverAdapterError?: unknown }
    return stateOf(meta, depth + 1) ?? stateOf(driverAdapterError, depth + 1) ?? stateOf(cause, depth + 1)
  } catch {
    return undefined // thrown by a user, and not to be looked at
  }
}

/** Causes that are followed in search of the server's code: they may be a cycle. */
const DEEPEST = 5

/** Whether the server itself has answered with an error, so that the connection is sound. */
export function isServersWord(error: unknown): boolean {
  const { code, severity } = error as { code?: unknown; severity?: unknown }
  return typeof code === 'string' && code.length === 5 && /\d/.test(code) && severity !== 'FATAL'
}

/** Whether a prepared statement was not where it was prepared: a pooler mixes connections. */
export function isUnpreparable(error: unknown): boolean {
  const state = stateOf(error)
  return state === '26000' || state === '42P05' || state === '08P01'
}

/** The code for a lane that the process remembers and the server does not have. */
export const LANE_LOST = 'MR007'

/** Whether a schema, table or function is not there. */
export function isMissing(error: unknown): boolean {
  const state = stateOf(error)
  return state === '3F000' || state === '42P01' || state === '42883'
}

/** Whether the same call may succeed in a moment: a lock was waited for too long, or two waited for each other. */
export function isPassing(error: unknown): boolean {
  const state = stateOf(error)
  return state === '55P03' || state === '40P01' || state === '40001'
}

const said = (error: unknown): string => describeError(error).message

/** How a user is told; errors that say nothing about what landed stay as they are. */
export function toStoreError(error: unknown, schema: string): unknown {
  if (isMillraceError(error)) return error
  const fail = (code: ConstructorParameters<typeof MillraceError>[0], message: string): MillraceError =>
    new MillraceError(code, message, { cause: error })
  switch (stateOf(error)) {
    case '25006':
      return fail(
        'DATABASE_NOT_WRITABLE',
        `PostgreSQL is read-only just now (${said(error)}). Nothing was written; connect to the primary, or let it accept writes again.`,
      )
    case '42501':
    case '28000':
    case '28P01':
      return fail(
        'DATABASE_FORBIDDEN',
        `PostgreSQL does not allow it (${said(error)}). Nothing was written; check the user, its password, and its rights on schema '${schema}'.`,
      )
    case '3D000':
      return fail('DATABASE_MISSING', `${said(error)}: create the database first; Millrace makes only its schema.`)
    case '3F000':
    case '42P01':
    case '42883':
      return fail(
        'SCHEMA_MISSING',
        `Schema '${schema}' is not there, or not as this version of Millrace needs it (${said(error)}). Run the SQL of migrationSql(), or leave 'migrate' on.`,
      )
    case '53100':
      return fail(
        'DATABASE_FULL',
        `The disk of PostgreSQL is full (${said(error)}). Nothing was written; free some space.`,
      )
    case '53200':
      return fail(
        'TRANSACTION_TOO_LARGE',
        `PostgreSQL has no room left for the locks of this transaction (${said(error)}): every id and dedup key of your own takes one. Nothing was written; roll it back and add fewer at once, or raise max_locks_per_transaction.`,
      )
    case '54000':
      return tooLarge(error)
    case '40001':
      return fail(
        'TRANSACTION_STALE',
        `Others have written since this transaction began, so that PostgreSQL cannot go on with it (${said(error)}). Nothing was written; roll it back and run it again, or begin it at read committed.`,
      )
    case '55P03':
    case '40P01':
      return fail(
        'DATABASE_LOCKED',
        `Somebody's open transaction holds what this write needs (${said(error)}). Nothing was written; end that transaction, and try again.`,
      )
    case 'MR003':
      return wrongLevel(levelIn(error), error)
    case 'XX000':
      return said(error).startsWith('invalid memory alloc request size') ? tooLarge(error) : error
    default:
      return error
  }
}

function tooLarge(cause: unknown): MillraceError {
  const message = `PostgreSQL takes no more than 256 MiB at once (${said(cause)}). Nothing was written; keep the bulk elsewhere and send a reference to it.`
  return new MillraceError('DATA_TOO_LARGE', message, { cause })
}

/** Makes a text to be sent. One that is longer than a string can be is refused, rather than sent again and again. */
export function encoded<T>(make: () => T): T {
  try {
    return make()
  } catch (error) {
    throw error instanceof RangeError ? tooLarge(error) : error
  }
}

/** Bytes that PostgreSQL holds in one value of JSON, which is how a batch is sent. */
const LARGEST = 2 ** 28

/** Refuses groups that are certain to be too large, before the server has spent its time on reading them. */
export function refuseTooLarge(groups: readonly Group[], most: number = LARGEST): void {
  let bytes = 0
  for (const group of groups) bytes += bytesOf(group)
  if (bytes >= most) throw tooLarge(new Error(`a batch of ${bytes} bytes`))
}

/** The level of isolation that a function of the schema has found and cannot work at. */
export function levelIn(error: unknown): string {
  return said(error).replace('isolation ', '')
}

/** How a writer is told that a later batch of its has been applied. */
export function behind({ writer, seq }: Batch, cause: unknown): MillraceError {
  const { detail } = cause as { detail?: string }
  const last = Number(detail)
  const message = `Writer ${writer} sent batch ${seq} after batch ${last} was applied; it was not applied.`
  return new MillraceError('WRITER_BEHIND', message, { details: { writer, seq, last }, cause })
}

// stores/sqlite/file/errors.ts: classifies the errors of drivers, and converts them to errors for users.
import { statfsSync } from 'node:fs'
import { dirname } from 'node:path'
import { MillraceError, isInstance } from '../../../job/errors/errors.js'
import { describeError } from '../../../job/errors/failure.js'

/** Kinds of failures that are handled differently. */
export type FailureKind = 'busy' | 'full' | 'corrupt' | 'invalid' | 'readonly' | 'unopenable' | 'large' | 'other'

/** SQLite's primary result codes by kind. Node's drivers report the number, better-sqlite3 the name. */
const kinds: Readonly<Record<string, FailureKind>> = {
  3: 'readonly',
  PERM: 'readonly',
  5: 'busy',
  BUSY: 'busy',
  // A table locked by another connection of the same process, in a shared cache.
  6: 'busy',
  LOCKED: 'busy',
  8: 'readonly',
  READONLY: 'readonly',
  11: 'corrupt',
  CORRUPT: 'corrupt',
  13: 'full',
  FULL: 'full',
  14: 'unopenable',
  CANTOPEN: 'unopenable',
  // A race for the index of the WAL that SQLite has given up on.
  15: 'busy',
  PROTOCOL: 'busy',
  18: 'large',
  TOOBIG: 'large',
  26: 'invalid',
  NOTADB: 'invalid',
}

const BUSY_SNAPSHOT = 517

/** SQLite's messages by kind, for the one call that reports no number: `all()` of `@photostructure/sqlite`. */
const messageKinds: readonly (readonly [start: string, kind: FailureKind])[] = [
  ['database is locked', 'busy'],
  ['database table is locked', 'busy'],
  ['locking protocol', 'busy'],
  ['database or disk is full', 'full'],
  ['database disk image is malformed', 'corrupt'],
  ['file is not a database', 'invalid'],
  ['attempt to write a readonly database', 'readonly'],
  ['unable to open database file', 'unopenable'],
  ['string or blob too big', 'large'],
]

/** Classifies an error that a driver threw. */
export function failureKind(error: unknown): FailureKind {
  if (typeof error !== 'object' || error === null) return 'other'
  // Longer than a JavaScript string can be.
  if (error instanceof RangeError && error.message === 'Invalid string length') return 'large'
  const { code, errcode, message } = error as { code?: unknown; errcode?: unknown; message?: unknown }
  // The low byte is the primary code: 517, BUSY_SNAPSHOT, is a kind of 5, BUSY.
  if (typeof errcode === 'number') return kinds[errcode & 0xff] ?? 'other'
  if (code === 'ERR_SQLITE_ERROR')
    return messageKinds.find(([start]) => String(message).startsWith(start))?.[1] ?? 'other'
  if (typeof code !== 'string' || !code.startsWith('SQLITE_')) return 'other'
  return kinds[code.split('_')[1] ?? ''] ?? 'other'
}

/** Whether another connection has the file locked, so that a retry may succeed soon. */
export function isBusy(error: unknown): boolean {
  return failureKind(error) === 'busy'
}

/** An error that counts as busy, for a conflict within this process that SQLite does not see. */
export function busyHere(message: string): Error {
  return Object.assign(new Error(message), { code: 'SQLITE_BUSY' })
}

/**
 * The error for a user, for an error that a driver threw while working on a file (undefined: in memory). An error of
 * Millrace is returned unchanged.
 */
export function toStoreError(error: unknown, path: string | undefined): MillraceError {
  if (isInstance(error, MillraceError)) return error
  const file = nameOf(path)
  const options = { cause: error, details: path === undefined ? {} : { path } }
  const message = describeError(error).message
  switch (failureKind(error)) {
    case 'busy':
      return new MillraceError(
        'DATABASE_LOCKED',
        `Another program holds ${file} locked. Nothing was written; try again once its transaction has ended.`,
        options,
      )
    case 'full':
      return fullError(file, options)
    case 'corrupt':
      return new MillraceError(
        'DATABASE_CORRUPT',
        `${capital(file)} is damaged. Stop what uses it, keep a copy, then restore a backup; docs/backup.md says what else can be tried.`,
        options,
      )
    case 'invalid':
      return new MillraceError(
        'DATABASE_INVALID',
        `${capital(file)} is not an SQLite database, or is encrypted. Correct the path, or move that file away.`,
        options,
      )
    case 'readonly':
      return new MillraceError(
        'DATABASE_NOT_WRITABLE',
        `${capital(file)} cannot be written to. Give this process write access to the file and to its folder.`,
        options,
      )
    case 'large':
      return new MillraceError(
        'DATA_TOO_LARGE',
        `SQLite takes no values of this size (${message}). Nothing was written; keep the bulk elsewhere and send a reference to it.`,
        options,
      )
    case 'unopenable':
    case 'other':
      if (path !== undefined && hasNoSpace(path)) return fullError(file, options)
      return new MillraceError(
        'DATABASE_FAILED',
        `${capital(file)} failed: ${message}. The driver's own error is in \`cause\`; check the disk, and that it is a local one.`,
        options,
      )
  }
}

/** How messages name a file. */
export function nameOf(path: string | undefined): string {
  return path === undefined ? 'the database in memory' : `the database file ${path}`
}

function fullError(file: string, options: { readonly cause: unknown; readonly details: object }): MillraceError {
  return new MillraceError(
    'DATABASE_FULL',
    `There is no space left for ${file}. Nothing was half-written; make room on its disk and try again.`,
    { cause: options.cause, details: { ...options.details } },
  )
}

/** Where SQLite memory-maps a file, a full disk shows as an I/O error. */
function hasNoSpace(path: string): boolean {
  try {
    return statfsSync(dirname(path)).bavail === 0
  } catch {
    return false
  }
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1)
}

/** The error for a transaction whose snapshot is too old to write to; undefined for other failures. */
export function staleError(error: unknown, path: string | undefined): MillraceError | undefined {
  const { code, errcode } = (typeof error === 'object' && error !== null ? error : {}) as {
    code?: unknown
    errcode?: unknown
  }
  if (errcode !== BUSY_SNAPSHOT && code !== 'SQLITE_BUSY_SNAPSHOT') return undefined
  return new MillraceError(
    'TRANSACTION_STALE',
    `The transaction began by reading ${nameOf(path)}, and others have written to it since, so that it cannot write any more. Roll it back, and begin it with BEGIN IMMEDIATE.`,
    { cause: error, details: path === undefined ? {} : { path } },
  )
}

/** Whether a row was refused by a uniqueness constraint. */
export function isConstraint(error: unknown): boolean {
  if (typeof error !== 'object' || error === null) return false
  const { code, errcode } = error as { code?: unknown; errcode?: unknown }
  if (typeof errcode === 'number') return (errcode & 0xff) === 19
  return typeof code === 'string' && code.startsWith('SQLITE_CONSTRAINT')
}

/** The error for a file that was deleted or replaced while it was open: writes to it would be lost. */
export function fileGone(path: string): MillraceError {
  return new MillraceError(
    'DATABASE_GONE',
    `The database file ${path} was deleted or replaced while it was open. Nothing was written; put it back and start anew.`,
    { details: { path } },
  )
}

/** The error for a file that lacks commits that this process made durable. */
export function overwritten(path: string | undefined): MillraceError {
  return new MillraceError(
    'DATABASE_OVERWRITTEN',
    `Commits that this process has made in ${nameOf(path)} are no longer there: another copy of SQLite in this process (another driver) has written over them, or the file was restored in place. Nothing more is written. Stop the process, check the file (docs/backup.md), and use one driver for it: open the store with your own handle, sqlite(db).`,
    { details: path === undefined ? {} : { path } },
  )
}

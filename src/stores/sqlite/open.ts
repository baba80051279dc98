// stores/sqlite/open.ts: opens a database, sets it up, and leaves nothing behind where that fails.
import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { MillraceError } from '../../job/errors.js'
import type { Millis } from '../../job/job.js'
import { quote } from '../../job/quote.js'
import type { Runtime } from '../../store/runtime.js'
import { refuseSecondCopy, remember } from './library-copies.js'
import { adopt, classOf, connect, driverNames, fileOf, loadDriver, saysReadOnly } from './driver.js'
import type { Database, DatabaseClass, DriverName, SqliteHandle } from './driver.js'
import { failureKind, gone, toStoreError } from './errors.js'
import { migrate } from './migrate.js'
import type { Schema } from './migrate.js'
import { problemWithFile, problemWithNeighbours, removeEmpty } from './paths.js'
import { whenFree } from './busy-retry.js'

/** How sure a commit is when it answers. */
export type Synchronous = 'full' | 'normal' | 'off'

/** How a database is opened. */
export interface OpenOptions {
  /** Which driver opens a path. Default: Node's own where it has one, else `@photostructure/sqlite`. */
  readonly driver?: DriverName | undefined
  /**
   * What a commit survives beside a crash of the process: 'full' a power cut too; with 'normal' a power cut may undo the
   * last commits, whole; with 'off' it may damage the file. Default 'full'.
   */
  readonly synchronous?: Synchronous | undefined
  /** How long to wait for others who hold the file locked, in milliseconds. Default 10,000. */
  readonly patience?: Millis | undefined
  /** The schema the database is brought to. Default: its tables are left as they are. */
  readonly schema?: Schema | undefined
}

/** Handles in memory that a store uses itself: two on one would not see each other's writes. */
const inUse = new WeakSet<SqliteHandle>()

const synchronousModes: readonly Synchronous[] = ['full', 'normal', 'off']

/** What there is to open: a file by a class, or memory where there is no path. */
interface Found {
  readonly Driver: DatabaseClass
  readonly path: string | undefined
}

/**
 * Opens a path or ':memory:', or a connection of the store's own to the file of a user's handle: the store must neither
 * see nor join a transaction that is open on that one. Only a handle in memory is used itself, for there is no other
 * way to its tables; its settings are left alone, and it stays the user's to close.
 *
 * A failure leaves nothing open, and no empty file where there was none.
 */
export async function openDatabase(
  target: string | SqliteHandle,
  options: OpenOptions,
  runtime: Runtime,
): Promise<Database> {
  const { driver, synchronous = 'full', patience = 10_000, schema } = checked(options)
  if (typeof target === 'string') return openFound(await foundByPath(target, driver))
  const path = fileOfHandle(target)
  if (path !== undefined) return openFound(foundByHandle(target, path))
  if (inUse.has(target)) throw invalid('sqlite: this handle in memory has a store already. Use that one.')
  const db = adopt(target, () => void inUse.delete(target))
  inUse.add(target)
  if (schema) await migrate(db, schema, runtime, patience)
  return db

  async function openFound({ Driver, path }: Found): Promise<Database> {
    const isNew = path !== undefined && !existsSync(path)
    let db: Database | undefined
    let forget = (): void => {}
    try {
      if (path !== undefined) refuseSecondCopy(path, typeof target === 'string' ? Driver : target)
      const opened = connect(Driver, path ?? ':memory:', () => forget())
      db = opened
      await whenFree(runtime, path, () => setUp(opened, synchronous), patience)
      if (path !== undefined) {
        refuseSecondCopy(path, opened.handle) // another may have come while this one waited
        forget = remember(path, opened.handle)
      }
      if (schema) await migrate(opened, schema, runtime, patience)
      if (path !== undefined && !existsSync(path)) throw gone(path)
      return opened
    } catch (error) {
      db?.close()
      const told = toStoreError(error, path)
      // A locked file is in use by another, even if it is still empty.
      if (isNew && told.code !== 'DATABASE_LOCKED') removeEmpty(path)
      throw explained(told, path)
    }
  }
}

/**
 * One more connection to the file of one that is open, for the user's statements: it has the settings of its driver. Its log
 * is moved by the one that is open.
 */
export function openAnother({ handle, path }: Database, synchronous: Synchronous): Database {
  const db = connect(classOf(handle), path!)
  db.exec(`${flushing(synchronous)}; PRAGMA wal_autocheckpoint = 0`)
  return db
}

/** The file that a target means, or undefined for memory; refuses what is none, and options that have no meaning. */
export function checkTarget(target: string | SqliteHandle, options: OpenOptions): string | undefined {
  checked(options)
  return typeof target === 'string' ? fileAt(target) : fileOfHandle(target)
}

function checked(options: OpenOptions): OpenOptions {
  const { driver, synchronous, patience } = options
  oneOf('driver', driver, driverNames)
  oneOf('synchronous', synchronous, synchronousModes)
  if (patience !== undefined && !(typeof patience === 'number' && patience >= 0)) {
    throw invalid(`sqlite: patience must be milliseconds from 0 up, not ${quote(patience)}.`)
  }
  return options
}

function oneOf(option: string, value: unknown, known: readonly string[]): void {
  if (value === undefined || known.includes(value as string)) return
  throw invalid(`sqlite: ${option} must be one of ${known.map(quote).join(', ')}, not ${quote(value)}.`)
}

function invalid(message: string, cause?: unknown): MillraceError {
  return new MillraceError('INVALID_OPTION', message, { cause })
}

function fileAt(target: string): string | undefined {
  if (target === '' || target.startsWith('file:') || target.includes('\0')) {
    throw invalid(`sqlite: ${quote(target)} is no path. Give the path of a file, or ':memory:'.`)
  }
  return target === ':memory:' ? undefined : resolve(target)
}

async function foundByPath(target: string, driver: DriverName | undefined): Promise<Found> {
  const path = fileAt(target)
  const problem = path !== undefined && problemWithFile(path)
  if (problem) throw problem
  return { Driver: await loadDriver(driver), path }
}

/** The file of what should be a user's open handle. */
function fileOfHandle(handle: SqliteHandle): string | undefined {
  if (typeof handle?.prepare !== 'function' || typeof handle.exec !== 'function') {
    throw invalid(
      `sqlite: ${quote(handle)} is neither a path nor a handle. Give the path of a file, ':memory:', or an open database of node:sqlite, @photostructure/sqlite or better-sqlite3.`,
    )
  }
  try {
    return fileOf(handle)
  } catch (error) {
    throw invalid(`sqlite: the handle given cannot be used: ${(error as Error).message}. Give an open one.`, error)
  }
}

function foundByHandle(handle: SqliteHandle, path: string): Found {
  if (!existsSync(path)) throw gone(path)
  const problem = problemWithFile(path)
  if (problem) throw problem
  if (isReadOnly(handle)) {
    throw new MillraceError(
      'DATABASE_NOT_WRITABLE',
      `The handle given for the database file ${path} was opened read-only. Give one that may write.`,
      { details: { path } },
    )
  }
  return { Driver: classOf(handle), path }
}

/** Whether the owner of a handle meant its file only to be read. Node's drivers do not tell; trying to write does. */
function isReadOnly(handle: SqliteHandle): boolean {
  const says = saysReadOnly(handle)
  if (says !== undefined) return says
  const db = adopt(handle)
  if (db.inTransaction) return false // nothing may be tried inside it
  const timeout = db.prepare('PRAGMA busy_timeout').get()?.[0] ?? 0
  try {
    db.exec('PRAGMA busy_timeout = 0; BEGIN; PRAGMA user_version = 1')
    return false
  } catch (error) {
    return failureKind(error) === 'readonly'
  } finally {
    if (db.inTransaction) db.exec('ROLLBACK')
    db.exec(`PRAGMA busy_timeout = ${timeout}`)
  }
}

/**
 * What is flushed. On macOS a plain fsync leaves data in the drive's own cache, where a power cut loses it: `fullfsync` flushes
 * that as well. Commits need it at 'full', and checkpoints unless the file may be damaged. Elsewhere it does nothing.
 */
function flushing(synchronous: Synchronous): string {
  const [commits, checkpoints] = [Number(synchronous === 'full'), Number(synchronous !== 'off')]
  return `PRAGMA synchronous = ${synchronous}; PRAGMA fullfsync = ${commits}; PRAGMA checkpoint_fullfsync = ${checkpoints}`
}

/** Settings are made on every open: drivers differ in what a connection has by default. */
function setUp(db: Database, synchronous: Synchronous): void {
  const mode = db.prepare('PRAGMA journal_mode = WAL').get()?.[0]
  if (db.path !== undefined && mode !== 'wal') {
    throw new MillraceError(
      'DATABASE_FAILED',
      `The database file ${db.path} cannot have a write-ahead log: it stays in mode '${mode}'. Network file systems cannot hold one; keep the file on a local disk.`,
      { details: { path: db.path, mode } },
    )
  }
  db.exec(`
    ${flushing(synchronous)};
    PRAGMA wal_autocheckpoint = 0;
    PRAGMA journal_size_limit = 67108864;
    PRAGMA cache_size = -16000;
    PRAGMA foreign_keys = OFF;
    PRAGMA temp_store = MEMORY;
  `)
}

/** The error told better, where a look at the file system shows what a driver did not say. */
function explained(told: MillraceError, path: string | undefined): MillraceError {
  if (path === undefined || (told.code !== 'DATABASE_FAILED' && told.code !== 'DATABASE_NOT_WRITABLE')) return told
  return problemWithFile(path, told.cause) ?? problemWithNeighbours(path, told.cause) ?? told
}

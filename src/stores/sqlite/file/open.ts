// stores/sqlite/file/open.ts: opens a database and configures it; a failure leaves nothing behind.
import { existsSync } from 'node:fs'
import { resolve } from 'node:path'
import { MillraceError, quote } from '../../../job/errors/errors.js'
import type { Millis } from '../../../job/job.js'
import type { Runtime } from '../../../store/runtime.js'
import { refuseSecondCopy, remember } from './library-copies.js'
import { adopt, classOf, connect, driverNames, fileOf, loadDriver, readOnlyFlag } from './driver.js'
import type { Database, DatabaseClass, DriverName, SqliteHandle } from './driver.js'
import { failureKind, fileGone, toStoreError } from './errors.js'
import { migrate } from './migrate.js'
import type { Schema } from './migrate.js'
import { problemWithFile, problemWithNeighbours, removeEmpty } from './paths.js'
import { retryWhileBusy } from './busy-retry.js'
import { markFile } from './thread-copies.js'

/** How durable a commit is when it is acknowledged. */
export type Synchronous = 'full' | 'normal' | 'off'

/** How a database is opened. */
export interface OpenOptions {
  /** Which driver opens a path. Default: Node's own if it has one, else `@photostructure/sqlite`. */
  readonly driver?: DriverName | undefined
  /**
   * What a commit survives besides a crash of the process: 'full' a power cut too; with 'normal' a power cut may undo
   * the last commits, each as a whole; with 'off' it may damage the file. Default 'full'.
   */
  readonly synchronous?: Synchronous | undefined
  /** How long to wait while the file is locked, in milliseconds. Default 10,000. */
  readonly patience?: Millis | undefined
  /** The schema to migrate to. Default: the tables are left as they are. */
  readonly schema?: Schema | undefined
}

/** In-memory handles that a store uses itself: two stores on one handle would not see each other's writes. */
const inUse = new WeakSet<SqliteHandle>()

const synchronousModes: readonly Synchronous[] = ['full', 'normal', 'off']

/** What to open: a file with a driver class, or memory if there is no path. */
interface Target {
  readonly Driver: DatabaseClass
  readonly path: string | undefined
}

/**
 * Opens a path or ':memory:', or the store's own connection to the file of a user's handle: the store must neither see
 * nor join a transaction that is open on that handle. Only an in-memory handle is used itself, because there is no
 * other access to its tables; its settings are left alone, and the user closes it.
 *
 * A failure leaves nothing open, and no empty file where there was none. `checkDriver` may refuse the driver of a file
 * before it is opened.
 */
export async function openDatabase(
  target: string | SqliteHandle,
  options: OpenOptions,
  runtime: Runtime,
  checkDriver: (path: string, Driver: DatabaseClass) => Promise<void> = async () => {},
): Promise<Database> {
  const { driver, synchronous = 'full', patience = 10_000, schema } = checked(options)
  if (typeof target === 'string') return openTarget(await targetByPath(target, driver))
  const path = fileOfHandle(target)
  if (path !== undefined) return openTarget(targetByHandle(target, path))
  if (inUse.has(target)) throw invalid('sqlite: this handle in memory has a store already. Use that one.')
  const db = adopt(target, () => void inUse.delete(target))
  inUse.add(target)
  if (schema) await migrate(db, schema, runtime, patience)
  return db

  async function openTarget({ Driver, path }: Target): Promise<Database> {
    const isNew = path !== undefined && !existsSync(path)
    let db: Database | undefined
    let forget = (): void => {}
    try {
      if (path !== undefined) {
        refuseSecondCopy(path, typeof target === 'string' ? Driver : target)
        await checkDriver(path, Driver)
        forget = await markFile(path, Driver, runtime)
      }
      const opened = connect(Driver, path ?? ':memory:', () => forget())
      db = opened
      await retryWhileBusy(runtime, path, () => setUp(opened, synchronous), patience)
      if (path !== undefined) {
        refuseSecondCopy(path, opened.handle) // another copy may have opened it while this one waited
        const [unmark, forgetHandle] = [forget, remember(path, opened.handle)]
        forget = () => {
          forgetHandle()
          unmark()
        }
      }
      if (schema) await migrate(opened, schema, runtime, patience)
      if (path !== undefined && !existsSync(path)) throw fileGone(path)
      return opened
    } catch (error) {
      if (db === undefined) forget()
      else db.close()
      const storeError = toStoreError(error, path)
      // A locked file, or one that another copy of SQLite has open, is in use, even if it is still empty.
      if (isNew && storeError.code !== 'DATABASE_LOCKED' && storeError.code !== 'SECOND_SQLITE') removeEmpty(path)
      throw explained(storeError, path)
    }
  }
}

/**
 * Opens another connection to the file of an open one, for the user's statements, with the settings of its driver. The
 * open connection runs the checkpoints.
 */
export function openAnother({ handle, path }: Database, synchronous: Synchronous): Database {
  const db = connect(classOf(handle), path!)
  db.exec(`${flushPragmas(synchronous)}; PRAGMA wal_autocheckpoint = 0`)
  return db
}

/** The file of a target, or undefined for memory. Throws for an invalid target, and for invalid options. */
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

async function targetByPath(target: string, driver: DriverName | undefined): Promise<Target> {
  const path = fileAt(target)
  const problem = path !== undefined && problemWithFile(path)
  if (problem) throw problem
  return { Driver: await loadDriver(driver), path }
}

/** The file of a user's open handle; throws if it is not one. */
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

function targetByHandle(handle: SqliteHandle, path: string): Target {
  if (!existsSync(path)) throw fileGone(path)
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

/** Whether a handle was opened read-only. Node's drivers do not report it, but a write shows it. */
function isReadOnly(handle: SqliteHandle): boolean {
  const flag = readOnlyFlag(handle)
  if (flag !== undefined) return flag
  const db = adopt(handle)
  if (db.inTransaction) return false // nothing may be tried inside the user's transaction
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
 * What is flushed to disk. On macOS a plain fsync leaves data in the drive's cache, where a power cut loses it;
 * `fullfsync` flushes that cache as well. Commits need it with 'full', and checkpoints unless the file may be damaged.
 * Elsewhere it has no effect.
 */
function flushPragmas(synchronous: Synchronous): string {
  const [commits, checkpoints] = [Number(synchronous === 'full'), Number(synchronous !== 'off')]
  return `PRAGMA synchronous = ${synchronous}; PRAGMA fullfsync = ${commits}; PRAGMA checkpoint_fullfsync = ${checkpoints}`
}

/** Sets everything on every open, because the defaults of drivers differ. */
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
    ${flushPragmas(synchronous)};
    PRAGMA wal_autocheckpoint = 0;
    PRAGMA journal_size_limit = 67108864;
    PRAGMA cache_size = -16000;
    PRAGMA foreign_keys = OFF;
    PRAGMA temp_store = MEMORY;
  `)
}

/** A more precise error, if the file system shows what a driver did not report. */
function explained(storeError: MillraceError, path: string | undefined): MillraceError {
  if (path === undefined || (storeError.code !== 'DATABASE_FAILED' && storeError.code !== 'DATABASE_NOT_WRITABLE'))
    return storeError
  return problemWithFile(path, storeError.cause) ?? problemWithNeighbours(path, storeError.cause) ?? storeError
}

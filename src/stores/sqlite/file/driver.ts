// stores/sqlite/file/driver.ts: one interface to the SQLite drivers, each loaded only when it is needed.
import { MillraceError } from '../../../job/errors/errors.js'
import { cannotLoad, importPackage } from '../../../store/packages.js'

/** Parameters and columns of statements. Integers are plain numbers: all that Millrace stores are below 2^53. */
export type Value = string | number | null

/** One row, as an array of columns. */
export type SqlRow = readonly Value[]

/**
 * A prepared statement: the driver's own object, for speed. Rows are arrays. The columns of a row must have distinct
 * names that are not numbers, because the oldest drivers return rows as objects.
 */
export interface Statement {
  /** Runs it and counts the changes. Only for statements that return no rows: for others the oldest drivers do not count. */
  run(...values: Value[]): { readonly changes: number | bigint }
  /** The first row, or undefined if there is none. Only for statements that return rows. */
  get(...values: Value[]): SqlRow | undefined
  /** All rows. Only for statements that return rows. */
  all(...values: Value[]): SqlRow[]
}

/** One connection to a database. */
export interface Database {
  /** The driver's own handle. */
  readonly handle: SqliteHandle
  /** The file, as an absolute path with links resolved; undefined in memory. */
  readonly path: string | undefined
  /** Prepares one statement. */
  prepare(sql: string): Statement
  /** Runs statements that return nothing. */
  exec(sql: string): void
  /** Whether a transaction is open on this connection. */
  readonly inTransaction: boolean
  /** Closes the connection if it is the store's own; closing it again does nothing. */
  close(): void
}

/** A driver by the name of its module. */
export type DriverName = 'node:sqlite' | '@photostructure/sqlite' | 'better-sqlite3'

/** All supported drivers. */
export const driverNames: readonly DriverName[] = ['node:sqlite', '@photostructure/sqlite', 'better-sqlite3']

/**
 * An open database of the user: a `Database` of better-sqlite3, or a `DatabaseSync` of node:sqlite or
 * `@photostructure/sqlite`.
 */
export interface SqliteHandle {
  /** Prepares one statement. */
  prepare(sql: string): {
    run(...values: never[]): unknown
    get(...values: never[]): unknown
    all(...values: never[]): unknown[]
  }
  /** Runs statements that return nothing. */
  exec(sql: string): unknown
  /** Closes the connection. */
  close(): unknown
}

/** Members that only some of the drivers have. */
interface NativeStatement extends Statement {
  setReturnArrays?(on: boolean): void
  setReadBigInts?(on: boolean): void
  readonly reader?: boolean
  raw?(on: boolean): unknown
  safeIntegers?(on: boolean): unknown
}

interface Native {
  prepare(sql: string): NativeStatement
  exec(sql: string): unknown
  close(): unknown
  readonly isTransaction?: boolean
  readonly inTransaction?: boolean
  readonly readonly?: boolean
}

/** The class of a driver, whose constructor opens a file. */
export type DatabaseClass = new (path: string) => SqliteHandle

/** Loads the driver named, or else the best one available here. Throws MISSING_DRIVER if there is none. */
export async function loadDriver(name?: DriverName): Promise<DatabaseClass> {
  switch (name) {
    case 'node:sqlite': {
      const nodeDriver = builtIn()
      if (nodeDriver) return nodeDriver
      const message = `node:sqlite is part of Node from 22.13 on, and this is Node ${process.versions.node}. Install a driver: npm install ${packages['@photostructure/sqlite'].install}, and leave out 'driver'.`
      throw new MillraceError('MISSING_DRIVER', message, { details: { package: name, installed: false } })
    }
    case '@photostructure/sqlite':
    case 'better-sqlite3':
      return imported(name)
    case undefined:
      return builtIn() ?? imported('@photostructure/sqlite')
  }
}

/** The driver inside Node, if it can be used without a flag. */
function builtIn(): DatabaseClass | undefined {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  if (major < 22 || (major === 22 && minor < 13)) return undefined
  const { emitWarning } = process
  // Node 22 warns that its SQLite is experimental. That risk is ours to judge, not our users'. Other warnings are passed on.
  process.emitWarning = (warning: string | Error, ...rest: never[]) => {
    if (rest[0] !== 'ExperimentalWarning') emitWarning.call(process, warning, ...rest)
  }
  try {
    const module: { DatabaseSync?: DatabaseClass } | undefined = process.getBuiltinModule('node:sqlite')
    return module?.DatabaseSync
  } catch {
    return undefined
  } finally {
    process.emitWarning = emitWarning
  }
}

/** Imported drivers: a process that drops its privileges afterwards may not be able to import the package again. */
const importedDrivers = new Map<DriverName, DatabaseClass>()

/** The packages that contain a driver. */
const packages = {
  // Its later major versions are for versions of Node that have a driver of their own.
  '@photostructure/sqlite': { install: '@photostructure/sqlite@1', load: () => import('@photostructure/sqlite') },
  'better-sqlite3': { install: 'better-sqlite3', load: () => import('better-sqlite3') },
} as const

/** Imports a driver from an optional package. */
async function imported(name: Exclude<DriverName, 'node:sqlite'>): Promise<DatabaseClass> {
  const known = importedDrivers.get(name)
  if (known !== undefined) return known
  const { install, load } = packages[name]
  const module = (await importPackage({ name, neededBy: 'SQLite', install, instead: BUILT_IN }, load)) as {
    DatabaseSync?: DatabaseClass
    default?: DatabaseClass
  }
  const found = module.DatabaseSync ?? module.default
  if (typeof found !== 'function') throw cannotLoad({ name, neededBy: 'SQLite' }, new Error('it exports no class'))
  importedDrivers.set(name, found)
  return found
}

const BUILT_IN = ' Or use Node 22.13 or later, which has its own.'

/**
 * Opens a connection of the store's own, which the store closes. `path` is the file, or ':memory:'. Nothing ever waits
 * inside SQLite, which would block the event loop: some drivers start with a busy timeout of seconds. `onClose` is
 * called when the connection is closed.
 */
export function connect(Driver: DatabaseClass, path: string, onClose: () => void = () => {}): Database {
  const handle = new Driver(path)
  handle.exec('PRAGMA busy_timeout = 0')
  return adapt(handle, onClose)
}

/** A connection on the user's own handle, which the user closes. Closing this one only calls `onClose`. */
export function adopt(handle: SqliteHandle, onClose: () => void = () => {}): Database {
  const db = adapt(handle)
  return {
    handle,
    path: db.path,
    prepare: db.prepare,
    exec: db.exec,
    get inTransaction() {
      return db.inTransaction
    },
    close: onClose,
  }
}

/** The class of a handle, to open its file once more. */
export function classOf(handle: SqliteHandle): DatabaseClass {
  return handle.constructor as DatabaseClass
}

/** The file of a handle, as an absolute path with links resolved; undefined in memory. */
export function fileOf(handle: SqliteHandle): string | undefined {
  const rows = withArrayRows(handle.prepare('PRAGMA database_list') as NativeStatement).all()
  const file = rows.find(([, name]) => name === 'main')?.[2]
  return typeof file === 'string' && file !== '' ? file : undefined
}

/** The first column of the first row that a statement returns. */
export function firstValue(handle: SqliteHandle, sql: string): Value | undefined {
  return withArrayRows(handle.prepare(sql) as NativeStatement).get()?.[0]
}

/** Whether a handle reports itself as read-only; undefined if its driver does not report it. */
export function readOnlyFlag(handle: SqliteHandle): boolean | undefined {
  return (handle as Native).readonly
}

/** Adapts a handle. With `onClose` the connection is the store's own, and closing it closes the handle. */
function adapt(handle: SqliteHandle, onClose?: () => void): Database {
  const native = handle as Native
  const transactionFlag = (['isTransaction', 'inTransaction'] as const).find((name) => native[name] !== undefined)
  const path = fileOf(handle)
  const numbered = bindsNumbersByPosition(native)
  let closed = false
  return {
    handle,
    path,
    prepare: (sql) => {
      const statement = withArrayRows(native.prepare(sql))
      return numbered || !/\?\d/.test(sql) ? statement : bindingByName(statement)
    },
    exec: (sql) => void native.exec(sql),
    get inTransaction() {
      return transactionFlag === undefined ? isNested(native) : native[transactionFlag] === true
    },
    close() {
      if (onClose !== undefined && !closed) {
        if (path !== undefined) truncateWal(native)
        native.close()
        onClose()
      }
      closed = true
    },
  }
}

/**
 * Checkpoints the WAL into the file. SQLite does so when the last connection closes, but `@photostructure/sqlite` 1
 * closes a connection only when its statements are garbage-collected. Until then the file alone would be incomplete.
 */
function truncateWal(native: Native): void {
  try {
    native.exec('PRAGMA wal_checkpoint(TRUNCATE)')
  } catch {
    // The next connection that opens the file finds the WAL.
  }
}

/**
 * For a driver that does not report it (Node before 22.16): a plain BEGIN takes no lock, and fails only inside a
 * transaction.
 */
function isNested(native: Native): boolean {
  try {
    native.exec('BEGIN')
  } catch {
    return true
  }
  native.exec('ROLLBACK')
  return false
}

/** Makes a statement return rows as arrays of plain values, whatever the settings of its database. */
function withArrayRows(statement: NativeStatement): Statement {
  if (statement.raw) {
    if (statement.reader) {
      statement.raw(true)
      statement.safeIntegers?.(false)
    }
    return statement
  }
  statement.setReadBigInts?.(false)
  if (statement.setReturnArrays) {
    statement.setReturnArrays(true)
    return statement
  }
  // Node before 22.16.
  const toArray = (row: object): SqlRow => Object.values(row) as Value[]
  return {
    run: (...values) => statement.run(...values),
    get: (...values) => {
      const row: object | undefined = statement.get(...values)
      return row && toArray(row)
    },
    all: (...values) => statement.all(...values).map(toArray),
  }
}

/** Whether a driver binds values by position to numbered parameters (`?1`). */
function bindsNumbersByPosition(native: Native): boolean {
  try {
    native.prepare('SELECT ?2 AS b, ?1 AS a').get(1, 2)
    return true
  } catch {
    return false
  }
}

/** better-sqlite3, and Node before 22.20 and 24.7, treat numbered parameters as names. They take the values as an object. */
function bindingByName(statement: Statement): Statement {
  const values = (list: readonly Value[]): Value =>
    Object.fromEntries(list.map((value, at) => [at + 1, value])) as never
  return {
    run: (...list) => statement.run(values(list)),
    get: (...list) => statement.get(values(list)),
    all: (...list) => statement.all(values(list)),
  }
}

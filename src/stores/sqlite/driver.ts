// stores/sqlite/driver.ts: the drivers of SQLite under one face, each loaded only when it is needed.
import { MillraceError } from '../../job/errors.js'
import { cannotLoad, importPackage } from '../../store/packages.js'

/** What goes into a statement and comes out of it. Integers are plain numbers: all of ours are below 2^53. */
export type Value = string | number | null

/** One row, column by column. */
export type SqlRow = readonly Value[]

/**
 * A prepared statement: the driver's own object, for speed. Rows come as arrays. The columns of a row must have names
 * of their own, which are not numbers: the oldest drivers give rows as objects.
 */
export interface Statement {
  /** Runs it and counts what it changed. Only for statements that answer no rows: the oldest drivers count none. */
  run(...values: Value[]): { readonly changes: number | bigint }
  /** The first row, or undefined where there is none. Only for statements that answer rows. */
  get(...values: Value[]): SqlRow | undefined
  /** All rows. Only for statements that answer rows. */
  all(...values: Value[]): SqlRow[]
}

/** One connection to a database. */
export interface Database {
  /** What the driver gave. */
  readonly handle: SqliteHandle
  /** The file, absolute and with links followed; undefined in memory. */
  readonly path: string | undefined
  /** Prepares one statement. */
  prepare(sql: string): Statement
  /** Runs statements that answer nothing. */
  exec(sql: string): void
  /** Whether a transaction is open on this connection. */
  readonly inTransaction: boolean
  /** Closes the connection if it is the store's own; closing it again does nothing. */
  close(): void
}

/** A driver by the name of its module. */
export type DriverName = 'node:sqlite' | '@photostructure/sqlite' | 'better-sqlite3'

/** All drivers there are. */
export const driverNames: readonly DriverName[] = ['node:sqlite', '@photostructure/sqlite', 'better-sqlite3']

/**
 * An open database of the user's: a `Database` of better-sqlite3, or a `DatabaseSync` of node:sqlite or
 * `@photostructure/sqlite`.
 */
export interface SqliteHandle {
  /** Prepares one statement. */
  prepare(sql: string): {
    run(...values: never[]): unknown
    get(...values: never[]): unknown
    all(...values: never[]): unknown[]
  }
  /** Runs statements that answer nothing. */
  exec(sql: string): unknown
  /** Closes the connection. */
  close(): unknown
}

/** What the drivers have beyond their common face. */
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

/** What opens a file: the class of a driver. */
export type DatabaseClass = new (path: string) => SqliteHandle

/** Loads a driver: the one named, or else the best there is here. Throws MISSING_DRIVER where there is none. */
export async function loadDriver(name?: DriverName): Promise<DatabaseClass> {
  switch (name) {
    case 'node:sqlite': {
      const own = builtIn()
      if (own) return own
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

/** The driver inside Node, where it may be used without a flag. */
function builtIn(): DatabaseClass | undefined {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  if (major < 22 || (major === 22 && minor < 13)) return undefined
  const { emitWarning } = process
  // Node 22 warns that its SQLite is experimental. That is for us to weigh, not for our users; all else is passed on.
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

/** A memo of what was imported: a process that gives up its rights afterwards may not find the package again. */
const known = new Map<DriverName, DatabaseClass>()

/** The packages that a driver can come from. */
const packages = {
  // Its later majors are for versions of Node that have a driver of their own.
  '@photostructure/sqlite': { install: '@photostructure/sqlite@1', load: () => import('@photostructure/sqlite') },
  'better-sqlite3': { install: 'better-sqlite3', load: () => import('better-sqlite3') },
} as const

/** A driver from an optional package. */
async function imported(name: Exclude<DriverName, 'node:sqlite'>): Promise<DatabaseClass> {
  const before = known.get(name)
  if (before !== undefined) return before
  const { install, load } = packages[name]
  const module = (await importPackage({ name, neededBy: 'SQLite', install, instead: BUILT_IN }, load)) as {
    DatabaseSync?: DatabaseClass
    default?: DatabaseClass
  }
  const found = module.DatabaseSync ?? module.default
  if (typeof found !== 'function') throw cannotLoad({ name, neededBy: 'SQLite' }, new Error('it exports no class'))
  known.set(name, found)
  return found
}

const BUILT_IN = ' Or use Node 22.13 or later, which has its own.'

/**
 * A connection of the store's own, which it closes. `path` is the file, or ':memory:'. Nothing ever waits inside SQLite,
 * where it would hold the event loop: some drivers begin with a timeout of seconds. `closed` is called when it is closed.
 */
export function connect(Driver: DatabaseClass, path: string, closed: () => void = () => {}): Database {
  const handle = new Driver(path)
  handle.exec('PRAGMA busy_timeout = 0')
  return adapt(handle, closed)
}

/** A connection on the user's own handle, which stays the user's to close; `left` is told instead. */
export function adopt(handle: SqliteHandle, left: () => void = () => {}): Database {
  const db = adapt(handle)
  return {
    handle,
    path: db.path,
    prepare: db.prepare,
    exec: db.exec,
    get inTransaction() {
      return db.inTransaction
    },
    close: left,
  }
}

/** The class of a handle, to open its file once more. */
export function classOf(handle: SqliteHandle): DatabaseClass {
  return handle.constructor as DatabaseClass
}

/** The file of a handle, absolute and with links followed; undefined in memory. */
export function fileOf(handle: SqliteHandle): string | undefined {
  const rows = arrays(handle.prepare('PRAGMA database_list') as NativeStatement).all()
  const file = rows.find(([, name]) => name === 'main')?.[2]
  return typeof file === 'string' && file !== '' ? file : undefined
}

/** The first column of the first row that a statement gives. */
export function firstValue(handle: SqliteHandle, sql: string): Value | undefined {
  return arrays(handle.prepare(sql) as NativeStatement).get()?.[0]
}

/** Whether a handle says of itself that it only reads; undefined where its driver does not tell. */
export function saysReadOnly(handle: SqliteHandle): boolean | undefined {
  return (handle as Native).readonly
}

/** The face of a handle. `left` is given for a connection of the store's own, which is then closed with it. */
function adapt(handle: SqliteHandle, left?: () => void): Database {
  const native = handle as Native
  const tells = (['isTransaction', 'inTransaction'] as const).find((name) => native[name] !== undefined)
  const path = fileOf(handle)
  const numbers = takesNumbers(native)
  let closed = false
  return {
    handle,
    path,
    prepare: (sql) => {
      const statement = arrays(native.prepare(sql))
      return numbers || !/\?\d/.test(sql) ? statement : named(statement)
    },
    exec: (sql) => void native.exec(sql),
    get inTransaction() {
      return tells === undefined ? isNested(native) : native[tells] === true
    },
    close() {
      if (left !== undefined && !closed) {
        if (path !== undefined) emptyLog(native)
        native.close()
        left()
      }
      closed = true
    },
  }
}

/**
 * Brings the log into the file. The last connection to close does so of itself, but `@photostructure/sqlite` 1 closes a
 * connection only when its statements are collected as garbage; until then the file alone would not be whole.
 */
function emptyLog(native: Native): void {
  try {
    native.exec('PRAGMA wal_checkpoint(TRUNCATE)')
  } catch {
    // Then the next to open the file finds the log.
  }
}

/** Asks a driver that does not tell (Node before 22.16): a plain BEGIN takes no lock, and fails only inside another. */
function isNested(native: Native): boolean {
  try {
    native.exec('BEGIN')
  } catch {
    return true
  }
  native.exec('ROLLBACK')
  return false
}

/** Makes a statement give its rows as arrays of plain values, whatever its database was told. */
function arrays(statement: NativeStatement): Statement {
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

/** Whether a driver takes values by place for parameters with numbers (`?1`). */
function takesNumbers(native: Native): boolean {
  try {
    native.prepare('SELECT ?2 AS b, ?1 AS a').get(1, 2)
    return true
  } catch {
    return false
  }
}

/** To better-sqlite3, and to Node before 22.20 and 24.7, parameters with numbers are names: they are given as an object. */
function named(statement: Statement): Statement {
  const values = (list: readonly Value[]): Value =>
    Object.fromEntries(list.map((value, at) => [at + 1, value])) as never
  return {
    run: (...list) => statement.run(values(list)),
    get: (...list) => statement.get(values(list)),
    all: (...list) => statement.all(values(list)),
  }
}

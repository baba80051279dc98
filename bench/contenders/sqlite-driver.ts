// The SQLite driver that all contenders share: the one that Millrace chooses, `node:sqlite` where there is one.
import { createRequire } from 'node:module'

/** The part of a prepared statement that the benches use. */
export interface Statement {
  run(...values: readonly unknown[]): { readonly changes: number | bigint; readonly lastInsertRowid: number | bigint }
  get(...values: readonly unknown[]): unknown
  all(...values: readonly unknown[]): unknown[]
}

/** The part of a database handle that the benches use. */
export interface Database {
  exec(sql: string): void
  prepare(sql: string): Statement
  close(): void
}

type Module = { readonly DatabaseSync: new (path: string) => Database }

function load(): { readonly name: string; readonly module: Module } {
  const require = createRequire(import.meta.url)
  for (const name of ['node:sqlite', '@photostructure/sqlite']) {
    try {
      return { name, module: require(name) as Module }
    } catch {
      // Try the next one.
    }
  }
  throw new Error('No SQLite driver: use Node 22.13 or later, or install @photostructure/sqlite.')
}

const { name, module } = load()

/** Names the driver, for the report. */
export const driverName = name

/** Opens a database file, or creates it. */
export const openDatabase = (path: string): Database => new module.DatabaseSync(path)

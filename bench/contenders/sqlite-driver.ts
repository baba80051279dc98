// The SQLite driver that all contenders share: Node's own where it has one, as Millrace does it.
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
      // The next one, then.
    }
  }
  throw new Error('No SQLite driver: use Node 22.13 or later, or install @photostructure/sqlite.')
}

const { name, module } = load()

/** Which driver it is, for the report. */
export const driverName = name

/** Opens a database file, or makes it. */
export const openDatabase = (path: string): Database => new module.DatabaseSync(path)

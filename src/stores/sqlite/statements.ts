// stores/sqlite/statements.ts: every statement, prepared once for a connection.
import type { Database, Statement } from './driver.js'
import { sql } from './sql.js'

/** The statements of `sql.ts`, ready to run. */
export type Statements = { readonly [Name in keyof typeof sql]: Statement }

/** Prepares all of them; one that does not fit the schema fails here and not in the middle of a commit. */
export function prepareAll(database: Database): Statements {
  const prepared = Object.entries(sql).map(([name, text]) => [name, database.prepare(text)])
  return Object.fromEntries(prepared) as Statements
}

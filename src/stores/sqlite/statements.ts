// stores/sqlite/statements.ts: prepares the statements of a connection.
import type { Database, Statement } from './file/driver.js'
import { sql } from './statement-texts.js'

/** The statements of `sql.ts`, ready to run. */
export type Statements = { readonly [Name in keyof typeof sql]: Statement }

/** Prepares all statements. One that does not fit the schema fails here, and not in the middle of a commit. */
export function prepareAll(database: Database): Statements {
  const prepared = Object.entries(sql).map(([name, text]) => [name, database.prepare(text)])
  return Object.fromEntries(prepared) as Statements
}

/** Prepares each statement when it is first used: a user transaction needs few of them. */
export function prepareWhenUsed(prepare: (text: string) => Statement): Statements {
  const prepared = new Map<string, Statement>()
  const statements = {}
  for (const [name, text] of Object.entries(sql)) {
    const get = (): Statement => {
      let statement = prepared.get(name)
      if (statement === undefined) prepared.set(name, (statement = prepare(text)))
      return statement
    }
    Object.defineProperty(statements, name, { get, enumerable: true })
  }
  return statements as Statements
}

// Kysely over any handle that answers at once.
import { Kysely, SqliteDialect } from 'kysely'

/** What is used of a handle. */
interface Handle {
  prepare(sql: string): {
    run(...values: unknown[]): unknown
    all(...values: unknown[]): Record<string, unknown>[]
  }
  close(): unknown
}

/** A Kysely on a handle, with the face that its dialect expects, which is that of better-sqlite3. */
export function kysely<Tables>(db: Handle): Kysely<Tables> {
  const database = {
    prepare: (text: string) => ({
      reader: /^\s*(select|pragma|insert.*returning)/is.test(text),
      all: (params: readonly unknown[]) => db.prepare(text).all(...params),
      run: (params: readonly unknown[]) =>
        db.prepare(text).run(...params) as { changes: number; lastInsertRowid: number },
      iterate: (): never => {
        throw new Error('not used')
      },
    }),
    close: () => void db.close(),
  }
  return new Kysely({ dialect: new SqliteDialect({ database }) })
}

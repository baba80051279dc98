// Stores with transactions, one of each kind, for what must hold on all of them.
import postgresJs from 'postgres'
import { afterAll } from 'vitest'
import type { Store } from 'millrace'
import { postgres } from 'millrace/postgres'
import { sqlite } from 'millrace/sqlite'
import { newSchema, sharedServer } from '../postgres/shared.js'
import { closing } from '../setup.js'
import { freshFolder } from '../sqlite/folder.js'

/** The kinds of stores that have transactions. */
export type Kind = 'SQLite' | 'SQLite in memory' | 'PostgreSQL' | 'PostgreSQL by postgres.js'

/** All of them. */
export const kinds: readonly Kind[] = ['SQLite', 'SQLite in memory', 'PostgreSQL', 'PostgreSQL by postgres.js']

/** Makes stores of every kind, each with nothing in it, open, and closed after the test. */
export function everywhere(): (kind: Kind) => Promise<Store> {
  const file = freshFolder()
  let made = 0
  let sql: postgresJs.Sql | undefined
  afterAll(() => sql?.end())
  const make = async (kind: Kind): Promise<Store> => {
    if (kind === 'SQLite') return sqlite(file(`${++made}.db`))
    if (kind === 'SQLite in memory') return sqlite(':memory:')
    const url = await sharedServer()
    sql ??= postgresJs(url, { onnotice: () => {}, fetch_types: false })
    return postgres(kind === 'PostgreSQL' ? url : sql, { schema: newSchema() })
  }
  return async (kind) => {
    const store = closing(await make(kind))
    await store.open()
    return store
  }
}

// The stores that tests run on, for what must hold on all of them.
import postgresJs from 'postgres'
import { afterAll } from 'vitest'
import type { Store } from 'millrace'
import { http } from 'millrace/http'
import { memory } from 'millrace/memory'
import { postgres } from 'millrace/postgres'
import { sqlite } from 'millrace/sqlite'
import { newSchema, sharedServer } from './stores/postgres/server/shared.js'
import { closing } from './setup.js'
import { serveStore } from './stores/http/bare-server.js'
import { freshFolder } from './stores/sqlite/folder.js'

/** The kinds of stores that have transactions. */
export const transacting = ['SQLite', 'SQLite in memory', 'PostgreSQL', 'PostgreSQL by postgres.js'] as const

/** One kind for each store of the package. */
export const kinds = ['memory', 'SQLite', 'PostgreSQL'] as const

/** The same, and a remote store: a server over SQLite. For tests that need no upkeep, which is the server's. */
export const served = [...kinds, 'HTTP'] as const

/** A kind of store. */
type Kind = (typeof served | typeof transacting)[number]

/** Makes stores of every kind, each with nothing in it, and closed after the test; those with transactions are open. */
export function stores(): (kind: Kind) => Promise<Store> {
  const file = freshFolder()
  let made = 0
  let sql: postgresJs.Sql | undefined
  afterAll(() => sql?.end())
  const make = async (kind: Exclude<Kind, 'memory'>): Promise<Store> => {
    if (kind === 'HTTP') {
      const server = closing(await serveStore(closing(sqlite(file(`${++made}.db`)))))
      return http(server.url)
    }
    if (kind === 'SQLite') return sqlite(file(`${++made}.db`))
    if (kind === 'SQLite in memory') return sqlite(':memory:')
    const url = await sharedServer()
    sql ??= postgresJs(url, { onnotice: () => {}, fetch_types: false })
    return postgres(kind === 'PostgreSQL' ? url : sql, { schema: newSchema() })
  }
  return async (kind) => {
    if (kind === 'memory') return closing(memory())
    const store = closing(await make(kind))
    await store.open()
    return store
  }
}

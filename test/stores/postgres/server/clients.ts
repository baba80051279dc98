// Connections of the tests' own, beside those of a store, and roles to connect as; all gone after each test.
import { Client } from 'pg'
import { afterEach } from 'vitest'
import type { Store } from '../../../../src/store/store.js'
import { newSchema, sharedServer } from './shared.js'

const clients: Client[] = []
const roles: { readonly url: string; readonly name: string }[] = []

afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.end().catch(() => {})))
  for (const role of roles.splice(0)) await dropped(role)
})

/** A store of the role may still be at work and block this: the session that a deadlock chooses tries again. */
async function dropped({ url, name }: { readonly url: string; readonly name: string }): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      return await run(url, `drop owned by ${name}; drop role ${name}`)
    } catch (error) {
      if ((error as { code?: string }).code !== '40P01' || tries === 10) throw error
    }
  }
}

/** A connection, closed after the test. */
export async function connected(url?: string): Promise<Client> {
  const client = new Client(url ?? (await sharedServer()))
  client.on('error', () => {}) // some tests end them
  await client.connect()
  clients.push(client)
  return client
}

/** Runs SQL on a connection of its own. */
export async function run(url: string, sql: string): Promise<void> {
  await rows(url, sql)
}

/** The rows of a statement, run on a connection of its own. */
export async function rows<Row extends object>(url: string, sql: string, values: unknown[] = []): Promise<Row[]> {
  const client = new Client(url)
  await client.connect()
  try {
    await client.query('set client_min_messages = warning')
    return (await client.query<Row>(sql, values)).rows
  } finally {
    await client.end()
  }
}

/** The URL of a new role on a database, which may do nothing but connect; the role is dropped after the test. */
export async function newRole(url: string): Promise<{ readonly name: string; readonly url: string }> {
  const name = newSchema()
  await run(url, `create role ${name} login password 'secret'`)
  roles.push({ url, name })
  const theirs = new URL(url)
  theirs.username = name
  theirs.password = 'secret'
  return { name, url: theirs.href }
}

/** Resolves when all other processes know who watches through a store: a commit through it reads that first. */
export async function announced(store: Store): Promise<void> {
  await store.commit({ writer: newSchema(), seq: 1, groups: [], renewals: [], asks: [] })
}

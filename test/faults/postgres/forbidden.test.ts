// A database that refuses for a while: it turns read-only, or takes away a right.
import { afterEach, expect, test } from 'vitest'
import { postgres } from '../../../src/postgres.js'
import type { Server } from '../../stores/postgres/server/server.js'
import { newDatabase, newSchema, ownServer } from '../../stores/postgres/server/shared.js'
import { scene } from '../processes.js'
import { busyRun, withClient } from './busy-run.js'

const path = scene()
let server: Server | undefined
let undo: (() => Promise<unknown>) | undefined

afterEach(async () => {
  await undo?.()
  await server?.close()
  server = undo = undefined
})

async function execute(url: string, ...statements: readonly string[]): Promise<void> {
  await withClient(url, async (client) => {
    for (const statement of statements) await client.query(statement)
  })
}

test(
  'a server that turns read-only under load is reported by name, and work goes on when it takes writes again',
  { timeout: 120_000 },
  async () => {
    server = await ownServer()
    const { url } = server
    const run = await busyRun({ url, ledger: path('ledger') })
    for (let round = 0; round < 3; round++) {
      await run.more(100)
      const trouble = run.trouble('DATABASE_NOT_WRITABLE')
      await execute(url, 'alter system set default_transaction_read_only = on', 'select pg_reload_conf()')
      expect((await trouble).message).toContain('read-only')
      expect(await run.add()).toMatchObject({ codes: ['DATABASE_NOT_WRITABLE', '25006'] })
      await execute(url, 'alter system reset default_transaction_read_only', 'select pg_reload_conf()')
    }
    await run.more(100)
    await run.finish()
  },
)

test(
  'a right that is revoked under load is reported by name, and work goes on when it is granted again',
  { timeout: 120_000 },
  async () => {
    const url = await newDatabase()
    const store = postgres(url)
    await store.open()
    await store.close()
    const role = newSchema()
    undo = () => execute(url, `drop owned by ${role}`, `drop role ${role}`)
    const tables = 'select, insert, update, delete on all tables in schema millrace'
    await execute(
      url,
      `create role ${role} login password 'secret'`,
      `grant usage on schema millrace to ${role}`,
      `grant ${tables} to ${role}`,
      `grant all on all sequences in schema millrace to ${role}`,
      `alter default privileges grant insert on tables to ${role}`, // the table of effects is yet to come
    )
    const theirs = new URL(url)
    theirs.username = role
    theirs.password = 'secret'

    const run = await busyRun({ url, workersUrl: theirs.href, ledger: path('ledger'), store: { migrate: false } })
    await run.more(100)
    const trouble = run.trouble('DATABASE_FORBIDDEN')
    await execute(url, `revoke update on millrace.job from ${role}`)
    expect((await trouble).message).toContain('permission denied')
    await execute(url, `grant update on millrace.job to ${role}`)
    await run.more(100)
    // A right of the user's own SQL is the matter of the job: it fails, and is tried again.
    const retrying = run.retrying()
    await execute(url, `revoke insert on effect from ${role}`)
    expect(await retrying).toContain('permission denied')
    await execute(url, `grant insert on effect to ${role}`)
    await run.more(100)
    await run.finish()
  },
)

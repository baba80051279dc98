// A handler's transaction that is broken off at the end of its lease, while a statement of it is under way: nothing of it is
// written, then or later, whichever driver runs it.
import { Pool } from 'pg'
import postgresJs from 'postgres'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Store } from 'millrace'
import { postgres } from 'millrace/postgres'
import { systemRuntime } from '../../../../src/store/runtime.js'
import { openDriver } from '../../../../src/stores/postgres/drivers/open.js'
import { startProxy } from '../../../stores/postgres/server/proxy.js'
import { newDatabase } from '../../../stores/postgres/server/shared.js'
import { connected, rows } from '../../../stores/postgres/server/clients.js'
import { closing, event, gate } from '../../../setup.js'

let url = ''
let pool: Pool
let sql: postgresJs.Sql

beforeAll(async () => {
  url = await newDatabase()
  pool = new Pool({ connectionString: url, max: 6 })
  pool.on('error', () => {})
  sql = postgresJs(url, { max: 6, onnotice: () => {}, fetch_types: false })
  await pool.query('create table effects (queue text not null, what text not null)')
})

afterAll(async () => {
  await pool.end()
  await sql.end({ timeout: 1 })
})

/** Writes with what a callback is given, by whichever driver. */
type Writing = (tx: unknown, queue: string, what: string) => Promise<unknown>

const INSERT = 'insert into effects (queue, what) values ($1, $2)'
const writings: Readonly<Record<string, Writing>> = {
  pg: (tx, ...values) => (tx as Pool).query(INSERT, values),
  'postgres.js': async (tx, ...values) => (tx as postgresJs.TransactionSql).unsafe(INSERT, values),
}

it('a statement of postgres.js that reaches the server late is ended as well', async () => {
  const proxy = await startProxy(Number(new URL(url).port))
  onTestFinished(() => proxy.close())
  const own = postgresJs(proxy.through(url), { max: 2, onnotice: () => {}, fetch_types: false })
  onTestFinished(() => own.end({ timeout: 0 }))
  const driver = await openDriver(own, { patience: 20_000, connections: 2, timer: systemRuntime().timer })
  const theirs = await connected(url)
  await theirs.query('begin')
  await theirs.query('lock table effects in share mode')

  const broken = new Error('broken off')
  const backend = gate<number>()
  const transacting = driver.transact(async (tx) => {
    const inside = driver.savepoint(tx, async (inner) => {
      const [row] = await (inner as postgresJs.TransactionSql).unsafe('select pg_backend_pid() as pid')
      proxy.freeze('standing')
      const late = writings['postgres.js']!(inner, 'late', 'held up')
      backend.open(row!.pid)
      await late
    })
    inside.catch(() => {})
    await backend.promise
    throw broken
  })
  transacting.catch(() => {})
  // The signal comes by another connection, while the statement has not reached the server.
  const cancels =
    "select 1 from pg_stat_activity where query like 'select pg_cancel_backend%' and pid <> pg_backend_pid()"
  const client = await connected(url)
  while ((await client.query(cancels)).rows.length === 0) await client.query('select pg_sleep(0.02)') // there is no notice of it
  await proxy.pass()
  await expect(transacting).rejects.toBe(broken)
  await theirs.query('commit')
  expect(await rows(url, "select what from effects where queue = 'late'")).toEqual([])
})

describe.each(Object.entries(writings))('on %s', (driver, write) => {
  it.each(['complete', 'prepare'] as const)('ctx.%s leaves nothing', async (call) => {
    const name = `${driver}-${call}`
    const store: Store = closing(postgres(driver === 'pg' ? pool : sql))
    const queue = closing(new Queue(name, { store, logger: false }))
    const blocked = gate()
    const statements: Promise<unknown>[] = []
    const goneOn = gate()
    const work = async ({ tx }: { tx?: unknown }): Promise<void> => {
      const first = write(tx, name, 'under way')
      const second = first.then(() => write(tx, name, 'after it'))
      const behind = write(tx, name, 'behind it') // which waits in the driver
      statements.push(first, second, behind)
      for (const each of statements) each.catch(() => {})
      blocked.open()
      await Promise.allSettled(statements)
      statements.push(write(tx, name, 'on command').catch(() => {}))
      await Promise.allSettled(statements)
      goneOn.open()
    }
    const brokenOff = gate<unknown>()
    closing(
      new Worker(
        queue,
        {
          n: async (_job, ctx) => {
            const done = call === 'complete' ? ctx.complete(work) : ctx.prepare({ mode: 'staged' }, work)
            done.catch(brokenOff.open)
            await done
          },
        },
        { lease: 2000, logger: false },
      ),
    )
    // The table is locked, so that the statement is in progress until the lock is released.
    const theirs = await connected(url)
    await theirs.query('begin')
    await theirs.query('lock table effects in share mode')
    const failed = event(queue, 'failed')
    await queue.add('n', 1, { attempts: 1 })
    await blocked.promise
    expect(await brokenOff.promise).toMatchObject({ code: 'TRANSACTION_TOO_LONG' })
    // The server need not wait for the lock to find out that its client has gone, and releases the job.
    await failed
    await theirs.query('commit')
    await goneOn.promise
    // Granted only when the transaction that has written to the table has ended.
    await theirs.query('begin')
    await theirs.query('lock table effects in access exclusive mode')
    await theirs.query('commit')
    expect(await rows(url, 'select what from effects where queue = $1', [name])).toEqual([])
    expect(await queue.counts()).toMatchObject({ failed: 1 })
    // The connections are sound: the next transaction has nothing of it.
    await queue.transaction(async (tx) => write(tx, name, 'later'))
    expect(await rows(url, 'select what from effects where queue = $1', [name])).toEqual([{ what: 'later' }])
  })
})

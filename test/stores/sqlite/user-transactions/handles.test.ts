// Transactions of the user's own: queue calls with `{ tx }` commit or roll back with them.
import { describe, expect, test } from 'vitest'
import { Queue, shutdown } from 'millrace'
import type { Job, SqlTransaction } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import { z } from 'zod'
import { defineJobs, job } from '../../../../src/queue/define.js'
import { Driver as Writer } from '../../../../src/conformance/driver.js'
import { Listener } from '../../../../src/conformance/listener.js'
import { insert } from '../../../../src/conformance/changes.js'
import type { SqliteHandle } from '../../../../src/stores/sqlite/file/driver.js'
import { closing, event, newWorker } from '../../../setup.js'
import { drivers, freshFolder, refusal } from '../folder.js'
import { kysely } from './kysely.js'

const at = freshFolder()

/** A handle with a table of the user's, a store on its file, and a queue. */
async function setUp(Class: new (path: string) => SqliteHandle, path = at('app.db')) {
  const db = new Class(path) as Handle
  db.exec('CREATE TABLE orders (id INTEGER PRIMARY KEY, job TEXT)')
  const store = closing(sqlite(db))
  await store.open()
  const queue = closing(new Queue('mail', { store, logger: false }))
  return { db, store, queue }
}

/** A handle as tests use it. */
interface Handle {
  prepare(sql: string): {
    run(...values: unknown[]): unknown
    get(...values: unknown[]): unknown
    all(...values: unknown[]): Record<string, unknown>[]
  }
  exec(sql: string): unknown
  close(): unknown
}

/** A synchronous transaction, as `db.transaction(…)()` of better-sqlite3 is one. */
function transaction<T>(db: Handle, work: () => T): T {
  db.exec('BEGIN IMMEDIATE')
  try {
    const answer = work()
    db.exec('COMMIT')
    return answer
  } catch (error) {
    db.exec('ROLLBACK')
    throw error
  }
}

function order(db: Handle, job: string): void {
  db.prepare('INSERT INTO orders (job) VALUES (?)').run(job)
}

const orders = (db: Handle): unknown[] =>
  db
    .prepare('SELECT job FROM orders ORDER BY id')
    .all()
    .map(({ job }) => job)

const ids = async (queue: Queue): Promise<string[]> => (await queue.list()).jobs.map(({ id }) => id)

describe.each(drivers)('a transaction on a handle of $name', ({ name, Driver }) => {
  test('takes an add with it, written before the call returns', async () => {
    const { db, queue } = await setUp(Driver)
    const added = transaction(db, () => {
      order(db, 'a')
      return queue.add('send', { n: 1 }, { id: 'a', tx: db })
    })
    expect(await added).toMatchObject({ id: 'a', state: 'waiting', duplicate: false })
    expect(await ids(queue)).toEqual(['a'])
    expect(orders(db)).toEqual(['a'])
    db.close()
  })

  test('takes an add back when it is rolled back', async () => {
    const { db, queue } = await setUp(Driver)
    let added: Promise<Job> | undefined
    const work = (): void => {
      order(db, 'a')
      added = queue.add('send', { n: 1 }, { id: 'a', dedup: { key: 'k' }, tx: db })
      throw new Error('no')
    }
    expect(() => transaction(db, work)).toThrow('no')
    await added
    expect(await queue.get('a')).toBeUndefined()
    expect(orders(db)).toEqual([])
    expect(await queue.counts()).toMatchObject({ waiting: 0 })
    expect(await queue.add('send', { n: 2 }, { dedup: { key: 'k' } })).toMatchObject({ duplicate: false })
    db.close()
  })

  test('takes every other write with it, all before the calls return', async () => {
    const { db, queue } = await setUp(Driver)
    for (const id of ['cancelled', 'removed', 'updated', 'bystander']) await queue.add('send', { n: 1 }, { id })
    await queue.add('send', {}, { id: 'promoted', delay: '1h' })
    await queue.add('send', {}, { id: 'retried' })
    await queue.cancel('retried')
    const write = (): Promise<unknown[]> =>
      Promise.all([
        queue.cancel('cancelled', { tx: db }),
        queue.remove('removed', { tx: db }),
        queue.update('updated', { data: { n: 2 }, priority: 3 }, { tx: db }),
        queue.promote('promoted', { tx: db }),
        queue.retry({ state: 'cancelled', name: 'send' }, { tx: db }),
        queue.pause(undefined, { tx: db }),
        queue.pause('other', { tx: db }),
        queue.resume(undefined, { tx: db }),
        queue.addBulk(
          [
            { name: 'send', options: { id: 'bulk-1' } },
            { name: 'send', options: { id: 'bulk-2' } },
          ],
          {
            tx: db,
          },
        ),
        queue.get('bulk-1', { tx: db }),
        queue.list({ state: 'waiting', tx: db }),
      ])
    let wrote: Promise<unknown[]> | undefined
    const before = (await queue.list()).jobs.map((each) => each.toJSON())
    expect(() =>
      transaction(db, () => {
        wrote = write()
        throw new Error('no')
      }),
    ).toThrow('no')
    await wrote
    expect((await queue.list()).jobs.map((each) => each.toJSON())).toEqual(before)

    const results = await transaction(db, write)
    expect(results.slice(0, 5)).toEqual([true, true, true, true, 2])
    expect(results[9]).toMatchObject({ id: 'bulk-1' })
    expect((results[10] as { jobs: Job[] }).jobs.map(({ id }) => id)).toEqual(
      expect.arrayContaining(['cancelled', 'retried', 'promoted', 'bulk-1', 'bulk-2']),
    )
    expect(await queue.get('removed')).toBeUndefined()
    expect(await queue.get('updated')).toMatchObject({ data: { n: 2 }, priority: 3 })
    expect(await queue.counts()).toMatchObject({ waiting: 7, cancelled: 0, delayed: 0 })
    expect((await queue.explain('bulk-1')).reasons.map(({ why }) => why)).not.toContain('paused')
    db.close()
  })

  test('takes the calls of a chain with it, all before they return', async () => {
    const { db, queue } = await setUp(Driver)
    for (const id of ['cancelled', 'removed']) await queue.add('send', {}, { id })
    const write = (): Promise<unknown[]> => {
      const [cancelled, removed] = [queue.chain('cancelled'), queue.chain('removed')]
      return Promise.all([
        cancelled.cancel({ tx: db }),
        cancelled.state({ tx: db }),
        removed.remove({ tx: db }),
        removed.jobs({ tx: db }),
      ])
    }
    let wrote: Promise<unknown[]> | undefined
    expect(() =>
      transaction(db, () => {
        wrote = write()
        throw new Error('no')
      }),
    ).toThrow('no')
    expect(await wrote).toEqual([true, 'cancelled', 1, []])
    expect(await queue.counts()).toMatchObject({ waiting: 2, cancelled: 0 })
    expect(await transaction(db, write)).toEqual([true, 'cancelled', 1, []])
    expect(await queue.counts()).toMatchObject({ waiting: 0, cancelled: 1 })
    db.close()
  })

  test('sees what it wrote, and others do not until it is committed', async () => {
    const { db, queue } = await setUp(Driver)
    db.exec('BEGIN IMMEDIATE')
    await queue.add('send', {}, { id: 'a', tx: db })
    expect(await queue.get('a', { tx: db })).toMatchObject({ id: 'a' })
    expect(await queue.get('a')).toBeUndefined()
    db.exec('COMMIT')
    expect(await queue.get('a')).toMatchObject({ id: 'a' })
    db.close()
  })

  test('is not spoilt by what is refused in it', async () => {
    const { db, queue } = await setUp(Driver)
    await queue.add('send', { first: true }, { id: 'taken', dedup: { key: 'k' } })
    const results = transaction(db, () => [
      queue.add('send', { again: true }, { id: 'taken', tx: db }),
      queue.add('send', {}, { id: 'kept', dedup: { key: 'k' }, tx: db }),
      queue.add('send', { replaced: true }, { dedup: { key: 'k', mode: 'replace' }, tx: db }),
      queue.add('send', {}, { id: 'good', tx: db }),
    ])
    const rejected = transaction(db, () => queue.add('send', {}, { dedup: { key: 'k', mode: 'reject' }, tx: db }))
    const missing = transaction(db, () => queue.add('send', {}, { after: 'nobody', tx: db }))
    expect(await Promise.all(results)).toMatchObject([
      { id: 'taken', duplicate: true },
      { id: 'taken', duplicate: true },
      { id: 'taken', duplicate: true, data: { replaced: true } },
      { id: 'good', duplicate: false },
    ])
    expect((await refusal(rejected)).code).toBe('DUPLICATE_JOB')
    expect((await refusal(missing)).code).toBe('DEPENDENCY_MISSING')
    expect(await ids(queue)).toEqual(['taken', 'good'])
    db.close()
  })

  test('keeps numbers and counters right, whatever was rolled back between', async () => {
    const { db, queue } = await setUp(Driver)
    const add = (n: number): Promise<Job> => queue.add('send', n, { tx: db })
    for (let round = 0; round < 4; round++) {
      db.exec('BEGIN IMMEDIATE')
      await Promise.all([add(round * 10), add(round * 10 + 1)])
      db.exec('SAVEPOINT own')
      await add(round * 10 + 2)
      db.exec('ROLLBACK TO own; RELEASE own')
      db.exec(round % 2 === 0 ? 'COMMIT' : 'ROLLBACK')
      await queue.add('send', round * 10 + 5)
    }
    const { jobs } = await queue.list()
    expect(jobs.map(({ data }) => data)).toEqual([0, 1, 5, 15, 20, 21, 25, 35])
    expect(await queue.counts()).toMatchObject({ waiting: 8 })
    const seen: unknown[] = []
    newWorker(queue, { send: (one) => void seen.push(one.data) })
    await Promise.all(jobs.map((each) => each.result({ timeout: '20s' })))
    expect(seen).toEqual([0, 1, 5, 15, 20, 21, 25, 35])
    db.close()
  })

  test('wakes workers when it is committed, here and on another handle, and not when it is rolled back', async () => {
    const { db, store, queue } = await setUp(Driver)
    const other = closing(sqlite(at('app.db'), { driver: name }))
    await other.open()
    const [here, there] = [new Listener(store, { events: true }), new Listener(other, { events: true })]
    await here.until(() => true, 'open')
    await store.tally() // both are known to watch from here on
    await other.tally()
    const doomed = (): void => {
      void queue.add('send', {}, { id: 'gone', tx: db })
      throw new Error('no')
    }
    expect(() => transaction(db, doomed)).toThrow('no')
    db.exec('BEGIN IMMEDIATE')
    await queue.add('send', {}, { id: 'a', tx: db })
    await new Promise((go) => setImmediate(go))
    expect([...here.notices, ...there.notices]).toEqual([])
    db.exec('COMMIT')
    for (const listener of [here, there]) {
      await listener.until(() => listener.work.has('mail') && listener.events.length > 0, 'the hint of the commit')
      expect(listener.events.map(({ id, type }) => [id, type])).toEqual([['a', 'waiting']])
      listener.stop()
    }
    db.close()
  })

  test('that has ended, was not begun, is closed or is on another file is refused', async () => {
    const { db, queue } = await setUp(Driver)
    const codeOf = async (tx: never): Promise<string> => (await refusal(queue.add('send', {}, { tx }))).code
    expect(await codeOf(db as never)).toBe('TRANSACTION_ENDED')
    transaction(db, () => order(db, 'a'))
    expect(await codeOf(db as never)).toBe('TRANSACTION_ENDED')
    const elsewhere = new Driver(at('other.db'))
    elsewhere.exec('BEGIN')
    expect(await codeOf(elsewhere as never)).toBe('OTHER_DATABASE')
    const inMemory = new Driver(':memory:')
    inMemory.exec('BEGIN')
    expect(await codeOf(inMemory as never)).toBe('OTHER_DATABASE')
    for (const wrong of [{}, [], 'BEGIN', 1, null, () => {}]) {
      expect(await codeOf(wrong as never)).toBe('INVALID_TRANSACTION')
    }
    elsewhere.close()
    const closed = new Driver(at('app.db'))
    closed.exec('BEGIN')
    closed.close()
    expect(await codeOf(closed as never)).toBe('TRANSACTION_ENDED')
    expect(await ids(queue)).toEqual([])
    inMemory.close()
    db.close()
  })

  test('that began by reading and is too old is refused with the way out', async () => {
    const { db, queue } = await setUp(Driver)
    db.exec('BEGIN')
    orders(db)
    await queue.add('send', {}, { id: 'between' })
    const { code, message } = await refusal(queue.add('send', {}, { tx: db }))
    expect(code).toBe('TRANSACTION_STALE')
    expect(message).toContain('BEGIN IMMEDIATE')
    db.exec('ROLLBACK; BEGIN')
    await queue.add('send', {}, { id: 'fresh', tx: db })
    db.exec('COMMIT')
    expect(await ids(queue)).toEqual(['between', 'fresh'])
    db.close()
  })

  test('needs a store that was opened once, and is refused otherwise', async () => {
    const db = new Driver(at('app.db'))
    const store = closing(sqlite(db))
    const queue = closing(new Queue('mail', { store }))
    db.exec('BEGIN IMMEDIATE')
    expect((await refusal(queue.add('send', {}, { tx: db }))).code).toBe('STORE_NOT_OPEN')
    db.exec('ROLLBACK')
    await store.open()
    // Another process need not open it again.
    const later = closing(sqlite(db))
    db.exec('BEGIN IMMEDIATE')
    const added = new Queue('mail', { store: later }).add('send', {}, { id: 'a', tx: db })
    db.exec('COMMIT')
    await added
    expect(await ids(queue)).toEqual(['a'])
    db.close()
  })

  test('in memory is the store’s own handle, and no other', async () => {
    const { db, queue } = await setUp(Driver, ':memory:')
    await queue.add('send', 1)
    expect(() =>
      transaction(db, () => {
        void queue.add('send', 2, { tx: db })
        throw new Error('no')
      }),
    ).toThrow('no')
    transaction(db, () => void queue.add('send', 3, { tx: db }))
    await queue.add('send', 4)
    expect((await queue.list()).jobs.map(({ data }) => data)).toEqual([1, 3, 4])
    expect(await queue.counts()).toMatchObject({ waiting: 3 })
    const received = event(queue, 'waiting', ({ id }) => id === 'in tx')
    await queue.counts()
    transaction(db, () => void queue.add('send', 5, { id: 'in tx', tx: db }))
    await received
    const other = new Driver(':memory:')
    other.exec('BEGIN')
    expect((await refusal(queue.add('send', {}, { tx: other }))).code).toBe('OTHER_DATABASE')
    other.close()
    await shutdown([queue])
  })
})

const { Driver } = drivers[0]!

test('in memory, where others write through its own connection, a store remembers nothing over their transactions', async () => {
  const { db, store } = await setUp(Driver, ':memory:')
  const writer = new Writer(store, 'writer')
  const first = await writer.add('work')
  const other = { writer: '', seq: 0, groups: [[insert('other', 'work')]], renewals: [], asks: [] }
  transaction(db, () => void store.commit(other, db))
  const last = await writer.add('work')
  expect((await writer.claim(5)).map(({ id }) => id)).toEqual([first.id, 'other', last.id])
})

describe('any other library', () => {
  /** Rows as objects, from statements with their parameters in the style of SQLite. */
  function run(db: Handle, sql: string, params: readonly unknown[]): Record<string, unknown>[] {
    const statement = db.prepare(sql)
    if (/^\s*(SELECT|PRAGMA|INSERT.*RETURNING)/is.test(sql)) return statement.all(...params)
    statement.run(...params)
    return []
  }

  const kinds: Readonly<Record<string, (db: Handle) => SqlTransaction>> = {
    'that answers at once': (db) => ({ execute: (sql, params) => run(db, sql, params) }),
    'that answers later, as Prisma does': (db) => ({
      execute: async (sql, params) => {
        await new Promise((go) => setImmediate(go))
        return run(db, sql, params).map((row) =>
          Object.fromEntries(
            Object.entries(row).map(([name, value]) => [name, typeof value === 'number' ? BigInt(value) : value]),
          ),
        )
      },
    }),
  }

  test.each(Object.entries(kinds))('%s can be given as { execute }', async (_, adapt) => {
    const { db, store, queue } = await setUp(Driver)
    const tx = adapt(db)
    await queue.add('send', {}, { id: 'taken', dedup: { key: 'k' } })
    await queue.add('send', {}, { id: 'moved' })
    db.exec('BEGIN IMMEDIATE')
    expect(await queue.add('send', { n: 1 }, { id: 'a', tx })).toMatchObject({ id: 'a', data: { n: 1 } })
    expect(await queue.add('send', {}, { id: 'taken', tx })).toMatchObject({ duplicate: true })
    expect(await queue.add('send', {}, { dedup: { key: 'k' }, tx })).toMatchObject({ id: 'taken', duplicate: true })
    const many = Array.from({ length: 70 }, (_each, n) => ({ name: 'send', data: { n }, options: { id: `bulk-${n}` } }))
    await queue.addBulk(many, { tx })
    expect(await queue.cancel('moved', { tx })).toBe(true)
    await queue.pause('other', { tx })
    expect((await queue.list({ tx, limit: 200 })).jobs).toHaveLength(73)
    expect(await ids(queue)).toEqual(['taken', 'moved'])
    db.exec('COMMIT')
    expect(await queue.counts()).toMatchObject({ waiting: 72, cancelled: 1 })
    expect((await refusal(queue.add('send', {}, { tx }))).code).toBe('TRANSACTION_ENDED')
    db.exec('BEGIN IMMEDIATE')
    await queue.add('send', {}, { id: 'gone', tx })
    db.exec('ROLLBACK')
    expect(await queue.counts()).toMatchObject({ waiting: 72 })
    const elsewhere = new Driver(at('elsewhere.db')) as Handle
    elsewhere.exec('BEGIN')
    expect((await refusal(queue.add('send', {}, { tx: adapt(elsewhere) }))).code).toBe('OTHER_DATABASE')
    elsewhere.close()
    db.exec('BEGIN IMMEDIATE')
    const inner = store.transact!(async (within) => {
      await queue.add('send', {}, { id: 'inner', tx: within as never })
      throw new Error('inner')
    }, tx)
    await expect(inner).rejects.toThrow('inner')
    await queue.add('send', {}, { id: 'outer', tx })
    db.exec('COMMIT')
    expect(await queue.get('inner')).toBeUndefined()
    expect(await queue.get('outer')).toBeDefined()
    db.close()
  })

  test('has the lock before anything is read, so that no other writer writes in between', async () => {
    const { db, queue } = await setUp(Driver)
    const outside: Promise<unknown>[] = []
    const tx: SqlTransaction = {
      execute: async (sql, params) => {
        const rows = run(db, sql, params)
        outside.push(queue.add('send', {}))
        for (let turns = 0; turns < 3; turns++) await new Promise((go) => setImmediate(go))
        return rows
      },
    }
    db.exec('BEGIN')
    await queue.add('send', {}, { id: 'inside', tx })
    db.exec('COMMIT')
    await Promise.all(outside)
    expect(await queue.get('inside')).toBeDefined()
    db.close()
  })

  test('wakes those who listen when its transaction is committed', async () => {
    const { db, store, queue } = await setUp(Driver)
    const listener = new Listener(store)
    await store.tally()
    db.exec('BEGIN IMMEDIATE')
    await queue.add('send', {}, { tx: kinds['that answers later, as Prisma does']!(db) })
    db.exec('COMMIT')
    await listener.until(() => listener.work.has('mail'), 'the hint of the commit')
    listener.stop()
    db.close()
  })
})

describe('Kysely', () => {
  test('its transactions take jobs with them, and give them back', async () => {
    const { db, queue } = await setUp(Driver)
    const orm = kysely<{ orders: { id?: number; job: string } }>(new Driver(at('app.db')) as Handle)
    await orm.transaction().execute(async (trx) => {
      await trx.insertInto('orders').values({ job: 'a' }).execute()
      // It gives its connection to one at a time, so that these cannot get between each other.
      await Promise.all([
        queue.add('send', {}, { id: 'a', tx: trx }),
        queue.add('send', {}, { id: 'a', dedup: { key: 'k' }, tx: trx }),
        queue.addBulk([{ name: 'send', options: { id: 'b' } }], { tx: trx }),
      ])
      expect(await queue.cancel('b', { tx: trx })).toBe(true)
      expect(await queue.get('a')).toBeUndefined()
    })
    const doomed = orm.transaction().execute(async (trx) => {
      await trx.insertInto('orders').values({ job: 'c' }).execute()
      await queue.add('send', {}, { id: 'c', tx: trx })
      throw new Error('no')
    })
    await expect(doomed).rejects.toThrow('no')
    expect(await ids(queue)).toEqual(['a', 'b'])
    expect(orders(db)).toEqual(['a'])
    const trx = await orm.startTransaction().execute()
    await trx.rollback().execute()
    expect((await refusal(queue.add('send', {}, { tx: trx }))).code).toBe('TRANSACTION_ENDED')
    expect((await refusal(queue.add('send', {}, { tx: orm as never }))).code).toBe('TRANSACTION_ENDED')
    await orm.destroy()
    db.close()
  })
})

test('a schema that waits is refused with a handle, and fine in queue.transaction', async () => {
  const { db, store } = await setUp(Driver)
  const jobs = defineJobs({ check: job({ input: z.string().refine(async (text) => text !== '') }) })
  const queue = closing(new Queue('mail', { store, jobs }))
  db.exec('BEGIN IMMEDIATE')
  expect((await refusal(queue.add('check', 'a', { tx: db }))).code).toBe('ASYNC_SCHEMA')
  expect((await refusal(queue.addBulk([{ name: 'check', data: 'a' }], { tx: db }))).code).toBe('ASYNC_SCHEMA')
  db.exec('ROLLBACK')
  await queue.transaction(async (tx) => {
    await queue.add('check', 'a', { tx })
    await queue.add('check', 'b')
  })
  expect(await queue.counts()).toMatchObject({ waiting: 2 })
  db.close()
})

test('a batch that meets a transaction of the user waits for it', async () => {
  const { db, queue } = await setUp(Driver)
  db.exec('BEGIN IMMEDIATE')
  await queue.add('send', {}, { id: 'a', tx: db })
  const outside = queue.add('send', {}, { id: 'b' })
  await new Promise((go) => setImmediate(go))
  db.exec('COMMIT')
  await outside
  expect(await ids(queue)).toEqual(['a', 'b'])
  db.close()
})

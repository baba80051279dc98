// Which transactions a queue offers follows from its store.
import { Queue, Worker } from 'millrace'
import type {
  DisposableStore,
  FlowProducer,
  GivenBy,
  InTransaction,
  JobOf,
  SqlTransaction,
  Store,
  TakenBy,
} from 'millrace'
import type { BetterSQLite3Database } from 'drizzle-orm/better-sqlite3'
import type { Kysely } from 'kysely'
import { memory } from 'millrace/memory'
import { postgres } from 'millrace/postgres'
import type { PgTransaction, PostgresJsSql, PostgresTransaction } from 'millrace/postgres'
import { sqlite } from 'millrace/sqlite'
import type { SqliteHandle, SqliteTransaction, SqliteTx } from 'millrace/sqlite'
import type { Pool, PoolClient } from 'pg'
import type { Sql } from 'postgres'
import { describe, expectTypeOf, test } from 'vitest'
import { jobs, store, untyped } from './jobs.js'

/** A handle of a driver, which has more than the store needs. */
interface OwnHandle extends SqliteHandle {
  pragma(text: string): unknown
}
declare const handle: OwnHandle
declare function someStore(): ReturnType<typeof memory> | ReturnType<typeof sqlite>

const onFile = new Queue('main', { store: sqlite('jobs.db'), jobs })
const onHandle = new Queue('main', { store: sqlite(handle), jobs })
const inMemory = new Queue('main', { store: memory(), jobs })

describe('the store', () => {
  test('declares the type of its transactions', () => {
    expectTypeOf(sqlite('jobs.db')).toEqualTypeOf<DisposableStore<SqliteTransaction, SqliteTx>>()
    expectTypeOf(sqlite(handle)).toEqualTypeOf<DisposableStore<OwnHandle, SqliteTx>>()
    expectTypeOf(memory()).toEqualTypeOf<DisposableStore<never>>()
    expectTypeOf(sqlite('jobs.db', { thread: true })).toEqualTypeOf<DisposableStore<never>>()
    expectTypeOf<GivenBy<Store<OwnHandle, SqliteTx>>>().toEqualTypeOf<OwnHandle>()
    expectTypeOf<TakenBy<Store<OwnHandle, SqliteTx>>>().toEqualTypeOf<SqliteTx>()
    expectTypeOf<TakenBy<Store<never>>>().toEqualTypeOf<never>()
    expectTypeOf<TakenBy<Store>>().toEqualTypeOf<unknown>()
  })

  test('passes for any store', () => {
    const any = (each: Store): Store => each
    any(memory())
    any(sqlite('jobs.db'))
    any(sqlite(handle))
  })

  test('is closed by await using, and so are what stands on it', () => {
    expectTypeOf(memory()).toExtend<AsyncDisposable>()
    expectTypeOf(sqlite('jobs.db')).toExtend<AsyncDisposable>()
    expectTypeOf(postgres('postgres://localhost')).toExtend<AsyncDisposable>()
    expectTypeOf(onFile).toExtend<AsyncDisposable>()
    expectTypeOf<Worker>().toExtend<AsyncDisposable>()
    expectTypeOf<FlowProducer>().toExtend<AsyncDisposable>()
    expectTypeOf<Queue<typeof jobs, DisposableStore<never>>>().toExtend<Queue<typeof jobs, Store<never>>>()
  })
})

describe('a queue', () => {
  test('is inferred from its store and its jobs', () => {
    expectTypeOf(onFile).toEqualTypeOf<Queue<typeof jobs, DisposableStore<SqliteTransaction, SqliteTx>>>()
    expectTypeOf(onFile.store).toEqualTypeOf<DisposableStore<SqliteTransaction, SqliteTx>>()
    expectTypeOf(new Queue('q', { store })).toEqualTypeOf<Queue>()
  })

  test('passes for any queue, and its workers are inferred as before', () => {
    const any = (each: Queue): string => each.name
    any(onFile)
    any(onHandle)
    any(inMemory)
    new Worker(onFile, {
      charge: (job) => {
        expectTypeOf(job.data).toEqualTypeOf<{ cents: number }>()
        return { receipt: 'r' }
      },
    })
    new Worker(inMemory, { sweep: () => 5 })
  })
})

describe('tx', () => {
  const adapter: SqlTransaction = { execute: () => [] }

  test('is whatever the store takes', () => {
    void onFile.add('charge', { cents: 5 }, { tx: handle, delay: '5s' })
    void onFile.add('sweep', undefined, { tx: adapter })
    void onFile.addBulk([{ name: 'sweep' }], { tx: handle })
    void onFile.get('id', { tx: handle })
    void onFile.list({ state: 'failed', tx: handle })
    void onFile.cancel('id', { tx: handle })
    void onFile.retry({ name: 'charge' }, { tx: adapter })
    void onFile.promote('id', { tx: handle })
    void onFile.remove({ all: true }, { tx: handle })
    void onFile.update('id', { priority: 1 }, { tx: handle })
    void onFile.update({ name: 'charge' }, { data: { cents: 6 } }, { tx: handle })
    void onFile.pause('charge', { tx: handle })
    void onFile.resume(undefined, { tx: handle })
    expectTypeOf(onFile.add('charge', { cents: 5 }, { tx: handle })).resolves.toEqualTypeOf<
      JobOf<typeof jobs, 'charge'>
    >()
    expectTypeOf(onFile.cancel({ all: true }, { tx: handle })).resolves.toEqualTypeOf<number>()
  })

  test('may be a transaction of Drizzle or Kysely, and not these themselves', () => {
    const orm = null! as Kysely<{ users: { name: string } }>
    void orm.transaction().execute((trx) => onFile.add('sweep', undefined, { tx: trx }))
    const drizzle = null! as BetterSQLite3Database
    drizzle.transaction((tx) => void onFile.cancel('id', { tx }))
    // @ts-expect-error no transaction is open on it
    void onFile.add('sweep', undefined, { tx: orm })
  })

  test('is nothing else', () => {
    // @ts-expect-error a path is no transaction
    void onFile.add('charge', { cents: 5 }, { tx: 'jobs.db' })
    // @ts-expect-error it has nothing to write with
    void onFile.cancel('id', { tx: {} })
    // @ts-expect-error it is `tx`
    void onFile.cancel('id', { txn: handle })
    // @ts-expect-error one job of many has no transaction of its own
    void onFile.addBulk([{ name: 'sweep', options: { tx: handle } }])
  })

  test('is not offered where the store has none', () => {
    // @ts-expect-error memory has no transactions
    void inMemory.add('charge', { cents: 5 }, { tx: handle })
    // @ts-expect-error memory has no transactions
    void inMemory.addBulk([{ name: 'sweep' }], { tx: handle })
    // @ts-expect-error memory has no transactions
    void inMemory.cancel('id', { tx: handle })
    void inMemory.cancel('id', { cascade: true })
    // @ts-expect-error memory has no transactions
    void inMemory.update('id', { priority: 1 }, { tx: handle })
    // @ts-expect-error memory has no transactions
    void inMemory.pause('charge', { tx: handle })
    // @ts-expect-error memory has no transactions
    void inMemory.list({ tx: handle })
    // @ts-expect-error memory has no transactions
    void inMemory.get('id', { tx: handle })
  })

  test('is anything where the store is not known', () => {
    void untyped.add('anything', {}, { tx: 5 })
    void untyped.cancel('id', { tx: handle })
    const options: InTransaction = { tx: handle }
    void untyped.get('id', options)
  })
})

describe('queue.transaction', () => {
  test('gives what the store gives, and answers what the work answers', () => {
    void onFile.transaction(async (tx) => {
      expectTypeOf(tx).toEqualTypeOf<SqliteTransaction>()
      tx.prepare('INSERT INTO own VALUES (?, ?)').run('a', 1)
      await onFile.add('sweep', undefined, { tx })
    })
    void onHandle.transaction(async (tx) => {
      expectTypeOf(tx).toEqualTypeOf<OwnHandle>()
      tx.pragma('foreign_keys')
    })
    expectTypeOf(onFile.transaction(async () => 5)).resolves.toEqualTypeOf<number>()
    // @ts-expect-error it takes a function
    void onFile.transaction({})
  })

  test('cannot be called where the store has no transactions', () => {
    // @ts-expect-error memory has no transactions
    void inMemory.transaction(async () => 5)
    // @ts-expect-error memory has no transactions
    void inMemory.transaction()
  })

  test('is anything where the store is not known, or may be one of several', async () => {
    expectTypeOf(await untyped.transaction(async (tx) => [tx])).toEqualTypeOf<unknown[]>()
    const either = new Queue('main', { store: someStore() })
    await either.transaction(async (tx) => tx.prepare('SELECT 1').get())
  })
})

describe('on PostgreSQL', () => {
  const pool = null! as Pool
  const sql = null! as Sql

  test('queue.transaction gives what the driver has', () => {
    expectTypeOf(postgres('postgres://localhost')).toEqualTypeOf<DisposableStore<PgTransaction, PostgresTransaction>>()
    expectTypeOf(postgres(pool)).toEqualTypeOf<DisposableStore<PoolClient, PostgresTransaction>>()
    expectTypeOf(postgres(sql)).toEqualTypeOf<DisposableStore<PostgresJsSql, PostgresTransaction>>()
    const plain = { connect: async () => ({ query: () => 5 }), totalCount: 1 }
    expectTypeOf<GivenBy<ReturnType<typeof postgres<typeof plain>>>>().toEqualTypeOf<{ query: () => number }>()
    const onPool = new Queue('main', { store: postgres(pool), jobs })
    void onPool.transaction(async (tx) => {
      const { rows } = await tx.query<{ n: number }>('select 1 as n')
      expectTypeOf(rows).toEqualTypeOf<{ n: number }[]>()
      await onPool.add('sweep', undefined, { tx })
    })
    new Worker(onPool, {
      sweep: (_job, ctx) =>
        ctx.complete(async ({ tx }) => {
          expectTypeOf(tx).toEqualTypeOf<PoolClient>()
          return 5
        }),
    })
    expectTypeOf(postgres(pool as Pool | Sql)).toExtend<Store>()
  })
})

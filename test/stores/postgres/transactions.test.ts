// `{ tx }`: a job exists if and only if the transaction that asked for it was committed, whatever library began it.
import { sql as drizzleSql } from 'drizzle-orm'
import { drizzle as drizzlePg } from 'drizzle-orm/node-postgres'
import { drizzle as drizzleJs } from 'drizzle-orm/postgres-js'
import { Kysely, PostgresDialect, sql as kyselySql } from 'kysely'
import { Pool } from 'pg'
import type { ClientBase } from 'pg'
import postgresJs from 'postgres'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { Queue } from 'millrace'
import type { Store, SqlTransaction } from 'millrace'
import { postgres } from 'millrace/postgres'
import type { PostgresTransaction } from 'millrace/postgres'
import { closing, gate, newWorker } from '../../setup.js'
import { newDatabase, newSchema } from './server/shared.js'
import { announced, connected, rows, run } from './server/clients.js'

type OnPostgres = Store<unknown, PostgresTransaction>

/** Runs work in a transaction of some library; `own` writes a row of the user's with it. */
type Transacting = <T>(
  work: (tx: PostgresTransaction, own: (n: number) => Promise<unknown>) => Promise<T>,
) => Promise<T>

let url = ''
let pool: Pool
let sql: postgresJs.Sql
let kysely: Kysely<Record<string, never>>

beforeAll(async () => {
  url = await newDatabase()
  await run(url, 'create table own (n int)')
  pool = new Pool({ connectionString: url, max: 5 })
  sql = postgresJs(url, { max: 5, onnotice: () => {}, fetch_types: false })
  kysely = new Kysely({ dialect: new PostgresDialect({ pool }) })
  const store = postgres(url)
  await store.open()
  await store.close()
})

afterAll(async () => {
  await kysely.destroy() // and its pool
  await sql.end()
})

const insertOwn = (n: number): string => `insert into own values (${n})`

/** A pool's client with a transaction, as people write it by hand. */
async function withClient<T>(work: (client: ClientBase) => Promise<T>): Promise<T> {
  const client = await pool.connect()
  try {
    await client.query('begin')
    const answer = await work(client)
    await client.query('commit')
    return answer
  } catch (error) {
    await client.query('rollback')
    throw error
  } finally {
    client.release()
  }
}

/** What Prisma gives to the work of an interactive transaction, as far as it is needed here. */
interface PrismaLike {
  $queryRawUnsafe(query: string, ...values: unknown[]): Promise<Record<string, unknown>[]>
  $executeRawUnsafe(query: string, ...values: unknown[]): Promise<number>
}

/** Prisma's calling convention over `pg`: rows by the names of their columns, parameters one by one, and its errors. */
const prisma = {
  $transaction: async <T>(work: (tx: PrismaLike) => Promise<T>): Promise<T> => {
    let over = false
    const answer = withClient((client) => {
      const ask = async (query: string, values: unknown[]) => {
        if (over) throw Object.assign(new Error('Transaction API error: Transaction already closed'), { code: 'P2028' })
        try {
          return await client.query<Record<string, unknown>>(query, values)
        } catch (error) {
          const { code: originalCode } = error as { code: string }
          const meta = { driverAdapterError: { name: 'DriverAdapterError', cause: { originalCode } } }
          throw Object.assign(new Error('Raw query failed'), { code: 'P2010', meta })
        }
      }
      return work({
        $queryRawUnsafe: async (query, ...values) => (await ask(query, values)).rows,
        $executeRawUnsafe: async (query, ...values) => (await ask(query, values)).rowCount ?? 0,
      })
    })
    return answer.finally(() => (over = true))
  },
}

const kinds: readonly (readonly [string, Transacting])[] = [
  ['a client of pg', (work) => withClient((tx) => work(tx, (n) => tx.query(insertOwn(n))))],
  ['postgres.js', (work) => sql.begin((tx) => work(tx as never, (n) => tx.unsafe(insertOwn(n)))) as never],
  [
    'a savepoint of postgres.js',
    (work) => sql.begin((outer) => outer.savepoint((tx) => work(tx as never, (n) => tx.unsafe(insertOwn(n))))) as never,
  ],
  [
    'Drizzle on pg',
    (work) => drizzlePg(pool).transaction((tx) => work(tx, (n) => tx.execute(drizzleSql.raw(insertOwn(n))))),
  ],
  [
    'a nested transaction of Drizzle on pg',
    (work) =>
      drizzlePg(pool).transaction((outer) =>
        outer.transaction((tx) => work(tx, (n) => tx.execute(drizzleSql.raw(insertOwn(n))))),
      ),
  ],
  [
    'Drizzle on postgres.js',
    (work) => drizzleJs(sql).transaction((tx) => work(tx, (n) => tx.execute(drizzleSql.raw(insertOwn(n))))),
  ],
  ['Kysely', (work) => kysely.transaction().execute((tx) => work(tx, (n) => kyselySql.raw(insertOwn(n)).execute(tx)))],
  [
    'a transaction of Kysely that is ended by hand',
    async (work) => {
      const tx = await kysely.startTransaction().execute()
      try {
        const answer = await work(tx, (n) => kyselySql.raw(insertOwn(n)).execute(tx))
        await tx.commit().execute()
        return answer
      } catch (error) {
        await tx.rollback().execute()
        throw error
      }
    },
  ],
  [
    'execute(sql, params), as for Prisma',
    (work) =>
      prisma.$transaction((tx) => {
        const given: SqlTransaction = { execute: (query, params) => tx.$queryRawUnsafe(query, ...params) }
        return work(given, (n) => tx.$executeRawUnsafe(insertOwn(n)))
      }),
  ],
]

/** A store of its own on the database, and a queue that no other test has. */
function setUp(target: string | Pool | postgresJs.Sql = url) {
  const store = closing(postgres(target))
  return { store, queue: closing(new Queue(newSchema(), { store, logger: false })) }
}

const data = async (queue: Queue<never, OnPostgres>): Promise<unknown[]> =>
  (await queue.list()).jobs.map((job) => (job as { data: unknown }).data)
const ownRows = async (n: number): Promise<number> => (await rows(url, `select 1 from own where n = ${n}`)).length

let numbers = 0
const no = new Error('no')

describe.each(kinds)('%s', (_name, transacting) => {
  test('commits the job with the user’s own row, and wakes workers at once, here and elsewhere', async () => {
    const { store, queue } = setUp()
    const there = setUp()
    const far = closing(new Queue(queue.name, { store: there.store, logger: false }))
    const n = ++numbers
    const ran: unknown[] = []
    const done = gate()
    const worker = newWorker(
      far,
      (job) => {
        if (ran.push(job.data) === 2) done.open()
      },
      { pollEvery: '10m', autorun: false },
    )
    await worker.run()
    const received: string[] = []
    const both = gate()
    queue.on('waiting', ({ id }) => received.push(id) === 2 && both.open())
    await announced(store)
    await transacting(async (tx, own) => {
      await own(n)
      const job = await queue.add('chore', 1, { tx })
      expect(await queue.get(job.id, { tx })).toMatchObject({ id: job.id, state: 'waiting' })
      expect(await queue.get(job.id)).toBeUndefined()
      await queue.addBulk([{ name: 'chore', data: 2 }], { tx })
      expect((await queue.list({ tx })).jobs).toHaveLength(2)
      expect(received).toEqual([])
      expect(ran).toEqual([])
    })
    await done.promise
    expect(new Set(ran)).toEqual(new Set([1, 2]))
    expect(await ownRows(n)).toBe(1)
    await both.promise
  })

  test('rolls the job back: no job, no wake-up, no event, no count', async () => {
    const { store, queue } = setUp()
    const n = ++numbers
    const ran: unknown[] = []
    const done = gate()
    const worker = newWorker(
      queue,
      (job) => {
        ran.push(job.data)
        done.open()
      },
      { pollEvery: '10m', autorun: false },
    )
    await worker.run()
    const received: unknown[] = []
    const isAnnounced = gate()
    queue.on('waiting', ({ id }) => {
      received.push(id)
      isAnnounced.open()
    })
    await announced(store)
    const doomed = transacting(async (tx, own) => {
      await own(n)
      await queue.add('chore', 'never', { tx, dedup: { key: 'k' } })
      throw no
    })
    await expect(doomed).rejects.toBe(no)
    const marker = await queue.add('chore', 'marker', { dedup: { key: 'k' } })
    expect(marker.duplicate).toBe(false)
    await Promise.all([done.promise, isAnnounced.promise])
    expect(ran).toEqual(['marker'])
    expect(await data(queue as never)).toEqual(['marker'])
    expect(received).toEqual([marker.id])
    expect((await store.tally([queue.name]))[0]).toMatchObject({ lifetime: { added: 1 } })
    expect(await ownRows(n)).toBe(0)
  })

  test('is refused by name once it has ended, and nothing is written', async () => {
    const { queue } = setUp()
    await queue.add('chore', 0)
    let leaked: PostgresTransaction | undefined
    await transacting(async (tx) => {
      leaked = tx
      await queue.add('chore', 1, { tx })
    })
    await expect(queue.add('chore', 2, { tx: leaked! })).rejects.toMatchObject({ code: 'TRANSACTION_ENDED' })
    await transacting(async (tx) => {
      leaked = tx
      throw no
    }).catch(() => {})
    await expect(queue.add('chore', 3, { tx: leaked! })).rejects.toMatchObject({ code: 'TRANSACTION_ENDED' })
    expect(await data(queue as never)).toEqual([0, 1])
  })

  test('that PostgreSQL has given up on is refused by name', async () => {
    const { queue } = setUp()
    await queue.add('chore', 0)
    let refused: unknown
    const doomed = transacting(async (tx, own) => {
      await queue.add('chore', 1, { tx })
      await own(Number.NaN).catch(() => {}) // there is no column nan
      refused = await queue.add('chore', 2, { tx }).catch((error: unknown) => error)
      throw no
    })
    await doomed.catch(() => {})
    expect(refused).toMatchObject({ code: 'TRANSACTION_ENDED', message: expect.stringContaining('has failed before') })
    expect(await data(queue as never)).toEqual([0])
  })
})

describe('every other write', () => {
  test('belongs to the transaction', async () => {
    const { queue } = setUp()
    const add = (state: string): Promise<{ id: string }> =>
      queue.add('chore', state, state === 'delayed' ? { delay: '1h' } : {})
    const [cancelled, removed, updated, promoted, retried] = [
      await add('cancelled'),
      await add('removed'),
      await add('updated'),
      await add('delayed'),
      await add('retried'),
    ]
    await queue.cancel(retried.id)
    const states = async (tx?: PostgresTransaction): Promise<unknown[]> => {
      const options = tx === undefined ? [] : ([{ tx }] as const)
      return Promise.all(
        [cancelled, removed, updated, promoted, retried].map(async ({ id }) => {
          const job = await queue.get(id, ...options)
          return job && [job.state, job.priority]
        }),
      )
    }
    const before = await states()
    const after = [['cancelled', 0], undefined, ['waiting', 9], ['waiting', 0], ['waiting', 0]]
    const write = async (tx: PostgresTransaction): Promise<void> => {
      expect(await queue.cancel(cancelled.id, { tx })).toBe(true)
      expect(await queue.remove(removed.id, { tx })).toBe(true)
      expect(await queue.update(updated.id, { priority: 9 }, { tx })).toBe(true)
      expect(await queue.promote(promoted.id, { tx })).toBe(true)
      expect(await queue.retry(retried.id, { tx })).toBe(true)
      await queue.pause('chore', { tx })
      expect(await states(tx)).toEqual(after)
      expect(await states()).toEqual(before)
    }
    const doomed = withClient(async (tx) => {
      await write(tx)
      throw no
    })
    await expect(doomed).rejects.toBe(no)
    expect(await states()).toEqual(before)
    await withClient(write)
    expect(await states()).toEqual(after)
    expect((await queue.explain(promoted.id)).reasons.map(({ why }) => why)).toContain('paused')
    await withClient((tx) => queue.resume('chore', { tx }))
    expect((await queue.explain(promoted.id)).reasons.map(({ why }) => why)).not.toContain('paused')
  })

  test('in a savepoint goes with it, and the transaction goes on', async () => {
    const { queue } = setUp()
    await withClient(async (tx) => {
      await queue.add('chore', 1, { tx })
      await tx.query('savepoint one')
      await queue.add('chore', 2, { tx })
      await tx.query('rollback to one')
      await queue.add('chore', 3, { tx })
    })
    expect(await data(queue as never)).toEqual([1, 3])
    await withClient(async (tx) => {
      await tx.query('savepoint one')
      await queue.add('chore', 4, { tx }) // the first of its transaction
      await tx.query('rollback to one')
      await queue.add('chore', 5, { tx })
    })
    expect(await data(queue as never)).toEqual([1, 3, 5])
  })

  test('may be asked for at once with others of the same transaction', async () => {
    const { queue } = setUp()
    await withClient(async (tx) => {
      await Promise.all([1, 2, 3, 4, 5].map((n) => queue.add('chore', n, { tx })))
    })
    expect(new Set(await data(queue as never))).toEqual(new Set([1, 2, 3, 4, 5]))
  })

  test('wakes workers of its own process when a transaction of postgres.js commits', async () => {
    const { queue } = setUp(sql)
    const done = gate()
    const worker = newWorker(queue, () => done.open(), { pollEvery: '10m', autorun: false })
    await worker.run()
    await sql.begin((tx) => queue.add('chore', 1, { tx: tx as never }))
    await done.promise
  })

  test('is taken at other levels of isolation', async () => {
    const { queue } = setUp()
    for (const level of ['repeatable read', 'serializable']) {
      await withClient(async (tx) => {
        await tx.query(`set transaction isolation level ${level}`)
        await queue.add('chore', level, { tx, dedup: { key: level } })
      })
    }
    expect(await data(queue as never)).toEqual(['repeatable read', 'serializable'])
  })
})

test('a transaction that works from an older snapshot is refused with the advice to run it again', async () => {
  const { queue } = setUp()
  const { id } = await queue.add('chore', 1)
  const doomed = withClient(async (tx) => {
    await tx.query('set transaction isolation level repeatable read')
    await tx.query('select 1 from own')
    await queue.update(id, { priority: 1 })
    await queue.update(id, { priority: 2 }, { tx })
  })
  await expect(doomed).rejects.toMatchObject({ code: 'TRANSACTION_STALE', cause: { code: '40001' } })
  expect(await queue.get(id)).toMatchObject({ priority: 1 })
})

describe('queue.transaction', () => {
  const targets: readonly (readonly [string, () => string | Pool | postgresJs.Sql])[] = [
    ['a URL', () => url],
    ['a pool', () => pool],
    ['postgres.js', () => sql],
  ]

  test.each(targets)('on %s gives what its driver has, which can be given as tx', async (_name, target) => {
    const { queue } = setUp(target())
    const n = ++numbers
    await queue.transaction(async (tx) => {
      const own = tx as { query?: (text: string) => Promise<unknown>; unsafe?: (text: string) => Promise<unknown> }
      await (own.query === undefined ? own.unsafe!(insertOwn(n)) : own.query(insertOwn(n)))
      await queue.add('chore', 1)
      await queue.add('chore', 2, { tx: tx as PostgresTransaction })
      await queue
        .transaction(async () => {
          await queue.add('chore', 'never')
          throw no
        })
        .catch(() => {})
    })
    expect(await data(queue as never)).toEqual([1, 2])
    expect(await ownRows(n)).toBe(1)
    const doomed = queue.transaction(async () => {
      await queue.add('chore', 3)
      throw no
    })
    await expect(doomed).rejects.toBe(no)
    expect(await data(queue as never)).toEqual([1, 2])
  })
})

describe('what is no transaction', () => {
  const wrong: readonly (readonly [string, () => unknown, string])[] = [
    ['a Pool', () => pool, "a Pool of 'pg'"],
    ['postgres.js itself', () => sql, "postgres.js's sql itself; give it what begin() gives"],
    ['a Kysely in no transaction', () => kysely, 'a Kysely that is in no transaction'],
    ['a Drizzle on pg in no transaction', () => drizzlePg(pool), 'a Drizzle that is in no transaction'],
    ['a Drizzle on postgres.js in no transaction', () => drizzleJs(sql), 'a Drizzle that is in no transaction'],
    ['a number', () => 7, 'a value of type number'],
    ['a text', () => 'begin', 'a value of type string'],
    ['true', () => true, 'a value of type boolean'],
    ['null', () => null, 'null'],
    ['an empty object', () => ({}), 'something else'],
    ['a function', () => () => {}, 'a function'],
    ['a handle of SQLite', () => ({ prepare: () => {}, exec: () => {} }), 'something else'],
    ['execute() that answers no rows', () => ({ execute: async () => 1 }), 'did not answer an array of rows'],
  ]

  test.each(wrong)('%s is refused by name, and nothing is written', async (_name, tx, expected) => {
    const { queue } = setUp()
    await queue.add('chore', 0)
    await expect(queue.add('chore', 1, { tx: tx() as PostgresTransaction })).rejects.toMatchObject({
      code: 'INVALID_TRANSACTION',
      message: expect.stringContaining(expected),
    })
    expect(await data(queue as never)).toEqual([0])
  })

  test('a connection on which none was begun is refused as one that has ended', async () => {
    const { queue } = setUp()
    const client = await connected(url)
    await expect(queue.add('chore', 1, { tx: client })).rejects.toMatchObject({ code: 'TRANSACTION_ENDED' })
    await client.query('begin')
    await queue.add('chore', 2, { tx: client })
    await client.query('commit')
    for (const wish of [
      () => queue.add('chore', 3, { tx: client }),
      () => queue.pause(undefined, { tx: client }),
      () => queue.get('nobody', { tx: client }),
      () => queue.list({ tx: client }),
    ]) {
      await expect(wish()).rejects.toMatchObject({ code: 'TRANSACTION_ENDED' })
    }
    await client.query('begin')
    await queue.add('chore', 4, { tx: client })
    await client.query('commit')
    expect(await data(queue as never)).toEqual([2, 4])
  })
})

describe('a transaction on another database', () => {
  test('is refused by name where there is no such schema', async () => {
    const { queue } = setUp()
    const client = await connected(await newDatabase())
    await client.query('begin')
    await expect(queue.add('chore', 1, { tx: client })).rejects.toMatchObject({ code: 'OTHER_DATABASE' })
    await client.query('rollback')
    await client.query('begin')
    await expect(queue.list({ tx: client })).rejects.toMatchObject({ code: 'OTHER_DATABASE' })
    expect(await data(queue as never)).toEqual([])
  })

  test('is refused by name where there is a schema of the same name, and nothing is written there or read', async () => {
    const { queue } = setUp()
    const otherUrl = await newDatabase()
    const other = setUp(otherUrl)
    const theirs = closing(new Queue(queue.name, { store: other.store, logger: false }))
    const standing = await theirs.add('chore', 'theirs')
    const client = await connected(otherUrl)
    for (const wish of [
      () => queue.add('chore', 1, { tx: client }),
      () => queue.get(standing.id, { tx: client }),
      () => queue.list({ tx: client }),
      () => queue.cancel(standing.id, { tx: client }),
    ]) {
      await client.query('begin')
      await expect(wish()).rejects.toMatchObject({ code: 'OTHER_DATABASE' })
      await client.query('rollback')
    }
    expect(await data(theirs as never)).toEqual(['theirs'])
    expect(await data(queue as never)).toEqual([])
  })
})

test('a pool all of whose connections are in transactions is reported, not waited for without end', async () => {
  const small = new Pool({ connectionString: url, max: 2 })
  const store = closing(postgres(small, { patience: 500 }))
  const queue = closing(new Queue(newSchema(), { store, logger: false }))
  await queue.add('chore', 1)
  const clients = [await small.connect(), await small.connect()]
  try {
    for (const client of clients) await client.query('begin')
    await queue.add('chore', 2, { tx: clients[0]! }) // needs no other connection
    await expect(queue.get('nobody')).rejects.toMatchObject({ code: 'POOL_EXHAUSTED' })
    for (const client of clients) await client.query('commit')
  } finally {
    for (const client of clients) client.release()
  }
  expect(await data(queue as never)).toEqual([1, 2])
  await queue.close()
  await store.close()
  await small.end()
})

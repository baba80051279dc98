// `ctx.complete({ tx }, work)`: a job settles in a transaction that the user has open, whichever library it is of.
import { Pool } from 'pg'
import postgresJs from 'postgres'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { JobContext, Store } from 'millrace'
import { postgres } from 'millrace/postgres'
import { sqlite } from 'millrace/sqlite'
import { newDatabase } from '../../../stores/postgres/server/shared.js'
import { closing, event, gate } from '../../../setup.js'
import { drivers, freshFolder } from '../../../stores/sqlite/folder.js'

type Row = Record<string, unknown>
type Run = (sql: string, params?: readonly unknown[]) => Promise<readonly Row[]>

/** A database with a table of the user's, a store in it, and the user's own transactions there. */
interface Scene {
  readonly store: Store
  /** Runs work in a transaction of the user's: `tx` is what `ctx.complete` is given. */
  transaction<T>(work: (tx: unknown, write: (what: string) => Promise<unknown>) => Promise<T>): Promise<T>
  effects(): Promise<readonly unknown[]>
}

let url = ''
beforeAll(async () => {
  url = await newDatabase()
  const pool = new Pool({ connectionString: url })
  await pool.query('create table effects (test text, what text)')
  await pool.end()
})

const file = freshFolder()

function onPg(wrap: (client: { query: Pool['query'] }, run: Run) => unknown): Scene {
  const test = Math.random().toString(36)
  const pool = new Pool({ connectionString: url, max: 4 })
  pool.on('error', () => {})
  onTestFinished(() => pool.end())
  return {
    store: closing(postgres(url)),
    transaction: async (work) => {
      const client = await pool.connect()
      try {
        await client.query('begin')
        const run: Run = async (sql, params = []) => (await client.query<Row>(sql, [...params])).rows
        const answer = await work(wrap(client, run), (what) => run('insert into effects values ($1, $2)', [test, what]))
        await client.query('commit')
        return answer
      } catch (error) {
        await client.query('rollback')
        throw error
      } finally {
        client.release()
      }
    },
    effects: async () =>
      (await pool.query<{ what: string }>('select what from effects where test = $1', [test])).rows.map(
        ({ what }) => what,
      ),
  }
}

function onPostgresJs(): Scene {
  const test = Math.random().toString(36)
  const sql = postgresJs(url, { max: 6, onnotice: () => {}, fetch_types: false })
  onTestFinished(() => sql.end({ timeout: 0 }))
  return {
    store: closing(postgres(sql)),
    transaction: (work) =>
      sql.begin(async (tx) => work(tx, async (what) => tx`insert into effects values (${test}, ${what})`)) as never,
    effects: async () => (await sql`select what from effects where test = ${test}`).map(({ what }) => what as unknown),
  }
}

function onSqlite(wrap: (handle: unknown, run: Run) => unknown): Scene {
  const { Driver, name } = drivers[0]!
  const path = file('given.db')
  const db = new Driver(path)
  closing({ close: async () => void db.close() })
  db.exec('PRAGMA journal_mode = WAL; CREATE TABLE effects (what TEXT)')
  const run: Run = async (sql, params = []) => db.prepare(sql).all(...(params as never[])) as Row[]
  return {
    store: closing(sqlite(path, { driver: name })),
    transaction: async (work) => {
      db.exec('BEGIN IMMEDIATE')
      try {
        const answer = await work(wrap(db, run), (what) => run('INSERT INTO effects VALUES (?)', [what]))
        db.exec('COMMIT')
        return answer
      } catch (error) {
        db.exec('ROLLBACK')
        throw error
      }
    },
    effects: async () => (await run('SELECT what FROM effects')).map(({ what }) => what),
  }
}

/** As Prisma gives it. */
const prisma = (_client: unknown, run: Run): unknown => ({
  $queryRawUnsafe: (sql: string, ...params: unknown[]) => run(sql, params),
})

const scenes: Readonly<Record<string, () => Scene>> = {
  'a client of pg': () => onPg((client) => client),
  'the sql of postgres.js': onPostgresJs,
  'a transaction of Prisma on PostgreSQL': () => onPg(prisma),
  'a handle of SQLite': () => onSqlite((handle) => handle),
  'a transaction of Prisma on SQLite': () => onSqlite(prisma),
}

type Given = <T>(options: { tx: unknown }, work: (inside: Inside) => Promise<T>) => Promise<T>
interface Inside {
  readonly tx: unknown
  add(name: string, data?: unknown): Promise<{ id: string }>
  continueWith(name: string, data?: unknown): Promise<{ id: string }>
}

describe.each(Object.entries(scenes))('given %s, ctx.complete', (_name, make) => {
  const started = async (
    handler: (scene: Scene, complete: Given, attempt: number, queue: Queue, ctx: JobContext) => Promise<unknown>,
  ): Promise<{ scene: Scene; queue: Queue; worker: Worker }> => {
    const scene = make()
    await scene.store.open()
    const queue = closing(new Queue(`given-${Math.random().toString(36)}`, { store: scene.store, logger: false }))
    const worker = closing(
      new Worker(
        queue,
        {
          n: async (job, ctx) => handler(scene, ctx.complete as Given, job.attempt, queue, ctx),
          next: async () => 'end of the chain',
          child: async () => 'child',
        },
        { logger: false },
      ),
    )
    return { scene, queue, worker: worker }
  }

  it('settles with its commit: writes, added jobs and the continuation are there together', async () => {
    const { scene, queue, worker } = await started(async ({ transaction }, complete, _attempt, own) => {
      await transaction(async (tx, write) =>
        complete({ tx }, async (inside) => {
          expect(inside.tx).toBe(tx)
          await write('written')
          await inside.add('child')
          await own.add('child', 'joined')
          await inside.continueWith('next')
        }),
      )
    })
    const completed = event(worker, 'completed', ({ name }) => name === 'n')
    const added = await queue.add('n')
    await completed
    expect(await queue.chain(added.id).result()).toBe('end of the chain')
    expect(await scene.effects()).toEqual(['written'])
    const { jobs } = await queue.list()
    expect(jobs.map(({ name }) => name).toSorted()).toEqual(['child', 'child', 'n', 'next'])
    expect((await added.refresh()).errors).toEqual([])
  })

  it('leaves nothing of an attempt that was rolled back, which fails and is run again', async () => {
    const { scene, queue } = await started(async ({ transaction }, complete, attempt) =>
      transaction(async (tx, write) => {
        const value = await complete({ tx }, async ({ add }) => {
          await write(`attempt ${attempt}`)
          await add('child')
          return attempt
        })
        if (attempt === 1) throw new Error('rolled back')
        return value
      }),
    )
    const added = await queue.add('n', 1, { backoff: 1 })
    expect(await added.result()).toBe(2)
    expect(await scene.effects()).toEqual(['attempt 2'])
    expect((await added.refresh()).errors).toMatchObject([{ message: 'rolled back' }])
    expect((await queue.list({ name: 'child' })).jobs).toHaveLength(1)
  })

  it('stands if its transaction was committed, also where the handler throws afterwards', async () => {
    const { scene, queue, worker } = await started(async ({ transaction }, complete) => {
      await transaction(async (tx, write) => complete({ tx }, async () => (await write('once'), 'done')))
      throw new Error('too late')
    })
    const completed = event(worker, 'completed')
    const added = await queue.add('n')
    expect(await completed).toMatchObject({ result: 'done' })
    expect(await added.result()).toBe('done')
    expect(await scene.effects()).toEqual(['once'])
  })

  it('fails the attempt where it is not awaited, and adds nothing', async () => {
    const { scene, queue } = await started(async ({ transaction }, complete) => {
      await transaction(async (tx, write) => {
        await write('before')
        void complete({ tx }, async ({ add }) => void (await add('child')))
      })
    })
    const added = await queue.add('n', 1, { backoff: 1, attempts: 1 })
    await expect(added.result()).rejects.toThrow()
    // The store may have found out first that the transaction is over.
    expect(['NOT_AWAITED', 'TRANSACTION_ENDED']).toContain((await added.refresh()).error?.code)
    expect(await scene.effects()).toEqual(['before'])
    expect((await queue.list({ name: 'child' })).jobs).toEqual([])
  })

  it('may be called again in the next transaction where the first was rolled back', async () => {
    const { scene, queue } = await started(async ({ transaction }, complete) => {
      const once = (): Promise<number> =>
        transaction(async (tx, write) => complete({ tx }, async () => (await write('kept'), 5)))
      const failed = transaction(async (tx) => {
        await complete({ tx }, async () => 4)
        throw new Error('conflict')
      })
      await expect(failed).rejects.toThrow('conflict')
      await once()
      await expect(once()).rejects.toMatchObject({ message: expect.stringContaining('twice') as string })
    })
    const added = await queue.add('n')
    expect(await added.result()).toBe(5)
    expect(await scene.effects()).toEqual(['kept'])
  })
})

describe('ctx.complete({ tx })', () => {
  it('fails an attempt whose handler returned while its transaction was rolled back', async () => {
    const scene = onPg((client) => client)
    const queue = closing(new Queue('swallowed', { store: scene.store, logger: false }))
    closing(
      new Worker(
        queue,
        {
          n: async (_job, ctx) => {
            const rolledBack = scene.transaction(async (tx) => {
              await (ctx.complete as Given)({ tx }, async () => 1)
              throw new Error('swallowed')
            })
            await rolledBack.catch(() => {})
          },
        },
        { logger: false },
      ),
    )
    const added = await queue.add('n', 1, { attempts: 1 })
    await expect(added.result()).rejects.toThrow('was not committed')
  })

  it('refuses what is no transaction, and the job of a handler that has lost it', async () => {
    const scene = onPg((client) => client)
    const queue = closing(new Queue('refusing', { store: scene.store, logger: false }))
    const inside = gate()
    const go = gate()
    const reported: unknown[] = []
    closing(
      new Worker(
        queue,
        {
          n: async (_job, ctx) => {
            const complete = ctx.complete as Given
            await complete({ tx: undefined }, async () => {}).catch((error: unknown) => reported.push(error))
            await complete({ tx: {} }, async () => {}).catch((error: unknown) => reported.push(error))
            inside.open()
            await go.promise
            await scene
              .transaction(async (tx, write) => complete({ tx }, async () => write('lost')))
              .catch((error: unknown) => reported.push(error))
          },
        },
        { logger: false },
      ),
    )
    const added = await queue.add('n')
    await inside.promise
    await queue.cancel(added.id)
    go.open()
    while (reported.length < 3) await new Promise(setImmediate)
    expect(reported).toMatchObject([
      { code: 'INVALID_TRANSACTION' },
      { code: 'INVALID_TRANSACTION' },
      { code: 'LEASE_LOST' },
    ])
    expect(await scene.effects()).toEqual([])
  })
})

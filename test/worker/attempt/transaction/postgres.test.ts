// Handlers' transactions on PostgreSQL: what differs there is that a failed statement poisons a transaction, and that only
// rows are locked.
import { Pool } from 'pg'
import type { PoolClient } from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { AnyJobs, Handlers, Store, WorkerOptions } from 'millrace'
import { postgres } from 'millrace/postgres'
import { closing, collect, event, gate } from '../../../setup.js'
import { observed } from '../../../observed-store.js'
import { newDatabase } from '../../../stores/postgres/server/shared.js'
import { Driver } from '../../../../src/conformance/driver.js'
import { complete } from '../../../../src/conformance/changes.js'
import type { Verdict } from '../../../../src/store/store.js'

type PgStore = Store<PoolClient>

let url = ''
let pool: Pool
beforeAll(async () => {
  url = await newDatabase()
  pool = new Pool({ connectionString: url })
  await pool.query('create table effects (id serial primary key, queue text not null, what text not null)')
  await pool.query('create unique index on effects (queue, what)')
})
afterAll(() => pool.end())

let made = 0

/** A queue of a test's own, and workers on it. */
function scene(): {
  readonly queue: Queue<AnyJobs, PgStore>
  /** A queue in another store, whose verdicts are observed. */
  elsewhere(onVerdict?: (verdict: Verdict) => void): Queue<AnyJobs, PgStore>
  worker(handlers: Handlers<AnyJobs, unknown, PgStore>, options?: WorkerOptions<AnyJobs, readonly []>): Worker
  write(tx: PoolClient, what: string): Promise<void>
  effects(): Promise<readonly string[]>
} {
  const name = `work-${++made}`
  const open = (onVerdict: (verdict: Verdict) => void = () => {}): Queue<AnyJobs, PgStore> => {
    const store = observed(closing(postgres(url)), (_batch, receipt) => receipt.groups.forEach(onVerdict)) as PgStore
    return closing(new Queue(name, { store, logger: false }))
  }
  const queue = open()
  return {
    queue,
    elsewhere: open,
    worker: (handlers, options = {}) =>
      closing(new Worker<AnyJobs, readonly [], PgStore>(queue, handlers, { logger: false, ...options } as object)),
    write: async (tx, what) => {
      await tx.query('insert into effects (queue, what) values ($1, $2)', [name, what])
    },
    effects: async () => {
      const { rows } = await pool.query<{ what: string }>('select what from effects where queue = $1 order by id', [
        name,
      ])
      return rows.map(({ what }) => what)
    },
  }
}

describe('on PostgreSQL, ctx.complete', () => {
  it('commits writes, added jobs, the continuation and the settlement together, or none of them', async () => {
    const { queue, worker, write, effects } = scene()
    worker({
      n: async (job, ctx) => {
        await ctx.complete(async ({ tx, add, continueWith }) => {
          await write(tx, `attempt ${job.attempt}`)
          await add('child')
          await continueWith('next')
          await ctx.progress(job.attempt)
        })
        await queue.add('joined')
        if (job.attempt === 1) throw new Error('after complete')
        return 'done'
      },
    })
    const added = await queue.add('n', 1, { backoff: 1 })
    expect(await added.result()).toBe('done')
    expect(await effects()).toEqual(['attempt 2'])
    expect((await queue.list()).jobs.map(({ name }) => name)).toEqual(['n', 'child', 'joined', 'next'])
    expect((await added.refresh()).progress).toBe(2)
  })

  it('is not kept from rescheduling by a statement that poisons the transaction, thrown on or swallowed', async () => {
    const { queue, worker, write, effects } = scene()
    worker({
      thrown: async (job, ctx) =>
        ctx.complete(async ({ tx }) => {
          await write(tx, `thrown ${job.attempt}`)
          if (job.attempt === 1) await tx.query('select nonsense')
        }),
      swallowed: async (job, ctx) =>
        ctx.complete(async ({ tx }) => {
          await write(tx, `swallowed ${job.attempt}`)
          if (job.attempt === 1) await tx.query('select nonsense').catch(() => {})
        }),
      caught: async (job, ctx) => {
        await ctx.prepare({ mode: 'atomic' }, async ({ tx }) => write(tx, 'prepared'))
        const failed = ctx.complete(async ({ tx }) => {
          await write(tx, 'caught')
          await tx.query('select nonsense')
        })
        await expect(failed).rejects.toThrow('nonsense')
        await ctx.complete(async ({ tx }) => write(tx, `completed ${job.attempt}`))
      },
    })
    for (const name of ['thrown', 'swallowed', 'caught']) await (await queue.add(name, 1, { backoff: 1 })).result()
    expect(await effects()).toEqual(['thrown 2', 'swallowed 2', 'prepared', 'completed 1'])
  })

  it('lets others work and be claimed while it is open, and its own calls join it', async () => {
    const { queue, worker, write } = scene()
    const inside = gate()
    const go = gate()
    worker(
      {
        long: async (_job, ctx) => {
          await ctx.complete(async ({ tx }) => {
            await write(tx, 'long')
            await ctx.progress('inside')
            await queue.add('joined')
            inside.open()
            await go.promise
          })
        },
        short: async () => 'short',
      },
      { concurrency: 2 },
    )
    const long = await queue.add('long')
    await inside.promise
    expect(await (await queue.add('short')).result()).toBe('short')
    expect((await queue.list({ name: 'joined' })).jobs).toEqual([])
    expect((await long.refresh()).progress).toBeUndefined()
    go.open()
    await long.result()
    expect((await queue.list({ name: 'joined' })).jobs).toHaveLength(1)
    expect((await long.refresh()).progress).toBe('inside')
  })

  it('is rolled back before its lease expires, which cannot be renewed while the row is locked', async () => {
    const { queue, worker, write, effects } = scene()
    const works = worker(
      {
        n: async (job, ctx) => {
          await ctx.complete(async ({ tx }) => {
            await write(tx, `attempt ${job.attempt}`)
            if (job.attempt > 1) return
            // It goes on with a client that is no longer its own.
            await second.promise
            await write(tx, 'too late').catch(() => {})
            ended.open()
          })
        },
      },
      { lease: 3_000 },
    )
    const second = gate()
    const ended = gate()
    const seen = collect(works, ['lease-lost', 'retrying', 'completed'])
    const added = await queue.add('n', 1, { backoff: 1 })
    await added.result()
    second.open()
    await ended.promise
    expect((await added.refresh()).errors).toMatchObject([{ code: 'TRANSACTION_TOO_LONG' }])
    expect(await effects()).toEqual(['attempt 2'])
    expect(seen.filter((type) => type !== 'completed')).toEqual(['retrying'])
  })

  it.each(['a handler', 'a chain completed by hand'])('of %s holds the job: who cancels it waits', async (whose) => {
    const { queue, worker, elsewhere } = scene()
    const inside = gate()
    const go = gate()
    const work = async (): Promise<string> => {
      inside.open()
      await go.promise
      return 'done'
    }
    const added = await queue.add('n')
    if (whose === 'a handler') worker({ n: async (_job, ctx) => ctx.complete(work) })
    else void queue.chain(added.id).complete(async ({ complete }) => (await work()) && complete(async () => 'done'))
    await inside.promise
    const refused = gate()
    const cancelled = elsewhere((verdict) => {
      if (!verdict.ok && verdict.why === 'busy') refused.open()
    }).cancel(added.id)
    await refused.promise
    go.open()
    expect(await added.result()).toBe('done')
    expect(await cancelled).toBe(false)
  })
})

describe('on PostgreSQL, what happens while a transaction is open', () => {
  it('does not join it because its handler began the batch with which it came', async () => {
    const { queue, worker } = scene()
    const ends = gate()
    const received = gate()
    const works = worker(
      {
        begins: async (_job, ctx) => {
          await ctx.prepare({ mode: 'staged' }, async () => {})
          const added = queue.add('in the same batch')
          ends.open()
          await ctx.complete(async () => {
            await added
            await received.promise
          })
          throw new Error('rolled back')
        },
        ends: async () => ends.promise,
      },
      { concurrency: 2 },
    )
    works.on('completed', ({ name }) => {
      if (name === 'ends') void queue.add('by a listener').then(() => received.open())
    })
    const active = event(works, 'active')
    await queue.add('ends')
    await active
    const added = await queue.add('begins', 1, { attempts: 1 })
    await expect(added.result()).rejects.toThrow('rolled back')
    expect((await queue.list({ name: 'by a listener' })).jobs).toHaveLength(1)
  })
})

describe('on PostgreSQL, a handler learns by push, from another store', () => {
  it.each(['cancelled', 'removed', 'completed-elsewhere'] as const)('that its job was %s', async (reason) => {
    const { queue, worker, elsewhere } = scene()
    const reported = gate<string | undefined>()
    worker(
      {
        n: async (_job, ctx) => {
          ctx.signal.addEventListener('abort', () => reported.open(ctx.signal.reason?.reason))
          await reported.promise
        },
      },
      { lease: '1h' },
    )
    const active = event(queue, 'active')
    const { id } = await queue.add('n')
    await active
    const other = elsewhere()
    if (reason === 'cancelled') await other.cancel(id)
    else if (reason === 'removed') await other.remove(id)
    else await other.chain(id).complete(async ({ complete }) => complete(async () => 'by hand'))
    expect(await reported.promise).toBe(reason)
  })
})

describe('on PostgreSQL, many jobs at once', () => {
  it('write one row each, however often they fail', async () => {
    const { queue, worker, write, effects } = scene()
    worker(
      {
        n: async (job, ctx) => {
          const kind = Number(job.data) % 4
          if (kind === 1) await new Promise(setImmediate)
          await ctx.complete(async ({ tx, add }) => {
            await write(tx, job.id)
            await add('child', job.id)
            if (job.attempt === 1 && kind === 0) throw new Error('inside')
            if (job.attempt === 1 && kind === 2) await tx.query('select nonsense')
          })
          if (job.attempt === 1 && kind === 1) throw new Error('after')
        },
      },
      { concurrency: 8 },
    )
    const jobs = await queue.addBulk(
      Array.from({ length: 60 }, (_, n) => ({ name: 'n', data: n, options: { backoff: 1 } })),
    )
    await Promise.all(jobs.map((job) => job.result()))
    const ids = jobs.map(({ id }) => id).toSorted()
    expect((await effects()).toSorted()).toEqual(ids)
    const { jobs: children } = await queue.list({ name: 'child', limit: 1000 })
    expect(children.map(({ data }) => data as string).toSorted()).toEqual(ids)
  })
})

describe('on PostgreSQL, transactions that meet or fail', () => {
  it('let children of one parent settle together, each in a transaction of its own', async () => {
    const { queue, worker, write, effects } = scene()
    const children = await queue.addBulk(
      Array.from({ length: 30 }, (_, at) => ({ name: 'child', data: at, options: { attempts: 1 } })),
    )
    const parents = [
      await queue.add('parent', 'first', { after: children }),
      await queue.add('parent', 'second', { after: children }),
    ]
    worker(
      {
        child: async (job, ctx) => ctx.complete(async ({ tx }) => write(tx, `child ${String(job.data)}`)),
        parent: async (job) => job.data,
      },
      { concurrency: 6 },
    )
    expect(await Promise.all(parents.map((parent) => parent.result({ timeout: '30s' })))).toEqual(['first', 'second'])
    expect(await effects()).toHaveLength(30)
    expect(await queue.counts()).toMatchObject({ completed: 32, failed: 0 })
  })

  it('are reported when a statement failed, though its error was swallowed', async () => {
    const { queue } = scene()
    const spoilt = queue.transaction(async (tx) => {
      await queue.add('lost', null)
      await tx.query('select 1 / 0').catch(() => {})
    })
    await expect(spoilt).rejects.toMatchObject({ code: 'TRANSACTION_ENDED' })
    expect((await queue.list()).jobs).toEqual([])
  })

  it('can be given wrapped anew for each of several calls at once', async () => {
    const { queue } = scene()
    const client = await pool.connect()
    try {
      await client.query('begin')
      const wrapped = (): {
        execute(sql: string, params: readonly unknown[]): Promise<readonly Record<string, unknown>[]>
      } => ({
        execute: async (sql, params) => (await client.query(sql, [...params])).rows as Record<string, unknown>[],
      })
      await Promise.all([1, 2, 3].map((at) => queue.add('job', at, { tx: wrapped() as never })))
      await client.query('commit')
      expect((await queue.list()).jobs).toHaveLength(3)
    } finally {
      client.release()
    }
  })

  it('may not complete a job that it holds from an older snapshot, either', async () => {
    const store = closing(postgres(url))
    const d = new Driver(store, 'snapshot')
    const first = await d.running('first', { queue: 'snapshot' })
    const client = await pool.connect()
    try {
      await client.query('begin isolation level repeatable read')
      await client.query('select 1 from effects limit 1')
      const second = await d.add('second', { queue: 'snapshot', after: [first] })
      const batch = { writer: 'within', seq: 1, groups: [complete(first)], renewals: [], asks: [] }
      await expect(store.commit(batch, client)).rejects.toMatchObject({ code: 'INVALID_TRANSACTION' })
      await client.query('rollback')
      expect(await d.job(second)).toMatchObject({ state: 'waiting-children' })
    } finally {
      client.release()
    }
  })

  it('may not release dependents from an older snapshot, which does not show them', async () => {
    const { queue } = scene()
    const first = await queue.add('first', null)
    const client = await pool.connect()
    try {
      await client.query('begin isolation level repeatable read')
      await client.query('select 1 from effects limit 1')
      const second = await queue.add('second', null, { after: first })
      await expect(queue.cancel(first.id, { tx: client })).rejects.toMatchObject({
        code: 'INVALID_TRANSACTION',
        message: expect.stringMatching(/'repeatable read'.* at read committed/) as string,
      })
      await client.query('rollback')
      expect((await second.refresh())?.state).toBe('waiting-children')
    } finally {
      client.release()
    }
  })
})

// What `ctx.prepare`, `ctx.complete` and `queue.chain` give and take, by the store and by the declared jobs.
import { Queue, Worker } from 'millrace'
import type { GivenBy, HandlerOf, Job, JobContext, Planned, Store } from 'millrace'
import { memory } from 'millrace/memory'
import { sqlite } from 'millrace/sqlite'
import { describe, expectTypeOf, test } from 'vitest'
import { jobs, queue as unknownQueue } from './jobs.js'

type Jobs = typeof jobs

const file = sqlite('jobs.db')
const onFile = new Queue('main', { store: file, jobs })
const inMemory = new Queue('main', { store: memory(), jobs })
const untyped = new Queue('main', { store: file })

describe('tx', () => {
  test('is what the store declares', () => {
    new Worker(onFile, {
      sweep: async (_job, ctx) => {
        const seen = await ctx.prepare({ mode: 'staged' }, async ({ tx }) => {
          expectTypeOf(tx).toEqualTypeOf<GivenBy<typeof file>>()
          return tx.prepare('SELECT 1').all()
        })
        expectTypeOf(seen).toEqualTypeOf<unknown[]>()
        return ctx.complete(async ({ tx }) => {
          expectTypeOf(tx).toEqualTypeOf<GivenBy<typeof file>>()
          return seen.length
        })
      },
    })
  })

  test('is not offered where the store has no transactions', () => {
    new Worker(inMemory, {
      sweep: async (_job, ctx) => {
        // @ts-expect-error there is no tx
        await ctx.prepare({ mode: 'atomic' }, async ({ tx }) => void tx)
        // @ts-expect-error there is no tx
        return ctx.complete(async ({ tx }) => (tx === undefined ? 1 : 2))
      },
      charge: async (_job, ctx) => ctx.complete(async ({ add }) => ({ receipt: (await add('sweep')).id })),
    })
  })

  test('is unknown where the store is', () => {
    new Worker(unknownQueue, {
      sweep: async (_job, ctx) => ctx.complete(async ({ tx }) => (expectTypeOf(tx).toEqualTypeOf<unknown>(), 5)),
    })
  })

  test('is known to a worker by names, and to handlers written apart', () => {
    new Worker('main', async (_job, ctx) => ctx.complete(async ({ tx }) => tx.exec('SELECT 1')), { store: file })
    const sweep: HandlerOf<Jobs, 'sweep', unknown, typeof file> = async (_job, ctx) =>
      ctx.complete(async ({ tx }) => tx.prepare('SELECT 1').all().length)
    new Worker(onFile, { sweep })
    const anywhere: HandlerOf<Jobs, 'sweep'> = async (_job, ctx) => ctx.complete(async () => 5)
    new Worker(onFile, { sweep: anywhere })
    new Worker(inMemory, { sweep: anywhere })
  })
})

describe('complete', () => {
  test('answers what its callback does, which is the result', () => {
    new Worker(onFile, {
      charge: async (_job, ctx) => ctx.complete(async () => ({ receipt: 'r' })),
      // @ts-expect-error a number is to be returned
      sweep: async (_job, ctx) => ctx.complete(async () => 'five'),
      report: async (_job, ctx) => {
        expectTypeOf(ctx.complete(() => 5)).toEqualTypeOf<Promise<number>>()
      },
    })
  })

  test('takes a transaction that its store takes, and gives it as it is', () => {
    const prisma = { $queryRawUnsafe: async (_query: string, ..._values: unknown[]): Promise<unknown> => [] }
    new Worker(onFile, {
      sweep: async (_job, ctx) =>
        ctx.complete({ tx: prisma }, async ({ tx, add }) => {
          expectTypeOf(tx).toEqualTypeOf<typeof prisma>()
          await add('sweep')
          return 5
        }),
      // @ts-expect-error a number is no transaction
      report: async (_job, ctx) => ctx.complete({ tx: 5 }, async () => {}),
    })
    new Worker(inMemory, {
      // @ts-expect-error memory has no transactions
      report: async (_job, ctx) => ctx.complete({ tx: prisma }, async () => {}),
    })
  })

  test('adds and continues with declared jobs', () => {
    new Worker(onFile, {
      report: async (_job, ctx) =>
        ctx.complete(async ({ add, continueWith }) => {
          expectTypeOf(await add('charge', { cents: 5 }, { delay: '1s' })).toEqualTypeOf<Planned>()
          await add('sweep')
          await continueWith('email', { to: 'a', at: '2026-01-01T00:00:00Z' })
          // @ts-expect-error cents are a number
          await add('charge', { cents: '5' })
          // @ts-expect-error data is missing
          await add('charge')
          // @ts-expect-error no such job
          await continueWith('charged', { cents: 5 })
          // @ts-expect-error there is no such option
          await add('sweep', undefined, { dely: 5 })
        }),
    })
    new Worker(untyped, {
      any: async (_job, ctx) => ctx.complete(async ({ add }) => add('whatever', { at: 'all' })),
    })
  })

  test('is called with a mode that there is', () => {
    new Worker(onFile, {
      report: async (_job, ctx) => {
        // @ts-expect-error there is no such mode
        await ctx.prepare({ mode: 'atomc' }, async () => {})
        // @ts-expect-error a mode is needed
        await ctx.prepare({}, async () => {})
      },
    })
    expectTypeOf<JobContext>().toHaveProperty('prepare')
  })
})

describe('chain', () => {
  test('gives the job, and completes it with what the store offers', async () => {
    const answer = await onFile.chain('id').complete(async ({ job, complete }) => {
      if (job.name === 'charge') expectTypeOf(job.data).toEqualTypeOf<{ cents: number }>()
      return complete(async ({ tx, continueWith }) => {
        expectTypeOf(tx).toEqualTypeOf<GivenBy<typeof file>>()
        await continueWith('charge', { cents: 5 })
        return 'settled' as const
      })
    })
    expectTypeOf(answer).toEqualTypeOf<'settled'>()
    await inMemory.chain('id').complete(async ({ complete }) => {
      // @ts-expect-error there is no tx
      await complete(async ({ tx }) => void tx)
      // @ts-expect-error cents are a number
      await complete(async ({ add }) => void (await add('charge', { cents: '5' })))
    })
    await onFile.transaction(async (tx) => onFile.chain('id').complete(async () => {}, { tx }))
    // @ts-expect-error there are no transactions
    await inMemory.chain('id').complete(async () => {}, { tx: {} })
  })

  test('of a queue that passes for any queue gives any job', () => {
    const anyQueue = (any: Queue): Promise<Job> => any.chain('id').complete(async ({ job }) => job)
    void anyQueue(onFile)
    void anyQueue(inMemory)
    expectTypeOf<Store>().toBeObject()
  })
})

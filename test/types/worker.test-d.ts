// What a consumer may write: handlers in every form, with nothing annotated.
import { Worker } from 'millrace'
import type { Handler, HandlerOf, Job, JobContext, Store } from 'millrace'
import { describe, expectTypeOf, test } from 'vitest'
import { jobs, queue, store, untyped } from './jobs.js'

type Jobs = typeof jobs
type Context = JobContext<Store, Jobs>

describe('handlers by name', () => {
  test('see what the input schema makes of the data', () => {
    new Worker(queue, {
      email: async (job, ctx) => {
        expectTypeOf(job.data).toEqualTypeOf<{ to: string; cc: string[]; at: Date }>()
        expectTypeOf(job.name).toEqualTypeOf<'email'>()
        expectTypeOf(ctx).toEqualTypeOf<Context>()
        return { messageId: 'm', copies: 1 }
      },
      resize: (job) => {
        expectTypeOf(job.data).toEqualTypeOf<{ path: string; size: number }>()
        return { bytes: 5 }
      },
      crawl: async (job) => {
        expectTypeOf(job.data).toEqualTypeOf<{ url: string; page: number }>()
        return { links: [job.data.url] }
      },
      charge: (job) => {
        expectTypeOf(job.data).toEqualTypeOf<{ cents: number }>()
        return { receipt: 'r' }
      },
      sweep: async () => 5,
      report: async (job) => {
        expectTypeOf(job.data).toEqualTypeOf<{ since: number } | undefined>()
      },
      ping: (job) => expectTypeOf(job.data).toEqualTypeOf<string | undefined>(),
      loose: (job) => expectTypeOf(job.data).toEqualTypeOf<unknown>(),
    })
  })

  test('may be some of those declared', () => {
    new Worker(queue, { sweep: () => 5 })
  })

  test('may return what the output schema takes, sync or async', () => {
    new Worker(queue, { email: () => ({ messageId: 'm' }), resize: () => ({}) })
    new Worker(queue, { email: async () => ({ messageId: 'm' }), resize: async () => ({}) })
  })

  test('are refused, each by itself, when they return something else', () => {
    new Worker(queue, {
      // @ts-expect-error messageId is text
      email: async () => ({ messageId: 5 }),
      // @ts-expect-error bytes are a number
      resize: () => ({ bytes: '5' }),
      // @ts-expect-error links are missing
      crawl: async () => {
        return {}
      },
      // @ts-expect-error nothing is returned
      charge: async () => {},
      sweep: () => 5,
      // @ts-expect-error nothing is to be returned
      report: () => 5,
    })
  })

  test('are refused when they read what is not there', () => {
    new Worker(queue, {
      // @ts-expect-error there are no euros
      charge: async (job) => ({ receipt: String(job.data.euros) }),
    })
  })

  test('are refused for names that were not declared', () => {
    new Worker(queue, {
      // @ts-expect-error it is `sweep`
      sweeep: () => 5,
    })
  })

  test('can be objects with settings', () => {
    new Worker(queue, {
      email: {
        run: async (job, ctx) => {
          expectTypeOf(job.data.at).toEqualTypeOf<Date>()
          expectTypeOf(ctx).toEqualTypeOf<Context>()
          return { messageId: 'm' }
        },
        lease: '1m',
        timeout: '30s',
        backoff: { type: 'exponential', delay: '1s', max: '5m' },
      },
      // @ts-expect-error a number is to be returned
      sweep: { run: async () => 'five' },
      // @ts-expect-error it is `lease`
      charge: { run: () => ({ receipt: 'r' }), lese: '1m' },
      // @ts-expect-error `run` is missing
      crawl: { lease: '1m' },
    })
  })

  test('may update their job with what `add` takes', () => {
    new Worker(queue, {
      resize: async (job) => {
        await job.update({ data: { path: 'b.png', size: '20' } })
        // @ts-expect-error the schema's input is text, whatever it makes of it
        await job.update({ data: { path: 'b.png', size: 20 } })
        return {}
      },
    })
  })

  test('can be written apart from their worker', () => {
    const charge: HandlerOf<Jobs, 'charge'> = async (job) => ({ receipt: String(job.data.cents) })
    const any: Handler = async (job, ctx) => {
      expectTypeOf(job).toEqualTypeOf<Job>()
      await ctx.log('here')
    }
    new Worker(queue, { charge, loose: any })
    // @ts-expect-error it handles something else
    new Worker(queue, { sweep: charge })
  })
})

describe('one handler for all', () => {
  test('narrows declared jobs by their names', () => {
    new Worker(queue, async (job, ctx) => {
      expectTypeOf(ctx).toEqualTypeOf<Context>()
      switch (job.name) {
        case 'email':
          expectTypeOf(job.data).toEqualTypeOf<{ to: string; cc: string[]; at: Date }>()
          return { messageId: 'm' }
        case 'charge':
          expectTypeOf(job.data).toEqualTypeOf<{ cents: number }>()
          return { receipt: 'r' }
        default:
          return undefined
      }
    })
  })
})

describe('a worker by names of queues', () => {
  test('has unknown jobs by default', () => {
    new Worker(
      'main',
      (job, ctx) => {
        expectTypeOf(job).toEqualTypeOf<Job>()
        expectTypeOf(ctx).toEqualTypeOf<JobContext>()
      },
      { store },
    )
    new Worker(['main', 'other'], async (job) => job.data, { store })
    new Worker(
      'main',
      {
        anything: (job, ctx) => {
          expectTypeOf(job).toEqualTypeOf<Job>()
          expectTypeOf(ctx).toEqualTypeOf<JobContext>()
        },
        other: { run: async (job) => job.data, lease: '1m' },
      },
      { store },
    )
    new Worker(untyped, { anything: (job) => job.data })
  })

  test('knows the declared jobs', () => {
    new Worker(
      ['main', 'other'],
      {
        charge: (job) => {
          expectTypeOf(job.data).toEqualTypeOf<{ cents: number }>()
          return { receipt: 'r' }
        },
        // @ts-expect-error a number is to be returned
        sweep: () => 'five',
      },
      { store, jobs },
    )
    // @ts-expect-error it is `sweep`
    new Worker('main', { sweeep: () => 5 }, { store, jobs })
  })
})

describe('new Worker', () => {
  test('checks its options', () => {
    new Worker(queue, { sweep: () => 5 }, { concurrency: 20, lease: '1m', autorun: false, logger: false })
    new Worker(
      queue,
      { sweep: () => 5 },
      {
        backoff: { mine: (attempt, error) => (error instanceof RangeError ? 0 : attempt * 1000) },
        retryable: (error, job) => (error instanceof TypeError && job.attempt > 1 ? 'fatal' : 'retry'),
      },
    )
    // @ts-expect-error it is `concurrency`
    new Worker(queue, { sweep: () => 5 }, { concurency: 20 })
    // @ts-expect-error concurrency is a number
    new Worker(queue, { sweep: () => 5 }, { concurrency: '20' })
    // @ts-expect-error there are two answers
    new Worker(queue, { sweep: () => 5 }, { retryable: () => 'maybe' })
  })

  test('makes workers that pass for a worker of any jobs', () => {
    const workers: Worker[] = [new Worker(queue, { sweep: () => 5 }), new Worker('main', () => {}, { store })]
    void workers
  })
})

// What a consumer of batches may write, with nothing annotated.
import { Worker, defineJobs, job, middleware } from 'millrace'
import type { BatchContext, BatchHandlerOf, BatchedContext, Job } from 'millrace'
import { describe, expectTypeOf, test } from 'vitest'
import { queue, untyped } from './jobs.js'
import type { jobs } from './jobs.js'

type Jobs = typeof jobs

describe('handlers of batches', () => {
  test('see all jobs typed by their name, and what belongs to each', () => {
    new Worker(
      queue,
      {
        email: async (batch, ctx) => {
          expectTypeOf(batch[0]!.data).toEqualTypeOf<{ to: string; cc: string[]; at: Date }>()
          expectTypeOf(batch[0]!.name).toEqualTypeOf<'email'>()
          expectTypeOf(ctx.of(batch[0]!)).toEqualTypeOf<BatchedContext>()
          return batch.map(() => ({ messageId: 'm' }))
        },
        charge: (batch, ctx) => ctx.each(async ({ data }) => ({ receipt: String(data.cents) })),
        sweep: (batch, { of }) => batch.map((each) => (each.attempt > 1 ? of(each).snooze('1m') : 5)),
      },
      { batch: { size: 10, wait: '1s' }, retryable: () => 'retry' },
    )
  })

  test('are refused when a result is not what was declared, or is not there', () => {
    new Worker(
      queue,
      {
        // @ts-expect-error messageId is text
        email: async (batch) => batch.map(() => ({ messageId: 5 })),
        // @ts-expect-error a result for each, not one for all
        charge: async () => ({ receipt: 'r' }),
        // @ts-expect-error nothing is returned
        sweep: async () => {},
        // @ts-expect-error `allSettled` answers something else
        crawl: (batch) => Promise.allSettled(batch.map(async () => ({ links: [] }))),
      },
      { batch: { size: 10 } },
    )
  })

  test('may answer errors in the places of jobs', () => {
    new Worker(queue, { charge: (batch) => batch.map(() => new Error('no')) }, { batch: { size: 2 } })
  })

  test('stand beside handlers of one job, by name', () => {
    new Worker(queue, {
      email: {
        runBatch: async (batch) => {
          expectTypeOf(batch[0]!.data.at).toEqualTypeOf<Date>()
          return batch.map(() => ({ messageId: 'm' }))
        },
        batch: { size: 100, wait: '50ms' },
        lease: '1m',
        timeout: '30s',
      },
      charge: { run: async ({ data }) => ({ receipt: String(data.cents) }) },
      sweep: () => 5,
      // @ts-expect-error links are missing
      crawl: { runBatch: (batch) => batch.map(() => ({})), batch: { size: 5 } },
    })
    new Worker(
      queue,
      { charge: { run: () => ({ receipt: 'r' }) }, sweep: (batch) => batch.map(() => 5) },
      { batch: { size: 2 } },
    )
  })

  test('need a size', () => {
    // @ts-expect-error how large?
    new Worker(queue, { sweep: (batch) => batch.map(() => 5) }, { batch: {} })
  })

  test('have no transactions', () => {
    new Worker(
      queue,
      {
        sweep: async (batch, ctx) => {
          // @ts-expect-error it belongs to one job
          await ctx.complete(() => {})
          // @ts-expect-error nor has a job of the batch
          await ctx.of(batch[0]!).prepare({ mode: 'staged' }, () => {})
          return [5]
        },
      },
      { batch: { size: 2 } },
    )
  })

  test('see what middleware adds to each job', () => {
    const trace = middleware<{ trace: string }>((_job, _ctx, next) => next({ trace: 't' }))
    new Worker(
      queue,
      {
        sweep: (batch, ctx) => {
          expectTypeOf(ctx.of(batch[0]!)).toEqualTypeOf<BatchedContext & { trace: string }>()
          // @ts-expect-error it belongs to each job, not to the call
          void ctx.trace
          return batch.map(() => 5)
        },
        charge: {
          runBatch: (batch, ctx) => ctx.each((_each, { trace: receipt }) => ({ receipt })),
          batch: { size: 5 },
        },
      },
      { batch: { size: 2 }, middleware: [trace] },
    )
  })

  test('may be one function for all names, of untyped jobs too, and be written apart', () => {
    new Worker(
      untyped,
      (batch, ctx) => {
        expectTypeOf(batch).toEqualTypeOf<readonly Job[]>()
        expectTypeOf(ctx).toEqualTypeOf<BatchContext>()
        return batch.map(({ data }) => data)
      },
      { batch: { size: 5 } },
    )
    const sweep: BatchHandlerOf<Jobs, 'sweep'> = async (batch) => batch.map(() => 5)
    new Worker(queue, { sweep }, { batch: { size: 5 } })
    // @ts-expect-error without `batch` it is given one job
    new Worker(queue, { sweep })
  })
})

describe('upgrades', () => {
  test('make the input of this version, out of the input that they declare', () => {
    const versioned = defineJobs({
      mail: job<{ to: string[] }>({
        version: 3,
        upgrade: { 1: (old: { to: string }) => ({ to: [old.to] }), 2: async (old) => old as { to: string[] } },
      }),
    })
    expectTypeOf(versioned.mail.version).toEqualTypeOf<number | undefined>()
    job<{ to: string[] }>({
      version: 2,
      // @ts-expect-error `to` is a list now
      upgrade: { 1: (old: { to: string }) => old },
    })
  })
})

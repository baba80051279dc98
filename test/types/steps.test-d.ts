// Durable steps, signals, logs and retries, as they are typed.
import { Worker } from 'millrace'
import type { LogLine } from 'millrace'
import { describe, expectTypeOf, test } from 'vitest'
import { queue, untyped } from './jobs.js'

describe('steps', () => {
  test('give what their function gives, sync or async', () => {
    new Worker(queue, {
      sweep: async (_job, ctx) => {
        expectTypeOf(await ctx.step('a', () => 5)).toEqualTypeOf<number>()
        expectTypeOf(await ctx.step('b', async () => ({ to: 'x' }))).toEqualTypeOf<{ to: string }>()
        expectTypeOf(await ctx.step('c', () => {})).toEqualTypeOf<void>()
        expectTypeOf(ctx.sleep('d', '5m')).toEqualTypeOf<Promise<void>>()
        return 5
      },
    })
  })

  test('take a name and a function', () => {
    new Worker(queue, (_job, ctx) => {
      // @ts-expect-error without a name
      void ctx.step(() => 5)
      // @ts-expect-error no function
      void ctx.step('a', 5)
      // @ts-expect-error without a time
      void ctx.sleep('a')
    })
  })

  test('are not in batches', () => {
    new Worker(untyped, {
      a: {
        runBatch: (jobs, ctx) => {
          // @ts-expect-error of one job alone
          void ctx.of(jobs[0]!).step
          return []
        },
      },
    })
  })
})

describe('signals', () => {
  test('are what the handler declares, and unknown unless it does', () => {
    new Worker(queue, async (_job, ctx) => {
      expectTypeOf(await ctx.waitForSignal('a')).toEqualTypeOf<unknown>()
      expectTypeOf(await ctx.waitForSignal<{ by: string }>('a', { timeout: '5m' })).toEqualTypeOf<{ by: string }>()
      // @ts-expect-error no such option
      void ctx.waitForSignal('a', { wait: 5 })
    })
  })

  test('return whether they were received', () => {
    expectTypeOf(queue.signal('id', 'name', { any: 'JSON' })).toEqualTypeOf<Promise<boolean>>()
    expectTypeOf(queue.signal('id', 'name')).toEqualTypeOf<Promise<boolean>>()
    void queue.get('id').then((job) => expectTypeOf(job!.signal('name', 5)).toEqualTypeOf<Promise<boolean>>())
  })
})

describe('edits', () => {
  test('logs are read by page', () => {
    void queue.get('id').then((job) => {
      expectTypeOf(job!.logs({ after: 5, limit: 10 })).toEqualTypeOf<Promise<readonly LogLine[]>>()
      expectTypeOf<LogLine['index']>().toEqualTypeOf<number>()
      // @ts-expect-error by its place, and not by a cursor
      void job!.logs({ cursor: 'x' })
    })
  })

  test('many are retried at a rate, or counted; one is not', () => {
    expectTypeOf(queue.retry({ state: 'failed' }, { rate: 5, dryRun: true })).toEqualTypeOf<Promise<number>>()
    expectTypeOf(queue.retry('id')).toEqualTypeOf<Promise<boolean>>()
    // @ts-expect-error a rate of one job
    void queue.retry('id', { rate: 5 })
    // @ts-expect-error no such option
    void queue.retry({ all: true }, { speed: 5 })
  })
})

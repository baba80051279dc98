// What claims by hand and runs that end return, and what they take.
import { Worker } from 'millrace'
import type { ClaimedJobOf, Heartbeat, Job, RunReport } from 'millrace'
import { describe, expectTypeOf, test } from 'vitest'
import { queue, untyped } from './jobs.js'
import type { jobs } from './jobs.js'

describe('a claimed job', () => {
  test('of one name has the data and takes the result of that name', async () => {
    const [email] = await queue.claim({ names: ['email'] })
    expectTypeOf(email!).toEqualTypeOf<ClaimedJobOf<typeof jobs, 'email'>>()
    expectTypeOf(email!.name).toEqualTypeOf<'email'>()
    expectTypeOf(email!.data).toEqualTypeOf<{ to: string; cc: string[]; at: Date }>()
    await email!.complete({ messageId: 'm' })
    // @ts-expect-error its result has a messageId
    await email!.complete({ copies: 1 })
    // @ts-expect-error its result may not be left out
    await email!.complete()
  })

  test('of several names is narrowed by its name', async () => {
    for (const each of await queue.claim({ names: ['charge', 'sweep'], max: 5 })) {
      expectTypeOf(each.name).toEqualTypeOf<'charge' | 'sweep'>()
      if (each.name === 'charge') await each.complete({ receipt: `for ${each.data.cents}` })
      else await each.complete(5)
    }
  })

  test('may be completed with nothing where its result allows that', async () => {
    const [report] = await queue.claim({ names: ['report'] })
    await report!.complete()
    const [any] = await untyped.claim()
    expectTypeOf(any!.data).toEqualTypeOf<unknown>()
    expectTypeOf(any!.job).toExtend<Job>()
    await any!.complete()
    await any!.complete({ anything: true })
  })

  test('adds declared jobs with its completion', async () => {
    const [charge] = await queue.claim({ names: ['charge'] })
    await charge!.complete(async ({ add, continueWith }) => {
      await add('crawl', { url: 'https://example.com' })
      await continueWith('sweep')
      // @ts-expect-error there is no such job
      await add('crwal', { url: 'https://example.com' })
      return { receipt: 'r' }
    })
  })

  test('returns whether it is still held, and whether it is tried again', async () => {
    const [each] = await queue.claim()
    expectTypeOf(each!.heartbeat()).toEqualTypeOf<Promise<Heartbeat>>()
    expectTypeOf(each!.fail('no', { retry: '5s' })).toEqualTypeOf<Promise<'retrying' | 'failed'>>()
    // @ts-expect-error progress is JSON
    await each!.progress(new Map())
  })

  test('is claimed by declared names alone', async () => {
    // @ts-expect-error there is no such job
    await queue.claim({ names: ['emial'] })
  })
})

test('a run that ends resolves with a report, and one that does not with nothing', () => {
  const worker = new Worker(queue, { sweep: () => 5 }, { autorun: false })
  expectTypeOf(worker.run()).toEqualTypeOf<Promise<void>>()
  expectTypeOf(worker.run({ until: 'drained', maxJobs: 5 })).toEqualTypeOf<Promise<RunReport>>()
  // @ts-expect-error no such condition
  void worker.run({ until: 'empty' })
})

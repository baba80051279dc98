// What is too large for a store: batches are split, and a settlement that does not fit fails its job once and for good.
import { beforeEach, describe, expect, test } from 'vitest'
import { MillraceError, Worker } from 'millrace'
import type { Handler, Job, Queue, Store } from 'millrace'
import { memory } from 'millrace/memory'
import { virtualClock } from 'millrace/testing'
import { bytesOf } from '../../src/store/batch-size.js'
import { served, stores } from '../stores.js'
import { observed } from '../observed-store.js'
import { closing, event, gate, newQueue, newWorker } from '../setup.js'

const LIMIT = 20_000
const make = stores()
let refusals = 0

/** A store that takes no more text than the limit in one batch, and in one transaction's commit. */
function bounded(store: Store): Store {
  return {
    ...observed(store, () => {}),
    commit: async (batch, tx) => {
      const bytes = batch.groups.reduce((sum, group) => sum + bytesOf(group), 0)
      if (bytes <= LIMIT) return store.commit(batch, tx)
      refusals++
      throw new MillraceError('DATA_TOO_LARGE', `No more than ${LIMIT} bytes at once.`)
    },
  }
}

beforeEach(() => (refusals = 0))

/** Adds a job that has two attempts, runs it to its end with a handler, and returns its record. */
async function outcomeOf(queue: Queue, handler: Handler, data?: unknown): Promise<Job | undefined> {
  const job = await queue.add('job', data, { attempts: 2, backoff: 0 })
  const worker = newWorker(queue, handler, { concurrency: 50 })
  await Promise.race(
    (['completed', 'failed', 'retrying'] as const).map((type) => event(worker, type, ({ id }) => id === job.id)),
  )
  return queue.get(job.id)
}

describe.each(served)('on %s, which takes so much at once and no more', (kind) => {
  let queue: Queue
  beforeEach(async () => {
    queue = newQueue({ store: bounded(await make(kind)) })
  })

  test('settlements that are too large together are sent in parts, and all commit', async () => {
    await queue.addBulk(Array.from({ length: 30 }, (_, n) => ({ name: 'job', data: n })))
    let [started, release] = [0, (): void => {}]
    const together = new Promise<void>((resolve) => (release = resolve))
    const worker = newWorker(
      queue,
      async () => {
        if (++started === 30) release()
        await together
        return 'x'.repeat(LIMIT / 4)
      },
      { concurrency: 30 },
    )
    let completed = 0
    await new Promise<void>((done) => worker.on('completed', () => ++completed === 30 && done()))
    expect((await queue.counts()).completed).toBe(30)
    expect(refusals).toBeGreaterThan(0)
  })

  test('steps that are too large together are remembered all the same', async () => {
    await queue.addBulk(Array.from({ length: 12 }, (_, n) => ({ name: 'job', data: n })))
    let [started, release] = [0, (): void => {}]
    const together = new Promise<void>((resolve) => (release = resolve))
    const step = async (): Promise<string> => {
      if (++started === 12) release()
      await together
      return 'x'.repeat(LIMIT / 4)
    }
    const worker = newWorker(queue, async (_, ctx) => (await ctx.step('much', step)).length, { concurrency: 12 })
    let completed = 0
    await new Promise<void>((done) => worker.on('completed', () => ++completed === 12 && done()))
    expect(started).toBe(12)
    expect(refusals).toBeGreaterThan(0)
  })

  test('a result that is too large by itself fails its job for good, at its first attempt', async () => {
    const job = await outcomeOf(queue, () => 'x'.repeat(2 * LIMIT))
    expect(job).toMatchObject({ state: 'failed', attempt: 1, error: { code: 'DATA_TOO_LARGE' } })
    expect(refusals).toBeLessThan(5)
  })

  test('so do children that are too large together, and none of them is added', async () => {
    const job = await outcomeOf(queue, async ({ name }, ctx) => {
      if (name === 'job') for (let n = 0; n < 8; n++) await ctx.add('child', 'x'.repeat(LIMIT / 4))
    })
    expect(job).toMatchObject({ state: 'failed', attempt: 1, error: { code: 'DATA_TOO_LARGE' } })
    expect(await queue.list({ name: 'child' })).toMatchObject({ jobs: [] })
  })

  test('log lines that do not fit beside a result are dropped, and the result is kept', async () => {
    let lost: unknown
    const job = await outcomeOf(queue, (_, ctx) => {
      ctx.log('x'.repeat(2 * LIMIT)).catch((error: unknown) => (lost = error))
      return 'small'
    })
    expect([job?.state, await job?.result()]).toEqual(['completed', 'small'])
    expect(lost).toMatchObject({ code: 'DATA_TOO_LARGE' })
  })

  test('an add that is too large by itself is refused, and its neighbours are not', async () => {
    const adds = [1, 2, 3, 4].map((n) => queue.add('job', 'x'.repeat(n === 3 ? 2 * LIMIT : 10)))
    const ended = await Promise.allSettled(adds)
    expect(ended.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled', 'rejected', 'fulfilled'])
    expect(ended[2]).toMatchObject({ reason: { code: 'DATA_TOO_LARGE' } })
    expect((await queue.counts()).waiting).toBe(3)
  })
})

describe.each(served.filter((kind) => kind !== 'memory'))('in a transaction on %s', (kind) => {
  test('a settlement that is too large rolls it back, and fails the job for good', async () => {
    const queue = newQueue({ store: bounded(await make(kind)) })
    const job = await outcomeOf(queue, (_, ctx) => ctx.complete(() => 'x'.repeat(2 * LIMIT)))
    expect(job).toMatchObject({ state: 'failed', attempt: 1, error: { code: 'DATA_TOO_LARGE' } })
  })
})

describe('what a handler adds, in a worker made by the name of its queue', () => {
  const limited = async (maxDataBytes?: number): Promise<unknown> => {
    const queue = newQueue()
    await queue.add('job', null, { attempts: 1 })
    const add: Handler = async ({ name }, ctx) => {
      if (name === 'job') await ctx.add('child', 'x'.repeat(1_100_000))
    }
    const options = { store: queue.store, logger: false, ...(maxDataBytes !== undefined && { maxDataBytes }) } as const
    const worker = closing(new Worker('work', add, options))
    const ended = await Promise.race([event(worker, 'failed'), event(worker, 'completed')])
    return 'error' in ended ? ended.error : ended.type
  }

  test('is bounded as in others, by 1 MiB by default', async () => {
    expect(await limited()).toMatchObject({ code: 'DATA_TOO_LARGE' })
    expect(await limited(2_000_000)).toBe('completed')
  })

  test('has its bound from the queue where there is one', () => {
    const made = (): unknown => new Worker(newQueue(), () => {}, { maxDataBytes: 5, autorun: false })
    expect(made).toThrow('give maxDataBytes to the queue')
  })
})

test('a worker takes no further jobs while the results that are on their way take too much', async () => {
  const go = gate()
  const clock = virtualClock()
  const inner = closing(memory({ runtime: clock.runtime }))
  /** As a store that works on several batches at once: claims do not wait for settlements. */
  const store: Store = {
    ...observed(inner, () => {}),
    can: { ...inner.can, parallel: true },
    commit: async (batch, tx) => {
      const settles = batch.groups.some(([change]) => change?.kind === 'move' && change.held)
      if (settles) await go.promise
      return inner.commit(batch, tx)
    },
  }
  const queue = newQueue({ store })
  await queue.addBulk(Array.from({ length: 100 }, () => ({ name: 'job', options: { attempts: 1 } })))
  let [started, completed] = [0, 0]
  const worker = newWorker(
    queue,
    () => {
      started++
      return 'x'.repeat(2 ** 20 - 2)
    },
    { concurrency: 5 },
  )
  const done = new Promise<void>((resolve) => worker.on('completed', () => ++completed === 100 && resolve()))
  await clock.advance('20s')
  expect(started).toBeGreaterThan(64)
  expect(started).toBeLessThan(75)
  go.open()
  await clock.until(done)
})

// The newest finished jobs of a name are kept, as many as its jobs declare, and the others are removed.
import { describe, expect, it } from 'vitest'
import { Queue } from 'millrace'
import type { AddOptions, JobState, Store } from 'millrace'
import { memory } from 'millrace/memory'
import { virtualClock } from 'millrace/testing'
import { webhooks } from 'millrace/webhooks'
import { observed } from '../../observed-store.js'
import { kinds, stores } from '../../stores.js'
import { closing, newQueue, newWorker } from '../../setup.js'

const bulk = (name: string, count: number, options: AddOptions) =>
  Array.from({ length: count }, (_, at) => ({ name, data: at, options }))

/** What is left of a name in a state, oldest first. */
async function left(queue: Queue, name: string, state: JobState): Promise<unknown[]> {
  return (await queue.list({ name, state, limit: 1000 })).jobs.map(({ data }) => data)
}

/** Runs all jobs of a queue. The close of the worker ends with a round. */
async function runAll(queue: Queue, options: { concurrency?: number } = {}): Promise<void> {
  const worker = newWorker(
    queue,
    ({ name, data }) => {
      if (name === 'broken') throw new Error(`broken ${String(data)}`)
    },
    { autorun: false, ...options },
  )
  await worker.run({ until: 'drained' })
  await worker.close()
}

describe.each(kinds)('%s', (kind) => {
  const make = stores()
  const open = async (): Promise<Queue> => closing(new Queue('work', { store: await make(kind), logger: false }))

  it('keeps the newest of each name and end state, and all of names without such a rule', async () => {
    const queue = await open()
    const keep = { removeOnComplete: { count: 3 }, removeOnFail: { count: 2 }, attempts: 1 }
    await queue.addBulk([...bulk('job', 10, keep), ...bulk('broken', 5, keep), ...bulk('other', 4, {})])
    await runAll(queue)
    expect(await left(queue, 'job', 'completed')).toEqual([7, 8, 9])
    expect(await left(queue, 'broken', 'failed')).toEqual([3, 4])
    expect(await left(queue, 'other', 'completed')).toEqual([0, 1, 2, 3])
  })

  it('removes only jobs that have such a rule: older ones without it stay, and hide none', async () => {
    const queue = await open()
    await queue.addBulk(bulk('job', 5, {}))
    await runAll(queue)
    await queue.addBulk(bulk('job', 8, { removeOnComplete: { count: 2 } }))
    await runAll(queue)
    expect(await left(queue, 'job', 'completed')).toEqual([0, 1, 2, 3, 4, 6, 7])
  })

  it('two workers together keep exactly as many', { timeout: 60_000 }, async () => {
    const store = await make(kind)
    const queue = closing(new Queue('work', { store, logger: false }))
    await queue.addBulk(bulk('job', 300, { removeOnComplete: { count: 20 } }))
    await Promise.all([runAll(queue, { concurrency: 5 }), runAll(queue, { concurrency: 5 })])
    expect((await left(queue, 'job', 'completed')).length).toBe(20)
  })

  it('jobs that were completed by hand count as well', async () => {
    const queue = await open()
    await queue.addBulk(bulk('job', 6, { removeOnComplete: { count: 2 } }))
    for (const claimed of await queue.claim({ max: 6 })) await claimed.complete()
    await queue.close()
    const again = closing(new Queue('work', { store: queue.store, logger: false }))
    expect(await left(again, 'job', 'completed')).toEqual([4, 5])
  })
})

describe('on a virtual clock', () => {
  function virtual(): { clock: ReturnType<typeof virtualClock>; store: Store; queue: Queue } {
    const clock = virtualClock()
    const store = closing(memory({ runtime: clock.runtime }))
    return { clock, store, queue: closing(new Queue('work', { store, logger: false })) }
  }

  it('a worker that goes on removes them soon, and jobs that end later make room in turn', async () => {
    const { clock, queue } = virtual()
    newWorker(queue, () => {}, { concurrency: 3 })
    await queue.addBulk(bulk('job', 5, { removeOnComplete: { count: 2 } }))
    await clock.advance('3s')
    expect(await left(queue, 'job', 'completed')).toEqual([3, 4])
    await queue.add('job', 'new', { removeOnComplete: { count: 2 } })
    await clock.advance('3s')
    expect(await left(queue, 'job', 'completed')).toEqual([4, 'new'])
  })

  it('with an age, they are removed at that age as well', async () => {
    const { clock, queue } = virtual()
    newWorker(queue, () => {})
    await queue.addBulk(bulk('job', 5, { removeOnComplete: { count: 2, age: '1h' } }))
    await clock.advance('3s')
    expect(await left(queue, 'job', 'completed')).toEqual([3, 4])
    await clock.advance('2h')
    expect(await left(queue, 'job', 'completed')).toEqual([])
  })

  it('jobs whose lease expired on their last attempt count among the failed', async () => {
    const { clock, queue } = virtual()
    await queue.addBulk(bulk('job', 4, { removeOnFail: { count: 1 }, attempts: 1 }))
    await clock.until(queue.claim({ max: 4, lease: '1s' }))
    await clock.advance('1m')
    expect(await left(queue, 'job', 'failed')).toEqual([3])
  })

  it('reads only what is too many, however many jobs of other names there are', async () => {
    const { clock, store: inner } = virtual()
    let read = 0
    const store: Store = {
      ...observed(inner, () => {}),
      find: async (query, tx) => {
        const page = await inner.find(query, tx)
        if (query.names !== undefined) read += page.items.length
        return page
      },
    }
    const queue = closing(new Queue('work', { store, logger: false }))
    await queue.addBulk([...bulk('other', 500, {}), ...bulk('job', 20, { removeOnComplete: { count: 15 } })])
    const worker = newWorker(queue, () => {}, { concurrency: 50 })
    await clock.advance('5s')
    expect(await left(queue, 'job', 'completed')).toHaveLength(15)
    const counted = read - 15 // the list above
    expect(counted).toBe(5)
    await clock.until(worker.close())
  })
})

it('a job that may not be removed yet does not hide those behind it, however many lie in between', async () => {
  const clock = virtualClock()
  const store = closing(memory({ runtime: clock.runtime }))
  const webhook = webhooks({ secret: 'a secret of this test', url: 'https://example.invalid/', attempts: 1 })
  const stamping = closing(new Queue('work', { store, logger: false, webhook }))
  const queue = closing(new Queue('work', { store, logger: false })) // its worker sends nothing
  const keep = { removeOnComplete: { count: 3 } }
  await stamping.add('job', 'pending', keep)
  await queue.addBulk(bulk('job', 5100, {}))
  await queue.addBulk(bulk('job', 8, keep))
  const worker = newWorker(queue, () => {}, { concurrency: 500 })
  await clock.advance('1m')
  await clock.until(worker.close())
  expect((await queue.list({ limit: 10, order: 'newest' })).jobs.map(({ data }) => data).slice(0, 4)).toEqual([
    7, 6, 5, 5099,
  ])
  expect((await queue.counts()).completed).toBe(1 + 5100 + 3)
})

it('a job whose webhook is pending, and the last of a chain, are not removed', async () => {
  const webhook = webhooks({ secret: 'a secret of this test', url: 'https://example.invalid/', attempts: 1 })
  const queue = closing(new Queue('work', { store: newQueue().store, logger: false, webhook }))
  const keep = { removeOnComplete: { count: 1 } }
  await queue.addBulk(bulk('with callback', 2, keep))
  await queue.addBulk(bulk('first', 2, { webhook: false }))
  const worker = newWorker(
    closing(new Queue('work', { store: queue.store, logger: false })),
    {
      'with callback': () => {},
      last: () => {},
      first: (_job, ctx) => ctx.complete(async ({ continueWith }) => void (await continueWith('last', null, keep))),
    },
    { autorun: false },
  )
  await worker.run({ until: 'drained' })
  await worker.close()
  expect(await left(queue, 'with callback', 'completed')).toEqual([0, 1])
  expect(await left(queue, 'last', 'completed')).toHaveLength(2)
})

describe('bad rules', () => {
  const cases: readonly [string, unknown, string][] = [
    ['neither age nor count', {}, 'INVALID_OPTION'],
    ['a number', 1000, 'INVALID_OPTION'],
    ['no jobs', { count: 0 }, 'INVALID_OPTION'],
    ['half a job', { count: 1.5 }, 'INVALID_OPTION'],
    ['an age without a unit', { age: 3600 }, 'INVALID_OPTION'],
    ['an age of nothing', { age: '0s' }, 'INVALID_DURATION'],
    ['an age that cannot be read', { age: 'old' }, 'INVALID_DURATION'],
    ['an unknown option', { limit: 5 }, 'UNKNOWN_OPTION'],
  ]
  it.each(cases)('%s: refused, and nothing is added', async (_what, rule, code) => {
    const queue = newQueue()
    for (const option of ['removeOnComplete', 'removeOnFail']) {
      await expect(queue.add('job', null, { [option]: rule })).rejects.toMatchObject({ code })
    }
    expect(await queue.counts()).toMatchObject({ waiting: 0 })
  })
})

// A worker's entry in the registry: on a store that takes its time, beside many others, and under another clock.
import { describe, expect, it } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Store } from 'millrace'
import { memory } from 'millrace/memory'
import { WORKERS } from '../../src/store/settings.js'
import type { Batch } from '../../src/store/store.js'
import { virtualClock } from '../../src/testing/world/clock.js'
import { served, stores } from '../stores.js'
import { observed } from '../observed-store.js'
import { collect, event, gate, newQueue, newWorker } from '../setup.js'

it.each(['at once', 'though it was paused and resumed'] as const)(
  'the start of a worker is announced before the first job that it runs: %s',
  async (when) => {
    const inner = memory()
    const [asked, slow] = [gate(), gate()]
    const store: Store = Object.assign(Object.create(inner) as Store, {
      commit: async (batch: Parameters<Store['commit']>[0]) => {
        if (batch.groups.some((group) => group.some((change) => change.kind === 'put'))) {
          asked.open()
          await slow.promise
        }
        return inner.commit(batch)
      },
    })
    const queue = newQueue({ store })
    const seen = collect(queue, ['worker-started', 'active'])
    await queue.add('job')
    const worker = newWorker(queue, () => 'done', { autorun: false })
    const own = collect(worker, ['worker-started', 'active'])
    const job = await queue.add('job')
    const running = worker.run()
    await asked.promise
    if (when === 'though it was paused and resumed') {
      worker.pause()
      worker.resume()
    }
    await new Promise(setImmediate)
    expect(seen).toEqual([])
    slow.open()
    await running
    await job.result()
    expect(seen).toEqual(['worker-started', 'active', 'active'])
    expect(own).toEqual(['worker-started', 'active', 'active'])
  },
)

it('a worker that was closed while it started does not come back into the registry', async () => {
  const clock = virtualClock()
  const inner = memory({ runtime: clock.runtime })
  const [asked, slow] = [gate(), gate()]
  const store: Store = Object.assign(Object.create(inner) as Store, {
    commit: async (batch: Parameters<Store['commit']>[0]) => {
      if (batch.groups.some((group) => group.some((change) => change.kind === 'put'))) {
        asked.open()
        await slow.promise
      }
      return inner.commit(batch)
    },
  })
  const worker = new Worker(new Queue('work', { store, logger: false }), () => {}, { logger: false, autorun: false })
  const reported = collect(worker, ['worker-started', 'worker-stopping', 'worker-stopped'])
  const running = worker.run()
  await clock.until(asked.promise)
  await clock.until(worker.close({ timeout: 10, grace: 10 }))
  slow.open()
  await clock.until(running)
  await clock.advance(1000)
  expect(reported).toEqual(['worker-started', 'worker-stopped'])
  expect((await inner.details({ cellsUnder: WORKERS })).cells).toEqual([])
})

it.each([
  ['on one queue', () => 'work'],
  ['each on a queue of its own', (n: number) => `work-${n}`],
])('many workers %s read about as many entries in an interval as there are workers', async (_, queueOf) => {
  /** Entries read in twenty minutes by so many workers. */
  const readBy = async (count: number): Promise<number> => {
    const clock = virtualClock()
    const inner = memory({ runtime: clock.runtime })
    let read = 0
    const store: Store = {
      ...observed(inner, () => {}),
      details: async (query) => {
        const details = await inner.details(query)
        read += details.cells.length
        return details
      },
    }
    const workers = Array.from({ length: count }, (__, n) => {
      const queue = new Queue(queueOf(n), { store, logger: false })
      return new Worker(queue, () => {}, { logger: false, pollEvery: '1h' })
    })
    await clock.advance('1m')
    read = 0
    await clock.advance('20m')
    await clock.until(Promise.all(workers.map((worker) => worker.close())))
    return read
  }
  const [few, many] = [await readBy(4), await readBy(32)]
  expect(few).toBeGreaterThan(0)
  expect(many / few).toBeLessThan(16) // 8 times the workers; 64 times, if each read all
})

describe.each(served)('a process whose clock is an hour ahead of the store, on %s', (kind) => {
  const make = stores()

  it('neither clears away workers that live, nor calls them dead', async () => {
    const store = await make(kind)
    const runtime = store.runtime!
    const beats = gate()
    let left = 4
    const received = (batch: Batch): void => {
      const written = batch.groups
        .flat()
        .some((change) => change.kind === 'put' && change.key === `${WORKERS}${other.id}`)
      if (written && --left === 0) beats.open()
    }
    const ahead: Store = {
      ...observed(store, received),
      runtime: { ...runtime, now: () => runtime.now() + 3_600_000 },
    }
    const living = newWorker(newQueue({ store }), { job: () => 'ran' }, { autorun: false })
    await living.run()
    const queue = newQueue({ store: ahead })
    const other = newWorker(queue, { other: () => {} }, { autorun: false, renewEvery: 20 })
    await other.run()
    await beats.promise // it has looked around after the first of them, at least
    const { cells } = await store.details({ cells: [`${WORKERS}${living.id}`] })
    expect(cells.length).toBe(1)
    await queue.pause('job')
    const job = await queue.add('job')
    expect((await queue.explain(job.id)).reasons).toEqual([{ why: 'paused', queue: 'work', name: 'job' }])
    const completed = event(living, 'completed')
    await queue.resume('job')
    await completed
  })
})

// A worker's entry in the registry, on a store that takes its time.
import { expect, it } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Store } from 'millrace'
import { memory } from 'millrace/memory'
import { WORKERS } from '../../src/store/cells.js'
import { virtualClock } from '../../src/testing/clock.js'
import { collect, gate, newQueue, newWorker } from '../setup.js'

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
  const told = collect(worker, ['worker-started', 'worker-stopping', 'worker-stopped'])
  const running = worker.run()
  await clock.until(asked.promise)
  await clock.until(worker.close({ timeout: 10, grace: 10 }))
  slow.open()
  await clock.until(running)
  await clock.advance(1000)
  expect(told).toEqual(['worker-started', 'worker-stopped'])
  expect((await inner.details({ cellsUnder: WORKERS })).cells).toEqual([])
})

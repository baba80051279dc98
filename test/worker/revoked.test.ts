// Leases that were revoked without a notice for each: the worker finds out at once, by renewing all that it holds.
import { expect, it } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Store } from 'millrace'
import { memory } from 'millrace/memory'
import type { Batch, Notice, Receipt } from '../../src/store/store.js'
import { virtualClock } from '../../src/testing/world/clock.js'
import type { VirtualClock } from '../../src/testing/world/clock.js'
import { gate } from '../setup.js'

interface Scene {
  readonly clock: VirtualClock
  readonly queue: Queue
  /** Reasons of the handlers that were aborted, by the data of their jobs. */
  readonly aborted: Map<unknown, string>
  /** Batches with renewals, in order. */
  readonly renewals: Batch[]
}

/**
 * A worker with ten jobs running, on a store that does not report which leases were revoked; `commit` may delay batches.
 */
async function scene(commit: (batch: Batch, send: () => Promise<Receipt>) => Promise<Receipt>): Promise<Scene> {
  const clock = virtualClock()
  const store = memory({ runtime: clock.runtime })
  const renewals: Batch[] = []
  const terse: Store = Object.assign(Object.create(store) as Store, {
    commit: (batch: Batch) => {
      if (batch.renewals.length > 0) renewals.push(batch)
      return commit(batch, () => store.commit(batch))
    },
    watch: (options: Parameters<Store['watch']>[0], listener: (notice: Notice) => void) =>
      store.watch(options, (notice) => {
        listener(notice.revoked.length === 0 ? notice : { ...notice, revoked: [], missed: true })
      }),
  })
  const queue = new Queue('work', { store: terse, logger: false })
  const aborted = new Map<unknown, string>()
  const worker = new Worker(
    queue,
    async (job, { signal }) => {
      await new Promise((resolve) => signal.addEventListener('abort', resolve))
      aborted.set(job.data, signal.reason!.reason)
    },
    { logger: false, concurrency: 10, lease: '10h', renewEvery: '9h', autorun: false },
  )
  await worker.run()
  await queue.addBulk(Array.from({ length: 10 }, (_, n) => ({ name: 'n', data: n })))
  await clock.settle()
  expect(worker.active).toBe(10)
  return { clock, queue, aborted, renewals }
}

it('the handlers get the reason, long before the next renewal', async () => {
  const { clock, queue, aborted, renewals } = await scene((_batch, send) => send())
  const { jobs } = await queue.list()
  const [first, second] = jobs
  await Promise.all([first!.cancel(), second!.remove()])
  await clock.settle()
  expect([...aborted]).toEqual([
    [0, 'cancelled'],
    [1, 'removed'],
  ])
  // All that was held in one batch.
  expect(renewals[0]!.renewals).toHaveLength(10)
})

it('a renewal that was sent before is followed by another', async () => {
  const held = gate()
  let holding = false
  const { clock, queue, aborted, renewals } = await scene(async (batch, send) => {
    if (batch.renewals.length < 2 || !holding) return send()
    holding = false
    const receipt = await send() // it is applied before the next cancellation, and its answer comes after it
    await held.promise
    return receipt
  })
  const { jobs } = await queue.list()
  const [first, second] = jobs
  holding = true
  await first!.cancel()
  await clock.settle()
  await second!.cancel()
  await clock.settle()
  expect([aborted.size, renewals.length]).toEqual([0, 1])
  held.open()
  await clock.settle()
  expect([...aborted.keys()]).toEqual([0, 1])
  expect(renewals.filter((batch) => batch.renewals.length > 1)).toHaveLength(2)
})

// A renewal that the open transaction of a user refuses is tried again, and costs no lease.
import { expect, it } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Store } from 'millrace'
import { memory } from 'millrace/memory'
import { virtualClock } from '../../src/testing/world/clock.js'
import { closing, collect, gate } from '../setup.js'

it('is tried again soon, long before the next tick', async () => {
  const clock = virtualClock()
  const store = closing(memory({ runtime: clock.runtime }))
  let locked = false
  const tries: number[] = []
  const locking: Store = Object.assign(Object.create(store) as Store, {
    commit: async (batch: Parameters<Store['commit']>[0]) => {
      if (!locked || batch.renewals.length === 0) return store.commit(batch)
      tries.push(clock.runtime.elapsed())
      const receipt = await store.commit({ ...batch, renewals: [] })
      return { ...receipt, renewals: batch.renewals.map(({ id }) => ({ ok: false, why: 'busy', id }) as const) }
    },
  })
  const queue = closing(new Queue('work', { store: locking, logger: false }))
  const end = gate<string>()
  const worker = closing(
    new Worker(queue, () => end.promise, { logger: false, lease: '30s', autorun: false, upkeepEvery: '30s' }),
  )
  await worker.run()
  const seen = collect(worker, ['lease-lost'])
  const added = await queue.add('n')
  await clock.settle()
  locked = true
  // Beyond the end of the lease: no other worker can take the job from a locked row, so this worker cannot call it lost.
  await clock.advance('45s')
  expect(tries.length).toBeGreaterThan(8)
  locked = false
  await clock.advance('10s')
  end.open('done')
  expect(await clock.until(added.result())).toBe('done')
  expect(await added.refresh()).toMatchObject({ attempt: 1, stalls: 0 })
  expect(seen).toEqual([])
})

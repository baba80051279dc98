// The due loop by itself: what its own worker runs is left alone, and an error does not end it.
import { expect, test } from 'vitest'
import type { Ask, Group, Receipt, Store } from '../../src/store/store.js'
import { connect } from '../../src/store/connection.js'
import { memory } from '../../src/stores/memory/store.js'
import { KeepLast } from '../../src/upkeep/retention/keep-last.js'
import { Upkeep } from '../../src/upkeep/upkeep.js'
import type { UpkeepParts } from '../../src/upkeep/upkeep.js'
import { steppedClock } from '../conformance/clock.js'
import { asking, insert, LEASE } from '../stores/memory/table.making.js'

/** Upkeep of the queue `mill` on a store, in a worker that runs nothing. */
function upkeepOn(store: Store, over: Partial<UpkeepParts> = {}): Upkeep {
  return new Upkeep({
    connection: connect(store),
    queues: ['mill'],
    every: 60_000,
    renewEvery: 10_000,
    lease: 30_000,
    reconnect: { type: 'fixed', delay: 1 },
    keepLast: new KeepLast(connect(store), () => {}),
    callbacks: undefined,
    leases: { ids: [] },
    claimer: { isClaimingFor: () => false },
    registry: { others: 0 },
    errors: { report: () => {} },
    reporter: { upkept: () => {} },
    ...over,
  })
}

let seq = 0

function commit(store: Store, groups: readonly Group[], asks: readonly Ask[]): Promise<Receipt> {
  return store.commit({ writer: 'test', seq: ++seq, groups, renewals: [], asks })
}

test('a job that begins to run here while the store is read is not reaped', async () => {
  const { runtime, advance } = steppedClock()
  const store = memory({ runtime })
  await commit(store, [[insert('grind')]], [asking(1)])
  await advance(LEASE + 1)
  const running: string[] = []
  const reads: string[] = []
  const slow: Store = {
    ...store,
    async due(query) {
      const found = await store.due(query)
      running.push('grind') // a claim sent again has found it, for instance
      reads.push(...found.jobs.map(({ id }) => id))
      return found
    },
  }
  const upkeep = upkeepOn(slow, { leases: { ids: running } })
  upkeep.start()
  await expect.poll(() => reads).toContain('grind')
  await upkeep.stop()
  const [found] = await store.get(['grind'])
  expect(found).toMatchObject({ state: 'active', fence: 1, attempt: 1 })
})

test.each([
  { worker: 'miller', state: 'active', why: 'its own worker may have claimed it' },
  { worker: 'another', state: 'waiting', why: 'no other worker claims here' },
])(
  'while a claim is unanswered, an expired lease of $worker leaves the job $state: $why',
  async ({ worker, state }) => {
    const { runtime, advance } = steppedClock()
    const store = memory({ runtime })
    await commit(store, [[insert('grind')], [insert('later', { run: { in: LEASE } })]], [asking(1, { worker })])
    await advance(LEASE + 1)
    const upkeep = upkeepOn(store, { claimer: { isClaimingFor: (worker) => worker === 'miller' } })
    upkeep.start()
    const states = async () => (await store.get(['grind', 'later'])).map((job) => job?.state)
    // The other job was due in the same pass.
    await expect.poll(states).toEqual([state, 'waiting'])
    await upkeep.stop()
  },
)

test('upkeep goes on after an error', async () => {
  const store = memory()
  let reads = 0
  const failures: unknown[] = []
  await new Promise<void>((resolve) => {
    const failing: Store = {
      ...store,
      async due(query) {
        if (++reads === 1) throw new Error('the disk is gone')
        void upkeep.stop().then(resolve)
        return store.due(query)
      },
    }
    const upkeep = upkeepOn(failing, { errors: { report: (error) => void failures.push(error) } })
    upkeep.start()
  })
  expect(failures).toEqual([new Error('the disk is gone')])
})

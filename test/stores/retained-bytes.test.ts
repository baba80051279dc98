// What stores remember in the process of large jobs, so that batches can be answered again and settled quickly, is bounded in bytes.
import { describe, expect, test } from 'vitest'
import type { Store } from 'millrace'
import type { JobRecord } from '../../src/job/job.js'
import { ask, Driver } from '../../src/conformance/driver.js'
import { complete, insert, remove } from '../../src/conformance/changes.js'
import { inUse } from '../collecting.js'
import { kinds, stores } from '../stores.js'

const MIB = 2 ** 20
/** Jobs of about one MiB each. */
const MANY = 64
/** What may stay in use, besides noise. */
const MOST = 24 * MIB

const make = stores()

let fills = 0

/** Text that nothing else shares. */
function filling(): string {
  return `${++fills} ${'x'.repeat(1000)}`.repeat(1000)
}

/** Adds large jobs, in batches of their own. */
async function addLarge(store: Store): Promise<void> {
  const driver = new Driver(store, 'adder')
  for (let n = 0; n < MANY; n += 4) {
    await driver.commit({ groups: [0, 1, 2, 3].map((at) => [insert(`large-${n + at}`, 'large', { data: filling() })]) })
  }
}

/** Claims all of them, each time as another writer; answers what is needed to settle them. */
async function claimAll(store: Store): Promise<readonly JobRecord[]> {
  const held: JobRecord[] = []
  for (let writers = 0; held.length < MANY; writers++) {
    const { asks } = await new Driver(store, `claimer-${writers}`).commit({ asks: [ask(4)] })
    held.push(...asks.flat().map((job) => ({ ...job, data: undefined })))
  }
  return held
}

describe.each(kinds)('on %s', (kind) => {
  test('claims and adds of large jobs are not kept whole to be answered again', { timeout: 120_000 }, async () => {
    const store = await make(kind)
    const driver = new Driver(store, 'settler')
    await driver.commit({ groups: [[insert('first', 'small')]], asks: [ask(1)] })
    const before = await inUse()
    await addLarge(store)
    const held = await claimAll(store)
    for (const job of held) {
      await driver.commit({ groups: [complete(job)] })
      const [ended] = await store.get([job.id])
      await driver.commit({ groups: [remove(ended!)] })
    }
    expect(await store.find({})).toMatchObject({ items: [{ id: 'first' }] })
    expect((await inUse()) - before).toBeLessThan(MOST)
  })
})

describe.each(['SQLite', 'PostgreSQL'] as const)('on %s', (kind) => {
  test('claims that are settled in transactions are not kept', { timeout: 120_000 }, async () => {
    const store = await make(kind)
    const driver = new Driver(store, 'settler')
    await driver.commit({ groups: [[insert('first', 'small')]], asks: [ask(1)] })
    const before = await inUse()
    await addLarge(store)
    const held = await claimAll(store)
    for (const job of held) {
      await store.transact!((tx) =>
        store.commit({ writer: '', seq: 0, groups: [complete(job)], renewals: [], asks: [] }, tx),
      )
    }
    expect((await inUse()) - before).toBeLessThan(MOST)
  })
})

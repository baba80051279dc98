// A run of a bulk operation that dies or freezes, and the one that takes over: each job is changed and counted once.
import { describe, expect, test } from 'vitest'
import { Queue } from 'millrace'
import type { Operation, Store } from 'millrace'
import { runBulk } from '../../../../src/queue/operations/bulk/run.js'
import type { Batch, Receipt } from '../../../../src/store/store.js'
import { connect } from '../../../../src/store/connection.js'
import { observed } from '../../../observed-store.js'
import { closing } from '../../../setup.js'
import { kinds, stores } from '../../../stores.js'

const make = stores()
const LEASE = 10_000

/** A run of an operation by a process of its own, `late` milliseconds after now, on a store as this process sees it. */
async function run(store: Store, { id }: Operation, late = 0): Promise<void> {
  const [row] = await store.get([id])
  await runBulk({ connection: connect(store), lease: LEASE, now: () => Date.now() + late, stopped: () => false }, row!)
}

/** The store of a process that freezes with its nth commit, before or after that is applied, until it is thawed. */
function freezing(store: Store, nth: number, when: 'before' | 'after') {
  let commits = 0
  let thaw = (): void => {}
  let froze = (): void => {}
  const thawed = new Promise<void>((resolve) => (thaw = resolve))
  const frozen = new Promise<void>((resolve) => (froze = resolve))
  const commit = async (batch: Batch): Promise<Receipt> => {
    const isIt = ++commits === nth
    const freeze = async (): Promise<void> => {
      froze()
      await thawed
    }
    if (isIt && when === 'before') await freeze()
    const receipt = await store.commit(batch)
    if (isIt && when === 'after') await freeze()
    return receipt
  }
  const process: Store = { ...observed(store, () => {}), commit }
  return { process, frozen, thaw }
}

async function updating(store: Store, count: number): Promise<{ queue: Queue; operation: Operation }> {
  const queue = closing(new Queue('work', { store, logger: false }))
  await queue.addBulk(Array.from({ length: count }, () => ({ name: 'job' })))
  const operation = await queue.operate({ do: 'update', all: true, changes: { priority: 2 } })
  await expect.poll(() => Date.now()).toBeGreaterThan(operation.createdAt + 1)
  return { queue, operation }
}

/** How often each job was moved since it was added. */
async function moves(queue: Queue): Promise<readonly number[]> {
  const { jobs } = await queue.list({ limit: 1000 })
  const fences = jobs.map((job) => job.toJSON()['fence'] as number)
  const added = await queue.add('last')
  return [...new Set(fences.map((fence) => fence - (added.toJSON()['fence'] as number)))]
}

describe.each(kinds)('on %s', (kind) => {
  // The first commit takes the operation over, then there is one for each page of 100 jobs.
  test.each([2, 3, 4])(
    'a run that dies after commit %i: the next one repeats nothing and forgets nothing',
    async (nth) => {
      const store = await make(kind)
      const { queue, operation } = await updating(store, 250)
      const { process, frozen } = freezing(store, nth, 'after')
      void run(process, operation)
      await frozen
      await run(store, operation, 0) // too early: the operation is leased
      const done = (await operation.refresh()).done
      expect(done).toBe(Math.min(250, 100 * (nth - 1)))
      await run(store, operation, LEASE)
      expect((await operation.refresh()).toJSON()).toMatchObject({
        state: 'completed',
        done: 250,
        unchanged: 0,
        refused: {},
      })
      expect(await moves(queue)).toEqual([1])
    },
  )

  test('a run that was frozen, and whose operation has been taken over, changes nothing any more', async () => {
    const store = await make(kind)
    const { queue, operation } = await updating(store, 150)
    const { process, frozen, thaw } = freezing(store, 2, 'before')
    const first = run(process, operation)
    await frozen
    await run(store, operation, LEASE)
    expect((await operation.refresh()).toJSON()).toMatchObject({ state: 'completed', done: 150 })
    thaw()
    await first
    expect((await operation.refresh()).toJSON()).toMatchObject({ state: 'completed', done: 150 })
    expect(await moves(queue)).toEqual([1])
  })

  test('a pause is kept by the run that works at that moment', async () => {
    const store = await make(kind)
    const { queue, operation } = await updating(store, 150)
    const { process, frozen, thaw } = freezing(store, 3, 'before')
    const working = run(process, operation)
    await frozen
    expect(await operation.pause()).toBe(true)
    thaw()
    await working
    expect((await operation.refresh()).toJSON()).toMatchObject({ state: 'paused', done: 100 })
    const { jobs } = await queue.list({ limit: 1000 })
    expect(jobs.filter(({ priority }) => priority === 2)).toHaveLength(100)
    expect(await operation.resume()).toBe(true)
    await run(store, operation, 10)
    expect((await operation.refresh()).toJSON()).toMatchObject({ state: 'completed', done: 150 })
  })
})

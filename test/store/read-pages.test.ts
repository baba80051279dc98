// Cells under a prefix come in pages: whoever reads them reads on.
import { expect, test } from 'vitest'
import type { Store } from 'millrace'
import { memory } from 'millrace/memory'
import { WORKERS } from '../../src/store/settings.js'
import { Driver } from '../../src/conformance/driver.js'
import { put } from '../../src/conformance/changes.js'
import { readCells } from '../../src/store/read-pages.js'
import { runSteps } from '../../src/store/maybe-sync.js'
import { hearing } from '../observed-store.js'
import { closing, event, newQueue, newWorker } from '../setup.js'

/** A store that gives one cell a page. */
function stingy(): { readonly store: Store; readonly d: Driver } {
  const of = closing(memory())
  const store: Store = {
    ...hearing(of, () => {}),
    details: (query, tx) => of.details({ ...query, ...(query.cellsUnder !== undefined && { bytes: 1 }) }, tx),
  }
  return { store, d: new Driver(of, 'writer') }
}

test('explain and workers see a worker whose entry is behind the first page', async () => {
  const { store, d } = stingy()
  for (const id of ['000', 'zzz']) {
    const cell = { id, host: 'h', pid: 1, queues: ['other'], names: undefined, versions: {}, state: 'running' }
    await d.land(put(`${WORKERS}${id}`, { ...cell, every: 1_000_000, startedAt: 0 }, 0))
  }
  const queue = newQueue({ store })
  const held = await queue.add('held')
  expect((await queue.explain(held.id)).reasons).toMatchObject([{ why: 'no-worker' }])
  await queue.pause('held')
  const started = event(queue, 'worker-started')
  newWorker(queue, () => {})
  await started
  expect((await queue.explain(held.id)).reasons).toMatchObject([{ why: 'paused', name: 'held' }])
})

test('a store that gives the same page again is not asked for ever', async () => {
  const { d } = stingy()
  const store: Pick<Store, 'details'> = {
    details: async () => ({ jobs: [], cells: [(await d.cell('a'))!], moreCells: 'a' }),
  }
  await d.land(put('a', 1, 0))
  await expect(runSteps(readCells(store, ''))).rejects.toThrow(/again/)
})

// Cells and pages: reading all of them, and changing a cell that others change too.
import { expect, test } from 'vitest'
import type { Store } from 'millrace'
import { memory } from 'millrace/memory'
import { WORKERS, updateCell } from '../../src/store/settings.js'
import { Driver } from '../../src/conformance/driver.js'
import { put } from '../../src/conformance/changes.js'
import { pages, portions, readCells } from '../../src/store/read-pages.js'
import { connect } from '../../src/store/connection.js'
import { runSteps } from '../../src/store/maybe-sync.js'
import { sessionFor } from '../../src/store/session.js'
import { observed } from '../observed-store.js'
import { closing, event, newQueue, newWorker } from '../setup.js'

/** A store that gives one cell a page. */
function stingy(): { readonly store: Store; readonly d: Driver } {
  const of = closing(memory())
  const store: Store = {
    ...observed(of, () => {}),
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

test('a cell is changed from the value that another writer wrote meanwhile, and left alone if nothing changes', async () => {
  const session = sessionFor(connect(closing(memory())))()
  const add = (letter: string) => updateCell(session, 'cell', (value = '') => ({ value: value + letter }))
  await Promise.all(['a', 'b', 'c', 'd'].map((letter) => runSteps(add(letter))))
  const read = async () => (await session.details({ cells: ['cell'] })).cells[0]
  const before = await read()
  expect(before?.value.split('').toSorted()).toEqual(['a', 'b', 'c', 'd'])
  await runSteps(updateCell(session, 'cell', () => undefined))
  expect(await read()).toEqual(before)
})

test('pages are read one after the other until the last, or until the reader has enough', async () => {
  const queue = newQueue({ store: closing(memory()) })
  const jobs = await queue.addBulk(Array.from({ length: 7 }, () => ({ name: 'a' })))
  const ids = jobs.map(({ id }) => id)
  let reads = 0
  const find: Store['find'] = (query) => {
    reads++
    return queue.store.find(query)
  }
  const found: string[][] = []
  for (const page of pages({ find }, { queue: queue.name, limit: 3 }))
    found.push((await runSteps(page)).map(({ id }) => id))
  expect(found).toEqual([...portions(ids, 3)])
  expect(reads).toBe(3)
  for (const page of pages({ find }, { queue: queue.name, limit: 3 })) if ((await runSteps(page)).length > 0) break
  expect(reads).toBe(4)
})

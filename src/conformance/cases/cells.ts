// conformance/cases/cells.ts: cases on cells, which are versioned settings, and on pauses, which are cells that claims obey.
import { must, present, same } from '../check.js'
import { ask, first, ids, LEASE, second } from '../driver.js'
import { area } from '../harness.js'
import { complete, put, QUEUE } from '../changes.js'
import { cellKey } from '../../store/settings.js'
import { readCells } from '../../store/read-pages.js'
import { runSteps } from '../../store/maybe-sync.js'
import type { Cell, Details } from '../../store/store.js'

/** Bytes of a large value in these cases. */
const LARGE = 10_000

/** Cases of cells: a write needs the current version of its cell. */
export const cells = area('cells', {
  'a cell is written, read and written again, its version going up by one': async (h) => {
    const d = first(h)
    const one = await d.commit({ groups: [[put('color', 'red', 0)]] })
    const red = { key: 'color', value: '"red"', version: 1, at: one.now }
    same(await d.cell('color'), red, 'a new cell has version 1')
    await h.advance(1_000)
    const two = await d.commit({ groups: [[put('color', 'blue', 1)]] })
    const blue = { key: 'color', value: '"blue"', version: 2, at: two.now }
    same(await d.cell('color'), blue, 'a cell has its version and the time of its last write')
  },

  'a write with another version is refused with the current cell': async (h) => {
    const d = first(h)
    await d.land(put('color', 'red', 0))
    const current = await d.cell('color')
    for (const version of [0, 2, 7]) {
      const verdict = await d.refuse('version', 'a cell is written by its version', put('color', 'blue', version))
      same([verdict.id, verdict.cell], ['color', current], 'the refusal carries the current cell')
    }
    const verdict = await d.refuse('version', 'a cell that is not there has version 0', put('none', 1, 1))
    same([verdict.id, verdict.cell], ['none', undefined], 'the refusal carries no cell where there is none')
    same(await d.cell('color'), current, 'a refused write changes nothing')
  },

  'a cell is removed by a write without a value': async (h) => {
    const d = first(h)
    await d.land(put('color', 'red', 0))
    await d.refuse('version', 'a removal is fenced by the version too', put('color', undefined, 0))
    await d.land(put('color', undefined, 1))
    same(await d.cell('color'), undefined, 'a removed cell is gone')
    await d.land(put('color', 'green', 0))
    same((await d.cell('color'))?.value, '"green"', 'a removed cell can be written again')
  },

  'cells are read by key and by prefix': async (h) => {
    const d = first(h)
    for (const key of [
      'worker:b',
      'worker:a',
      'work',
      'worker:',
      'other',
      'worker:a_',
      'worker:a%',
      'WORKER:c',
      'work*',
    ]) {
      await d.land(put(key, key, 0))
    }
    const read = async (...keys: string[]): Promise<readonly string[]> => {
      return (await h.store.details({ cells: keys })).cells.map(({ key }) => key)
    }
    same(
      await read('other', 'nothing', 'work'),
      ['other', 'work'],
      'cells are returned by key, and none for a key that does not exist',
    )
    same(await read('work*'), ['work*'], 'no character in a key is special')
    const under = async (prefix: string): Promise<readonly string[]> => {
      return (await h.store.details({ cellsUnder: prefix })).cells.map(({ key }) => key).toSorted()
    }
    same(
      await under('worker:'),
      ['worker:', 'worker:a', 'worker:a%', 'worker:a_', 'worker:b'],
      'a prefix selects all keys that begin with it',
    )
    same(await under('worker:a_'), ['worker:a_'], 'no character in a prefix is special')
    same((await under('')).length, 9, 'the empty prefix selects all')
    must((await read()).length === 0, 'no cells are returned if none are requested')
  },

  'cells under a prefix are cut by bytes, and can be read on': async (h) => {
    const d = first(h)
    const large = 'x'.repeat(LARGE)
    // Keys whose order depends on the collation and on the text encoding.
    const keys = ['w:A', 'w:a', 'w:B', 'w:b', 'w:ä', 'w:z', 'w:_', 'w:-', 'w:\u{ffff}', 'w:\u{1f600}', 'w:10', 'w:9']
    for (const key of [...keys, 'other']) await d.land(put(key, large, 0))
    const sorted = (cells: readonly Cell[]): readonly string[] => cells.map(({ key }) => key).toSorted()
    const whole = await h.store.details({ cellsUnder: 'w:', bytes: 1_000 * LARGE })
    same([sorted(whole.cells), whole.moreCells], [keys.toSorted(), undefined], 'what fits is not cut')
    for (const bytes of [1, 2 * LARGE, 5 * LARGE]) {
      const page = await h.store.details({ cellsUnder: 'w:', bytes })
      must(page.cells.length >= 1 && page.cells.length * LARGE <= bytes + LARGE, 'a page is cut by bytes')
      same(typeof page.moreCells, 'string', 'a page that was cut names the key after which the next one starts')
      const seen: string[] = []
      for (let after: string | undefined = ''; after !== undefined;) {
        const next: Details = await h.store.details({
          cellsUnder: 'w:',
          bytes,
          ...(after !== '' && { cellsAfter: after }),
        })
        seen.push(...next.cells.map(({ key }) => key))
        if (seen.length === 3) await d.land(put('w:A!', large, 0), put('w:A!', undefined, 1))
        after = next.moreCells
      }
      same(seen.toSorted(), keys.toSorted(), 'nothing is lost or repeated between pages')
      same(sorted(await runSteps(readCells(h.store, 'w:', { bytes }))), keys.toSorted(), 'all of it can be read')
    }
    const named = await h.store.details({ cells: ['other', 'w:z'], cellsUnder: 'w:', bytes: 1 })
    for (const key of ['other', 'w:z'])
      must(sorted(named.cells).includes(key), 'a cell requested by its key is returned')
    const last = await h.store.details({ cellsUnder: 'o', bytes: 1 })
    same([sorted(last.cells), last.moreCells], [['other'], undefined], 'the first is there in any case')
    same(
      (await h.store.details({ cells: keys, bytes: 1 })).cells.length,
      keys.length,
      'keys that were named are not cut',
    )
  },

  'of two handles that write one version exactly one lands': async (h) => {
    const d = first(h)
    const other = await second(h)
    for (let version = 0; version < 25; version++) {
      const verdicts = await Promise.all([d.send([put('hot', 'd', version)]), other.send([put('hot', 'o', version)])])
      same(verdicts.filter(({ ok }) => ok).length, 1, 'a version is written over once')
      same((await d.cell('hot'))?.version, version + 1, 'each write takes the version up by one')
    }
  },
})

/** Cases of pauses: a pause stops claims, and nothing else. */
export const pauses = area('pauses', {
  'no job of a paused queue is claimed until it is resumed': async (h) => {
    const d = first(h)
    await d.addMany(3, 'work')
    await d.pause({ all: true })
    same(await d.claim(10), [], 'no job of a paused queue is claimed')
    await d.add('work')
    same(await d.claim(10), [], 'a paused queue accepts jobs, and none is claimed')
    await d.pause({ all: false })
    same((await d.claim(10)).length, 4, 'all waiting jobs of a resumed queue are claimed')
  },

  'a pause holds for every handle, and in the batch that sets it': async (h) => {
    const d = first(h)
    const other = await second(h)
    await d.addMany(2, 'work')
    const paused = put(cellKey.pause(QUEUE), { all: true, names: [] }, 0)
    const { asks } = await d.commit({ groups: [[paused]], asks: [ask(10)] })
    same(asks[0], [], 'a pause holds for the claim of its own batch')
    same(await other.claim(10), [], 'a pause holds for every handle')
  },

  'a paused queue does not hold back another': async (h) => {
    const d = first(h)
    await d.addMany(120, 'work', { priority: -5 })
    await d.addMany(2, 'work', { queue: 'other' })
    await d.pause({ all: true })
    const claimed = await d.claim(2, { queues: ['mill', 'other'] })
    same(ids(claimed), ['first-121', 'first-122'], 'a paused queue is skipped')
  },

  'a paused name does not hold back the others of its queue': async (h) => {
    const d = first(h)
    await d.addMany(120, 'paused', { priority: -5 })
    await d.addMany(2, 'open')
    await d.pause({ names: ['paused'] })
    same(ids(await d.claim(2)), ['first-121', 'first-122'], 'a paused name is skipped')
    same(
      await d.claim(5, { names: ['paused'] }),
      [],
      'a paused name is not claimed by a worker that handles only that name',
    )
    await d.pause({ names: [] })
    same((await d.claim(200)).length, 120, 'all waiting jobs of a resumed name are claimed')
  },

  'a paused name is paused in its own queue only': async (h) => {
    const d = first(h)
    await d.add('work')
    await d.add('work', { queue: 'other' })
    await d.pause({ names: ['work'] })
    same(ids(await d.claim(5, { queues: ['mill', 'other'] })), ['first-2'], 'a pause belongs to its queue')
  },

  'a removed pause cell is no pause': async (h) => {
    const d = first(h)
    await d.add('work')
    await d.pause({ all: true })
    const cell = present(await d.cell('pause:mill'), 'a pause is a cell')
    await d.land({ kind: 'put', key: cell.key, value: undefined, version: cell.version, events: [] })
    same((await d.claim(5)).length, 1, 'a queue without a pause cell is open')
  },

  'a pause does not affect running jobs': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    await d.pause({ all: true })
    same((await d.renew(held, LEASE, true)).ok, true, 'a running job is renewed in a paused queue')
    await d.land(complete(held))
  },
})

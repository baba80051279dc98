// conformance/cases/pauses.ts: cases on pauses: claims skip paused jobs, however many there are.
import { present, same } from '../check.js'
import { ask, first, ids, LEASE, second } from '../driver.js'
import { area } from '../harness.js'
import { complete, put, QUEUE } from '../changes.js'
import { cellKey } from '../../store/settings.js'

/** Cases of pauses: a pause stops claims, and nothing else. */
export const pauses = area('pauses', {
  'a paused queue gives nothing until it is resumed': async (h) => {
    const d = first(h)
    await d.addMany(3, 'work')
    await d.pause({ all: true })
    same(await d.claim(10), [], 'a paused queue gives nothing')
    await d.add('work')
    same(await d.claim(10), [], 'a paused queue takes jobs and gives none')
    await d.pause({ all: false })
    same((await d.claim(10)).length, 4, 'a resumed queue gives everything that waited')
  },

  'a pause holds for every handle, and in the batch that sets it': async (h) => {
    const d = first(h)
    const other = await second(h)
    await d.addMany(2, 'work')
    const paused = put(cellKey.pause(QUEUE), { all: true, names: [] }, 0)
    const { asks } = await d.commit({ groups: [[paused]], asks: [ask(10)] })
    same(asks[0], [], 'a pause holds for the ask of its own batch')
    same(await other.claim(10), [], 'a pause holds for every handle')
  },

  'a paused queue does not hold back another': async (h) => {
    const d = first(h)
    await d.addMany(120, 'work', { priority: -5 })
    await d.addMany(2, 'work', { queue: 'other' })
    await d.pause({ all: true })
    const claimed = await d.claim(2, { queues: ['mill', 'other'] })
    same(ids(claimed), ['first-121', 'first-122'], 'a paused queue is passed over')
  },

  'a paused name does not hold back the others of its queue': async (h) => {
    const d = first(h)
    await d.addMany(120, 'paused', { priority: -5 })
    await d.addMany(2, 'open')
    await d.pause({ names: ['paused'] })
    same(ids(await d.claim(2)), ['first-121', 'first-122'], 'a paused name is passed over')
    same(await d.claim(5, { names: ['paused'] }), [], 'a paused name is not given to those who ask for it alone')
    await d.pause({ names: [] })
    same((await d.claim(200)).length, 120, 'a resumed name gives everything that waited')
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

  'a pause does not touch what is running': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    await d.pause({ all: true })
    same((await d.renew(held, LEASE, true)).ok, true, 'a running job is renewed in a paused queue')
    await d.land(complete(held))
  },
})

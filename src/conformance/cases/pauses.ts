// conformance/cases/pauses.ts: cases on pauses: claims skip paused jobs, however many there are.
import { present, same } from '../check.js'
import { ask, first, ids, LEASE, second } from '../driver.js'
import { area } from '../harness.js'
import { complete, put, QUEUE } from '../changes.js'
import { cellKey } from '../../store/settings.js'

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

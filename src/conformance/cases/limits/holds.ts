// conformance/cases/limits/holds.ts: cases on holds, which keep jobs of a queue, a name or a group from starting until a time.
import { MAX_HOLDS } from '../../../job/holds.js'
import type { Millis } from '../../../job/job.js'
import { must, same } from '../../check.js'
import { ask, first, ids, second } from '../../driver.js'
import type { Driver } from '../../driver.js'
import { area } from '../../harness.js'
import { complete, handBack, hold, put } from '../../changes.js'
import { cellKey } from '../../../store/settings.js'
import { withListener } from '../../listener.js'

/** Far longer than a case takes, so that a clock that runs by itself makes no difference. */
const HOLD: Millis = 600_000

const groupsOf = async (d: Driver, want = 9): Promise<string> =>
  (await d.claim(want))
    .map(({ group }) => group ?? '-')
    .toSorted()
    .join('')

/** Cases of holds: claims skip what is held, and return when to claim again. */
export const holds = area('holds', {
  'nothing of a held queue is claimed until its hold is over': async (h) => {
    const d = first(h)
    await d.addMany(3, 'work')
    await d.addMany(1, 'work', { queue: 'other' })
    await d.land(hold({ for: HOLD }))
    const held = await d.commit({ asks: [ask(5, { queues: ['mill', 'other'] })] })
    same(held.asks[0]!.length, 1, 'other queues are not held')
    const { again, now } = held
    must(again !== undefined && again > now && again <= now + HOLD, `a time to ask again: ${again} at ${now}`)
    await h.advance(again - now)
    same((await d.claim(5)).length, 3, 'a hold ends by itself')
  },

  'the jobs of a held name wait, and others pass them': async (h) => {
    const d = first(h)
    await d.addMany(120, 'held', { priority: -5 })
    await d.addMany(2, 'held', { priority: -5, group: 'a' })
    await d.addMany(2, 'free')
    await d.land(hold({ name: 'held', for: HOLD }))
    const { asks, again, now } = await d.commit({ asks: [ask(9, { ahead: 5 })] })
    same(asks[0]!.map(({ name }) => name).join(' '), 'free free', 'only the others')
    must(again !== undefined && again <= now + HOLD, 'and a time to claim again')
    await h.advance(HOLD)
    same((await d.claim(3)).map(({ name }) => name).join(' '), 'held held held', 'then they go first')
  },

  'the jobs of a held group wait, and others pass them': async (h) => {
    const d = first(h)
    await d.addMany(150, 'work', { group: 'a' })
    await d.addMany(2, 'work', { group: 'b' })
    await d.addMany(1, 'work')
    await d.land(hold({ group: 'a', for: HOLD }))
    const { asks, again, now } = await d.commit({ asks: [ask(9, { ahead: 3 })] })
    same(
      asks[0]!
        .map(({ group }) => group ?? '-')
        .toSorted()
        .join(''),
      '-bb',
      'only the others',
    )
    must(again !== undefined && again > now && again <= now + HOLD, `a time to ask again: ${again} at ${now}`)
    await d.addMany(1, 'work', { group: 'b' })
    same(await groupsOf(d), 'b', 'a new job of another group is not held')
    await h.advance(HOLD)
    same(await groupsOf(d, 2), 'aa', 'a hold of a group ends by itself')
  },

  'a held group and limits of groups hold together': async (h) => {
    const d = first(h)
    await d.limit({ group: { concurrency: 1 } })
    for (const group of ['a', 'b', 'c']) await d.addMany(2, 'work', { group })
    await d.land(hold({ group: 'b', for: HOLD }))
    same(await groupsOf(d), 'ac', 'one of each that is not held')
    await h.advance(HOLD)
    same(await groupsOf(d), 'b', 'and one of the group that was held')
  },

  'of two holds for the same jobs the one that ends later counts': async (h) => {
    const d = first(h)
    const other = await second(h)
    await d.add('work')
    await d.land(hold({ name: 'work', for: 2 * HOLD, by: 'later' }))
    await other.land(hold({ name: 'work', for: HOLD, by: 'sooner' }))
    await h.advance(HOLD + 1)
    same(await d.claim(1), [], 'a shorter hold does not end a longer one')
    await other.land(hold({ name: 'work', for: 2 * HOLD }))
    await h.advance(HOLD + 1)
    same(await d.claim(1), [], 'a longer one extends it')
    await h.advance(HOLD)
    same((await d.claim(1)).length, 1, 'to its end')
  },

  'holds of the queue, of names and of groups stand side by side, and beside pauses': async (h) => {
    const d = first(h)
    await d.addMany(1, 'a', { group: 'g' })
    await d.addMany(1, 'b')
    await d.pause({ names: ['b'] })
    await d.land(hold({ name: 'a', for: 3 * HOLD }), hold({ group: 'g', for: HOLD }), hold({ for: 2 * HOLD }))
    await h.advance(2 * HOLD)
    same(await d.claim(5), [], 'the hold of the name outlasts the others')
    await h.advance(HOLD)
    same((await d.claim(5)).map(({ name }) => name).join(' '), 'a', 'a pause does not end by itself')
  },

  'a job is handed back and its name held in one group': async (h) => {
    const d = first(h)
    await d.add('work')
    await d.add('work')
    const job = await d.claimOne()
    await d.land([...handBack(job), hold({ name: 'work', for: HOLD, by: 'miller', job: job.id })])
    same(await d.claim(5), [], 'neither it nor another is claimed')
    const stale = await d.refuse('fence', 'a lost lease holds nothing', [...complete(job), hold({ for: HOLD })])
    same(stale.change, 0, 'refused for the lease')
    await h.advance(HOLD)
    same(ids(await d.claim(1)), [job.id], 'the job has its old place')
  },

  'a hold that is removed makes its jobs claimable, and announces them': async (h) => {
    const d = first(h)
    await d.add('work')
    await d.land(hold({ for: HOLD }))
    const key = cellKey.pause('mill')
    const cell = await d.cell(key)
    await withListener(h.store, {}, async (listener) => {
      await d.land(put(key, { all: false, names: [] }, cell!.version))
      await listener.until(() => listener.work.has('mill'), 'its jobs are announced as work')
    })
    same((await d.claim(1)).length, 1, 'and can be claimed')
  },

  'a hold is announced to every handle, so that what was leased ahead is handed back': async (h) => {
    const d = first(h)
    const other = await second(h)
    await d.add('work')
    await withListener(other.store, {}, async (listener) => {
      await other.commit({}) // from here on every handle knows that there is a watcher
      await d.land(hold({ group: 'g', for: HOLD }))
      await listener.until(() => listener.held.length > 0, 'a hold is announced')
      const { queue, name, group } = listener.held[0]!
      same([queue, name, group], ['mill', undefined, 'g'], 'with what it is for')
    })
  },

  'a queue has a bounded number of holds; those that are over do not count': async (h) => {
    const d = first(h)
    const groups = Array.from({ length: MAX_HOLDS }, (_, n) => [hold({ group: `g${n}`, for: HOLD })])
    for (let from = 0; from < MAX_HOLDS; from += 250) await d.commit({ groups: groups.slice(from, from + 250) })
    const refused = await d.refuse('full', 'one more is refused', hold({ group: 'more', for: HOLD }))
    same(refused.id, cellKey.pause('mill'), 'over the cell')
    await d.land(hold({ group: 'g1', for: 2 * HOLD }))
    await h.advance(HOLD)
    await d.land(hold({ group: 'more', for: HOLD }))
    const { holds: left } = JSON.parse((await d.cell(cellKey.pause('mill')))!.value) as { holds: object }
    same(Object.keys(left).toSorted(), ['gg1', 'gmore'], 'those that are over are gone')
  },
})

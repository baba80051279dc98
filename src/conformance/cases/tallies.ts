// conformance/cases/tallies.ts: cases on counts by state, and on lifetime counters, which never decrease.
import { same } from '../check.js'
import { first, LEASE, second } from '../driver.js'
import { area } from '../harness.js'
import {
  cancel,
  complete,
  refusedChange,
  fail,
  handBack,
  insert,
  remove,
  retry,
  snooze,
  failAndRetry,
} from '../changes.js'
import type { Lifetime } from '../../store/tally.js'

const NONE: Lifetime = { added: 0, completed: 0, failed: 0, cancelled: 0, retried: 0, stalled: 0 }

/** Cases of tallies. */
export const tallies = area('tallies', {
  'a queue never used has no counts': async (h) => {
    const d = first(h)
    await d.add('work')
    const tallies = await h.store.tally(['nowhere'])
    same(
      tallies.filter(({ names }) => Object.keys(names).length > 0),
      [],
      'a queue never used has none',
    )
    same(
      (await h.store.tally()).map(({ queue }) => queue),
      ['mill'],
      'without a list, all queues that were used are returned',
    )
  },

  'jobs are counted by queue, name and state': async (h) => {
    const d = first(h)
    const active = await d.running('a')
    await d.addMany(3, 'b')
    await d.addMany(2, 'b', { run: { in: 60_000 } })
    await d.add('c', { after: [active] })
    await d.addMany(4, 'a', { queue: 'other' })
    const expected = { a: { active: 1 }, b: { waiting: 3, delayed: 2 }, c: { 'waiting-children': 1 } }
    same(await d.counts(), expected, 'jobs are counted by name and state')
    same(await d.counts('other'), { a: { waiting: 4 } }, 'jobs are counted by queue')
    const queues = (await h.store.tally(['other', 'mill'])).map(({ queue }) => queue)
    same(queues.toSorted(), ['mill', 'other'], 'the named queues are returned')
  },

  'counts follow every move': async (h) => {
    const d = first(h)
    const check = async (expected: Record<string, number>, duty: string): Promise<void> => {
      same((await d.counts())['work'] ?? {}, expected, duty)
    }
    await d.addMany(2, 'work')
    const held = await d.claimOne()
    await check({ waiting: 1, active: 1 }, 'a claim is counted')
    await d.land(snooze(held, 1_000))
    await check({ waiting: 1, delayed: 1 }, 'a snooze is counted')
    await h.advance(1_000)
    await d.upkeep()
    await check({ waiting: 2 }, 'the end of a delay is counted')
    const [a, b] = await d.claim(2)
    if (a && b) await d.commit({ groups: [complete(a), fail(b)] })
    await check({ completed: 1, failed: 1 }, 'settlements are counted')
    if (a && b) await d.land(retry(await d.job(b)))
    await check({ completed: 1, waiting: 1 }, 'a retry by hand is counted')
    if (a) await d.land(remove(await d.job(a)))
    await check({ waiting: 1 }, 'a removal is counted')
    await d.send([insert('never', 'work'), refusedChange()])
    await check({ waiting: 1 }, 'a refused group is not counted')
  },

  'schedules are not counted': async (h) => {
    const d = first(h)
    await d.add('work')
    await d.add('cron', { kind: 'schedule', run: { in: 60_000 } })
    same(await d.counts(), { work: { waiting: 1 } }, 'a schedule is no job')
  },

  'lifetime counters count every outcome and never decrease': async (h) => {
    const d = first(h)
    let before = NONE
    const check = async (change: Partial<Lifetime>, duty: string): Promise<void> => {
      const now = await d.lifetime()
      const expected = { ...before }
      for (const [field, by] of Object.entries(change) as [keyof Lifetime, number][]) expected[field] += by
      same({ ...now }, expected, duty)
      before = now
    }
    await d.addMany(5, 'work', { attempts: 3 })
    await check({ added: 5 }, 'what is added is counted')
    await d.send([insert('first-1', 'work')])
    await check({}, 'what is refused is not counted')
    const [a, b, c, e, f] = await d.claim(5)
    if (!a || !b || !c || !e || !f) return
    await d.land(complete(a))
    await check({ completed: 1 }, 'what completed is counted')
    await d.land(fail(b))
    await check({ failed: 1 }, 'what failed is counted')
    await d.land(cancel(c))
    await check({ cancelled: 1 }, 'what was cancelled is counted')
    await d.land(failAndRetry(e, 1_000))
    await check({ retried: 1 }, 'an attempt that is retried is counted')
    await h.advance(LEASE)
    await d.upkeep()
    await check({ stalled: 1 }, 'a stall is counted')
    for (const held of await d.claim(2)) await d.land(handBack(held))
    await check({}, 'a job handed back is not counted')
    await d.land(remove(await d.job(a)))
    await d.land(remove(await d.job(b)))
    await check({}, 'a removal takes nothing back')
    await d.commit({ asks: [] })
    await d.replay()
    await check({}, 'a replay counts nothing')
  },

  'lifetime counters add up over all writers': async (h) => {
    const d = first(h)
    const other = await second(h)
    const work = async (by: typeof d): Promise<void> => {
      for (let round = 0; round < 10; round++) {
        await by.add('work')
        const [job] = await by.claim(1)
        if (job !== undefined) await by.land(complete(job))
      }
    }
    await Promise.all([work(d), work(other)])
    for (const job of await d.claim(50)) await d.land(complete(job))
    same({ ...(await d.lifetime()) }, { ...NONE, added: 20, completed: 20 }, 'nothing is lost between writers')
    same({ ...(await other.lifetime()) }, { ...NONE, added: 20, completed: 20 }, 'every handle returns the same')
  },

  'a removed job is counted where it ended': async (h) => {
    const d = first(h)
    await d.land(complete(await d.running('work', { keep: { completed: { deleteAfter: 0 } } })))
    same({ ...(await d.lifetime()) }, { ...NONE, added: 1, completed: 1 }, 'a job that is not kept has completed too')
    same(await d.counts(), {}, 'a job that is not kept is not there')
  },
})

// conformance/cases/heads.ts: cases on the heads of a queue's indexes: what waits, runs and is due for longest.
import { must, present, same } from '../check.js'
import { complete, failAndRetry, handBack } from '../changes.js'
import { first, LEASE, renewal } from '../driver.js'
import type { Driver } from '../driver.js'
import { area } from '../harness.js'
import type { QueueHeads } from '../../store/tally.js'

async function headsOf(d: Driver, queue = 'mill'): Promise<QueueHeads> {
  const [tally] = await d.store.tally([queue], undefined, { heads: true })
  return present(tally?.heads, 'a tally has heads where they are asked for')
}

/** Cases of heads. */
export const heads = area('heads', {
  'a tally has heads only where they are asked for': async (h) => {
    const d = first(h)
    await d.add('work')
    const [tally] = await h.store.tally(['mill'])
    same(tally?.heads, undefined, 'heads are read on request')
    same(await h.store.tally(['nowhere'], undefined, { heads: true }), [], 'a queue never used has none')
    const { now, ...rest } = await headsOf(d)
    same(now, (await d.due()).now, 'heads hold the time of the store')
    must(rest.overdue === undefined && rest.delayed === undefined, 'nothing is due')
    must(rest.schedule === undefined && rest.lease === undefined, 'nothing is due')
    same({ ...rest.running }, {}, 'nothing runs')
  },

  'the oldest waiting job of each name counts, whatever its priority': async (h) => {
    const d = first(h)
    const low = await d.add('work', { priority: 5 })
    const other = await d.add('other', { group: 'a' })
    await h.advance(1_000)
    await d.addMany(3, 'work')
    await d.add('work', { version: 2 })
    await d.addMany(2, 'other', { group: 'b' })
    await d.add('late', { run: { in: 60_000 } })
    same(
      { ...(await headsOf(d)).waiting },
      { work: low.createdAt, other: other.createdAt },
      'the job added first is looked at, not the one claimed next alone',
    )
    await d.claim(3, { names: ['other'] })
    const { waiting } = await headsOf(d)
    same({ ...waiting }, { work: low.createdAt }, 'names without waiting jobs are absent')
    same({ ...(await headsOf(d)).groups }, { a: 1, b: 2 }, 'active jobs are counted by group')
  },

  'a job whose delay is over has waited since then': async (h) => {
    const d = first(h)
    const delayed = await d.add('work', { run: { in: 5_000 } })
    await h.advance(6_000)
    const late = await headsOf(d)
    same([late.delayed, late.overdue], [delayed.runAt, delayed.runAt], 'it is overdue until it is promoted')
    same({ ...late.waiting }, {}, 'and does not wait yet')
    await d.upkeep()
    const promoted = await headsOf(d)
    same([promoted.delayed, promoted.overdue], [undefined, undefined], 'then nothing is overdue')
    same({ ...promoted.waiting }, { work: delayed.runAt }, 'it waits since the end of its delay')
  },

  'what runs for longest is found by name, and prefetched jobs do not run': async (h) => {
    const d = first(h)
    const long = await d.running('work')
    await h.advance(2_000)
    await d.running('work')
    await d.add('ahead')
    await d.claim(0, { names: ['ahead'], ahead: 1 })
    await d.renew(long)
    same({ ...(await headsOf(d)).running }, { work: long.startedAt }, 'the first claim counts, though it was renewed')
    await d.land(complete(long))
    const [next] = Object.values((await headsOf(d)).running)
    same(next, (long.startedAt ?? 0) + 2_000, 'then the next one')
  },

  'an expired lease counts until it is reaped': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    same((await headsOf(d)).lease, undefined, 'a lease that lasts is not late')
    await h.advance(LEASE + 500)
    same((await headsOf(d)).lease, held.leaseUntil, 'an expired one is, since its end')
    await d.commit({ renewals: [renewal(held)] })
    same((await headsOf(d)).lease, undefined, 'a renewal ends that')
  },

  'an overdue schedule is told from overdue jobs': async (h) => {
    const d = first(h)
    const schedule = await d.add('cron', { kind: 'schedule', run: { in: 3_000 } })
    const delayed = await d.add('work', { run: { in: 1_000 } })
    const retried = await d.running('other')
    await d.land(failAndRetry(retried, 2_000))
    await h.advance(10_000)
    const { overdue, delayed: job, schedule: fires } = await headsOf(d)
    same([overdue, job, fires], [delayed.runAt, delayed.runAt, schedule.runAt], 'each kind has its own first')
  },

  'claims that count against a rate are listed': async (h) => {
    const d = first(h)
    await d.limit({ rate: { max: 5, per: 60_000 }, names: { work: { rate: { max: 3, per: 60_000 } } } })
    await d.addMany(4, 'work')
    for (const job of await d.claim(2)) await d.land(handBack(job))
    const { rates } = await headsOf(d)
    same(Object.keys(rates).toSorted(), ['', 'nwork'], 'by queue and by name')
    const counts = Object.values(rates).map((tokens) => tokens.reduce((sum, [, n]) => sum + n, 0))
    same(counts, [2, 2], 'each claim counts')
  },
})

// conformance/cases/limits/rates.ts: cases on rates, which count claims in any stretch of time exactly, over all handles.
import type { Millis } from '../../../job/job.js'
import { must, same } from '../../check.js'
import { ask, first, second } from '../../driver.js'
import type { Driver } from '../../driver.js'
import { area } from '../../harness.js'
import { complete, handBack } from '../../changes.js'

/** Far longer than a case takes, so that a clock that runs by itself makes no difference. */
const PER: Millis = 600_000

const rate = (max: number): { readonly max: number; readonly per: number } => ({ max, per: PER })

const names = async (d: Driver, want: number): Promise<string> =>
  (await d.claim(want)).map(({ name }) => name).join(' ')

/** Cases of rates: claims skip what has used up its rate. */
export const rates = area('rates', {
  'no more jobs of a queue are claimed in any period than its rate': async (h) => {
    const d = first(h)
    await d.addMany(20, 'work')
    await d.limit({ rate: rate(3) })
    same((await d.claim(2)).length, 2, 'a claim below the rate gets what it wants')
    await h.advance(PER / 2)
    same((await d.claim(5)).length, 1, 'a claim gets what is left of the rate')
    same(await d.claim(5), [], 'a rate that is used up allows nothing')
    await h.advance(PER / 2 + PER / 50)
    same((await d.claim(5)).length, 2, 'claims older than the period no longer count')
    await h.advance(PER / 2)
    same((await d.claim(5)).length, 1, 'and the rest when its time has come')
  },

  'neither a settlement nor a job handed back restores the rate': async (h) => {
    const d = first(h)
    await d.addMany(4, 'work')
    await d.limit({ rate: rate(2) })
    const [one, two] = await d.claim(2)
    await d.land(complete(one!))
    await d.land(handBack(two!))
    same(await d.claim(5), [], 'a rate counts claims')
  },

  'names have rates of their own, and do not hold back others': async (h) => {
    const d = first(h)
    await d.addMany(120, 'bound', { priority: -5 })
    await d.addMany(2, 'free')
    await d.limit({ names: { bound: { rate: rate(2) } } })
    same(await names(d, 9), 'bound bound free free', 'a name that has used up its rate is skipped')
  },

  'groups have rates of their own, and do not hold back others': async (h) => {
    const d = first(h)
    await d.limit({ group: { rate: rate(2) }, groups: { c: { rate: rate(1) } } })
    for (const group of ['a', 'b', 'c']) await d.addMany(90, 'work', { group })
    await d.addMany(1, 'work')
    const whose = async (): Promise<string> =>
      (await d.claim(9))
        .map(({ group }) => group ?? '-')
        .toSorted()
        .join('')
    same(await whose(), '-aabbc', 'each up to its rate')
    same(await whose(), '', 'and no further')
    await h.advance(PER + PER / 50)
    same(await whose(), 'aabbc', 'and again in the next stretch')
  },

  'rates and limits of queue, name and group hold together': async (h) => {
    const d = first(h)
    await d.limit({ concurrency: 4, rate: rate(5), names: { work: { rate: rate(3) } }, group: { concurrency: 2 } })
    await d.addMany(9, 'work', { group: 'a' })
    await d.addMany(9, 'work', { group: 'b' })
    await d.addMany(9, 'other')
    const jobs = await d.claim(20)
    same(jobs.length, 4, 'the limit of the queue')
    same(jobs.filter(({ name }) => name === 'work').length <= 3, true, 'the rate of a name')
    await d.commit({ groups: jobs.map((job) => complete(job)) })
    same((await d.claim(20)).length, 1, 'the rate of the queue')
  },

  'a claim that a rate cut returns when to claim again': async (h) => {
    const d = first(h)
    await d.addMany(5, 'work')
    await d.limit({ rate: rate(2) })
    const enough = await d.commit({ asks: [ask(2)] })
    same(enough.again, undefined, 'a claim that got all it wants returns no time')
    const { again, now } = await d.commit({ asks: [ask(2)] })
    must(again !== undefined && again > now && again <= now + PER + PER / 50, `a time to ask again: ${again} at ${now}`)
    await h.advance(again - now)
    same((await d.claim(2)).length, 2, 'then there is something to be had')
    await d.limit({ concurrency: 0 })
    same((await d.commit({ asks: [ask(2)] })).again, undefined, 'a limit that does not depend on time returns none')
    await d.limit({ rate: rate(1) })
    const nothing = await d.commit({ asks: [ask(2, { names: ['unknown'] })] })
    same(nothing.again, undefined, 'where nothing waits, no rate holds anything back')
  },

  'jobs under a rate are never leased ahead': async (h) => {
    const d = first(h)
    await d.addMany(5, 'work')
    await d.addMany(5, 'free')
    await d.limit({ names: { work: { rate: rate(9) } } })
    const jobs = await d.claim(1, { ahead: 9 })
    same(
      jobs.map(({ name, ahead }) => `${name}${Number(ahead)}`).join(' '),
      'work0 free1 free1 free1 free1 free1',
      'only the free',
    )
  },

  'a rate of none gives nothing; one that was changed or lifted is so for the next claim': async (h) => {
    const d = first(h)
    await d.addMany(9, 'work')
    await d.limit({ rate: { max: 0, per: PER } })
    same((await d.commit({ asks: [ask(2)] })).asks[0], [], 'a rate of none is a rate')
    await d.limit({ rate: rate(2) })
    same((await d.claim(9)).length, 2, 'a rate raised')
    await d.limit({ rate: rate(3) })
    same((await d.claim(9)).length, 1, 'counts what was taken before')
    await d.limit({})
    same((await d.claim(9)).length, 6, 'a rate lifted bounds nothing')
  },

  'rates are exact under concurrent claims through two handles': async (h) => {
    const d = first(h)
    const other = await second(h)
    await d.addMany(60, 'work', { group: 'a' })
    await d.addMany(60, 'work', { group: 'b' })
    await d.limit({ rate: rate(20), group: { rate: rate(13) } })
    let given = 0
    const work = async (by: Driver): Promise<void> => {
      for (let round = 0; round < 12; round++) {
        const jobs = await by.claim(3)
        given += jobs.length
      }
    }
    await Promise.all([work(d), work(other)])
    for (let tries = 0; given < 20 && tries < 50; tries++) given += (await d.claim(3)).length
    same(given, 20, 'as many as the rate allows, and not one more')
    const active = (await d.store.find({ queue: 'mill', states: ['active'] })).items
    same(active.filter(({ group }) => group === 'a').length <= 13, true, 'nor of a group')
  },
})

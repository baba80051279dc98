// conformance/cases/limits/limits.ts: cases on concurrency limits, which count leases exactly, over all handles.
import type { JobRecord } from '../../../job/job.js'
import { present, same } from '../../check.js'
import { ask, first, ids, LEASE, renewal, second } from '../../driver.js'
import { area } from '../../harness.js'
import { cellKey } from '../../../store/settings.js'
import { cancel, complete, refusedChange, fail, handBack, remove, retry, snooze, failAndRetry } from '../../changes.js'

/** Every way in which a lease holder settles its job. */
const settlements = {
  complete,
  fail,
  handBack,
  snooze: (job: JobRecord) => snooze(job, 60_000),
  stumble: (job: JobRecord) => failAndRetry(job, 60_000),
}

/** Cases of limits: claims skip what is at its limit. */
export const limits = area('limits', {
  'a queue is never given out past its limit': async (h) => {
    const d = first(h)
    await d.addMany(10, 'work')
    await d.limit({ concurrency: 3 })
    same((await d.claim(2)).length, 2, 'a claim below the limit gets what it wants')
    same((await d.claim(5)).length, 1, 'a claim gets what is left of the limit')
    same(await d.claim(5), [], 'a queue at its limit gives nothing')
  },

  'a name is never given out past its limit, and does not hold back others': async (h) => {
    const d = first(h)
    await d.addMany(120, 'bound', { priority: -5 })
    await d.addMany(3, 'free')
    await d.limit({ names: { bound: { concurrency: 2 } } })
    const claimed = await d.claim(10)
    const names = claimed.map(({ name }) => name)
    same(names, ['bound', 'bound', 'free', 'free', 'free'], 'a name at its limit is skipped')
    same(await d.claim(10), [], 'a name at its limit gives nothing')
  },

  'the limits of a queue and of its names hold together': async (h) => {
    const d = first(h)
    await d.limit({ concurrency: 3, names: { bound: { concurrency: 1 } } })
    await d.addMany(3, 'bound')
    await d.addMany(5, 'free')
    const names = (await d.claim(10)).map(({ name }) => name)
    same(names, ['bound', 'free', 'free'], 'both limits hold at once')
  },

  'a limit of zero gives nothing': async (h) => {
    const d = first(h)
    await d.addMany(2, 'work')
    await d.limit({ concurrency: 0 })
    same(await d.claim(5), [], 'a limit of zero is a limit')
  },

  'a limit of one queue does not hold back another': async (h) => {
    const d = first(h)
    await d.limit({ concurrency: 1 })
    await d.addMany(3, 'work', { priority: -1 })
    await d.addMany(3, 'work', { queue: 'other' })
    const queues = (await d.claim(4, { queues: ['mill', 'other'] })).map(({ queue }) => queue)
    same(queues, ['mill', 'other', 'other', 'other'], 'a queue at its limit is skipped')
  },

  'a limit counts what was leased before it was set': async (h) => {
    const d = first(h)
    await d.addMany(5, 'work')
    const [held] = await d.claim(2)
    await d.limit({ concurrency: 2, names: { work: { concurrency: 2 } } })
    same(await d.claim(5), [], 'leases given before the limit was set count')
    await d.land(complete(present(held, 'two jobs are claimed')))
    same((await d.claim(5)).length, 1, 'leases given before the limit was set are credited when they end')
  },

  'a limit that was raised or lifted is so for the next claim': async (h) => {
    const d = first(h)
    await d.addMany(6, 'work')
    await d.limit({ concurrency: 1 })
    await d.claim(5)
    await d.limit({ concurrency: 3 })
    same((await d.claim(5)).length, 2, 'a raised limit gives what it adds')
    await d.limit({})
    same((await d.claim(5)).length, 3, 'a lifted limit bounds nothing')
  },

  ...Object.fromEntries(
    Object.entries(settlements).map(([how, end]) => [
      `a settlement frees its place, for the ask of its own batch: ${how}`,
      async (h) => {
        const d = first(h)
        await d.addMany(4, 'work', { attempts: 9 })
        await d.limit({ concurrency: 1, names: { work: { concurrency: 1 } } })
        const held = await d.claimOne()
        const { asks } = await d.commit({ groups: [end(held)], asks: [ask(5)] })
        same(asks[0]?.length, 1, 'the claim of a batch uses the room that its groups made')
        same(await d.claim(5), [], 'a place freed once is taken once')
      },
    ]),
  ),

  'a settlement that was refused frees nothing': async (h) => {
    const d = first(h)
    await d.addMany(3, 'work')
    await d.limit({ concurrency: 1 })
    const held = await d.claimOne()
    const stale = { ...held, fence: held.fence - 1 }
    const { asks } = await d.commit({ groups: [complete(stale), complete(stale)], asks: [ask(5)] })
    same(asks[0], [], 'the limit is credited for settlements that landed, not for those sent')
  },

  'limits are exact under concurrent claims through two handles': async (h) => {
    const d = first(h)
    const other = await second(h)
    await d.addMany(40, 'bound')
    await d.addMany(40, 'free')
    await d.limit({ concurrency: 7, names: { bound: { concurrency: 3 } } })
    const running = new Map<string, JobRecord>()
    const work = async (by: typeof d): Promise<void> => {
      for (let round = 0; round < 15; round++) {
        for (const job of await by.claim(4)) running.set(job.id, job)
        const bound = [...running.values()].filter(({ name }) => name === 'bound').length
        same([running.size <= 7, bound <= 3], [true, true], `limits hold: ${running.size} of 7, ${bound} of 3`)
        const [job] = running.values()
        if (job === undefined) continue
        running.delete(job.id)
        await by.land(complete(job))
      }
    }
    await Promise.all([work(d), work(other)])
    await d.claim(50)
    const { bound, free } = await d.counts()
    same(
      [(bound?.['active'] ?? 0) + (free?.['active'] ?? 0) <= 7, (bound?.['active'] ?? 0) <= 3],
      [true, true],
      'limits hold in the end',
    )
    same((bound?.['active'] ?? 0) + (free?.['active'] ?? 0), 7, 'no place is lost')
  },

  'a cancelled job counts until its handler has ended': async (h) => {
    const d = first(h)
    await d.addMany(3, 'work')
    await d.limit({ concurrency: 1, names: { work: { concurrency: 1 } } })
    const held = await d.claimOne()
    await d.land(cancel(held))
    same(await d.claim(5), [], 'a cancelled job whose handler still runs counts against the limit')
    const leases = async (): Promise<number> => (await h.store.tally([held.queue]))[0]?.leases['work'] ?? 0
    same(await leases(), 1, 'and its lease is counted in the tally')
    await d.commit({ renewals: [renewal(held, 0)] })
    same(await leases(), 0, 'a lease that is given up is no longer counted')
    same((await d.claim(5)).length, 1, 'a lease that is given up makes room')
    same(await leases(), 1, 'the lease of an active job is counted')
    await d.commit({ renewals: [renewal(held, 0)] })
    same(await d.claim(5), [], 'a lease that is given up twice makes room once')
  },

  'a cancelled job counts at most until its lease is over': async (h) => {
    const d = first(h)
    await d.addMany(3, 'work')
    await d.limit({ concurrency: 1 })
    const held = await d.claimOne()
    await d.land(cancel(held))
    await h.advance(LEASE - 1_000)
    same(await d.claim(5), [], 'a cancelled job counts as long as its lease runs')
    await h.advance(1_000)
    same((await d.claim(5)).length, 1, 'a lease that is over counts no longer')
    await d.commit({ renewals: [renewal(held, 0)] })
    same(await d.claim(5), [], 'a lease that is over frees its place once')
  },

  'a removed job counts as long as its handler runs': async (h) => {
    const d = first(h)
    await d.addMany(3, 'work')
    await d.limit({ concurrency: 1 })
    const held = await d.claimOne()
    await d.land(remove(held))
    same(await d.claim(5), [], 'a removed job whose handler still runs counts against the limit')
    await d.commit({ renewals: [renewal(held, 0)] })
    same((await d.claim(5)).length, 1, 'a lease that is given up makes room, even if the job was removed')
  },

  'a removed job counts for the next of its name, though it was the last': async (h) => {
    const d = first(h)
    await d.limit({ names: { work: { concurrency: 1 } } })
    const held = await d.running('work')
    await d.land(remove(held))
    await d.add('work')
    same(await d.claim(5), [], 'a handler counts by name, though no job of that name was left')
    await h.advance(LEASE)
    await d.add('work')
    same(await d.counts(), { work: { waiting: 2 } }, 'a name that came back is counted')
    same(
      ids(await d.claim(5, { names: ['work'] })),
      ['first-2'],
      'a name that is used again is claimed, within its limit',
    )
  },

  'a refused removal or cancellation frees no place, and costs none': async (h) => {
    const d = first(h)
    await d.addMany(3, 'work')
    await d.limit({ concurrency: 1, names: { work: { concurrency: 1 } } })
    const held = await d.claimOne()
    for (const changes of [remove(held), cancel(held), complete(held), snooze(held, 1_000)]) {
      await d.refuse('missing', 'a group with one impossible change is refused', changes, refusedChange())
      same(await d.claim(5), [], 'what was refused frees nothing')
    }
    await d.land(complete(held))
    same((await d.claim(5)).length, 1, 'what was refused costs nothing')
  },

  'a job cancelled, retried and claimed again counts for both its handlers': async (h) => {
    const d = first(h)
    await d.addMany(3, 'work')
    await d.limit({ concurrency: 2 })
    const held = await d.claimOne()
    await d.land(cancel(held))
    await d.land(retry(await d.job(held)))
    same((await d.claim(5)).length, 1, 'one place is left beside the handler that still runs')
    await d.commit({ renewals: [renewal(held, 0)] })
    same((await d.claim(5)).length, 1, 'the handler that ended frees its own place only')
    same(await d.claim(5), [], 'the limit holds for the handlers that run')
  },

  'a stalled job frees its place when it is reaped': async (h) => {
    const d = first(h)
    await d.addMany(2, 'work')
    await d.limit({ concurrency: 1 })
    const held = await d.claimOne()
    await h.advance(LEASE)
    await d.upkeep()
    same(ids(await d.claim(5)), [held.id], 'a reaped job can be claimed again under the limit')
    same(await d.claim(5), [], 'and counts once')
  },

  'a waiting or delayed job that is cancelled frees no place': async (h) => {
    const d = first(h)
    await d.addMany(3, 'work')
    const delayed = await d.add('work', { run: { in: 60_000 } })
    await d.limit({ concurrency: 1 })
    await d.claimOne()
    await d.land(cancel(await d.job('first-3')))
    await d.land(cancel(delayed))
    same(await d.claim(5), [], 'what held no lease gives none back')
  },

  'settings that are no limits limit nothing': async (h) => {
    const d = first(h)
    const broken = {
      concurrency: '1',
      backlog: true,
      rate: { max: 1 },
      names: { work: { concurrency: null, rate: { max: '1', per: 1000 } }, other: 7 },
      group: { concurrency: [1], backlog: '0', rate: { max: 1, per: 0 } },
      groups: { a: { weight: 0, backlog: {} }, b: 'c' },
    }
    await d.put(cellKey.limit('mill'), broken)
    await d.put(cellKey.pause('mill'), { all: 'yes', names: 'work' })
    await d.addMany(2, 'work')
    await d.addMany(2, 'work', { group: 'a' })
    await d.addMany(2, 'work', { group: 'b' })
    same((await d.claim(9)).length, 6, 'jobs are added and claimed as without them')
  },
})

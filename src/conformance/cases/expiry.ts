// conformance/cases/expiry.ts: cases on jobs that expire unless they are started in time.
import { has, must, present, same } from '../check.js'
import { first, ids, LEASE } from '../driver.js'
import { area } from '../harness.js'
import { typesOf, withListener } from '../listener.js'
import {
  allowed,
  cancel,
  complete,
  fail,
  failAndRetry,
  handBack,
  insert,
  promote,
  retry,
  snooze,
  waits,
} from '../changes.js'
import { replace } from '../../job/lifecycle.js'
import type { JobRecord } from '../../job/job.js'
import { headerOf } from '../../job/record.js'

const MILL = { queues: ['mill'], except: [], limit: 100 }
const MINUTE = 60_000
const SOON = { in: MINUTE }

/** Cases of jobs that expire. */
export const expiry = area('expiry', {
  'a waiting job is due when it expires, and is cancelled with its error': async (h) => {
    const d = first(h)
    const job = await d.add('work', { expires: SOON })
    has(job, { state: 'waiting', expiresAt: job.createdAt + MINUTE, dueAt: job.createdAt + MINUTE }, 'it expires')
    same((await h.store.due(MILL)).next, job.expiresAt, 'its expiry is what comes next')
    await h.advance(MINUTE)
    same((await h.store.due(MILL)).jobs, [headerOf(job)], 'and makes it due')
    await withListener(h.store, { events: true }, async (listener) => {
      await d.upkeep()
      const after = await d.job(job)
      has(after, { state: 'cancelled', attempt: 0, startedAt: undefined, dueAt: undefined }, 'upkeep cancels it')
      same(after.error?.code, 'JOB_EXPIRED', 'with an error that says so')
      const events = await listener.received(d)
      const ended = present(
        events.find(({ type }) => type === 'cancelled'),
        'its end is announced',
      )
      same(ended.error, after.error, 'with that error')
    })
  },

  'a claim never returns a job that has expired, whether or not upkeep has cancelled it': async (h) => {
    const d = first(h)
    await d.addMany(3, 'work', { expires: SOON })
    const plain = await d.add('work')
    const later = await d.add('work', { expires: { in: 2 * MINUTE } })
    const [urgent, own] = [
      await d.add('work', { priority: -1, expires: SOON, version: 2 }),
      await d.add('other', { lifo: true, expires: SOON }),
    ]
    const shared = [await d.add('work', { group: 'ann', expires: SOON }), await d.add('work', { group: 'ann' })]
    await h.advance(MINUTE)
    same(ids(await d.claim(1, { names: ['other'] })), [], 'not if it waits alone')
    same(ids(await d.claim(1)), ids([plain]), 'the first job that has not expired is claimed')
    same(ids(await d.claim(9)), ids([later, shared[1]!]), 'and then the others')
    const expired = [urgent, own, shared[0]!]
    for (const job of expired) has(await d.job(job), { state: 'waiting', attempt: 0 }, 'the expired ones stay')
    same((await d.counts()).other, { waiting: 1 }, 'and are counted as waiting until upkeep cancels them')
    await d.upkeep()
    for (const job of expired) has(await d.job(job), { state: 'cancelled' }, 'which it does')
  },

  'jobs before and among very many that have expired are claimed in their order, however often one claims': async (
    h,
  ) => {
    const d = first(h)
    for (const group of [undefined, 'ann']) {
      const name = group ?? 'work'
      const dedup = { key: name }
      const claim = (): Promise<readonly JobRecord[]> => d.claim(1, { names: [name] })
      const options = { group, expires: SOON }
      const early = await d.running(name, { group })
      await d.renew(early, 5 * MINUTE)
      await d.addMany(20, name, options)
      const replaced = await d.add(name, { ...options, dedup })
      const edited = await d.add(name, options)
      await d.addMany(20, name, options)
      await h.advance(MINUTE)
      for (let n = 0; n < 20; n++) same(ids(await claim()), [], 'those that have expired are not claimed')
      const [next] = [await d.add(name, { group }), await d.add(name, { group })]
      same(ids(await claim()), ids([next]), 'one that is added behind them is')
      await d.land(allowed(replace(await d.job(replaced), insert(`${name}-other`, name, { group, dedup }).job)))
      same(ids(await claim()), ids([replaced]), 'and one among them that no longer expires')
      await d.land(handBack(early))
      same(ids(await claim()), ids([early]), 'one that is handed back to its place before them')
      const urgent = await d.add(name, { group, priority: -1 })
      same(ids(await claim()), ids([urgent]), 'a more urgent one')
      await d.land(cancel(edited))
      await d.land(retry(await d.job(edited)))
      same((await d.claim(9, { names: [name] })).length, 2, 'and one that is retried, with the last one')
      same(ids(await claim()), [], 'and then none')
    }
  },

  'a claim under limits passes over jobs that have expired': async (h) => {
    const d = first(h)
    await d.limit({ concurrency: 5, names: { work: { concurrency: 3 } }, group: { concurrency: 1 } })
    await d.add('work', { expires: SOON })
    const work = await d.add('work')
    await d.add('work', { group: 'ann', expires: SOON })
    const ann = await d.add('work', { group: 'ann' })
    await d.add('work', { group: 'ann' })
    const bob = await d.add('work', { group: 'bob' })
    await d.add('work', { group: 'cy', expires: SOON })
    await h.advance(MINUTE)
    same(ids(await d.claim(9)), ids([work, bob, ann]), 'limits are counted on the jobs that are left')
  },

  'a job that was claimed in time does not expire, and one that is handed back does': async (h) => {
    const d = first(h)
    const held = await d.running('work', { expires: SOON })
    has(held, { dueAt: held.leaseUntil, expiresAt: held.createdAt + MINUTE }, 'a claimed job is due by its lease')
    await d.renew(held, 5 * MINUTE)
    await h.advance(MINUTE)
    same(await d.upkeep(), [], 'and does not expire while it runs')
    await d.land(handBack(held))
    has(await d.job(held), { state: 'waiting', attempt: 0, dueAt: held.expiresAt }, 'handed back, it was not started')
    same(ids(await d.claim(1)), [], 'so that it is not claimed again')
    await d.upkeep()
    has(await d.job(held), { state: 'cancelled' }, 'but cancelled')
  },

  'a job whose handler has begun does not expire: retried, snoozed, waiting or stalled': async (h) => {
    const d = first(h)
    const [retried, snoozed, waiting] = [
      await d.running('work', { expires: SOON }),
      await d.running('work', { expires: SOON }),
      await d.running('work', { expires: SOON }),
    ]
    const stalled = (await d.add('work', { expires: SOON })) && (await d.claimOne({ lease: 1_000 }))
    await d.land(failAndRetry(retried, 2 * MINUTE))
    await d.land(snooze(snoozed, 2 * MINUTE))
    const child = insert('child', 'part', {})
    await d.land(waits(waiting, ['child'], [child]))
    await h.advance(MINUTE)
    await d.upkeep()
    has(await d.job(retried), { state: 'delayed', attempt: 1 }, 'a retry goes on')
    has(await d.job(snoozed), { state: 'delayed', attempt: 0, expiresAt: undefined }, 'a snooze as well')
    has(await d.job(waiting), { state: 'waiting-children', expiresAt: undefined }, 'and a wait')
    has(await d.job(stalled), { state: 'waiting', attempt: 1 }, 'and a stall, which costs an attempt')
    same(ids(await d.claim(1, { names: ['work'] })), ids([stalled]), 'which is claimed again')
  },

  'a delayed job and one that waits for others expire, too': async (h) => {
    const d = first(h)
    const dependency = await d.add('part')
    const delayed = await d.add('work', { run: { in: 5 * MINUTE }, expires: SOON })
    const at = delayed.createdAt + MINUTE
    has(delayed, { state: 'delayed', dueAt: at }, 'whichever comes first makes a job due')
    const job = await d.add('work', { after: [dependency], expires: { at } })
    has(job, { state: 'waiting-children', dueAt: at, expiresAt: at }, 'a date is kept as it was given')
    const promoted = await d.add('work', { run: { in: 5 * MINUTE }, expires: SOON })
    await d.land(promote(promoted))
    has(await d.job(promoted), { state: 'waiting', dueAt: promoted.expiresAt }, 'a promoted job still expires')
    await h.advance(MINUTE)
    await d.upkeep()
    for (const each of [delayed, job, promoted]) has(await d.job(each), { state: 'cancelled' }, 'all are cancelled')
    await d.land(complete(await d.claimOne({ names: ['part'] })))
    has(await d.job(job), { state: 'cancelled' }, 'and stay so')
  },

  'a job whose dependency broke expires, and closes the edge': async (h) => {
    const d = first(h)
    const dependency = await d.running('part')
    const job = await d.add('work', { after: [dependency], expires: SOON, policy: 'ignore' })
    await h.advance(LEASE / 2)
    await d.land(fail(dependency))
    const broken = await d.job(job)
    has(broken, { state: 'waiting-children', dueAt: broken.brokenAt }, 'a broken dependency is due first')
    await h.advance(MINUTE)
    await d.upkeep()
    has(await d.job(job), { state: 'cancelled', brokenAt: undefined, pending: 0 }, 'it expires')
  },

  'the end of a job that expired follows the policies of edges, frees its key, and is kept by its rule': async (h) => {
    const d = first(h)
    const dedup = { key: 'k' }
    const job = await d.add('work', { expires: SOON, dedup, keep: { cancelled: { deleteAfter: MINUTE } } })
    const fatal = await d.add('work', { after: [job] })
    const ignoring = await d.add('work', { after: [job], policy: 'ignore' })
    await h.advance(MINUTE)
    await d.refuse('duplicate', 'an expired job has its key until upkeep cancels it', insert('same', 'work', { dedup }))
    await d.upkeep()
    const after = await d.job(job)
    has(after, { deleteAt: (after.finishedAt ?? 0) + MINUTE }, 'its retention follows')
    await d.add('work', { dedup })
    await d.upkeep()
    has(await d.job(fatal), { state: 'failed' }, 'a dependent fails with it')
    has(await d.job(ignoring), { state: 'waiting' }, 'or ignores it')
  },

  'a job that is retried by hand no longer expires': async (h) => {
    const d = first(h)
    const expired = await d.add('work', { expires: SOON })
    const early = await d.add('work', { expires: SOON })
    await d.land(cancel(early))
    await d.land(retry(await d.job(early)))
    await h.advance(MINUTE)
    await d.upkeep()
    await d.land(retry(await d.job(expired)))
    for (const job of [early, expired]) {
      has(await d.job(job), { state: 'waiting', expiresAt: undefined, dueAt: undefined, error: undefined }, 'it waits')
    }
    same((await d.claim(2)).length, 2, 'and is claimed')
  },

  'a job that replaces another by its key sets its expiry': async (h) => {
    const d = first(h)
    const dedup = { key: 'k' }
    const job = await d.add('work', { expires: SOON, dedup })
    const again = insert('again', 'work', { dedup, expires: { in: 5 * MINUTE } })
    await d.land(allowed(replace(job, again.job)))
    const longer = await d.job(job)
    must(longer.expiresAt! >= job.createdAt + 5 * MINUTE, 'the newer expiry holds')
    same(longer.dueAt, longer.expiresAt, 'and makes it due')
    await d.land(allowed(replace(longer, insert('third', 'work', { dedup }).job)))
    has(await d.job(job), { expiresAt: undefined, dueAt: undefined }, 'or none, if the newer job has none')
  },

  'a claim of a job that may expire is answered again with it, and its events tell its life': async (h) => {
    const d = first(h)
    await withListener(h.store, { events: true }, async (listener) => {
      const job = await d.add('work', { expires: SOON, data: { a: 1 } })
      const held = await d.claimOne()
      same(held, await d.job(job), 'the claim returns the whole record')
      same((await d.replay()).asks[0], [held], 'and so does its replay')
      same(typesOf(await listener.received(d), job.id), ['waiting', 'active'], 'it is announced like any other')
    })
  },
})

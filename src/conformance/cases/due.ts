// conformance/cases/due.ts: cases on `due`: delays, dates, expired leases and retention.
import type { JobRecord } from '../../job/job.js'
import { withFingerprint } from '../../job/errors/fingerprint.js'
import { waitingIfDue, settle } from '../../job/lifecycle.js'
import { has, must, present, same } from '../check.js'
import { first, ids, LEASE } from '../driver.js'
import { area } from '../harness.js'
import { withListener, typesOf } from '../listener.js'
import { headerOf } from '../../job/record.js'
import { BOOM, cancel, complete, fail, insert, note, promote, snooze, failAndRetry, update } from '../changes.js'
import type { JobOptions } from '../changes.js'

const MILL = { queues: ['mill'], except: [], limit: 100 }

/** Cases of `due`, which returns the due jobs and the time of the next one. */
export const due = area('due', {
  'nothing is due in an empty store': async (h) => {
    const { jobs, next } = await h.store.due(MILL)
    same([jobs, next], [[], undefined], 'an empty store knows of nothing to come')
  },

  'a waiting job is never due': async (h) => {
    const d = first(h)
    await d.add('work')
    await h.advance(1_000_000)
    const { jobs, next } = await h.store.due(MILL)
    same([jobs, next], [[], undefined], 'time alone does nothing to a waiting job')
  },

  'a delay counts from the commit by the clock of the store, and ends when it is over': async (h) => {
    const d = first(h)
    await h.advance(7_000)
    const { now } = await d.commit({ groups: [] })
    const job = await d.add('work', { run: { in: 60_000 } })
    must(job.runAt === job.createdAt + 60_000 && job.createdAt >= now, 'a delay counts from the commit')
    has(job, { state: 'delayed', dueAt: job.runAt }, 'a delayed job is due at its date')
    same((await h.store.due(MILL)).next, job.runAt, 'the next due time is returned')
    await h.advance(59_000)
    same((await h.store.due(MILL)).jobs, [], 'a delayed job is not due before its date')
    await h.advance(1_000)
    same((await h.store.due(MILL)).jobs, [headerOf(job)], 'a delayed job is due at its date')
  },

  'what is due comes without its payload, and is the same otherwise': async (h) => {
    const d = first(h)
    const data = 'x'.repeat(2_000)
    const job = await d.add('work', { run: { in: 1_000 }, data })
    const held = await d.running('work', { attempts: 3, data })
    await d.land(note(held, { progress: data, memo: JSON.stringify(data), logs: ['line'] }))
    await d.land(failAndRetry(held, 1_000))
    const ended = await d.running('work', { data, keep: { completed: { deleteAfter: 1_000 } } })
    await d.land(complete(ended, { result: data }))
    await h.advance(1_000)
    const { jobs } = await h.store.due(MILL)
    const records = await h.store.get([job.id, held.id, ended.id])
    const headers = records.map((each) => headerOf(present(each, 'a job that is due is stored')))
    const byId = new Map(jobs.map((each) => [each.id, each]))
    same(
      headers.map(({ id }) => byId.get(id)),
      headers,
      'what is due has all fields but those of its payload',
    )
    for (const each of jobs) must(!('data' in each) && !('result' in each), 'what is due has no payload')
  },

  'a new job whose date may have come is delayed only if it is ahead by the clock of the store': async (h) => {
    const d = first(h)
    const { now } = await d.commit({})
    const add = async (at: number, options: JobOptions = {}): Promise<JobRecord> => {
      const id = d.id()
      await d.land([waitingIfDue(insert(id, 'work', { ...options, run: { at } }))])
      return d.job(id)
    }
    const notDelayed = { state: 'waiting', runAt: undefined, dueAt: undefined } as const
    has(await add(now), notDelayed, 'a date that has come delays nothing')
    has(await add(now - 5_000, { group: 'ann' }), notDelayed, 'nor does it in a group')
    has(await add(now - 5_000, { lifo: true, priority: 2 }), notDelayed, 'nor with a place of its own')
    const ahead = now + 3_600_000
    has(await add(ahead), { state: 'delayed', runAt: ahead, dueAt: ahead }, 'one that is ahead does')
    same(ids(await d.claim(5)).length, 3, 'those that wait are claimed at once')
  },

  'a job with a date is delayed only if the date is in the future by the clock of the store': async (h) => {
    const d = first(h)
    const { now } = await d.commit({})
    const ahead = now + 3_600_000
    const delayed = { state: 'delayed', runAt: ahead, dueAt: ahead } as const
    const notDelayed = { state: 'waiting', dueAt: undefined } as const
    const [early, late] = [await d.add('work', { run: { in: 60_000 } }), await d.add('work')]
    const [own, turn] = [
      await d.add('work', { lifo: true }),
      await d.add('work', { group: 'ann', run: { in: 60_000 } }),
    ]
    for (const job of [early, late, own, turn]) {
      await d.land(update(job, { run: { at: ahead } }))
      has(await d.job(job), delayed, 'a date that is ahead delays a job')
    }
    for (const job of [early, turn, own, late]) {
      await d.land(update(await d.job(job), { run: { at: now } }))
      has(await d.job(job), { ...notDelayed, runAt: now }, 'one that has come does not, and the job waits since then')
    }
    await d.land(update(await d.job(early), { run: { at: now - 5_000 } }))
    same(ids(await d.claim(4)), ids([own, early, late, turn]), 'those that wait are claimed, and keep their places')
    for (const job of [early, late, own]) {
      const held = await d.job(job)
      const at = job === own ? ahead : now
      await d.land(settle(held, { kind: 'snoozed', for: { at } }))
      has(
        await d.job(job),
        { ...(job === own ? delayed : notDelayed), attempt: 0 },
        'so it is with one that is put back',
      )
    }
    same(ids(await d.claim(4)), ids([early, late]), 'which is claimed at once')
  },

  'a job that begins to wait keeps since when it could be claimed, also while it runs': async (h) => {
    const d = first(h)
    const late = await d.add('work', { run: { in: 5_000 } })
    const promoted = await d.add('work', { run: { in: 90_000 } })
    const held = await d.running('work')
    same(held.runAt, undefined, 'a job that waits from its add on needs no date')
    const child = await d.add('work', { after: [held] })
    await h.advance(8_000)
    const { now } = await d.commit({ groups: [promote(promoted)] })
    same((await d.job(promoted)).runAt, now, 'a job promoted by hand waits since then')
    await d.renew(held)
    await d.upkeep()
    same((await d.job(late)).runAt, late.runAt, 'a delayed job since its date, though upkeep was late')
    const end = await d.commit({ groups: [complete(held)] })
    same((await d.job(child)).runAt, end.now, 'a dependent since the end of what it waited for')
    for (const job of await d.claim(3)) same(job.runAt, (await d.job(job)).runAt, 'a claim keeps it')
  },

  'a job that runs again without a delay waits behind all others': async (h) => {
    const d = first(h)
    await withListener(h.store, { events: true }, async (listener) => {
      const held = [await d.running('work', { id: 'retried' }), await d.running('work', { id: 'snoozed' })]
      await d.add('work', { id: 'other' })
      await d.land(failAndRetry(held[0]!, 0))
      await d.land(snooze(held[1]!, 0))
      const waiting = { state: 'waiting', dueAt: undefined, worker: undefined } as const
      has(await d.job('retried'), { ...waiting, attempt: 1, error: withFingerprint(BOOM) }, 'a retry waits')
      has(await d.job('snoozed'), { ...waiting, attempt: 0 }, 'a snooze waits')
      same(ids(await d.claim(4)), ['other', 'retried', 'snoozed'], 'they take their places when they begin to wait')
      const life = ['waiting', 'active', 'retrying', 'waiting', 'active']
      same(typesOf(await listener.received(d), 'retried'), life, 'the reason is announced before the state')
      same((await d.lifetime('mill')).retried, 1, 'a retry is counted')
    })
  },

  'a date is kept as the user gave it': async (h) => {
    const d = first(h)
    const { now } = await d.commit({})
    const job = await d.add('work', { run: { at: now + 123_456 } })
    has(job, { state: 'delayed', runAt: now + 123_456 }, 'a date is a date')
    const past = await d.add('work', { run: { at: now - 5_000 } })
    same(past.runAt, now - 5_000, 'a date in the past is kept')
    if (past.state === 'delayed') await d.upkeep()
    has(await d.job(past), { state: 'waiting' }, 'a date in the past delays nothing')
  },

  'an active job is due when its lease runs out': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    same((await h.store.due(MILL)).next, held.leaseUntil, 'a lease is among what comes next')
    await h.advance(LEASE - 1_000)
    same((await h.store.due(MILL)).jobs, [], 'a held job is not due')
    await h.advance(1_000)
    same(ids((await h.store.due(MILL)).jobs), [held.id], 'a job whose lease expired is due')
    await d.upkeep()
    has(
      await d.job(held),
      { state: 'waiting', dueAt: undefined, leaseUntil: undefined },
      'a reaped job is not due again',
    )
    same((await h.store.due(MILL)).jobs, [], 'a reaped job is not due again')
  },

  'a job whose lease runs out in its last attempt fails': async (h) => {
    const d = first(h)
    const held = await d.running('work', { attempts: 1 })
    const parent = await d.add('parent', { after: [held] })
    await h.advance(LEASE)
    await d.upkeep()
    const job = await d.job(held)
    has(job, { state: 'failed', stalls: 1 }, 'a job that kills its worker ends')
    same(job.error?.code, 'JOB_EXHAUSTED', 'the error names the reason')
    same(ids((await h.store.due(MILL)).jobs), [parent.id], 'its dependent is due')
  },

  'a finished job is due when it goes stale and when it is to be removed': async (h) => {
    const d = first(h)
    const keep = { completed: { staleAfter: 10_000, deleteAfter: 20_000 }, failed: { deleteAfter: 5_000 } }
    const held = await d.running('work', { keep })
    const { now } = await d.commit({ groups: [complete(held)] })
    const kept = await d.job(held)
    has(
      kept,
      { finishedAt: now, staleAt: now + 10_000, deleteAt: now + 20_000, dueAt: now + 10_000 },
      'the earlier date counts',
    )
    await h.advance(10_000)
    await d.upkeep()
    const stale = await d.job(held)
    has(stale, { state: 'completed', stale: true, dueAt: kept.deleteAt }, 'a stale job waits for its removal')
    same(stale.finishedAt, now, 'going stale is no second end')
    await h.advance(10_000)
    await d.upkeep()
    must(!(await d.exists(held.id)), 'a job is removed when its retention is over')
    const failing = await d.running('work', { keep })
    const failed = await d.commit({ groups: [fail(failing)] })
    has(
      await d.job(failing),
      { staleAt: undefined, dueAt: failed.now + 5_000 },
      'retention goes by the state it ended in',
    )
    const plain = await d.running('work')
    await d.land(complete(plain))
    has(
      await d.job(plain),
      { dueAt: undefined, staleAt: undefined, deleteAt: undefined },
      'a job without retention is never due',
    )
  },

  'the longest due come first, and no more than the limit': async (h) => {
    const d = first(h)
    for (const delay of [35_000, 10_000, 40_000, 20_000]) await d.add('work', { run: { in: delay } })
    await d.running('leased')
    await h.advance(60_000)
    const expected = [2, 4, 5, 1, 3].map((n) => `first-${n}`)
    same(ids((await h.store.due(MILL)).jobs), expected, 'the longest due come first, whatever their state')
    same(
      ids((await h.store.due({ ...MILL, limit: 2 })).jobs),
      expected.slice(0, 2),
      'no more than the limit are returned',
    )
  },

  'the ids running in the asking worker are left out': async (h) => {
    const d = first(h)
    const [a, b] = [await d.running('a'), await d.running('b')]
    await h.advance(LEASE)
    same(ids((await h.store.due({ ...MILL, except: [a.id] })).jobs), [b.id], 'a worker does not reap its own jobs')
    same((await h.store.due({ ...MILL, except: [a.id, b.id] })).jobs, [], 'a worker does not reap its own jobs')
    same((await h.store.due({ ...MILL, except: [a.id], limit: 1 })).jobs.length, 1, 'what is left out takes no room')
  },

  'only the requested queues are read': async (h) => {
    const d = first(h)
    const mine = await d.add('work', { run: { in: 5_000 } })
    const theirs = await d.add('work', { run: { in: 1_000 }, queue: 'other' })
    same((await h.store.due(MILL)).next, mine.runAt, "another queue's times are not returned")
    await h.advance(5_000)
    same(ids((await h.store.due(MILL)).jobs), [mine.id], "another queue's jobs are not returned")
    const both = await h.store.due({ ...MILL, queues: ['mill', 'other'] })
    same(ids(both.jobs), [theirs.id, mine.id], 'several queues are merged by time')
    same((await h.store.due({ ...MILL, queues: [] })).jobs, [], 'no queue has no jobs')
  },

  'what comes next is the earliest of what is not yet due': async (h) => {
    const d = first(h)
    await d.add('work', { run: { in: 1_000 } })
    const later = await d.add('work', { run: { in: 20_000 } })
    await d.add('work', { run: { in: 30_000 } })
    await h.advance(1_000)
    const reply = await h.store.due(MILL)
    same([reply.jobs.length, reply.next], [1, later.runAt], 'what is due now is not what comes next')
    must(reply.now >= later.createdAt + 1_000, 'the time of the store is returned')
    await d.upkeep()
    await d.land(cancel(later))
    same((await h.store.due(MILL)).next, later.createdAt + 30_000, 'a cancelled job comes no more')
  },

  'a changed date moves when a job is due': async (h) => {
    const d = first(h)
    const job = await d.add('work', { run: { in: 60_000 } })
    const { now } = await d.commit({ groups: [update(job, { run: { in: 5_000 } })] })
    has(await d.job(job), { runAt: now + 5_000, dueAt: now + 5_000 }, 'a new delay counts from its own commit')
    const waiting = await d.add('work')
    await d.land(update(waiting, { run: { in: 5_000 } }))
    has(await d.job(waiting), { state: 'delayed' }, 'a waiting job can be delayed')
  },

  'a snoozed job runs again later and keeps its attempt': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    const { now } = await d.commit({ groups: [snooze(held, 5_000)] })
    const snoozed = { state: 'delayed', runAt: now + 5_000, attempt: 0, leaseUntil: undefined } as const
    has(await d.job(held), snoozed, 'a snooze gives the attempt back')
    await h.advance(5_000)
    await d.upkeep()
    same(present((await d.claim(1))[0], 'a snoozed job').attempt, 1, 'a snoozed job runs again')
  },
})

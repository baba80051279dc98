// conformance/cases/fences.ts: cases on fences: a worker that lost its lease is refused on every path.
import type { Change } from '../../job/change.js'
import type { JobRecord } from '../../job/job.js'
import { cancelReason, due } from '../../job/lifecycle.js'
import { movedJob } from '../../job/record.js'
import { has, must, present, same } from '../check.js'
import { first, ids, LEASE, renewal, second } from '../driver.js'
import type { Driver } from '../driver.js'
import { area } from '../harness.js'
import type { Harness } from '../harness.js'
import {
  cancel,
  complete,
  completeByHand,
  fail,
  handBack,
  insert,
  note,
  promote,
  remove,
  retry,
  snooze,
  failAndRetry,
  update,
} from '../changes.js'

/** Every change of a running job, by its phrase in the title of the case. */
const paths: Readonly<Record<string, (job: JobRecord) => readonly Change[]>> = {
  'completed by': (job) => complete(job, { result: 'late' }),
  'failed by': (job) => fail(job),
  'retried by': (job) => failAndRetry(job, 1_000),
  'snoozed by': (job) => snooze(job, 1_000),
  'handed back by': (job) => handBack(job),
  'given progress by': (job) => note(job, { progress: 99 }),
  'given log lines by': (job) => note(job, { logs: ['late'] }),
  'cancelled for': (job) => cancel(job),
  'removed for': (job) => remove(job),
  'given new data for': (job) => update(job, { data: '"late"' }),
}

/** Makes one worker lose a lease that another claims. Returns the stale record of the first worker. */
async function loseLease(d: Driver, h: Harness): Promise<JobRecord> {
  const held = await d.running('work', { attempts: 5 })
  await h.advance(LEASE)
  await d.upkeep()
  const taken = await d.claimOne({ worker: 'successor' })
  same(taken.id, held.id, 'the next worker claims a stalled job')
  return held
}

async function refusedAndUnchanged(d: Driver, id: string, changes: readonly Change[], how: string): Promise<void> {
  const before = await d.job(id)
  const logs = (await d.details(id)).logs
  const verdict = await d.refuse('fence', `a job cannot be ${how} an old fence`, changes)
  same(verdict.id, id, 'a refusal names the job over which it was refused')
  same(verdict.job, movedJob(before), 'a refusal for a fence carries the current header of the job')
  same(await d.job(id), before, `a job refused to be ${how} an old fence stays as it was`)
  same((await d.details(id)).logs, logs, 'a refused change adds no log lines')
}

const staleHolderCases = Object.fromEntries(
  Object.entries(paths).map(([how, make]) => [
    `a job cannot be ${how} a worker that lost its lease to another`,
    async (h: Harness) => {
      const d = first(h)
      const held = await loseLease(d, h)
      await refusedAndUnchanged(d, held.id, make(held), how)
    },
  ]),
)

const delayedPaths: Readonly<Record<string, (job: JobRecord) => readonly Change[]>> = {
  'cancelled with': (job) => cancel(job),
  'removed with': (job) => remove(job),
  'promoted with': (job) => promote(job),
  'changed with': (job) => update(job, { priority: 7 }),
}

const delayedCases = Object.fromEntries(
  Object.entries(delayedPaths).map(([how, make]) => [
    `a delayed job cannot be ${how} a fence from before it was changed`,
    async (h: Harness) => {
      const d = first(h)
      const old = await d.add('work', { run: { in: 60_000 } })
      await d.land(update(old, { data: '"new"' }))
      await refusedAndUnchanged(d, old.id, make(old), how)
    },
  ]),
)

/** Cases of fences: a change that was decided on an older fence is refused. */
export const fences = area('fences', {
  ...staleHolderCases,
  ...delayedCases,

  'a retry by hand with an old fence is refused': async (h) => {
    const d = first(h)
    await d.land(fail(await d.running('work')))
    const failed = await d.job('first-1')
    await d.land(retry(failed))
    await refusedAndUnchanged(d, failed.id, retry(failed), 'retried by hand with')
  },

  'each claim and each move increments the fence, and a note does not': async (h) => {
    const d = first(h)
    const added = await d.add('work')
    const claimed = await d.claimOne()
    same(claimed.fence, added.fence + 1, 'a claim increments the fence')
    await d.land(note(claimed, { progress: 1 }))
    same((await d.job(added)).fence, claimed.fence, 'a note leaves the fence')
    await d.land(snooze(claimed, 1_000))
    const snoozed = await d.job(added)
    same(snoozed.fence, claimed.fence + 1, 'a move increments the fence')
    await d.land(promote(snoozed))
    await d.land(cancel(await d.job(added)))
    same((await d.job(added)).fence, claimed.fence + 3, 'a cancellation increments the fence')
  },

  'a cancelled job refuses the settlement of its running handler': async (h) => {
    const d = first(h)
    const other = await second(h)
    const held = await d.running('work')
    await other.land(cancel(await other.job(held)))
    await refusedAndUnchanged(d, held.id, complete(held), 'completed with')
    has(await d.job(held), { state: 'cancelled' }, 'a cancelled job stays cancelled')
  },

  'a holder whose lease expired cannot move its job, even if no worker has reaped it': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    await h.advance(LEASE)
    for (const [how, make] of Object.entries(paths).slice(0, 7)) {
      const before = await d.job(held)
      const verdict = await d.refuse('fence', `a job is not ${how} a holder whose lease expired`, make(held))
      same(verdict.job, movedJob(before), 'a refusal for an expired lease carries the current header of the job')
      same(await d.job(held), before, 'a job stays as it was when its late holder is refused')
    }
  },

  'holders whose leases expired cannot complete many jobs in one batch': async (h) => {
    const d = first(h)
    await d.addMany(24, 'work')
    const held = await d.claim(24)
    const renewed = held.slice(0, 4)
    await d.commit({ renewals: renewed.map((job) => renewal(job, 3 * LEASE)) })
    await h.advance(LEASE)
    const late = held.slice(4)
    const refused = await d.commit({ groups: late.map((job) => complete(job)) })
    const reasons = refused.groups.map((verdict) => (verdict.ok ? 'landed' : verdict.why))
    same(
      reasons,
      late.map(() => 'fence'),
      'each of many late completions is refused',
    )
    const { groups } = await d.commit({ groups: held.map((job) => complete(job)) })
    same(
      groups.map(({ ok }) => ok),
      held.map((_, at) => at < 4),
      'of many completions those with a lease land, and the others are refused',
    )
    const { items } = await d.store.find({ states: ['completed'] })
    same(ids(items), ids(renewed), 'what was refused is not completed')
  },

  'upkeep and operations by hand move a job whose lease expired': async (h) => {
    const d = first(h)
    const stalled = await d.running('stalling')
    const dropped = await d.running('dropped')
    const changed = await d.running('changed')
    await h.advance(LEASE)
    await d.land(cancel(dropped))
    await d.land(update(changed, { data: '"new"' }))
    has(await d.job(changed), { state: 'active', data: '"new"' }, 'a running job takes new data for its next attempt')
    await d.upkeep()
    has(await d.job(stalled), { state: 'waiting', stalls: 1, attempt: 1 }, 'upkeep returns a stalled job to the queue')
    has(await d.job(dropped), { state: 'cancelled' }, 'a job whose lease expired can be cancelled')
  },

  'a job has the worker that completed it, and none if it was completed by hand': async (h) => {
    const d = first(h)
    const [held, taken] = [await d.running('held'), await d.running('taken')]
    await d.land(complete(held))
    has(await d.job(held), { state: 'completed', worker: held.worker }, 'its holder completed it')
    const [memo, seen] = [
      { kind: 'note', id: taken.id, fence: taken.fence, held: true, memo: '{"a":1}' } as const,
      taken,
    ]
    await d.land([memo])
    await d.land(completeByHand(seen, 'by hand'))
    has(
      await d.job(taken),
      { state: 'completed', worker: undefined, result: '"by hand"', memo: memo.memo },
      'its holder did not complete it, and the memo that the holder wrote is kept',
    )
  },

  'an expired lease can be renewed until the job is reaped': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    await h.advance(LEASE + 5_000)
    const verdict = await d.renew(held)
    must(verdict.ok, 'an expired lease that was not reaped is renewed')
    await d.land(complete(held))
    has(await d.job(held), { state: 'completed' }, 'a holder that renewed in time completes its job')
  },

  'a renewed lease is not reaped by a worker that saw it expire': async (h) => {
    const d = first(h)
    const held = await d.running('work', { attempts: 2 })
    await h.advance(LEASE)
    const { now, jobs } = await d.due([held.queue])
    const reaping = due(present(jobs[0], 'a job whose lease expired is due'), now)
    must((await d.renew(held)).ok, 'an expired lease that was not reaped is renewed')
    const before = await d.job(held)
    await d.refuse('fence', 'a renewed lease is not reaped', reaping)
    same(await d.job(held), before, 'a refused reaping changes nothing')
    await d.land(complete(held))
    has(await d.job(held), { state: 'completed' }, 'a holder that renewed in time completes its job')
  },

  'a note can empty the data of a job': async (h) => {
    const d = first(h)
    const held = await d.running('work', { data: { a: 1 } })
    await d.land([{ kind: 'note', id: held.id, fence: held.fence, held: true, data: null }])
    has(await d.job(held), { data: undefined, fence: held.fence }, 'null empties the data, and the fence stays')
  },

  'the log of a removed job is gone with it': async (h) => {
    const d = first(h)
    const held = await d.running('work', { id: 'logged' })
    await d.land(note(held, { logs: ['old'] }))
    await d.land(remove(held))
    await d.land([insert('logged', 'work')])
    same((await d.details('logged')).logs, [], 'a job that takes a used id does not inherit its log')
  },

  'a job that reuses an id gets higher fences than the jobs before it': async (h) => {
    const d = first(h)
    const held = await d.running('work', { id: 'again' })
    await d.land(failAndRetry(held, 0))
    await d.upkeep()
    const old = await d.claimOne()
    await d.land(remove(old))
    await d.land([insert('again', 'work')])
    const taken = await d.claimOne()
    must(taken.fence > old.fence, 'a job gets no fence that an earlier job of its id had')
    for (const stale of [held, old]) {
      await d.refuse('fence', 'a worker of a removed job cannot settle the one that took its id', complete(stale))
    }
    must(!(await d.renew(old)).ok, 'a worker of a removed job cannot renew the one that took its id')
  },

  'a renewal extends the lease by the clock of the store and keeps the fence': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    await h.advance(10_000)
    const { now, renewals } = await d.commit({
      renewals: [{ id: held.id, fence: held.fence, lease: 45_000, started: true }],
    })
    must(renewals[0]?.ok === true, 'a holder renews its lease')
    has(await d.job(held), { leaseUntil: now + 45_000, fence: held.fence }, 'a renewal counts the lease from now')
    await h.advance(44_000)
    same(await d.upkeep(), [], 'a renewed job is not due before its new lease is over')
  },

  'a renewal with an old fence is refused and changes nothing': async (h) => {
    const d = first(h)
    const held = await loseLease(d, h)
    const before = await d.job(held)
    const verdict = await d.renew(held, 90_000)
    must(!verdict.ok, 'a worker that lost its lease cannot renew it')
    same(verdict.why, 'fence', 'a renewal with an old fence is refused for its fence')
    same(verdict.job, movedJob(before), 'a refused renewal carries the current header of the job')
    same(await d.job(held), before, 'a refused renewal changes nothing')
  },

  'a refusal for a fence carries no payload, and why a job was cancelled': async (h) => {
    const d = first(h)
    const jobs = [await d.running('work', { data: 'much' }), await d.running('work', { data: 'more' })]
    for (const job of jobs) await d.land(note(job, { progress: 1, memo: '{}' }))
    await d.land(cancel(jobs[0]!, 'too late'))
    await d.land(complete(jobs[1]!, { result: 'much' }))
    const current = await Promise.all(jobs.map((job) => d.job(job)))
    const { groups, renewals } = await d.commit({
      groups: jobs.map((job) => complete(job)),
      renewals: jobs.map(({ id, fence }) => ({ id, fence, lease: LEASE, started: false })),
    })
    for (const [at, record] of current.entries()) {
      for (const verdict of [groups[at]!, renewals[at]!]) {
        must(!verdict.ok && verdict.why === 'fence', 'a job that was moved is refused to its last holder')
        same(verdict.job, movedJob(record), 'a refusal for a fence carries the header alone')
      }
    }
    same(cancelReason(movedJob(current[0]!).error), 'too late', 'the header has the reason')
  },

  'a refused renewal does not affect the others of its batch': async (h) => {
    const d = first(h)
    const gone = await d.running('gone')
    const kept = await d.running('kept')
    await d.land(remove(gone))
    const { now, renewals } = await d.commit({
      renewals: [gone, kept].map(({ id, fence }) => ({ id, fence, lease: 99_000, started: false })),
    })
    const [refused, renewed] = renewals
    must(refused?.ok === false && refused.why === 'missing', 'a renewal of a removed job is refused as missing')
    must(renewed?.ok === true, 'a renewal beside a refused one lands')
    same((await d.job(kept)).leaseUntil, now + 99_000, 'a renewal beside a refused one is applied')
  },

  'a renewal sees the groups of its batch': async (h) => {
    const d = first(h)
    const held = await d.running('work')
    const { renewals } = await d.commit({
      groups: [cancel(held)],
      renewals: [{ id: held.id, fence: held.fence, lease: LEASE, started: false }],
    })
    must(renewals[0]?.ok === false && renewals[0].why === 'fence', 'renewals come after the groups of their batch')
  },

  'a job is no longer leased ahead once its handler has started': async (h) => {
    const d = first(h)
    await d.addMany(2, 'work')
    const [, ahead] = await d.claim(1, { ahead: 1 })
    const leased = present(ahead, 'a job is leased ahead if requested')
    await d.renew(leased)
    same((await d.job(leased)).ahead, true, 'a renewal without `started` does not start a job leased ahead')
    await d.renew(leased, LEASE, true)
    same((await d.job(leased)).ahead, false, 'a renewal with `started` marks the job as started')
  },

  'two settlements for one fence land once': async (h) => {
    const d = first(h)
    const other = await second(h)
    for (let round = 0; round < 20; round++) {
      const held = await d.running(`work-${round}`)
      const verdicts = await Promise.all([
        d.send(complete(held, { also: [insert(`d-${round}`, 'next', { queue: 'next' })] })),
        other.send(complete(held, { also: [insert(`o-${round}`, 'next', { queue: 'next' })] })),
      ])
      same(verdicts.filter(({ ok }) => ok).length, 1, 'of two settlements for one fence exactly one lands')
    }
    same(
      (await d.claim(100, { queues: ['next'] })).length,
      20,
      'only the settlement that landed inserts its successors',
    )
  },
})

// conformance/cases/limits/groups.ts: cases on groups of jobs: fair order, limits and backlogs. No group holds back another.
import type { JobRecord } from '../../../job/job.js'
import { has, present, same } from '../../check.js'
import { ask, first, ids, LEASE, renewal, second } from '../../driver.js'
import type { Driver } from '../../driver.js'
import { area } from '../../harness.js'
import { cancel, complete, handBack, insert, promote, remove, retry, failAndRetry, update } from '../../changes.js'

/** Adds `count` jobs of a group in one batch. */
function addFor(d: Driver, group: string, count: number, more: object = {}): Promise<readonly JobRecord[]> {
  return d.addMany(count, 'work', { group, ...more })
}

/** How many of the turns belong to a group. */
function shareOf(given: string, group: string): number {
  return given.split('').filter((each) => each === group).length
}

/** Claims jobs, and returns the letters of their groups in order, as one word. */
async function turns(d: Driver, want: number, more: object = {}): Promise<string> {
  return (await d.claim(want, more)).map(({ group }) => group ?? '-').join('')
}

/** Cases of groups. */
export const groups = area('groups', {
  'a job keeps its group, and is found by it': async (h) => {
    const d = first(h)
    const job = await d.add('work', { group: 'a' })
    same(job.group, 'a', 'an insert returns the group')
    await addFor(d, 'b', 3)
    await d.add('work')
    await d.add('work', { group: 'a', queue: 'other' })
    const later = await d.add('work', { group: 'a', run: { in: 60_000 } })
    same((await d.job(job)).group, 'a', 'a group is stored')
    same((await d.claimOne()).group, 'a', 'a claim returns the group')
    await d.land(complete(await d.job(job)))
    const found = await d.store.find({ queue: 'mill', group: 'a' })
    same(ids(found.items), [job.id, later.id], 'jobs are found by queue and group, in the order of insertion')
    const delayed = await d.store.find({ queue: 'mill', group: 'a', states: ['delayed'] })
    same(ids(delayed.items), [later.id], 'and by their state besides')
    const pages = [await d.store.find({ queue: 'mill', group: 'b', limit: 2, order: 'newest' })]
    pages.push(await d.store.find({ queue: 'mill', group: 'b', limit: 2, order: 'newest', cursor: pages[0]!.cursor! }))
    same(
      pages.map(({ items }) => items.length),
      [2, 1],
      'page by page',
    )
    same((await d.store.find({ group: 'a' })).items.length, 3, 'a group can be searched in all queues')
    same((await d.store.find({ queue: 'mill', group: 'unused' })).items, [], 'an unused group has no jobs')
  },

  'jobs of a flow keep their groups, and take turns': async (h) => {
    const d = first(h)
    await addFor(d, 'b', 2)
    const children = [insert(d.id(), 'child', { group: 'a' }), insert(d.id(), 'child', { group: 'b' })]
    const after = children.map(({ job }) => job.id)
    const parents = [1, 2].map(() => insert(d.id(), 'parent', { group: 'a', after }))
    await d.land(...children, ...parents)
    same(await turns(d, 4), 'babb', 'children have their turns')
    await d.commit({ groups: await Promise.all(after.map(async (id) => complete((await d.store.get([id]))[0]!))) })
    await addFor(d, 'b', 1)
    same(await turns(d, 3), 'aba', 'and so have their parents')
  },

  'groups take turns, whatever their order and number of jobs': async (h) => {
    const d = first(h)
    await addFor(d, 'a', 6)
    await addFor(d, 'b', 2)
    await addFor(d, 'c', 3)
    same(await turns(d, 11), 'abcabcacaaa', 'each has its turn')
  },

  'turns go on from claim to claim': async (h) => {
    const d = first(h)
    await addFor(d, 'a', 4)
    await addFor(d, 'b', 4)
    const taken: string[] = []
    for (let n = 0; n < 8; n++) taken.push(await turns(d, 1))
    same(taken.join(''), 'abababab', 'each has its turn, one claim at a time')
  },

  'a group that comes late waits for one round, not for all jobs of the others': async (h) => {
    const d = first(h)
    await addFor(d, 'a', 300)
    await addFor(d, 'b', 300)
    same(await turns(d, 100), 'ab'.repeat(50), 'two have their turns')
    await addFor(d, 'c', 1)
    const next = await turns(d, 4)
    same(next.includes('c'), true, `one job of a third group is claimed within a round: ${next}`)
  },

  'a group that was idle has saved nothing up': async (h) => {
    const d = first(h)
    await addFor(d, 'a', 1)
    await addFor(d, 'b', 100)
    await d.claim(60)
    await addFor(d, 'a', 20)
    const next = await turns(d, 20)
    const share = shareOf(next, 'a')
    same(share >= 9 && share <= 11, true, `a group that returns gets every other turn: ${next}`)
  },

  'a weight is so many turns for one of others': async (h) => {
    const d = first(h)
    await d.limit({ groups: { a: { weight: 3 }, c: { weight: 0.5 } } })
    await addFor(d, 'a', 600)
    await addFor(d, 'b', 600)
    await addFor(d, 'c', 600)
    const given = await turns(d, 450)
    const share = (group: string): number => shareOf(given, group)
    const near = [share('a'), share('b'), share('c')].map((count, at) => Math.abs(count - [300, 100, 50][at]!) <= 5)
    same(near, [true, true, true], `shares by weight: ${share('a')}, ${share('b')}, ${share('c')}`)
  },

  'priority comes before turns, and each priority has turns of its own': async (h) => {
    const d = first(h)
    await addFor(d, 'a', 4)
    await addFor(d, 'b', 2)
    await addFor(d, 'a', 3, { priority: -1 })
    await addFor(d, 'b', 1, { priority: -1 })
    same(await turns(d, 4), 'abaa', 'the lower priority goes first, by turns')
    await addFor(d, 'c', 1)
    same(await turns(d, 7), 'abcabaa', 'and then the next, by turns of its own')
  },

  'names and versions share the turns of their queue': async (h) => {
    const d = first(h)
    await d.addMany(3, 'one', { group: 'a' })
    await d.addMany(3, 'two', { group: 'a' })
    await d.addMany(2, 'two', { group: 'b', version: 2 })
    same(await turns(d, 8), 'ababaaaa', 'a group with two names has no more turns')
  },

  'a worker that handles one name claims its jobs by turns': async (h) => {
    const d = first(h)
    await d.addMany(200, 'other', { group: 'a' })
    await d.addMany(2, 'work', { group: 'a' })
    await d.addMany(2, 'work', { group: 'b' })
    same((await d.claim(3, { names: ['work'] })).length, 3, 'names that are not handled are skipped')
  },

  'between jobs with a group and without, the one added first goes first': async (h) => {
    const d = first(h)
    await d.add('work')
    await addFor(d, 'a', 2)
    await d.add('work')
    await addFor(d, 'b', 1)
    same(await turns(d, 5), '-a-ba', 'the head that was added first')
  },

  'each queue has turns of its own': async (h) => {
    const d = first(h)
    await addFor(d, 'a', 50)
    await d.claim(40)
    await addFor(d, 'a', 2, { queue: 'other' })
    await addFor(d, 'b', 1, { queue: 'other' })
    same(await turns(d, 3, { queues: ['other'] }), 'aba', 'turns start afresh in another queue')
    same((await d.claim(99, { queues: ['mill', 'other'] })).length, 10, 'and none is lost')
  },

  'a job that returns to its old position keeps its turn; one that waits again gets a new turn': async (h) => {
    const d = first(h)
    await addFor(d, 'a', 4)
    await addFor(d, 'b', 4)
    const held = await d.claimOne()
    await d.land(handBack(held))
    same(ids(await d.claim(1)), [held.id], 'a job that was handed back goes first')
    const [stumbled] = await d.claim(1)
    await d.land(failAndRetry(present(stumbled, 'there is another'), 1_000))
    await h.advance(1_000)
    await d.upkeep()
    const rest = ids(await d.claim(9))
    same(rest.indexOf(stumbled!.id) > 0, true, `a job that waits again does not go first: ${rest.join()}`)
    same(rest.length, 7, 'and is not lost')
  },

  'delayed, dependent and retried jobs get their turn when they begin to wait': async (h) => {
    const d = first(h)
    await addFor(d, 'a', 60)
    const delayed = await d.add('work', { group: 'b', run: { in: 60_000 } })
    const gate = await d.add('gate')
    const dependent = await d.add('work', { group: 'c', after: [gate] })
    const cancelled = await d.add('work', { group: 'd' })
    await d.land(cancel(cancelled))
    await d.claim(40, { names: ['work'] })
    await d.land(promote(delayed))
    await d.land(complete(await d.claimOne({ names: ['gate'] })))
    await d.land(retry(await d.job(cancelled)))
    const next = ids(await d.claim(4, { names: ['work'] }))
    const came = [delayed, dependent, cancelled].map(({ id }) => next.includes(id))
    same(came, [true, true, true], 'each within a round')
  },

  'a change of priority is a turn among others': async (h) => {
    const d = first(h)
    await addFor(d, 'a', 30, { priority: 5 })
    await d.claim(20)
    const late = await d.add('work', { group: 'b', priority: 9 })
    await d.land(update(late, { priority: 5 }))
    const next = ids(await d.claim(2))
    same(next.includes(late.id), true, 'within a round of its new priority')
  },

  'turns hold through two handles': async (h) => {
    const d = first(h)
    const other = await second(h)
    await addFor(d, 'a', 40)
    await addFor(other, 'b', 20)
    await addFor(d, 'a', 40)
    const given: string[] = []
    for (let n = 0; n < 10; n++) given.push(await turns(d, 2), await turns(other, 2))
    const share = shareOf(given.join(''), 'b')
    same(share >= 19, true, `each has its turn, through whichever handle: ${given.join('')}`)
  },

  'jobs of groups are leased ahead like others': async (h) => {
    const d = first(h)
    await addFor(d, 'a', 3)
    await addFor(d, 'b', 3)
    const jobs = await d.claim(2, { ahead: 3 })
    same(jobs.map(({ group, ahead }) => `${group}${Number(ahead)}`).join(' '), 'a0 b0 a1 b1 a1', 'by turns, too')
  },

  'a group is never claimed past its limit, and does not hold back others': async (h) => {
    const d = first(h)
    await d.limit({ group: { concurrency: 2 }, groups: { c: { concurrency: 1 }, d: {} } })
    await addFor(d, 'a', 300)
    await addFor(d, 'b', 1)
    await addFor(d, 'c', 3)
    await addFor(d, 'd', 3)
    await d.addMany(2, 'work')
    const jobs = await d.claim(50)
    same(
      jobs
        .map(({ group }) => group ?? '-')
        .toSorted()
        .join(''),
      '--aabcdd',
      'each up to its own limit',
    )
    same(await d.claim(50), [], 'at its limit, no job of a group is claimed')
    await d.add('work', { group: 'e' })
    same(await turns(d, 5), 'e', 'another is not held back')
    await d.land(
      complete(
        present(
          jobs.find(({ group }) => group === 'a'),
          'one was claimed',
        ),
      ),
    )
    same(await turns(d, 5), 'a', 'an end makes room for one')
    await d.limit({})
    same((await d.claim(999)).length, 300, 'a removed limit limits nothing')
  },

  'a limit of groups counts what was leased before, and handlers that still run': async (h) => {
    const d = first(h)
    await addFor(d, 'a', 5)
    await addFor(d, 'b', 1)
    const [one, , two] = await d.claim(3)
    await d.limit({ group: { concurrency: 2 } })
    same(await d.claim(5), [], 'leases given before count')
    await d.land(cancel(present(one, 'one was claimed')))
    same(await d.claim(5), [], 'and those of revoked jobs')
    await d.commit({ renewals: [renewal(one!, 0)] })
    same(await turns(d, 5), 'a', 'until their handlers have ended')
    await d.land(remove(await d.job(two!)))
    same(await d.claim(5), [], 'also of removed jobs')
    await h.advance(LEASE)
    same((await d.claim(5)).length, 1, 'or their leases have expired')
  },

  'a settlement makes room in its group for the claim of its own batch': async (h) => {
    const d = first(h)
    await d.limit({ group: { concurrency: 1 } })
    await addFor(d, 'a', 3)
    const held = await d.claimOne()
    const { asks } = await d.commit({ groups: [complete(held)], asks: [ask(5)] })
    same(asks[0]?.length, 1, 'the claim of a batch uses the room that its groups made')
  },

  'the limits of a queue, a name and a group hold together': async (h) => {
    const d = first(h)
    await d.limit({ concurrency: 5, names: { work: { concurrency: 4 } }, group: { concurrency: 3 } })
    await addFor(d, 'a', 9)
    await addFor(d, 'b', 9)
    await d.addMany(9, 'other', { group: 'a' })
    await d.addMany(9, 'other', { group: 'c' })
    const jobs = await d.claim(20)
    const of = (what: (job: JobRecord) => boolean): number => jobs.filter(what).length
    same([jobs.length, of(({ name }) => name === 'work') <= 4], [5, true], 'queue and name')
    same(
      ['a', 'b', 'c'].map((group) => of((job) => job.group === group) <= 3),
      [true, true, true],
      'and group',
    )
  },

  'jobs of a bounded group are never leased ahead; others are': async (h) => {
    const d = first(h)
    await d.limit({ groups: { a: { concurrency: 5 } } })
    await addFor(d, 'a', 4)
    await addFor(d, 'b', 4)
    const jobs = await d.claim(2, { ahead: 9 })
    same(jobs.map(({ group, ahead }) => `${group}${Number(ahead)}`).join(' '), 'a0 b0 b1 b1 b1', 'only the unbounded')
  },

  'limits of groups are exact under concurrent claims through two handles': async (h) => {
    const d = first(h)
    const other = await second(h)
    await d.limit({ group: { concurrency: 2 } })
    for (const group of ['a', 'b', 'c']) await addFor(d, group, 30)
    const running = new Map<string, JobRecord>()
    const work = async (by: Driver): Promise<void> => {
      for (let round = 0; round < 12; round++) {
        for (const job of await by.claim(4)) running.set(job.id, job)
        for (const group of ['a', 'b', 'c']) {
          const now = [...running.values()].filter((job) => job.group === group).length
          same(now <= 2, true, `the limit of group ${group} holds: ${now}`)
        }
        const [job] = running.values()
        if (job === undefined) continue
        running.delete(job.id)
        await by.land(complete(job))
      }
    }
    await Promise.all([work(d), work(other)])
    await d.claim(50)
    const active = (await d.store.find({ queue: 'mill', states: ['active'] })).items
    same(active.length, 6, 'no lease is lost, and none is given twice')
  },

  'a group at the bound of its backlog is full, with its oldest job; others are not': async (h) => {
    const d = first(h)
    await d.limit({ group: { backlog: 2 }, groups: { c: { backlog: 1 }, d: { backlog: 0 } } })
    const oldest = await d.add('work', { group: 'a', run: { in: 60_000 } })
    await addFor(d, 'a', 1)
    const verdict = await d.refuse('full', 'a third is one too many', insert('x', 'work', { group: 'a' }))
    has(
      present(verdict.job, 'the refusal carries the oldest job'),
      { id: oldest.id },
      'the oldest that has not started',
    )
    await addFor(d, 'b', 2)
    await addFor(d, 'c', 1)
    await d.refuse('full', 'a bound of its own', insert('x', 'work', { group: 'c' }))
    const none = await d.refuse('full', 'a bound of nothing', insert('x', 'work', { group: 'd' }))
    same(none.job, undefined, 'there is no job')
    await d.addMany(5, 'work')
    const [job] = await d.claim(1)
    same(job?.group, 'a', 'one has started')
    await d.add('work', { group: 'a' })
    await d.refuse('full', 'full again', insert('x', 'work', { group: 'a' }))
    await d.land(cancel(await d.job(oldest)), insert('x', 'work', { group: 'a' }))
    await d.refuse('full', 'room made in a group is used once', insert('y', 'work', { group: 'a' }))
    await d.limit({})
    await addFor(d, 'a', 5)
  },

  'a bound of nothing holds for the first job of a queue': async (h) => {
    const d = first(h)
    await d.limit({ group: { backlog: 0 } })
    const verdict = await d.refuse('full', 'no job may wait', insert('x', 'work', { group: 'a' }))
    same(verdict.job, undefined, 'there is no oldest job')
    await d.add('work')
  },

  'a bound on backlogs holds within one batch and through two handles': async (h) => {
    const d = first(h)
    const other = await second(h)
    await d.limit({ group: { backlog: 10 } })
    const batch = (by: Driver, group: string): Promise<number> =>
      by
        .commit({ groups: Array.from({ length: 12 }, () => [insert(by.id(), 'work', { group })]) })
        .then(({ groups: verdicts }) => verdicts.filter(({ ok }) => ok).length)
    same(await batch(d, 'a'), 10, 'the first ten of a batch')
    const both = await Promise.all([batch(d, 'b'), batch(other, 'b')])
    let landed = both[0] + both[1]
    for (let tries = 0; landed < 10 && tries < 100; tries++) landed += await batch(other, 'b')
    same(landed, 10, 'ten in all, over both handles')
  },
})

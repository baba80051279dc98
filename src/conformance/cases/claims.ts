// conformance/cases/claims.ts: cases on which jobs a claim returns, and what it changes in them.
import { has, must, present, same } from '../check.js'
import { ask, first, ids, LEASE } from '../driver.js'
import { area } from '../harness.js'
import type { JobRecord } from '../../job/job.js'
import { handBack, promote, snooze, failAndRetry } from '../changes.js'

/** Cases of claims: a worker receives only jobs that it handles, with the lease that it asks for. */
export const claims = area('asks', {
  'a claim makes the job active, leased to the worker by the clock of the store': async (h) => {
    const d = first(h)
    const added = await d.add('work', { data: { a: 1 } })
    await h.advance(1_500)
    const receipt = await d.commit({ asks: [ask(1, { worker: 'w-1', lease: 12_345 })] })
    const { now } = receipt
    const job = present(receipt.asks[0]?.[0], 'a waiting job is claimed')
    must(now >= added.createdAt + 1_500, 'a receipt has the time of the store')
    const expected = {
      state: 'active',
      worker: 'w-1',
      attempt: 1,
      fence: added.fence + 1,
      leaseUntil: now + 12_345,
      dueAt: now + 12_345,
      startedAt: now,
      ahead: false,
      createdAt: added.createdAt,
      data: '{"a":1}',
    } as const
    has(job, expected, 'a claim leases the job')
    same(await d.job(job), job, 'the claimed job is stored as it was returned')
  },

  'an added job is stored as it was sent, with the time of the store': async (h) => {
    const d = first(h)
    const keep = { completed: { staleAfter: 5, deleteAfter: 10 } }
    await d.add('first')
    const job = await d.add('work', { priority: 3, attempts: Infinity, version: 2, parent: 'first-1', keep, data: [] })
    const expected = {
      id: 'first-2',
      kind: 'job',
      queue: 'mill',
      name: 'work',
      version: 2,
      data: '[]',
      state: 'waiting',
      priority: 3,
      attempt: 0,
      attempts: Infinity,
      backoff: undefined,
      timeout: undefined,
      worker: undefined,
      runAt: undefined,
      leaseUntil: undefined,
      brokenAt: undefined,
      staleAt: undefined,
      stale: false,
      deleteAt: undefined,
      dueAt: undefined,
      chainId: 'first-2',
      chainIndex: 0,
      parentId: 'first-1',
      pending: 0,
      stalls: 0,
      ahead: false,
      dedup: undefined,
      keep,
      progress: undefined,
      result: undefined,
      error: undefined,
      startedAt: undefined,
      finishedAt: undefined,
    } as const
    has(job, expected, 'a job is stored as it was sent')
    same(job.errors, [], 'a new job has no failed attempts')
    must(job.createdAt >= (await d.job('first-1')).createdAt, 'a job is created by the clock of the store')
    same(await d.job(job), job, 'a job is read as it was returned')
  },

  'a name that is not handled is skipped, however many of its jobs come before': async (h) => {
    const d = first(h)
    await d.addMany(150, 'foreign')
    await d.add('known')
    same(
      (await d.claim(10, { names: ['known'] })).map(({ name }) => name),
      ['known'],
      'a name that is not handled is skipped',
    )
    same(await d.counts(), { foreign: { waiting: 150 }, known: { active: 1 } }, 'a foreign name is left as it was')
  },

  'a version that is not handled is left': async (h) => {
    const d = first(h)
    for (const version of [1, 2, 3, 2]) await d.add('work', { version })
    const claimed = await d.claim(10, { handles: [{ name: 'work', versions: [2, 4], lease: LEASE }] })
    same(ids(claimed), ['first-2', 'first-4'], 'only versions that the worker handles are claimed')
    same(ids(await d.claim(10)), ['first-1', 'first-3'], 'a worker that handles every version claims the rest')
  },

  'a job keeps its version through retries, snoozes and hand-backs, and is claimed by it each time': async (h) => {
    const d = first(h)
    await d.add('work', { version: 2 })
    for (const again of [(job: JobRecord) => failAndRetry(job, 0), (job: JobRecord) => snooze(job, 0), handBack]) {
      same(await d.claim(10, { handles: [{ name: 'work', versions: [1], lease: LEASE }] }), [], 'it is left by others')
      const [given] = await d.claim(10, { handles: [{ name: 'work', versions: [2], lease: LEASE }] })
      const job = present(given, 'a worker that handles its version claims it')
      await d.land(again(job))
      await h.advance(1)
      const current = await d.job(job)
      same(current.version, 2, 'a job keeps its version')
      if (current.state === 'delayed') await d.land(promote(current))
    }
  },

  'a handler for all names leaves those that are listed otherwise': async (h) => {
    const d = first(h)
    await d.add('special', { version: 1 })
    await d.add('plain')
    await d.add('special', { version: 2 })
    await d.add('another')
    const handles = [
      { name: undefined, lease: 10_000 },
      { name: 'special', versions: [2], lease: 20_000 },
    ]
    const receipt = await d.commit({ asks: [ask(10, { handles })] })
    const claimed = receipt.asks[0] ?? []
    same(ids(claimed), ['first-2', 'first-3', 'first-4'], 'an exception is judged by its own versions')
    const leases = claimed.map(({ leaseUntil }) => (leaseUntil ?? 0) - receipt.now)
    same(leases, [10_000, 20_000, 10_000], 'each name is leased for as long as its handler requests')
  },

  'a handler for all names of some versions leaves the others': async (h) => {
    const d = first(h)
    for (const version of [1, 2]) await d.add(`v${version}`, { version })
    const claimed = await d.claim(10, { handles: [{ name: undefined, versions: [2], lease: LEASE }] })
    same(ids(claimed), ['first-2'], 'versions bound a handler for all names too')
  },

  'a claim of nothing returns nothing': async (h) => {
    const d = first(h)
    await d.add('work')
    same(await d.claim(0), [], 'a worker without free slots claims nothing')
    same(await d.claim(5, { handles: [] }), [], 'a worker without handlers claims nothing')
    same(await d.claim(5, { queues: [] }), [], 'a worker without queues claims nothing')
    same(await d.counts(), { work: { waiting: 1 } }, 'an ask for nothing leaves the queue as it is')
  },

  'jobs leased ahead come last and are marked': async (h) => {
    const d = first(h)
    await d.addMany(6, 'work')
    const claimed = await d.claim(2, { ahead: 3 })
    same(
      ids(claimed),
      [1, 2, 3, 4, 5].map((n) => `first-${n}`),
      'a claim returns the jobs it wants, and some ahead',
    )
    same(
      claimed.map(({ ahead }) => ahead),
      [false, false, true, true, true],
      'those leased ahead come last',
    )
    must(
      claimed.every(({ state, attempt }) => state === 'active' && attempt === 1),
      'a job leased ahead is leased',
    )
  },

  'a job with one attempt is never leased ahead': async (h) => {
    const d = first(h)
    await d.add('work')
    await d.addMany(3, 'work', { attempts: 1 })
    same(ids(await d.claim(1, { ahead: 5 })), ['first-1'], 'a dead worker must not cost a job its only attempt')
    same(ids(await d.claim(2)), ['first-2', 'first-3'], 'a free slot takes a job with one attempt')
  },

  'a job that stalled before is never leased ahead': async (h) => {
    const d = first(h)
    await d.add('work', { attempts: 5 })
    await d.claimOne()
    await h.advance(LEASE)
    await d.upkeep()
    await d.add('work', { priority: -1 })
    same(ids(await d.claim(1, { ahead: 5 })), ['first-2'], 'a job that may kill its worker is not leased ahead')
    has(await d.claimOne(), { id: 'first-1', ahead: false, attempt: 2, stalls: 1 }, 'a free slot takes a stalled job')
  },

  'a job under a limit is never leased ahead': async (h) => {
    const d = first(h)
    await d.limit({ concurrency: 10 })
    await d.limit({ names: { bound: { concurrency: 10 } } }, 'other')
    await d.addMany(3, 'work')
    await d.addMany(3, 'bound', { queue: 'other' })
    same((await d.claim(1, { ahead: 5 })).length, 1, 'a queue with a limit is not leased ahead')
    same((await d.claim(1, { ahead: 5, queues: ['other'] })).length, 1, 'a name with a limit is not leased ahead')
  },

  'a job leased ahead gets its attempt back when its worker dies': async (h) => {
    const d = first(h)
    await d.addMany(2, 'work')
    const [started, ahead] = await d.claim(1, { ahead: 1 })
    await h.advance(LEASE)
    await d.upkeep()
    has(await d.job(present(started, 'a job')), { attempt: 1, stalls: 1 }, 'a crash costs the attempt')
    has(await d.job(present(ahead, 'a job ahead')), { attempt: 0, stalls: 1 }, 'what never started gets it back')
  },

  'failed attempts are remembered by fence, the oldest first': async (h) => {
    const d = first(h)
    await d.add('work', { attempts: Infinity })
    const fences: number[] = []
    for (let round = 0; round < 53; round++) {
      const held = await d.claimOne()
      fences.push(held.fence)
      await d.land(failAndRetry(held, 0))
      await d.upkeep()
    }
    const job = await d.job('first-1')
    has(job, { state: 'waiting', attempt: 53, attempts: Infinity }, 'each attempt is counted')
    same(
      job.errors.map(({ fence }) => fence),
      fences.slice(-50),
      'the last fifty failed attempts are remembered',
    )
    const last = present(job.errors.at(-1), 'the last error')
    same([last.attempt, last.name, last.message, last.code], [53, 'Error', 'boom', 'E_BOOM'], 'an error is kept whole')
    same(job.error?.message, 'boom', 'the latest error is on the job')
  },
})

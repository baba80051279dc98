// Schedules: what they add when, what cannot stop them, and how they are managed. On a virtual clock.
import { describe, expect, it } from 'vitest'
import { Queue, Worker, defineJobs, job } from 'millrace'
import type { Handler, Job, Store, WorkerOptions } from 'millrace'
import { memory } from 'millrace/memory'
import * as z from 'zod'
import { cellKey } from '../../../src/store/settings.js'
import { insert } from '../../../src/conformance/changes.js'
import { virtualClock } from '../../../src/testing/world/clock.js'
import type { VirtualClock } from '../../../src/testing/world/clock.js'
import { closing, gate } from '../../setup.js'

const START = Date.parse('2026-01-01T00:00:00Z')
const MINUTE = 60_000
const HOUR = 60 * MINUTE

interface Scene {
  readonly clock: VirtualClock
  readonly store: Store
  readonly queue: Queue
  worker(handler?: Handler, options?: WorkerOptions): Promise<Worker>
  /** The times for which runs were made, since the start. */
  times(key: string): Promise<readonly number[]>
}

function scene(name = 'work'): Scene {
  const clock = virtualClock({ start: START })
  const store = memory({ runtime: clock.runtime })
  const queue = new Queue(name, { store, logger: false })
  return {
    clock,
    store,
    queue,
    worker: async (handler = () => {}, options = {}) => {
      const worker = closing(new Worker(queue, handler, { logger: false, ...options, autorun: false } as object))
      await worker.run()
      return worker
    },
    times: async (key) => {
      const { jobs } = await queue.list({ schedule: key, limit: 1000 })
      return jobs.map((each) => each.scheduledAt! - START)
    },
  }
}

/** How often a commit wrote to the row of a schedule. */
async function fenceOf(store: Store, queue: Queue): Promise<number> {
  const { items } = await store.find({ queue: queue.name, kind: 'schedule' })
  return items[0]!.fence
}

/** Adds a job with an id that is reserved, as an earlier version could. */
async function standing(store: Store, id: string, queue: string): Promise<void> {
  const groups = [[insert(id, 'mine', { queue, run: { in: 10 * HOUR } })]]
  await store.commit({ writer: id, seq: 1, groups, renewals: [], asks: [] })
}

describe('a schedule', () => {
  it('adds its job at each of its times, with its data and options', async () => {
    const { clock, queue, worker, times } = scene()
    const seen: unknown[] = []
    await worker((each) => void seen.push([each.name, each.data, each.attempts, each.priority]))
    const made = await queue.schedule('sweep', {
      every: '1h',
      name: 'clean',
      data: { deep: true },
      options: { attempts: 7, priority: -3 },
    })
    expect(made).toMatchObject({
      key: 'sweep',
      name: 'clean',
      data: { deep: true },
      times: { every: HOUR, catchUp: 'one', overlap: 'skip' },
      state: 'scheduled',
      count: 0,
      last: undefined,
      next: [1, 2, 3, 4, 5].map((hours) => START + hours * HOUR),
    })
    await clock.advance('3h 1m')
    expect(await times('sweep')).toEqual([HOUR, 2 * HOUR, 3 * HOUR])
    expect(seen).toEqual([1, 2, 3].map(() => ['clean', { deep: true }, 7, -3]))
    const [now] = await queue.schedules()
    expect(now).toMatchObject({ count: 3, last: { at: START + 3 * HOUR }, skipped: undefined })
    expect(await queue.get(now!.last!.id)).toMatchObject({ state: 'completed', parentId: now!.id })
    expect(now!.next[0]).toBe(START + 4 * HOUR)
  })

  it('follows the clock of its zone', async () => {
    const { clock, queue, worker, times } = scene()
    await worker()
    await queue.schedule('nine', { cron: '0 9 * * *', tz: 'America/New_York', name: 'n' })
    await clock.advance('24h')
    expect(await times('nine')).toEqual([14 * HOUR])
  })

  it('starts with its start, which is what every counts from, and ends with its end', async () => {
    const { clock, queue, worker, times } = scene()
    await worker()
    await queue.schedule('k', { every: '1h', name: 'n', start: START + 90 * MINUTE, end: new Date(START + 4 * HOUR) })
    await clock.advance('10h')
    expect(await times('k')).toEqual([1.5 * HOUR, 2.5 * HOUR, 3.5 * HOUR])
    expect(await queue.schedules()).toMatchObject([{ state: 'ended', count: 3, next: [] }])
  })

  it('does not drift, however late it is looked after', async () => {
    const { clock, queue, worker, times } = scene()
    await worker()
    await queue.schedule('k', { every: '10m', name: 'n', catchUp: 'one' })
    for (let each = 0; each < 6; each++) {
      await clock.advance('9m')
      clock.block('3m')
    }
    const made = await times('k')
    expect(made.length).toBeGreaterThan(4)
    for (const time of made) expect(time % (10 * MINUTE)).toBe(0)
  })

  it('makes as many runs as its limit, and has then ended', async () => {
    const { clock, queue, worker, times } = scene()
    await worker()
    await queue.schedule('k', { every: '1h', name: 'n', limit: 2 })
    expect((await queue.schedules())[0]!.next).toHaveLength(2)
    await clock.advance('5h')
    expect(await times('k')).toEqual([HOUR, 2 * HOUR])
    expect(await queue.schedules()).toMatchObject([{ state: 'ended', count: 2, next: [] }])
  })

  it('is not stopped by runs that fail, that cannot be read, or that no worker handles', async () => {
    const jobs = defineJobs({ strict: job({ input: z.object({ n: z.number() }), attempts: 1 }) })
    const { clock, store, queue, worker, times } = scene()
    const typed = new Queue('work', { store, jobs })
    await typed.schedule('strict', { every: '1h', name: 'strict', data: { n: 1 } })
    await queue.schedule('failing', { every: '1h', name: 'failing', options: { attempts: 1 } })
    await queue.schedule('alien', { every: '1h', name: 'alien', overlap: 'allow' })
    await worker({ failing: () => Promise.reject(new Error('no')), strict: () => {} } as never)
    await clock.advance('3h')
    for (const key of ['failing', 'alien', 'strict']) expect(await times(key)).toHaveLength(3)
    const { jobs: failed } = await queue.list({ schedule: 'failing' })
    expect(failed.map(({ state }) => state)).toEqual(['failed', 'failed', 'failed'])
  })

  it('is not stopped by a full queue, nor by a job that has the id of its run', async () => {
    const { clock, store, queue, worker, times } = scene()
    await worker({ other: () => {} } as never)
    await queue.schedule('k', { every: '1h', name: 'n', overlap: 'allow' })
    await standing(store, 'run:work:2026-01-01T01:00:00.000Z:k', 'work')
    await clock.advance('1h 1m')
    expect(await queue.schedules()).toMatchObject([{ count: 0, skipped: { at: START + HOUR, why: 'duplicate' } }])
    const limit = {
      kind: 'put',
      key: cellKey.limit('work'),
      value: '{"backlog":1,"by":"queue"}',
      version: 0,
      events: [],
    } as const
    await store.commit({ writer: 'x', seq: 1, groups: [[limit]], renewals: [], asks: [] })
    await clock.advance('1h')
    expect(await queue.schedules()).toMatchObject([{ count: 0, skipped: { at: START + 2 * HOUR, why: 'full' } }])
    await store.commit({
      writer: 'x',
      seq: 2,
      groups: [[{ ...limit, value: undefined, version: 1 }]],
      renewals: [],
      asks: [],
    })
    await clock.advance('1h')
    expect(await times('k')).toEqual([3 * HOUR])
  })

  it('repeats no run when it is written anew under a clock that is behind', async () => {
    const { clock, store, queue, worker, times } = scene()
    await worker()
    await queue.schedule('k', { every: '1h', name: 'n', overlap: 'allow' })
    await clock.advance('2h 1m')
    expect(await times('k')).toEqual([HOUR, 2 * HOUR])
    await queue.remove({ schedule: 'k' }) // or the ids of runs would keep them from being made again
    const runtime = { ...clock.runtime, now: () => clock.runtime.now() - 2 * HOUR }
    const behind = new Queue('work', {
      store: Object.assign(Object.create(store) as Store, { runtime }),
      logger: false,
    })
    const { next } = await behind.schedule('k', { cron: '0 * * * *', tz: 'UTC', name: 'n', overlap: 'allow' })
    expect(next[0]).toBe(START + 3 * HOUR)
    await clock.advance('2h')
    expect(await times('k')).toEqual([3 * HOUR, 4 * HOUR])
  })

  it('goes on while the queue is paused: only its runs wait', async () => {
    const { clock, queue, worker, times } = scene()
    await worker()
    await queue.schedule('k', { every: '1h', name: 'n', overlap: 'allow' })
    await queue.pause()
    await clock.advance('2h')
    expect(await times('k')).toEqual([HOUR, 2 * HOUR])
    expect(await queue.counts()).toMatchObject({ waiting: 2, completed: 0 })
    await queue.resume()
    await clock.advance('1s')
    expect(await queue.counts()).toMatchObject({ waiting: 0, completed: 2 })
  })

  it('is looked after by ten workers as by one', async () => {
    const { clock, store, worker, queue, times } = scene()
    for (let each = 0; each < 10; each++) await worker()
    for (let each = 0; each < 20; each++) {
      await queue.schedule(`k-${each}`, {
        every: '1m',
        name: 'n',
        catchUp: 'all',
        options: { removeOnComplete: false },
      })
    }
    await clock.advance('5m 1s')
    for (let each = 0; each < 20; each++)
      expect(await times(`k-${each}`)).toEqual([1, 2, 3, 4, 5].map((m) => m * MINUTE))
    expect((await store.tally(['work']))[0]!.lifetime.added).toBe(100)
  })
})

describe('runs that would overlap', () => {
  const slow = { every: '1h', name: 'slow' } as const

  it('are skipped until the one before has finished', async () => {
    const { clock, queue, worker, times } = scene()
    const end = gate()
    await worker(() => end.promise)
    await queue.schedule('k', slow)
    await clock.advance('3h 30m')
    expect(await times('k')).toEqual([HOUR])
    expect(await queue.schedules()).toMatchObject([
      { count: 1, skipped: { at: START + 3 * HOUR, why: 'overlap' }, state: 'scheduled' },
    ])
    end.open()
    await clock.advance('1h')
    expect(await times('k')).toEqual([HOUR, 4 * HOUR])
  })

  it('are made if they may', async () => {
    const { clock, queue, worker, times } = scene()
    const end = gate()
    await worker(() => end.promise, { concurrency: 5 })
    await queue.schedule('k', { ...slow, overlap: 'allow' })
    await clock.advance('3h 30m')
    expect(await times('k')).toEqual([HOUR, 2 * HOUR, 3 * HOUR])
    end.open()
    await clock.settle()
  })

  it('of other schedules are none of its business, nor are jobs of the same name', async () => {
    const { clock, queue, worker, times } = scene()
    await worker(() => {}, { concurrency: 1 })
    await queue.pause()
    await queue.add('slow')
    await queue.schedule('a', slow)
    await queue.schedule('b', slow)
    await clock.advance('1h')
    expect([await times('a'), await times('b')]).toEqual([[HOUR], [HOUR]])
  })

  it('are skipped until the chain of the one before has ended', async () => {
    const { clock, queue, worker } = scene()
    const end = gate()
    const made = async (): Promise<readonly (number | undefined)[]> =>
      (await queue.list({ schedule: 'k' })).jobs.flatMap(({ scheduledAt }) => scheduledAt ?? [])
    await worker((each: Job, ctx) => {
      if (each.name === 'last') return end.promise
      return ctx.complete(async ({ continueWith }) => {
        await continueWith(each.name === 'slow' ? 'middle' : 'last')
      })
    })
    await queue.schedule('k', slow)
    await clock.advance('3h 30m')
    expect(await made()).toEqual([START + HOUR])
    expect(await queue.schedules()).toMatchObject([{ count: 1, skipped: { why: 'overlap' } }])
    end.open()
    await clock.advance('1h')
    expect(await made()).toEqual([START + HOUR, START + 4 * HOUR])
    await clock.settle()
  })

  it('refuse that what a run goes on with has a key of its own, which would let the next one in', async () => {
    const { clock, queue, worker } = scene()
    await worker((_: Job, ctx) =>
      ctx.complete(async ({ continueWith }) => void (await continueWith('n', 1, { dedup: { key: 'mine' } }))),
    )
    await queue.schedule('k', { ...slow, options: { attempts: 1 }, limit: 1 })
    await clock.advance('1h 1m')
    const [run] = (await queue.list({ schedule: 'k' })).jobs
    expect(run).toMatchObject({ state: 'failed', error: { code: 'INVALID_OPTION' } })
  })

  it('do not keep a run that failed from being retried by hand', async () => {
    const { clock, queue, worker } = scene()
    const end = gate()
    let runs = 0
    await worker(() => (++runs === 1 ? Promise.reject(new Error('once')) : end.promise))
    await queue.schedule('k', { ...slow, options: { attempts: 1 } })
    await clock.advance('2h 1m')
    const [failed, running] = (await queue.list({ schedule: 'k' })).jobs
    expect([failed!.state, running!.state]).toEqual(['failed', 'active'])
    expect(await failed!.retry()).toBe(true)
    expect((await queue.get(failed!.id))!.state).toBe('waiting')
    end.open()
    await clock.settle()
  })
})

describe('times that passed while nothing ran', () => {
  /** Schedules, lets hours pass, and then has a worker look. */
  async function missed(options: object, away: string): Promise<{ at: readonly number[]; later: readonly number[] }> {
    const { clock, queue, worker, times } = scene()
    await queue.schedule('k', { every: '1h', name: 'n', ...options })
    await clock.advance(away)
    await worker()
    await clock.advance('1s')
    const at = await times('k')
    await clock.advance('1h')
    return { at, later: await times('k') }
  }

  it('are made up for by one run, for the latest, by default', async () => {
    expect(await missed({}, '5h 30m')).toEqual({ at: [5 * HOUR], later: [5 * HOUR, 6 * HOUR] })
  })

  it('are passed over', async () => {
    expect(await missed({ catchUp: 'none' }, '5h 30m')).toEqual({ at: [], later: [6 * HOUR] })
  })

  it('are not missed if a worker comes in time', async () => {
    expect((await missed({ catchUp: 'none' }, '5h 30s')).at).toEqual([5 * HOUR])
  })

  it('are all made up for', async () => {
    const five = [1, 2, 3, 4, 5].map((hours) => hours * HOUR)
    expect(await missed({ catchUp: 'all' }, '5h 30m')).toEqual({ at: five, later: [...five, 6 * HOUR] })
  })

  it('are all made up for, at most a hundred in a commit', async () => {
    const { clock, store, queue, worker, times } = scene()
    await queue.schedule('k', { every: '1m', name: 'n', catchUp: 'all' })
    await clock.advance('250m')
    const sizes: number[] = []
    const commit = store.commit.bind(store)
    store.commit = (batch, tx) => {
      for (const group of batch.groups) if (group.length > 2) sizes.push(group.length - 1)
      return commit(batch, tx)
    }
    await worker(() => {}, { concurrency: 50 })
    await clock.advance('1s')
    expect(await times('k')).toEqual(Array.from({ length: 250 }, (_, at) => (at + 1) * MINUTE))
    expect(sizes).toEqual([100, 100, 50])
  })

  it('count against the limit, and none after the end is made', async () => {
    expect((await missed({ catchUp: 'all', limit: 3 }, '5h 30m')).later).toEqual([HOUR, 2 * HOUR, 3 * HOUR])
    expect((await missed({ catchUp: 'one', end: START + 2 * HOUR }, '5h 30m')).later).toEqual([2 * HOUR])
    expect((await missed({ catchUp: 'none', end: START + 2 * HOUR }, '5h 30m')).later).toEqual([])
  })

  it('are all made up for one after another, as long as none has to wait for the one before', async () => {
    const five = [1, 2, 3, 4, 5].map((hours) => hours * HOUR)
    expect((await missed({ catchUp: 'all', overlap: 'skip' }, '5h 30m')).at).toEqual(five)
    const { clock, queue, worker, times } = scene()
    const end = gate()
    await queue.schedule('k', { every: '1h', name: 'n', catchUp: 'all', overlap: 'skip' })
    await clock.advance('5h 30m')
    await worker(() => end.promise)
    await clock.advance('10m')
    expect(await times('k')).toEqual([HOUR])
    expect((await queue.schedules())[0]!.next[0]).toBe(START + 6 * HOUR)
    end.open()
    await clock.settle()
  })
})

describe('scheduling again', () => {
  const hourly = { every: '1h', name: 'n', data: { a: 1 } } as const

  it('with the same changes nothing, and writes nothing', async () => {
    const { clock, store, queue, worker, times } = scene()
    await worker()
    await queue.schedule('k', hourly)
    const before = await fenceOf(store, queue)
    await clock.advance('30m')
    expect(await queue.schedule('k', { ...hourly })).toMatchObject({
      next: [START + HOUR].concat([2, 3, 4, 5].map((h) => START + h * HOUR)),
    })
    expect(await fenceOf(store, queue)).toBe(before)
    await clock.advance('31m')
    expect(await times('k')).toEqual([HOUR])
  })

  it('with other times or data changes what comes, not what has been', async () => {
    const { clock, queue, worker, times } = scene()
    const seen: unknown[] = []
    await worker((each) => void seen.push(each.data))
    await queue.schedule('k', hourly)
    await clock.advance('90m')
    await queue.schedule('k', { ...hourly, data: { a: 2 } })
    await clock.advance('30m')
    expect(seen).toEqual([{ a: 1 }, { a: 2 }])
    await queue.schedule('k', { cron: '*/10 * * * *', name: 'other' })
    await clock.advance('21m')
    expect(await times('k')).toEqual([HOUR, 2 * HOUR, 2 * HOUR + 10 * MINUTE, 2 * HOUR + 20 * MINUTE])
    expect(await queue.schedules()).toMatchObject([{ name: 'other', count: 4, times: { cron: '*/10 * * * *' } }])
  })

  it('with another distance counts from then on', async () => {
    const { clock, queue, worker, times } = scene()
    await worker()
    await queue.schedule('k', hourly)
    await clock.advance('30m')
    await queue.schedule('k', { ...hourly, every: '20m' })
    await clock.advance('45m')
    expect(await times('k')).toEqual([50 * MINUTE, 70 * MINUTE])
  })

  it('is what an ended schedule needs to go on, and something new; its runs are counted anew', async () => {
    const { clock, store, queue, worker, times } = scene()
    await worker()
    await queue.schedule('k', { ...hourly, limit: 1 })
    await clock.advance('2h')
    const before = await fenceOf(store, queue)
    expect(await queue.schedule('k', { ...hourly, limit: 1 })).toMatchObject({ state: 'ended', count: 1 })
    expect(await fenceOf(store, queue)).toBe(before)
    expect(await queue.schedule('k', { ...hourly, limit: 2 })).toMatchObject({ state: 'scheduled', count: 0 })
    await clock.advance('5h')
    expect(await times('k')).toEqual([HOUR, 3 * HOUR, 4 * HOUR])
    expect(await queue.schedules()).toMatchObject([{ state: 'ended', count: 2 }])
  })

  it('with a limit that has been reached ends it', async () => {
    const { clock, queue, worker } = scene()
    await worker()
    await queue.schedule('k', hourly)
    await clock.advance('3h')
    expect(await queue.schedule('k', { ...hourly, limit: 2 })).toMatchObject({ state: 'ended', count: 3 })
  })

  it('after its end is over changes nothing, and a new one whose end is over is refused', async () => {
    const { clock, queue, worker } = scene()
    await worker()
    const bounded = { ...hourly, end: START + 2 * HOUR }
    await queue.schedule('k', bounded)
    await clock.advance('3h')
    expect(await queue.schedule('k', bounded)).toMatchObject({ state: 'ended', count: 2 })
    const refused = { code: 'INVALID_SCHEDULE', details: { field: 'end' } }
    await expect(queue.schedule('k', { ...bounded, data: { a: 2 } })).rejects.toMatchObject(refused)
    await expect(queue.schedule('new', bounded)).rejects.toMatchObject(refused)
    expect(await queue.schedules()).toHaveLength(1)
  })

  it('by many at once makes one', async () => {
    const { queue } = scene()
    const made = await Promise.all(
      Array.from({ length: 20 }, (_, at) => queue.schedule('k', { ...hourly, data: { a: at % 2 } })),
    )
    expect(new Set(made.map(({ id }) => id)).size).toBe(1)
    expect(await queue.schedules()).toHaveLength(1)
  })
})

describe('taking a schedule away', () => {
  it('ends it and leaves its runs', async () => {
    const { clock, queue, worker, times } = scene()
    await worker()
    await queue.schedule('k', { every: '1h', name: 'n' })
    await clock.advance('1h 1m')
    expect(await queue.unschedule('k')).toBe(true)
    expect(await queue.unschedule('k')).toBe(false)
    expect(await queue.schedules()).toEqual([])
    await clock.advance('3h')
    expect(await times('k')).toEqual([HOUR])
    await queue.schedule('k', { every: '1h', name: 'n' })
    await clock.advance('1h 1m')
    expect(await times('k')).toHaveLength(2)
  })
})

describe('add with repeat', () => {
  it('is a schedule under the key given, or the id, or the name', async () => {
    const { clock, queue, worker } = scene()
    await worker()
    const byName = await queue.add('report', { a: 1 }, { repeat: { every: '1h', limit: 2 }, attempts: 5 })
    expect(byName).toMatchObject({
      duplicate: false,
      state: 'delayed',
      name: 'report',
      data: { a: 1 },
      runAt: START + HOUR,
    })
    await queue.add('report', { a: 2 }, { id: 'mine', repeat: { cron: '@hourly' } })
    await queue.add('report', { a: 3 }, { id: 'not-mine', repeat: { cron: '@hourly', key: 'yours' } })
    expect((await queue.schedules()).map(({ key }) => key)).toEqual(['report', 'mine', 'yours'])
    const again = await queue.add('report', { a: 1 }, { repeat: { every: '1h', limit: 2 }, attempts: 5 })
    expect(again).toMatchObject({ duplicate: true, id: byName.id, fence: byName.fence })
    await clock.advance('1h')
    const [run] = (await queue.list({ schedule: 'report' })).jobs
    expect(run).toMatchObject({ name: 'report', data: { a: 1 }, attempts: 5, scheduledAt: START + HOUR })
  })

  it('goes with addBulk too', async () => {
    const { queue } = scene()
    const added = await queue.addBulk([{ name: 'a' }, { name: 'b', options: { repeat: { every: '1m' } } }])
    expect(added.map(({ state }) => state)).toEqual(['waiting', 'delayed'])
    expect(await queue.schedules()).toMatchObject([{ key: 'b' }])
  })
})

describe('the row of a schedule', () => {
  it('is shown, explained and removed, and refuses what can be done with jobs alone', async () => {
    const { queue, worker, clock } = scene()
    await worker()
    const { id } = await queue.schedule('k', { every: '1h', name: 'n', data: { a: 1 } })
    const handle = (await queue.get(id))!
    expect(handle).toMatchObject({ id, name: 'n', data: { a: 1 }, state: 'delayed', returned: undefined })
    expect(await handle.refresh()).toMatchObject({ data: { a: 1 } })
    expect(await queue.explain(id)).toMatchObject({
      reasons: [{ why: 'schedule', next: START + HOUR }],
      text: expect.stringContaining('is a schedule, which makes its next run at 2026-01-01T01:00:00.000Z'),
    })
    const refused = { code: 'INVALID_STATE', message: expect.stringContaining('is a schedule') }
    await expect(queue.cancel(id)).rejects.toMatchObject(refused)
    await expect(queue.retry(id)).rejects.toMatchObject(refused)
    await expect(queue.promote(id)).rejects.toMatchObject(refused)
    await expect(queue.update(id, { priority: 1 })).rejects.toMatchObject(refused)
    await expect(queue.chain(id).complete(({ complete }) => complete(() => 1))).rejects.toMatchObject({
      code: 'INVALID_STATE',
    })
    await expect(handle.result()).rejects.toMatchObject(refused)
    await clock.advance('1h 1m')
    expect(await queue.remove(id)).toBe(true)
    expect(await queue.schedules()).toEqual([])
  })

  it('is no job: lists, counts and operations on many pass it over', async () => {
    const { queue } = scene()
    await queue.schedule('k', { every: '1h', name: 'n' })
    expect((await queue.list()).jobs).toEqual([])
    expect(await queue.counts()).toMatchObject({ delayed: 0 })
    expect([
      await queue.cancel({ all: true }),
      await queue.promote({ all: true }),
      await queue.remove({ all: true }),
    ]).toEqual([0, 0, 0])
    expect(await queue.schedules()).toHaveLength(1)
  })

  it('has an id that no other queue, key or job can be taken for', async () => {
    const { store, queue } = scene('a')
    const other = new Queue('a:b', { store })
    const [one, two] = [
      await queue.schedule('b:c', { every: '1h', name: 'n' }),
      await other.schedule('c', { every: '1h', name: 'n' }),
    ]
    expect(one.id).not.toBe(two.id)
    await standing(store, 'schedule:a:taken', 'a')
    await expect(queue.schedule('taken', { every: '1h', name: 'n' })).rejects.toMatchObject({ code: 'DUPLICATE_ID' })
  })

  it('that cannot be read is reported once, left alone, and replaced', async () => {
    const { clock, store, queue, worker, times } = scene()
    const { id } = await queue.schedule('bad', { every: '1h', name: 'n' })
    await queue.schedule('good', { every: '1h', name: 'n' })
    const [row] = await store.get([id])
    const move = { kind: 'move', id, fence: row!.fence, to: 'delayed', held: false, place: 'old' } as const
    const set = { data: '{"from":"a later version"}' }
    const group = [{ ...move, why: undefined, closesBroken: false, set }]
    await store.commit({ writer: 'x', seq: 1, groups: [group], renewals: [], asks: [] })
    const seen: unknown[] = []
    ;(await worker()).on('error', ({ error }) => void seen.push(error))
    await clock.advance('1h 10m')
    expect(seen).toMatchObject([{ code: 'INVALID_SCHEDULE', message: expect.stringContaining(id) }])
    expect(await times('good')).toEqual([HOUR])
    expect((await queue.get(id))?.state).toBe('delayed')
    await queue.schedule('bad', { every: '1h', name: 'n' })
    await clock.advance('1h 1m')
    expect(await times('bad')).toHaveLength(1)
  })
})

describe('what is wrong is refused before anything is written', () => {
  it.each([
    [{ cron: '0 25 * * *', name: 'n' }, 'INVALID_SCHEDULE'],
    [{ cron: '0 0 * * *', tz: 'Mars/Olympus', name: 'n' }, 'INVALID_SCHEDULE'],
    [{ cron: '0 0 30 2 *', name: 'n' }, 'INVALID_SCHEDULE'],
    [{ name: 'n' }, 'INVALID_SCHEDULE'],
    [{ every: '1h' }, 'INVALID_NAME'],
    [{ every: '1h', name: 'n', evry: 1 }, 'UNKNOWN_OPTION'],
    [{ every: '1h', name: 'n', options: { delay: 5 } }, 'INVALID_OPTION'],
    [{ every: '1h', name: 'n', options: { id: 'x' } }, 'INVALID_OPTION'],
    [{ every: '1h', name: 'n', options: { dedup: { key: 'x' } } }, 'INVALID_OPTION'],
    [{ every: '1h', name: 'n', options: { atempts: 5 } }, 'UNKNOWN_OPTION'],
    [{ every: '1h', name: 'n', options: 'fast' }, 'INVALID_OPTION'],
    [{ every: '1h', name: 'n', options: null }, 'INVALID_OPTION'],
    [{ every: '1h', name: 'n', options: { attempts: 0 } }, 'INVALID_ATTEMPTS'],
    [{ every: '1h', name: 'n', data: { at: new Date() } }, 'INVALID_DATA'],
    [null, 'INVALID_OPTION'],
    ['hourly', 'INVALID_OPTION'],
  ])('%j', async (options, code) => {
    const { queue } = scene()
    await expect(queue.schedule('k', options as never)).rejects.toMatchObject({ code })
    expect(await queue.schedules()).toEqual([])
  })

  it.each([
    [{ repeat: { every: '1h' }, delay: 5 }, 'INVALID_OPTION'],
    [{ repeat: { every: '1h' }, dedup: { key: 'x' } }, 'INVALID_OPTION'],
    [{ repeat: { every: '1h' }, after: 'x' }, 'INVALID_OPTION'],
    [{ repeat: { cron: '* * *' } }, 'INVALID_SCHEDULE'],
    [{ repeat: { every: '1h', name: 'n' } }, 'UNKNOWN_OPTION'],
    [{ repeat: '1h' }, 'INVALID_OPTION'],
    [{ repeat: null }, 'INVALID_OPTION'],
  ])('add with %j', async (options, code) => {
    const { queue } = scene()
    await expect(queue.add('n', 1, options as never)).rejects.toMatchObject({ code })
    expect(await queue.schedules()).toEqual([])
  })

  it('keys, and keys that make ids too long', async () => {
    const { queue } = scene('q'.repeat(200))
    await expect(queue.schedule('', { every: 1, name: 'n' })).rejects.toMatchObject({ code: 'INVALID_NAME' })
    await expect(queue.schedule('k'.repeat(100), { every: 1, name: 'n' })).rejects.toMatchObject({
      code: 'INVALID_NAME',
      message: expect.stringContaining('Shorten the key'),
    })
    await expect(queue.unschedule(5 as never)).rejects.toMatchObject({ code: 'INVALID_NAME' })
    await expect(queue.list({ schedule: 'k', parent: 'p' })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })

  it('data that the schema of the job does not take', async () => {
    const { store } = scene()
    const jobs = defineJobs({
      strict: job({ input: z.object({ n: z.number() }) }),
      slow: job({ input: z.object({ n: z.number() }).refine(async () => true) }),
    })
    const queue = new Queue('work', { store, jobs })
    await expect(
      queue.schedule('k', { every: '1h', name: 'strict', data: { n: 'one' } as never }),
    ).rejects.toMatchObject({ code: 'INVALID_PAYLOAD' })
    await expect(queue.schedule('k', { every: '1h', name: 'strit' as never, data: { n: 1 } })).rejects.toMatchObject({
      code: 'UNKNOWN_JOB',
    })
    await queue.schedule('k', { every: '1h', name: 'slow', data: { n: 1 } })
    expect(await queue.schedules()).toHaveLength(1)
  })

  it('a chain that would go on with a schedule', async () => {
    const { clock, queue, worker } = scene()
    const codes: unknown[] = []
    await worker(async (_, ctx) =>
      ctx.complete(async ({ add, continueWith }) => {
        for (const call of [add, continueWith]) {
          codes.push(await call('n', 1, { repeat: { every: '1h' } }).catch((error: { code: string }) => error.code))
        }
      }),
    )
    await queue.add('first')
    await clock.advance('1s')
    expect(codes).toEqual(['INVALID_OPTION', 'INVALID_OPTION'])
    expect(await queue.schedules()).toEqual([])
  })
})

it('events report runs as they report any job', async () => {
  const { clock, queue, worker } = scene()
  await worker()
  const seen: string[] = []
  for (const type of ['waiting', 'active', 'completed'] as const) {
    queue.on(type, ({ id, name }) => void seen.push(`${type} ${name} ${id}`))
  }
  await queue.schedule('k', { every: '1h', name: 'n' })
  await clock.advance('1h 1m')
  const id = 'run:work:2026-01-01T01:00:00.000Z:k'
  expect(seen).toEqual([`waiting n ${id}`, `active n ${id}`, `completed n ${id}`])
})

it('no event reports the row of a schedule, which is no job', async () => {
  const { clock, queue, worker } = scene()
  await worker()
  const seen: string[] = []
  for (const type of ['delayed', 'waiting', 'removed', 'cancelled', 'completed'] as const) {
    queue.on(type, ({ name }) => void seen.push(`${type} ${name}`))
  }
  await queue.schedule('k', { every: '1h', name: 'n' })
  await clock.advance('1h 1m')
  await queue.unschedule('k')
  await clock.advance('1m')
  expect(seen).toEqual(['waiting n', 'completed n'])
})

it('ten thousand schedules that are not due are not looked at', async () => {
  const { clock, store, queue, worker } = scene()
  const items = Array.from({ length: 10_000 }, (_, at) => ({
    name: 'n',
    options: { repeat: { every: HOUR + at, key: `k-${at}` } },
  }))
  await queue.addBulk(items)
  const looked: number[] = []
  const due = store.due.bind(store)
  store.due = async (query) => {
    const seen = await due(query)
    looked.push(seen.jobs.length)
    return seen
  }
  await worker()
  await clock.advance('10m')
  expect(looked.length).toBeLessThanOrEqual(21)
  expect(looked.every((jobs) => jobs === 0)).toBe(true)
  looked.length = 0
  await clock.advance('50m 1s')
  expect(looked.reduce((sum, jobs) => sum + jobs, 0)).toBe(1001) // those that came due, each once
})

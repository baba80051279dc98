// queue.schedule(key): pausing, triggering, backfilling and listing the runs of a schedule; overlaps that wait or cancel;
// and whole sets of schedules.
import { setImmediate as nextTurn } from 'node:timers/promises'
import { describe, expect, it, test } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Handler, JobContext, KeyedSchedule, AnyJobs } from 'millrace'
import { memory } from 'millrace/memory'
import { virtualClock } from '../../../src/testing/world/clock.js'
import { closing, event, gate } from '../../setup.js'
import { kinds, stores } from '../../stores.js'

const START = Date.parse('2026-01-01T00:00:00Z')
const HOUR = 3_600_000
const make = stores()

function scene() {
  const clock = virtualClock({ start: START })
  const store = closing(memory({ runtime: clock.runtime }))
  const queue = closing(new Queue('work', { store, logger: false }))
  const missed: unknown[] = []
  queue.on('schedule-missed', ({ key, why, since, scheduledAt, name }) => {
    missed.push([key, name, why, (since - START) / HOUR, (scheduledAt - START) / HOUR])
  })
  return {
    clock,
    queue,
    missed,
    worker: async (handler: Handler = () => {}, options = {}) => {
      const worker = closing(new Worker(queue, handler, { logger: false, ...options, autorun: false } as object))
      await worker.run()
      return worker
    },
    hours: async (key: string) =>
      (await queue.schedule(key).runs()).map(({ scheduledAt = NaN }) => (scheduledAt - START) / HOUR),
  }
}

describe('pause', () => {
  it('makes no runs and announces each missed time, until resume; the same definition keeps the pause', async () => {
    const { clock, queue, worker, missed, hours } = scene()
    await worker()
    const times = { every: '1h', name: 'sweep' } as const
    await queue.schedule('k', times)
    const handle = queue.schedule('k')
    await clock.advance('1h 1m')
    expect([await handle.pause(), await handle.pause()]).toEqual([true, false])
    await queue.schedule('k', times)
    await queue.schedule('k', { ...times, options: { priority: 1 } })
    expect(await handle.get()).toMatchObject({ state: 'paused', pausedAt: START + HOUR + 60_000, count: 1 })
    await clock.advance('2h')
    expect([await handle.resume(), await handle.resume()]).toEqual([true, false])
    await clock.advance('1h')
    expect(await hours('k')).toEqual([4, 1])
    expect(missed).toEqual([
      ['k', 'sweep', 'paused', 2, 2],
      ['k', 'sweep', 'paused', 3, 3],
    ])
    expect((await handle.get())!.state).toBe('scheduled')
  })

  it('makes no run afterwards for times that passed while nobody ran', async () => {
    const { clock, queue, worker, hours } = scene()
    await queue.schedule('k', { every: '1h', name: 'sweep', catchUp: 'all' })
    await queue.schedule('k').pause()
    await clock.advance('3h 30m')
    await queue.schedule('k').resume()
    await worker()
    await clock.advance('1h')
    expect(await hours('k')).toEqual([4])
  })
})

describe('trigger', () => {
  it('adds a run now, beside the times, also while paused; it is listed and not counted', async () => {
    const { clock, queue, worker } = scene()
    const seen: unknown[] = []
    await worker(({ id, data, scheduledAt }) => void seen.push([id, data, scheduledAt]))
    await queue.schedule('k', { every: '1h', name: 'sweep', data: 7, limit: 1 })
    const handle = queue.schedule('k')
    await handle.pause()
    const id = await handle.trigger()
    await clock.settle()
    expect(seen).toEqual([[id, 7, undefined]])
    expect(await handle.runs()).toMatchObject([{ id, state: 'completed', scheduledAt: undefined, createdAt: START }])
    await handle.resume()
    await clock.advance('1h 1m')
    expect(await handle.get()).toMatchObject({ state: 'ended', count: 1 })
    expect(await handle.trigger()).not.toBe(id)
  })

  it('heeds overlap: it is refused, waits, cancels or runs beside', async () => {
    const { clock, queue, worker } = scene()
    const end = gate()
    await worker(() => end.promise, { concurrency: 5 })
    await queue.schedule('k', { every: '1h', name: 'sweep' })
    const handle = queue.schedule('k')
    const first = await handle.trigger()
    await clock.settle()
    await expect(handle.trigger()).rejects.toMatchObject({ code: 'SCHEDULE_OVERLAP', details: { run: first } })
    const beside = await handle.trigger({ overlap: 'allow' })
    await clock.settle()
    expect((await queue.get(beside))!.state).toBe('active')
    const waits = await handle.trigger({ overlap: 'queue' })
    await expect(handle.trigger({ overlap: 'queue' })).rejects.toMatchObject({ code: 'SCHEDULE_OVERLAP' })
    expect((await queue.explain(waits)).reasons).toMatchObject([{ why: 'dependencies', waitsFor: [beside, first] }])
    await handle.trigger({ overlap: 'cancel' })
    await clock.settle()
    expect((await handle.runs()).map(({ state }) => state)).toEqual(['active', 'cancelled', 'cancelled', 'cancelled'])
    end.open()
    await clock.settle()
  })

  it('needs a schedule, as all calls but get do', async () => {
    const { queue } = scene()
    const handle = queue.schedule('none')
    expect(await handle.get()).toBe(undefined)
    expect(await handle.remove()).toBe(false)
    for (const call of [handle.trigger(), handle.pause(), handle.resume(), handle.backfill({ from: START })]) {
      await expect(call).rejects.toMatchObject({ code: 'SCHEDULE_NOT_FOUND' })
    }
    expect(() => queue.schedule('')).toThrow(expect.objectContaining({ code: 'INVALID_NAME' }) as Error)
  })
})

describe('backfill', () => {
  it('adds a run for each past time, one after another, and none twice', async () => {
    const { clock, queue, worker } = scene()
    await queue.schedule('k', { every: '1h', name: 'sweep' })
    await clock.advance('30m')
    const handle = queue.schedule('k')
    const range = { from: START - 5 * HOUR, to: new Date(START - HOUR) }
    expect(await handle.backfill(range)).toEqual({ added: 5, existing: 0 })
    expect(await handle.backfill({ from: START - 7 * HOUR })).toEqual({ added: 3, existing: 5 })
    const order: number[] = []
    let running = 0
    await worker(
      async ({ scheduledAt }) => {
        expect(++running).toBe(1)
        await nextTurn()
        order.push((scheduledAt! - START) / HOUR)
        running--
      },
      { concurrency: 4 },
    )
    await queue.schedule('k').pause()
    while ((await queue.counts()).completed < 8) await clock.advance(10)
    expect(order.toSorted((a, b) => a - b)).toEqual([-7, -6, -5, -4, -3, -2, -1, 0])
    expect(order.filter((hour) => hour >= -5 && hour < 0)).toEqual([-5, -4, -3, -2, -1])
    expect(await handle.get()).toMatchObject({ count: 0 })
  })

  it('is refused past its bounds and for bad ranges, with nothing added', async () => {
    const { clock, queue } = scene()
    await queue.schedule('k', { cron: '* * * * *', name: 'sweep', overlap: 'allow' })
    await clock.advance('1h')
    const handle = queue.schedule('k')
    const refused = (options: object, code: string) =>
      expect(handle.backfill(options as never)).rejects.toMatchObject({ code })
    await refused({ from: START - 24 * HOUR }, 'BACKFILL_TOO_LARGE')
    await refused({ from: START, to: START - 1 }, 'INVALID_RANGE')
    await refused({ from: START, to: START + 2 * HOUR }, 'INVALID_OPTION')
    await refused({ from: 'yesterday' }, 'INVALID_DATE')
    await refused({ from: START, overlap: 'skip' }, 'INVALID_OPTION')
    await refused({ from: START, until: START }, 'UNKNOWN_OPTION')
    await expect(handle.runs({ limit: 0 })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    await expect(handle.trigger({ overlap: 'never' as 'skip' })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    expect(await handle.runs()).toEqual([])
    expect(await handle.backfill({ from: START - HOUR, to: START })).toEqual({ added: 61, existing: 0 })
    expect((await queue.counts()).waiting).toBe(61)
    expect(await handle.runs()).toHaveLength(10)
  })
})

describe('overlap', () => {
  it('queue: the next run waits until the one before has ended, and further times are missed', async () => {
    const { clock, queue, worker, missed, hours } = scene()
    const ends = [gate(), gate(), gate()]
    const started: number[] = []
    await worker(
      ({ scheduledAt }) => {
        started.push((scheduledAt! - START) / HOUR)
        return started.length === 1 ? ends[0]!.promise.then(() => Promise.reject(new Error('no'))) : ends[1]!.promise
      },
      { concurrency: 5 },
    )
    await queue.schedule('k', { every: '1h', name: 'sweep', overlap: 'queue', options: { attempts: 1 } })
    await clock.advance('4h 1m')
    expect([started, await hours('k')]).toEqual([[1], [2, 1]])
    expect(missed).toEqual([
      ['k', 'sweep', 'overlap', 3, 3],
      ['k', 'sweep', 'overlap', 4, 4],
    ])
    ends[0]!.open()
    await clock.advance('1s')
    expect(started).toEqual([1, 2]) // although the first failed
    await clock.advance('1h')
    expect(await hours('k')).toEqual([5, 2, 1])
    ends[1]!.open()
    await clock.advance('1s')
    expect(started).toEqual([1, 2, 5])
  })

  it('cancel: the run before is cancelled for that reason, and the new one runs', async () => {
    const { clock, queue, worker, hours } = scene()
    const reasons: unknown[] = []
    queue.on('cancelled', ({ reason }) => void reasons.push(reason))
    await worker((_, { signal }) => new Promise((resolve) => signal.addEventListener('abort', resolve)))
    await queue.schedule('k', { every: '1h', name: 'sweep', overlap: 'cancel' })
    await clock.advance('3h 1m')
    expect(await hours('k')).toEqual([3, 2, 1])
    expect((await queue.schedule('k').runs()).map(({ state }) => state)).toEqual(['active', 'cancelled', 'cancelled'])
    expect(reasons).toEqual(Array(2).fill("Schedule 'k' made its next run, with overlap: 'cancel'."))
    await queue.cancel((await queue.schedule('k').runs())[0]!.id)
    await clock.settle()
  })

  it('skip, and a late worker without catchUp, announce what was missed', async () => {
    const { clock, queue, worker, missed } = scene()
    await queue.schedule('late', { every: '1h', name: 'sweep', catchUp: 'none' })
    await clock.advance('3h 30m')
    const end = gate()
    await worker(() => end.promise)
    await clock.advance('2h')
    expect(missed).toEqual([
      ['late', 'sweep', 'late', 1, 3],
      ['late', 'sweep', 'overlap', 5, 5],
    ])
    end.open()
    await clock.settle()
  })
})

describe('jitter', () => {
  it('starts each run a part of it later, the same part whoever decides it', async () => {
    const { clock, queue, worker, hours } = scene()
    const late: number[] = []
    await worker(({ scheduledAt }) => void late.push(clock.runtime.now() - scheduledAt!))
    await queue.schedule('k', { every: '1h', name: 'sweep', jitter: '10m' })
    await clock.advance('20h 30m')
    expect(await hours('k')).toHaveLength(10)
    expect(late).toHaveLength(20)
    for (const each of late) expect(each).toBeLessThanOrEqual(601_000)
    expect(new Set(late).size).toBeGreaterThan(15)
    expect(Math.max(...late)).toBeGreaterThan(300_000)
  })

  it('is refused if it is not shorter than the interval', async () => {
    const { queue } = scene()
    for (const jitter of ['1h', 0, 'soon']) {
      const refused = queue.schedule('k', { every: '1h', name: 'sweep', jitter })
      await expect(refused).rejects.toMatchObject({ code: expect.stringMatching(/^INVALID_/) as string })
    }
    expect(await queue.schedules()).toEqual([])
  })
})

describe('syncSchedules', () => {
  const every = (key: string, hours: number): KeyedSchedule<AnyJobs> => ({ key, every: `${hours}h`, name: 'sweep' })

  it('adds, changes and removes the schedules of one owner, and says before what it would do', async () => {
    const { queue } = scene()
    await queue.schedule('mine', { every: '9h', name: 'sweep' })
    await queue.syncSchedules([every('other', 1)], { owner: 'billing' })
    const first = { added: ['a', 'b'], changed: [], removed: [], unchanged: [] }
    expect(await queue.syncSchedules([every('a', 1), every('b', 1)], { dryRun: true })).toEqual(first)
    expect(await queue.schedules()).toHaveLength(2)
    expect(await queue.syncSchedules([every('a', 1), every('b', 1)])).toEqual(first)
    const second = [every('a', 1), every('b', 2), every('c', 3), every('mine', 9)]
    expect(await queue.syncSchedules(second)).toEqual({
      added: ['c'],
      changed: ['b', 'mine'],
      removed: [],
      unchanged: ['a'],
    })
    expect(await queue.syncSchedules([every('c', 3)])).toMatchObject({ removed: ['mine', 'a', 'b'], unchanged: ['c'] })
    expect((await queue.schedules()).map(({ key, owner }) => [key, owner])).toEqual([
      ['other', 'billing'],
      ['c', 'default'],
    ])
  })

  it('is refused whole for a bad set, and changes nothing', async () => {
    const { queue } = scene()
    await queue.syncSchedules([every('theirs', 1)], { owner: 'billing' })
    const refused = (list: unknown, code: string, options: object = {}) =>
      expect(queue.syncSchedules(list as never, options)).rejects.toMatchObject({ code })
    await refused([every('a', 1), every('theirs', 1)], 'SCHEDULE_OWNED')
    await refused([every('a', 1), every('a', 2)], 'INVALID_OPTION')
    await refused([every('a', 1), { ...every('b', 1), end: START - 1 }], 'INVALID_SCHEDULE')
    await refused([every('a', 1), { key: 'b', every: '1h', cron: '* * * * *', name: 'x' }], 'INVALID_SCHEDULE')
    await refused('all', 'INVALID_OPTION')
    await refused([7], 'INVALID_OPTION')
    await refused(
      Array.from({ length: 1001 }, (_, n) => every(`k${n}`, 1)),
      'INVALID_OPTION',
    )
    await refused([every('a', 1)], 'UNKNOWN_OPTION', { own: 'me' })
    await refused([every('a', 1)], 'INVALID_NAME', { owner: '' })
    expect((await queue.schedules()).map(({ key }) => key)).toEqual(['theirs'])
  })

  it('reconciles more than one commit holds', async () => {
    const { queue } = scene()
    const set = Array.from({ length: 900 }, (_, n) => every(`k${n}`, 1))
    expect((await queue.syncSchedules(set)).added).toHaveLength(900)
    expect((await queue.syncSchedules(set)).unchanged).toHaveLength(900)
    expect((await queue.syncSchedules([])).removed).toHaveLength(900)
    expect(await queue.schedules()).toEqual([])
  })
})

describe.each(kinds)('on %s', (kind) => {
  test('runs queue up, are backfilled, triggered, paused and retried', async () => {
    const store = await make(kind)
    const queue = closing(new Queue('rounds', { store, logger: false }))
    const end = gate()
    const overlap = event(queue, 'schedule-missed', ({ why }) => why === 'overlap')
    const paused = event(queue, 'schedule-missed', ({ why }) => why === 'paused')
    const failed = event(queue, 'failed')
    const again = event(queue, 'completed')
    const runs: number[] = []
    const work = (): Promise<void> => (runs.push(1) === 1 ? Promise.reject(new Error('no')) : end.promise)
    closing(new Worker(queue, work, { logger: false, concurrency: 4 }))
    await queue.schedule('k', { every: '30ms', name: 'run', options: { attempts: 1 } })
    const { id } = await failed
    while (runs.length < 2) await nextTurn()
    const next = (await queue.schedule('k').runs()).find((each) => each.id !== id)!
    expect(await queue.retry(id)).toBe(true) // while the next one holds the key
    while (runs.length < 3) await nextTurn()
    expect(await overlap).toMatchObject({ key: 'k', name: 'run', why: 'overlap', queue: 'rounds' })
    const handle = queue.schedule('k')
    expect(await handle.pause()).toBe(true)
    await paused
    const waits = await handle.trigger({ overlap: 'queue' })
    expect((await queue.get(waits))!.state).toBe('waiting-children')
    const now = next.scheduledAt!
    const range = { from: now - 3000, to: now - 30 }
    const { added, existing } = await handle.backfill(range)
    expect(added + existing).toBe(100)
    expect(await handle.backfill(range)).toEqual({ added: 0, existing: 100 })
    end.open()
    await again
    while ((await queue.counts()).completed < (await handle.get())!.count + 1 + added) await nextTurn()
    expect((await handle.runs({ limit: 100 })).length).toBe(100)
    expect(await handle.remove()).toBe(true)
  })

  test('a time that has come is backfilled or run by the schedule, never both, though its run is not kept', async () => {
    const store = await make(kind)
    const queue = closing(new Queue('rounds', { store, logger: false }))
    const options = { removeOnComplete: true }
    await queue.schedule('k', { every: '25ms', name: 'run', overlap: 'allow', catchUp: 'all', options })
    const { createdAt } = (await queue.schedule('k').get())!
    const seen: number[] = []
    // What it makes or a backfill adds ends, and is removed, before a worker looks at the schedule.
    while (seen.length < 6) {
      const from = Math.max(createdAt, ...seen.map((time) => time + 1))
      while (Date.now() < from + 2) await nextTurn() // a range that begins in the future is refused
      await queue.schedule('k').backfill({ from })
      for (const claimed of await queue.claim({ max: 100 })) {
        seen.push(claimed.job.scheduledAt!)
        await claimed.complete()
      }
    }
    const before = seen.length
    const enough = new Promise<void>((done) => {
      const run: Handler = ({ scheduledAt }) => {
        if (seen.push(scheduledAt!) === before + 3) done()
      }
      closing(new Worker(queue, run, { logger: false }))
    })
    await enough
    expect(new Set(seen).size).toBe(seen.length)
    const first = Math.min(...seen)
    expect(seen.toSorted((a, b) => a - b)).toEqual(seen.map((_, at) => first + 25 * at))
  })

  test('a backfill fills a queue up to its backlog, and adds the others when it is repeated', async () => {
    const queue = closing(new Queue('rounds', { store: await make(kind), logger: false }))
    await queue.schedule('k', { every: '1h', name: 'run', overlap: 'allow' })
    await queue.limit({ maxBacklog: 5 })
    const end = (await queue.schedule('k').get())!.createdAt - 3_600_000
    const range = { from: end - 20 * 3_600_000, to: end - 1 }
    const full = { code: 'QUEUE_FULL', details: { added: 5 } }
    await expect(queue.schedule('k').backfill(range)).rejects.toMatchObject(full)
    expect((await queue.counts()).waiting).toBe(5)
    await queue.limit({ maxBacklog: null })
    expect(await queue.schedule('k').backfill(range)).toEqual({ added: 15, existing: 5 })
  })

  test('backfills at the same moment, and while the schedule runs, add each time once', async () => {
    const store = await make(kind)
    const [one, two] = [0, 1].map(() => closing(new Queue('rounds', { store, logger: false })))
    await one!.schedule('k', { every: '20ms', name: 'run', overlap: 'queue', catchUp: 'all' })
    closing(new Worker(one!, () => {}, { logger: false }))
    const { createdAt } = (await one!.schedule('k').get())!
    const end = createdAt - 60_000 // long before the times of its own runs
    const range = { from: end - 20 * 150, to: end - 1 }
    const results = await Promise.all([one!, two!, one!].map((queue) => queue.schedule('k').backfill(range)))
    expect(results.map(({ added, existing }) => added + existing)).toEqual([150, 150, 150])
    expect(results.reduce((sum, { added }) => sum + added, 0)).toBe(150)
  })

  test('of triggers at the same moment, one runs and one waits, as overlap says; the others are refused', async () => {
    const store = await make(kind)
    const [one, two] = [0, 1].map(() => closing(new Queue('rounds', { store, logger: false })))
    await one!.schedule('k', { every: '1h', name: 'run', overlap: 'queue' })
    const trigger = (overlap?: 'queue' | 'cancel' | 'skip') =>
      Promise.allSettled([one!, two!, one!, two!].map((queue) => queue.schedule('k').trigger({ overlap })))
    const refused = (results: readonly PromiseSettledResult<string>[]) =>
      results.flatMap((result) => (result.status === 'rejected' ? [(result.reason as { code: unknown }).code] : []))
    const states = async () => (await one!.schedule('k').runs()).map(({ state }) => state).toSorted()

    expect(refused(await trigger())).toEqual(['SCHEDULE_OVERLAP', 'SCHEDULE_OVERLAP'])
    expect(await states()).toEqual(['waiting', 'waiting-children'])
    expect(refused(await trigger('skip'))).toEqual(Array(4).fill('SCHEDULE_OVERLAP'))
    expect(refused(await trigger('cancel'))).toEqual([])
    expect(await states()).toEqual([...Array<string>(5).fill('cancelled'), 'waiting'])
    await one!.cancel({ schedule: 'k' })
    expect(refused(await trigger('skip'))).toEqual(Array(3).fill('SCHEDULE_OVERLAP'))
  })

  test('a page of schedules lists the last runs of each, past the jobs that continue them', async () => {
    const queue = closing(new Queue('rounds', { store: await make(kind), logger: false }))
    for (const key of ['a', 'b']) await queue.schedule(key, { every: '1h', name: 'run', overlap: 'allow' })
    const runs: string[] = []
    for (let n = 0; n < 12; n++) runs.unshift(await queue.schedule('a').trigger())
    // Each of them is continued by three jobs, which have the schedule as parent too.
    let completed = 0
    const ended = new Promise((done) => void queue.on('completed', () => ++completed === 48 && done(1)))
    const step = (_: unknown, ctx: JobContext) => ctx.complete(({ continueWith }) => continueWith('next', 1))
    const next = ({ data }: { data: unknown }, ctx: JobContext) =>
      data === 3 ? undefined : ctx.complete(({ continueWith }) => continueWith('next', (data as number) + 1))
    closing(new Worker(queue, { run: step, next }, { logger: false, concurrency: 8 }))
    await ended
    const { schedules } = await queue.schedules({ limit: 10, runs: 10 })
    expect(schedules.map(({ key, runs: own }) => [key, own!.map(({ id }) => id)])).toEqual([
      ['a', runs.slice(0, 10)],
      ['b', []],
    ])
    expect((await queue.schedules({ limit: 1, runs: 2 })).schedules[0]!.runs).toHaveLength(2)
    expect((await queue.schedules({ limit: 1 })).schedules[0]).not.toHaveProperty('runs')
    for (const wrong of [{ runs: 10 }, { limit: 5, runs: 11 }, { limit: 5, runs: 0 }]) {
      await expect(queue.schedules(wrong as { limit: number })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    }
  })

  test('runs with much data are all seen by overlap', async () => {
    const queue = closing(new Queue('rounds', { store: await make(kind), logger: false }))
    const data = 'x'.repeat(900_000)
    await queue.schedule('k', { every: '1h', name: 'run', overlap: 'allow', data })
    for (let n = 0; n < 12; n++) await queue.schedule('k').trigger()
    await queue.schedule('k').trigger({ overlap: 'cancel' })
    expect(await queue.count({ state: 'waiting' })).toMatchObject({ count: 1 })
  })

  test('a set is reconciled in one transaction or not at all', async () => {
    const queue = closing(new Queue('rounds', { store: await make(kind), logger: false }))
    const set = ['a', 'b'].map((key) => ({ key, every: '1h', name: 'run' }) as const)
    expect(await queue.syncSchedules(set)).toMatchObject({ added: ['a', 'b'] })
    expect(await queue.syncSchedules(set.slice(1))).toMatchObject({ removed: ['a'], unchanged: ['b'] })
    expect((await queue.schedules()).map(({ key }) => key)).toEqual(['b'])
  })
})

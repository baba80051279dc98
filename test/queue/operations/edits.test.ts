// Edits: jobs sent back by their own handlers, logs by page, errors by attempt, and retries of many.
import { describe, expect, test } from 'vitest'
import { Queue, UnrecoverableError, Worker } from 'millrace'
import type { AnyJobs, Handlers, Store } from 'millrace'
import { memory } from 'millrace/memory'
import { virtualClock } from 'millrace/testing'
import { kinds, stores } from '../../stores.js'
import { observed } from '../../observed-store.js'
import { addActive, closing, event, gate, newQueue, newWorker } from '../../setup.js'

const make = stores()
const HOUR = 60 * 60 * 1000

function stage(store: Store, handlers: Handlers<AnyJobs>) {
  const queue = closing(new Queue('work', { store, logger: false, defaults: { attempts: 3, backoff: 1 } }))
  const worker = closing(new Worker(queue, handlers, { concurrency: 1, logger: false }))
  return { queue, worker }
}

class Coded extends Error {
  readonly code = 'E_TEAPOT'
}

describe.each(kinds)('on %s', (kind) => {
  test('a job that its own handler moves back to delayed is not completed by returning', async () => {
    const runs: [data: unknown, attempt: number][] = []
    const { queue } = stage(await make(kind), {
      work: async (job) => {
        runs.push([job.data, job.attempt])
        if (job.data === 'first') {
          expect(await job.update({ delay: '1 hour', data: 'second' })).toBe(true)
          expect(job.state).toBe('active')
          return 'ignored'
        }
        if (job.data === 'second') {
          await job.update({ data: 'third' })
          await job.update({ runAt: new Date(0) })
          return 'ignored as well'
        }
        return 'done'
      },
    })
    const delayed = event(queue, 'delayed')
    const added = await queue.add('work', 'first', { attempts: 1 })
    await delayed
    await added.refresh()
    expect([added.state, added.attempt, added.returned]).toEqual(['delayed', 0, undefined])
    expect(added.runAt! - added.createdAt).toBeGreaterThanOrEqual(HOUR)
    await added.promote()
    expect(await added.result()).toBe('done')
    expect(runs).toEqual([
      ['first', 1],
      ['second', 1],
      ['third', 1],
    ])
  })

  test('logs are read by page, and capped by the last thousand lines', async () => {
    const { queue } = stage(await make(kind), {
      work: async (_job, ctx) => {
        for (let n = 1; n <= 1020; n++) void ctx.log(`line ${n}`)
        await ctx.log('the last')
      },
    })
    const added = await queue.add('work')
    await added.result()
    const first = await added.logs({ limit: 2 })
    expect(first.map(({ index, line, attempt }) => [index, line, attempt])).toEqual([
      [22, 'line 22', 1],
      [23, 'line 23', 1],
    ])
    expect(await added.logs()).toHaveLength(1000)
    let [after, lines] = [0, 0]
    for (;;) {
      const page = await added.logs({ after, limit: 300 })
      if (page.length === 0) break
      lines += page.length
      after = page.at(-1)!.index
    }
    expect([lines, after]).toEqual([1000, 1021])
    expect((await added.logs({ after: 1020 })).map(({ line }) => line)).toEqual(['the last'])
  })

  test('errors are kept by attempt, with their stacks and codes', async () => {
    const { queue } = stage(await make(kind), {
      work: async (job) => {
        if (job.attempt === 2) throw new RangeError('two')
        throw new Coded(`of ${job.attempt}`)
      },
    })
    const failed = event(queue, 'failed')
    const added = await queue.add('work')
    await failed
    await added.refresh()
    const reported = added.errors.map(({ attempt, name, message, code }) => [attempt, name, message, code])
    expect(reported).toEqual([
      [1, 'Error', 'of 1', 'E_TEAPOT'],
      [2, 'RangeError', 'two', undefined],
      [3, 'Error', 'of 3', 'E_TEAPOT'],
    ])
    for (const { stack, at, fence } of added.errors) {
      expect(stack).toContain('edits.test.ts')
      expect(at).toBeGreaterThanOrEqual(added.createdAt)
      expect(fence).toBeGreaterThan(0)
    }
    expect(new Set(added.errors.map(({ fence }) => fence)).size).toBe(3)
    expect(added.error).toMatchObject({ message: 'of 3', code: 'E_TEAPOT' })
  })

  test('a dry run counts what would be started over, and changes nothing', async () => {
    const { queue, worker } = stage(await make(kind), {
      bad: () => {
        throw new UnrecoverableError('bad')
      },
      good: () => 1,
    })
    const failed = event(queue, 'failed', ({ id }) => id === 'b3')
    const names = ['bad', 'good', 'bad', 'bad']
    await queue.addBulk(names.map((name, n) => ({ name, options: { id: `b${n}` } })))
    await failed
    await worker.close()
    expect(await queue.retry({ all: true }, { dryRun: true })).toBe(3)
    expect(await queue.retry({ name: 'good' }, { dryRun: true })).toBe(0)
    expect(await queue.counts()).toMatchObject({ failed: 3, waiting: 0, delayed: 0 })
    expect(await queue.retry({ name: 'bad' }, { rate: 1 / 3600 })).toBe(3)
    expect(await queue.counts()).toMatchObject({ failed: 0, waiting: 1, delayed: 2 })
    const { jobs } = await queue.list({ state: 'delayed' })
    const [one, two] = jobs.map(({ runAt }) => runAt!)
    expect(two! - one!).toBeGreaterThan(0.9 * HOUR)
    expect(two! - one!).toBeLessThan(1.1 * HOUR)
  })
})

test('many jobs are started over so many a second, the first at once', async () => {
  const clock = virtualClock()
  const store = closing(memory({ runtime: clock.runtime }))
  const queue = closing(new Queue('work', { store, logger: false }))
  await queue.addBulk(Array.from({ length: 1200 }, () => ({ name: 'work' })))
  await queue.cancel({ all: true })
  const started: number[] = []
  const begin = clock.runtime.now()
  expect(await queue.retry({ all: true }, { rate: 100 })).toBe(1200)
  closing(new Worker(queue, () => void started.push(clock.runtime.now() - begin), { logger: false, concurrency: 50 }))
  for (const seconds of [1, 5, 11]) {
    await clock.advance(1000 * seconds - (clock.runtime.now() - begin))
    const due = 100 * seconds
    expect(started.length).toBeGreaterThan(due - 20)
    expect(started.length).toBeLessThanOrEqual(due + 1)
  }
  await clock.advance('2s')
  expect(started).toHaveLength(1200)
})

test('a retry by rate of a job that waits for others runs when they have ended and its time has come', async () => {
  const clock = virtualClock()
  const store = closing(memory({ runtime: clock.runtime }))
  const { queue } = stage(store, { work: () => 'done' })
  await queue.pause()
  const first = await queue.add('work', undefined, { id: 'first' })
  await queue.add('work', undefined, { id: 'other' })
  const last = await queue.add('work', undefined, { id: 'last', after: ['first'] })
  await queue.cancel({ state: ['waiting-children', 'waiting'] })
  expect(await queue.retry({ all: true }, { rate: 0.1 })).toBe(3)
  expect((await first.refresh()).state).toBe('waiting')
  await queue.resume()
  await clock.advance(15_000)
  expect([(await first.refresh()).state, (await last.refresh()).state]).toEqual(['completed', 'delayed'])
  await clock.advance(6_000)
  expect((await last.refresh()).state).toBe('completed')
})

test('a job that its handler moves back, and that fails then, fails by the rules', async () => {
  const { queue } = stage(await make('memory'), {
    work: async (job) => {
      await job.update({ delay: '1 hour' })
      throw new Error(`attempt ${job.attempt}`)
    },
  })
  const failed = event(queue, 'failed')
  const added = await queue.add('work')
  await failed
  expect((await added.refresh()).errors).toHaveLength(3)
})

describe.each(kinds)('on %s', (kind) => {
  test('a job that is moved back is not completed: whichever of the two comes second is refused', async () => {
    const queue = newQueue({ store: await make(kind) })
    const reported: unknown[] = []
    const refused = async (work: () => Promise<unknown>): Promise<void> => {
      reported.push(
        await (async () => work())().then(
          () => 'taken',
          (error: { code?: string }) => error.code,
        ),
      )
    }
    newWorker(queue, async (job, ctx) => {
      if (job.data === 'first back' && reported.length === 0) {
        await job.update({ delay: 1 })
        await refused(() => ctx.complete(async () => {}))
      }
      if (job.data === 'first done') {
        await ctx.complete(async () => {})
        await refused(() => job.update({ delay: 1 }))
      }
      return job.data
    })
    for (const data of ['first back', 'first done']) expect(await (await queue.add('n', data)).result()).toBe(data)
    expect(reported).toEqual(['CALLED_OUT_OF_ORDER', 'CALLED_OUT_OF_ORDER'])
  })
})

test('only the handler of a running job can move it back', async () => {
  const go = gate()
  const { queue } = stage(await make('memory'), { work: () => go.promise })
  const added = await addActive(queue, 'work')
  await expect(added.update({ delay: 1000 })).rejects.toMatchObject({ code: 'INVALID_STATE' })
  await expect(queue.update(added.id, { runAt: 0 })).rejects.toMatchObject({ code: 'INVALID_STATE' })
  go.open()
  await added.result()
})

test('jobs of a batch are moved back one by one', async () => {
  const { queue } = stage(await make('memory'), {
    work: {
      runBatch: (jobs, ctx) =>
        ctx.each(async (job) => {
          if (job.data === 'later' && jobs.length > 1) await job.update({ delay: 1 })
          return `${String(job.data)} of ${jobs.length}`
        }),
      batch: { size: 2, wait: 50 },
    },
  })
  const added = await queue.addBulk(['now', 'later'].map((data) => ({ name: 'work', data })))
  expect(await Promise.all(added.map((job) => job.result()))).toEqual(['now of 2', 'later of 1'])
})

test('what cannot be asked for is refused', async () => {
  const { queue } = stage(await make('memory'), {
    work: async (job) => {
      const wrong = [{ delay: 1, runAt: 1 }, { delay: 'soon' }, { delay: 1, dely: 1 }, { delay: 1, priority: 1 }]
      const codes = wrong.map((each) => job.update(each as never).catch(({ code }: { code: string }) => code))
      return Promise.all(codes)
    },
  })
  const added = await queue.add('work')
  const codes = ['INVALID_OPTION', 'INVALID_DURATION', 'UNKNOWN_OPTION', 'INVALID_STATE']
  expect(await added.result()).toEqual(codes) // and none of them moved it back
  for (const options of [{ limit: 0 }, { limit: 1001 }, { after: -1 }, { after: 'x' as never }]) {
    await expect(added.logs(options)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  }
  await expect(added.logs({ from: 1 } as never)).rejects.toMatchObject({ code: 'UNKNOWN_OPTION' })
  for (const options of [{ rate: 0 }, { rate: Number.NaN }, { dryRun: 1 as never }]) {
    await expect(queue.retry({ all: true }, options)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  }
  await expect(queue.retry({ all: true }, { rat: 1 } as never)).rejects.toMatchObject({ code: 'UNKNOWN_OPTION' })
  await expect(queue.retry(added.id, { rate: 1 } as never)).rejects.toMatchObject({ code: 'UNKNOWN_OPTION' })
})

test('a page of a log is cut by bytes, and all of it is not', async () => {
  const of = closing(memory())
  const store: Store = { ...observed(of, () => {}), details: (query, tx) => of.details({ ...query, bytes: 5_000 }, tx) }
  const queue = closing(new Queue('work', { store, logger: false }))
  const lines = Array.from({ length: 20 }, (_, n) => `${n}:`.padEnd(1_000, 'x'))
  closing(new Worker(queue, async (_job, ctx) => void (await Promise.all(lines.map((line) => ctx.log(line))))))
  const job = await queue.add('work')
  await job.result()
  const sizes: number[] = []
  const seen: string[] = []
  for (let after = 0; ;) {
    const page = await job.logs({ after, limit: 12 })
    if (page.length === 0) break
    sizes.push(page.length)
    seen.push(...page.map(({ line }) => line))
    after = page.at(-1)!.index
  }
  expect(seen).toEqual(lines)
  expect(Math.max(...sizes)).toBeLessThanOrEqual(5)
  expect((await job.logs()).map(({ line }) => line)).toEqual(lines)
})

// A queue for tests: a real one, whose jobs run when the test runs them.
import { readFile } from 'node:fs/promises'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { FlowProducer, UnrecoverableError, middleware, phases } from 'millrace'
import type { Job, JobContext, Queue } from 'millrace'
import { testQueue } from 'millrace/testing'
import type { TestQueue } from 'millrace/testing'
import { jobs } from './jobs.js'

const open: { close(): Promise<void> }[] = []

function opened<Q extends { close(): Promise<void> }>(queue: Q): Q {
  open.push(queue)
  return queue
}

afterEach(async () => {
  for (const queue of open.splice(0).toReversed()) await queue.close()
})

const START = 1_700_000_000_000

/** As production code takes it. */
async function signUp(queue: Queue<typeof jobs>, to: string): Promise<void> {
  await queue.add('send-email', { to, tags: ['welcome'] }, { delay: '1h', group: 'tenant-7' })
}

describe('added', () => {
  it('lists the jobs that code under test has added, oldest first', async () => {
    const queue = opened(testQueue(jobs))
    await signUp(queue, 'ann@example.com')
    await queue.add('sweep')
    expect(queue.added().map(({ name }) => name)).toEqual(['send-email', 'sweep'])
    expect(queue.added('send-email')).toMatchObject([
      { data: { to: 'ann@example.com' }, delay: 3_600_000, runAt: START + 3_600_000, group: 'tenant-7', attempts: 3 },
    ])
  })

  it('matches a part of the data', async () => {
    const queue = opened(testQueue(jobs))
    await queue.add('send-email', { to: 'ann', tags: ['a', 'b'], from: { name: 'Bob' } })
    await queue.add('send-email', { to: 'eve' })
    const found = (
      ...args: Parameters<typeof queue.added<'send-email'>> extends [unknown, ...infer Rest] ? Rest : never
    ) => queue.added('send-email', ...args).length
    expect(found()).toBe(2)
    expect(found({ to: 'ann' })).toBe(1)
    expect(found({ from: { name: 'Bob' } })).toBe(1)
    expect(found({ tags: ['a', 'b'] })).toBe(1)
    expect(found({ tags: ['a'] })).toBe(0)
    expect(found({ to: 'nobody' })).toBe(0)
    expect(found({ to: expect.stringMatching(/^a/) as string })).toBe(1)
    expect(found((data) => data.tags === undefined)).toBe(1)
    expect(found({ to: (to) => to.length === 3 })).toBe(2)
  })

  it('matches options as they are written for add', async () => {
    const queue = opened(testQueue(jobs))
    const at = new Date(START + 60_000)
    await queue.add('sweep', undefined, { id: 'one', priority: 5, timeout: '30s', dedup: { key: 'nightly' } })
    await queue.add('sweep', undefined, { runAt: at, attempts: 7 })
    const ids = (options: Parameters<typeof queue.added>[2]) => queue.added('sweep', undefined, options).length
    expect(ids({ id: 'one', priority: 5, timeout: '30s', dedup: { key: 'nightly' }, delay: 0 })).toBe(1)
    expect(ids({ runAt: at, attempts: 7, delay: '1m' })).toBe(1)
    expect(ids({ priority: 6 })).toBe(0)
  })

  it('matches tags and expiry', async () => {
    const queue = opened(testQueue(jobs))
    const at = new Date(START + 60_000)
    await queue.add('sweep', undefined, { tags: ['user:7', 'import'], expires: '1m' })
    await queue.add('sweep', undefined, { tags: ['user:8', 'import'] })
    await queue.add('sweep')
    const ids = (options: Parameters<typeof queue.added>[2]) => queue.added('sweep', undefined, options).length
    expect(ids({ tags: ['import'] })).toBe(2)
    expect(ids({ tags: ['import', 'user:7'] })).toBe(1)
    expect(ids({ tags: ['user:7', 'user:8'] })).toBe(0)
    expect(ids({ tags: [] })).toBe(3)
    expect(ids({ expires: '1m' })).toBe(1)
    expect(ids({ expires: at })).toBe(1)
    expect(ids({ expires: '2m' })).toBe(0)
    expect(queue.added('sweep')).toMatchObject([
      { tags: ['user:7', 'import'], expiresAt: START + 60_000 },
      { tags: ['user:8', 'import'], expiresAt: undefined },
      { tags: [] },
    ])
    expect(() => ids({ tags: ['a', 'a'] })).toThrow(expect.objectContaining({ code: 'INVALID_TAGS' }) as Error)
    expect(() => ids({ expires: 'soon' as never })).toThrow(
      expect.objectContaining({ code: 'INVALID_DURATION' }) as Error,
    )
  })

  it('leaves out duplicates, and keeps jobs that have been removed', async () => {
    const queue = opened(testQueue(jobs, { handlers: { sweep: () => 1 } }))
    await queue.add('sweep', undefined, { id: 'one', removeOnComplete: true })
    await queue.add('sweep', undefined, { id: 'one' })
    await queue.drain()
    expect(await queue.get('one')).toBeUndefined()
    expect(queue.added('sweep')).toHaveLength(1)
  })

  it('includes jobs that handlers, flows and schedules add', async () => {
    const queue = opened(
      testQueue(jobs, {
        handlers: { sweep: async (_job, ctx) => (await ctx.add('send-email', { to: 'child' }), 1) },
      }),
    )
    const parent = await queue.add('sweep')
    await queue.schedule('hourly', { every: '1h', name: 'resize', data: { width: 1 } })
    await new FlowProducer({ store: queue.store, jobs }).add({
      name: 'publish',
      queueName: queue.name,
      data: { text: '' },
    })
    await queue.drain({ advance: '61m' })
    expect(queue.added('send-email', { to: 'child' }, { parentId: parent.id })).toHaveLength(1)
    expect(queue.added('resize').length).toBeGreaterThan(0)
    expect(queue.added('publish')).toHaveLength(1)
  })

  it('refuses names and options that do not exist', () => {
    const queue = opened(testQueue(jobs))
    // @ts-expect-error -- not declared
    expect(() => queue.added('send-mail')).toThrow("did you mean 'send-email'?")
    // @ts-expect-error -- not an option
    expect(() => queue.added('sweep', undefined, { prio: 1 })).toThrow("unknown option 'prio'")
  })
})

describe('drain', () => {
  it('runs what waits, and what that adds, and counts the outcomes', async () => {
    const queue = opened(
      testQueue(jobs, {
        handlers: {
          'send-email': (job) => {
            if (job.data.to === 'bad') throw new UnrecoverableError('no such address')
            if (job.data.to === 'busy') throw new Error('try again')
            return { messageId: job.data.to }
          },
          sweep: async (_job, ctx) => {
            await ctx.add('send-email', { to: 'child' })
            return 1
          },
        },
      }),
    )
    for (const to of ['good', 'bad', 'busy']) await queue.add('send-email', { to })
    await queue.add('sweep')
    const drained = await queue.drain()
    expect(drained).toMatchObject({ completed: 3, failed: 1, retrying: 1, delayed: 0, cancelled: 0 })
    expect(drained.runs.map(({ name, outcome }) => `${name} ${outcome}`)).toEqual([
      'send-email completed',
      'send-email failed',
      'send-email retrying',
      'sweep completed',
      'send-email completed',
    ])
    const [good, bad, busy] = drained.runs
    expect(good).toMatchObject({ result: { messageId: 'good' }, attempt: 1 })
    expect(bad).toMatchObject({ error: { message: 'no such address' } })
    expect(busy!.job.state).toBe('delayed')
    expect(queue.clock.runtime.now()).toBe(START)
    expect(await queue.drain()).toMatchObject({ completed: 0, runs: [] })
  })

  it('takes handlers of its own', async () => {
    const queue = opened(testQueue(jobs))
    await queue.add('sweep')
    expect(await queue.drain({ handlers: { sweep: () => 42 } })).toMatchObject({ runs: [{ result: 42 }] })
    await expect(queue.drain()).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })

  it('leaves what is delayed, paused or without a handler', async () => {
    const queue = opened(testQueue(jobs, { handlers: { sweep: () => 1, publish: () => ({ url: '' }) } }))
    await queue.add('sweep', undefined, { delay: '1s' })
    await queue.add('resize', { width: 1 })
    await queue.pause('publish')
    await queue.add('publish', { text: '' })
    expect(await queue.drain({ advance: '0s' })).toMatchObject({ completed: 0 })
    expect(await queue.counts()).toMatchObject({ delayed: 1, waiting: 2 })
  })

  it('advances the clock over delays and backoffs, and stops at the last of them', async () => {
    const times: number[] = []
    const queue = opened(
      testQueue(jobs, {
        handlers: {
          'send-email': (job) => {
            times.push(queue.clock.runtime.now() - START)
            if (job.attempt < 3) throw new Error('busy')
            return { messageId: '' }
          },
        },
      }),
    )
    await queue.add('send-email', { to: 'a' }, { delay: '1h', backoff: '10m' })
    const drained = await queue.drain({ advance: true })
    expect(drained).toMatchObject({ retrying: 2, completed: 1 })
    expect(times).toEqual([3_600_000, 4_200_000, 4_800_000])
    expect(queue.clock.runtime.now()).toBe(START + 4_800_000)
  })

  it('advances no further than it may', async () => {
    const queue = opened(testQueue(jobs, { handlers: { sweep: () => 1 } }))
    for (const delay of ['10m', '50m', '2h'] as const) await queue.add('sweep', undefined, { delay })
    expect(await queue.drain({ advance: '1h' })).toMatchObject({ completed: 2 })
    expect(queue.clock.runtime.now()).toBe(START + 3_000_000)
  })

  it('runs schedules for as long as it may advance, and not at all if that is without end', async () => {
    const queue = opened(testQueue(jobs, { handlers: { sweep: () => 1 } }))
    await queue.schedule('daily', { cron: '0 4 * * *', name: 'sweep' })
    expect(await queue.drain({ advance: true })).toMatchObject({ completed: 0 })
    expect(await queue.drain({ advance: '7d' })).toMatchObject({ completed: 7 })
  })

  it('goes on over sleeps, children, signals and rate limits', async () => {
    const queue = opened(
      testQueue(undefined, {
        handlers: {
          sleeper: async (_job: Job, ctx: JobContext) => {
            await ctx.sleep('nap', '1h')
            return ctx.waitForSignal('go', { timeout: '1h' }).catch((error: { code: string }) => error.code)
          },
          parent: async (_job: Job, ctx: JobContext) => {
            const done = await ctx.dependencies()
            if (done.length === 0) ctx.waitFor(await ctx.add('child'))
            return done.length
          },
          child: () => 'child',
          limited: () => 'limited',
        },
      }),
    )
    await queue.limit({ names: { limited: { rate: { max: 1, per: '1m' } } } })
    for (const name of ['sleeper', 'parent', 'limited', 'limited', 'limited']) await queue.add(name)
    const { runs } = await queue.drain({ advance: true })
    const results = runs.flatMap((run) => (run.outcome === 'completed' ? [run.result] : []))
    expect(results.map(String).toSorted()).toEqual(['1', 'SIGNAL_TIMEOUT', 'child', 'limited', 'limited', 'limited'])
  })

  it('runs what is held when its hold ends, and not before', async () => {
    const times: [string, number][] = []
    const queue = opened(
      testQueue(undefined, {
        handlers: {
          call: (job: Job, ctx: JobContext) => {
            times.push([job.id, queue.clock.runtime.now() - START])
            if (times.length === 1) ctx.hold('1m', { of: 'group' })
          },
          other: (job: Job) => void times.push([job.id, queue.clock.runtime.now() - START]),
        },
      }),
    )
    for (const id of ['a', 'b']) await queue.add('call', undefined, { id, group: 'tenant-7' })
    await queue.add('other', undefined, { id: 'c' })
    await queue.hold('10m', { name: 'other' })
    await queue.hold('5m', { group: 'paused' })
    await queue.pause('paused')
    await queue.add('paused', undefined, { id: 'd', group: 'paused' })
    await queue.drain()
    expect(times).toEqual([['a', 0]])
    await queue.drain({ advance: true })
    expect(times.slice(1)).toEqual([
      ['a', 60_000],
      ['b', 60_000],
      ['c', 600_000],
    ])
    expect(queue.clock.runtime.now()).toBe(START + 600_000)
  })

  it('cancels a job that expires before it can start', async () => {
    const queue = opened(testQueue(jobs, { handlers: { sweep: () => 1 } }))
    await queue.hold('1h', { name: 'sweep' })
    const expired = await queue.add('sweep', undefined, { expires: '10m' })
    const kept = await queue.add('sweep', undefined, { expires: '2h' })
    expect(await queue.drain({ advance: true })).toMatchObject({ completed: 1, cancelled: 0 })
    expect(await expired.refresh()).toMatchObject({ state: 'cancelled', error: { code: 'JOB_EXPIRED' } })
    expect((await kept.refresh()).state).toBe('completed')
    await queue.pause()
    const paused = await queue.add('sweep', undefined, { expires: '10m' })
    await queue.drain({ advance: '10m' })
    expect((await paused.refresh()).state).toBe('cancelled')
  })

  it('ends with an error where jobs add one another for ever', async () => {
    const queue = opened(testQueue(jobs, { handlers: { sweep: async (_job, ctx) => (await ctx.add('sweep'), 1) } }))
    await queue.add('sweep')
    await expect(queue.drain({ maxRuns: 100 })).rejects.toMatchObject({ code: 'TEST_ENDLESS' })
    const delayed = opened(
      testQueue(jobs, {
        handlers: { sweep: async (_job, ctx) => (await ctx.add('sweep', undefined, { delay: '1d' }), 1) },
      }),
    )
    await delayed.add('sweep')
    await expect(delayed.drain({ advance: true, maxRuns: 100 })).rejects.toMatchObject({ code: 'TEST_ENDLESS' })
  })

  it('waits for handlers that do real work, and time stands still meanwhile', async () => {
    const queue = opened(
      testQueue(jobs, {
        handlers: {
          sweep: {
            timeout: '1s',
            run: async () => {
              await readFile(import.meta.filename)
              return 1
            },
          },
        },
      }),
    )
    await queue.add('sweep')
    expect(await queue.drain({ advance: true })).toMatchObject({ completed: 1 })
    expect(queue.clock.runtime.now()).toBe(START)
  })

  it('runs phases, batches and middleware as a worker does', async () => {
    const seen: unknown[] = []
    const queue = opened(
      testQueue(jobs, {
        worker: { middleware: [middleware<{ account: string }>((_job, _ctx, next) => next({ account: 'a1' }))] },
        handlers: {
          'send-email': {
            batch: { size: 10, wait: '1h' },
            runBatch: (all) => all.map(({ data }) => ({ messageId: `${data.to} of ${all.length}` })),
          },
          publish: phases({ check: () => 1, put: (_job, ctx) => ({ url: String(ctx.phaseResult('check')) }) }),
          sweep: (_job, ctx) => seen.push(ctx.account),
        },
      }),
    )
    await queue.addBulk([
      { name: 'send-email', data: { to: 'a' } },
      { name: 'send-email', data: { to: 'b' } },
      { name: 'publish', data: { text: '' } },
      { name: 'sweep' },
    ])
    const { runs } = await queue.drain()
    expect(runs.map((run) => (run.outcome === 'completed' ? run.result : run.outcome))).toEqual(
      expect.arrayContaining([{ url: '1' }, 1]),
    )
    expect(runs.filter(({ name }) => name === 'send-email')).toHaveLength(2)
    expect(seen).toEqual(['a1'])
  })

  it('shows a handler that was cancelled meanwhile', async () => {
    const queue: TestQueue<typeof jobs> = opened(
      testQueue(jobs, {
        handlers: { sweep: async (job) => (await queue.cancel(job.id), 1) },
      }),
    )
    await queue.add('sweep')
    expect(await queue.drain()).toMatchObject({ cancelled: 1, runs: [{ job: { state: 'cancelled' } }] })
  })
})

describe('runOne', () => {
  const handlers = {
    sweep: (job: Job) => {
      if (job.attempt === 1) throw new Error('not yet')
      return 7
    },
  }

  it('runs one job through a real worker, and returns a failure as an outcome', async () => {
    const queue = opened(testQueue(jobs, { handlers }))
    const job = await queue.add('sweep', undefined, { attempts: 2, backoff: '1m' })
    const first = await queue.runOne(job)
    expect(first).toMatchObject({
      id: job.id,
      attempt: 1,
      outcome: 'retrying',
      error: { message: 'not yet' },
      runAt: START + 60_000,
      job: { state: 'delayed' },
    })
    const second = await queue.runOne(job.id) // whatever its backoff
    expect(second).toMatchObject({ attempt: 2, outcome: 'completed', result: 7, job: { state: 'completed' } })
    expect(queue.clock.runtime.now()).toBe(START)
  })

  it('runs no other job, and leaves all as they were', async () => {
    const queue = opened(testQueue(jobs, { handlers: { sweep: (job) => job.priority } }))
    await queue.add('sweep', undefined, { priority: -5 })
    const job = await queue.add('sweep', undefined, { priority: 3 })
    await queue.add('sweep', undefined, { priority: 1 })
    const run = await queue.runOne(job)
    expect(run).toMatchObject({ outcome: 'completed', result: 3, job: { priority: 3 } })
    expect((await job.refresh()).priority).toBe(3)
    expect(await queue.counts()).toMatchObject({ waiting: 2, completed: 1 })
    expect((await queue.drain()).runs.map((each) => (each.outcome === 'completed' ? each.result : each))).toEqual([
      -5, 1,
    ])
  })

  it('runs a delayed job now', async () => {
    const queue = opened(testQueue(jobs, { handlers: { sweep: () => 1 } }))
    const job = await queue.add('sweep', undefined, { delay: '1d' })
    expect(await queue.runOne(job)).toMatchObject({ outcome: 'completed' })
  })

  it('validates what the schema validates', async () => {
    const queue = opened(testQueue(jobs, { handlers: { resize: ({ data }) => `${data.width}${data.unit}` } }))
    expect(await queue.runOne(await queue.add('resize', { width: 5 }))).toMatchObject({ result: '5px' })
  })

  it('explains why a job cannot run, and changes nothing', async () => {
    const queue = opened(testQueue(jobs, { handlers: { sweep: () => 1 } }))
    await expect(queue.runOne('nobody')).rejects.toMatchObject({ code: 'JOB_NOT_FOUND' })
    const job = await queue.add('sweep')
    await queue.runOne(job)
    await expect(queue.runOne(job)).rejects.toMatchObject({
      code: 'INVALID_STATE',
      message: expect.stringContaining('completed') as string,
    })
    await queue.pause()
    const paused = await queue.add('sweep')
    await expect(queue.runOne(paused)).rejects.toMatchObject({
      code: 'INVALID_STATE',
      message: expect.stringContaining('paused') as string,
    })
    await queue.resume()
    const other = await queue.add('publish', { text: '' }, { priority: 4 })
    await expect(queue.runOne(other)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    expect(await other.refresh()).toMatchObject({ state: 'waiting', priority: 4 })
  })

  it('lets a test advance the clock while the handler runs', async () => {
    const queue = opened(
      testQueue(jobs, {
        handlers: {
          sweep: {
            timeout: '30s',
            run: (_job, ctx) =>
              new Promise<number>((_resolve, reject) =>
                ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason!)),
              ),
          },
        },
      }),
    )
    const job = await queue.add('sweep', undefined, { attempts: 1 })
    const run = await queue.clock.until(queue.runOne(job))
    expect(run).toMatchObject({ outcome: 'failed', error: { code: 'JOB_TIMEOUT' } })
    expect(queue.clock.runtime.now()).toBe(START + 30_000)
  })
})

describe('inline mode', () => {
  it('runs a job when it is added, and its result is there', async () => {
    const queue = opened(testQueue(jobs, { inline: true, handlers: { sweep: () => 5 } }))
    const job = await queue.add('sweep')
    expect(job).toMatchObject({ state: 'completed', returned: 5 })
    expect(await job.result()).toBe(5)
    expect((await queue.addBulk([{ name: 'sweep' }, { name: 'sweep' }])).map(({ returned }) => returned)).toEqual([
      5, 5,
    ])
  })

  it('shows a failure on the job, and does not throw it at the producer', async () => {
    const queue = opened(
      testQueue(jobs, {
        inline: true,
        handlers: {
          sweep: () => {
            throw new Error('broken')
          },
        },
      }),
    )
    const job = await queue.add('sweep', undefined, { attempts: 1 })
    expect(job).toMatchObject({ state: 'failed', error: { message: 'broken' } })
  })

  it('has run what the job added, too, and runs delayed jobs when the clock is advanced', async () => {
    const ran: string[] = []
    const queue = opened(
      testQueue(jobs, {
        inline: true,
        handlers: {
          draft: async ({ data }, ctx) => {
            ran.push('draft')
            await ctx.complete(async ({ continueWith }) => void (await continueWith('publish', data)))
          },
          publish: async (_job, ctx) => {
            ran.push('publish')
            await ctx.add('sweep', undefined, { delay: '1h' })
            return { url: 'u' }
          },
          sweep: () => ran.push('sweep'),
        },
      }),
    )
    const job = await queue.add('draft', { text: '' })
    expect(ran).toEqual(['draft', 'publish'])
    expect(await queue.chain(job).result()).toEqual({ url: 'u' })
    await queue.clock.advance('1h')
    expect(ran).toEqual(['draft', 'publish', 'sweep'])
  })

  it('runs jobs that handlers add by the queue, side by side and in each other', async () => {
    const queue: TestQueue = opened(
      testQueue(undefined, {
        inline: true,
        handlers: {
          outer: async () => {
            const inner = await Promise.all([queue.add('middle', 'a'), queue.add('middle', 'b')])
            return inner.map(({ returned }) => returned)
          },
          middle: async (job: Job) => `${String(job.data)}/${String((await queue.add('leaf', job.data)).returned)}`,
          leaf: (job: Job) => `leaf ${String(job.data)}`,
        },
      }),
    )
    const outer = await queue.add('outer')
    expect(outer.returned).toEqual(['a/leaf a', 'b/leaf b'])
  })

  it('drains and runs single jobs with its own handlers', async () => {
    const queue = opened(testQueue(jobs, { inline: true, handlers: { sweep: () => 5 } }))
    const job = await queue.add('sweep', undefined, { delay: '1h' })
    await queue.add('sweep', undefined, { delay: '2h' })
    expect(await queue.runOne(job)).toMatchObject({ outcome: 'completed', result: 5 })
    expect(await queue.drain({ advance: true })).toMatchObject({ completed: 1 })
    await expect(queue.drain({ handlers: { sweep: () => 1 } })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  })
})

describe('testQueue', () => {
  it('shares a store and a clock with the queue that it is beside', async () => {
    const mails = opened(testQueue(jobs, { name: 'mails', handlers: { 'send-email': () => ({ messageId: '' }) } }))
    const images = opened(
      testQueue(jobs, {
        name: 'images',
        beside: mails,
        handlers: { resize: async () => (await mails.add('send-email', { to: 'a' }), 'done') },
      }),
    )
    await images.add('resize', { width: 1 })
    expect(await images.drain()).toMatchObject({ completed: 1 })
    expect(images.added('send-email')).toHaveLength(0)
    expect(mails.added('send-email')).toHaveLength(1)
    expect(await mails.drain()).toMatchObject({ completed: 1 })
    expect(images.clock).toBe(mails.clock)
  })

  it('is deterministic: equal seeds give equal ids', async () => {
    const ids = await Promise.all(
      [1, 1, 2].map(async (seed) => (await opened(testQueue(jobs, { seed })).add('sweep')).id),
    )
    expect(ids[0]).toBe(ids[1])
    expect(ids[0]).not.toBe(ids[2])
  })

  it('starts at the time that it is given', async () => {
    const queue = opened(testQueue(jobs, { start: new Date('2030-01-01T00:00:00Z') }))
    expect(new Date((await queue.add('sweep')).createdAt).toISOString()).toBe('2030-01-01T00:00:00.000Z')
  })

  it('works under fake timers', async () => {
    vi.useFakeTimers()
    try {
      const queue = opened(testQueue(jobs, { handlers: { sweep: () => 1 } }))
      await queue.add('sweep', undefined, { delay: '1h' })
      expect(await queue.drain({ advance: true })).toMatchObject({ completed: 1 })
    } finally {
      vi.useRealTimers()
    }
  })

  it('closes with await using, and refuses calls after that', async () => {
    let kept: TestQueue<typeof jobs>
    {
      await using queue = testQueue(jobs, { inline: true, handlers: { sweep: () => 1 } })
      await queue.add('sweep')
      kept = queue
    }
    await expect(kept.add('sweep')).rejects.toMatchObject({ code: 'QUEUE_CLOSED' })
  })

  it('refuses options that do not fit', () => {
    const refused = (options: object): unknown => {
      try {
        return testQueue(jobs, options)
      } catch (error) {
        return (error as { code: string }).code
      }
    }
    expect(refused({ handler: {} })).toBe('UNKNOWN_OPTION')
    expect(refused({ series: { keep: 'long' } })).not.toBe('UNKNOWN_OPTION')
    expect(refused({ inline: true })).toBe('INVALID_OPTION')
    expect(refused({ inline: 'yes', handlers: {} })).toBe('INVALID_OPTION')
    expect(refused({ worker: { autorun: true } })).toBe('UNKNOWN_OPTION')
    expect(refused({ start: new Date('never') })).toBe('INVALID_DATE')
    expect(refused({ beside: { store: {} } })).toBe('INVALID_OPTION')
    expect(refused({ beside: opened(testQueue(jobs)), seed: 2 })).toBe('INVALID_OPTION')
  })
})

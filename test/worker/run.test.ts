// Runs of a worker that end: when, with which report, and with nothing left leased.
import { describe, expect, it } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { RunReport, Store, WorkerRunOptions } from 'millrace'
import { memory } from 'millrace/memory'
import { virtualClock } from 'millrace/testing'
import { webhooks } from 'millrace/webhooks'
import { observed } from '../observed-store.js'
import { served, stores } from '../stores.js'
import { closing, event, gate, newQueue, newStore, newWorker } from '../setup.js'
import { receiver } from '../features/webhooks/receiver.js'

const none: Omit<RunReport, 'ended'> = {
  started: 0,
  completed: 0,
  failed: 0,
  retrying: 0,
  snoozed: 0,
  waiting: 0,
  interrupted: 0,
  lost: 0,
}

const bulk = (count: number) => Array.from({ length: count }, (_, at) => ({ name: 'job', data: at }))

describe.each(served)('%s', (kind) => {
  const make = stores()
  const newQueue = async () => closing(new Queue('work', { store: await make(kind), logger: false }))

  it('a run until drained runs everything, what its jobs add included, and reports how that ended', async () => {
    const queue = await newQueue()
    await queue.addBulk([
      { name: 'parent' },
      { name: 'broken', options: { attempts: 1 } },
      { name: 'again', options: { attempts: 2, backoff: '1h' } },
      { name: 'later' },
      ...bulk(20),
    ])
    const worker = newWorker(
      queue,
      {
        job: () => 'done',
        parent: async (_job, ctx): Promise<string> => {
          if ((await ctx.dependencies()).length > 0) return 'after its child'
          return ctx.waitFor(await ctx.add('job', -1))
        },
        broken: () => Promise.reject(new Error('broken')),
        again: () => Promise.reject(new Error('not yet')),
        later: (_job, ctx) => ctx.snooze('1h'),
      },
      { autorun: false, concurrency: 3 },
    )
    const report = await worker.run({ until: 'drained' })
    expect(report).toEqual({
      ...none,
      ended: 'drained',
      started: 26,
      completed: 22,
      failed: 1,
      retrying: 1,
      snoozed: 1,
      waiting: 1,
    })
    expect(await queue.counts()).toMatchObject({ completed: 22, failed: 1, delayed: 2, waiting: 0, active: 0 })
  })

  it('an empty queue is drained at once, and a second run of the same worker finds what was added since', async () => {
    const queue = await newQueue()
    const worker = newWorker(queue, () => 'done', { autorun: false })
    expect(await worker.run({ until: 'drained' })).toEqual({ ...none, ended: 'drained' })
    await queue.addBulk(bulk(3))
    expect(await queue.counts()).toMatchObject({ waiting: 3 })
    expect(await worker.run({ until: 'drained' })).toMatchObject({ ended: 'drained', started: 3, completed: 3 })
  })

  it.each([1, 4])(
    'a run of at most so many jobs starts exactly as many, and leaves none leased: %i at a time',
    async (concurrency) => {
      const queue = await newQueue()
      await queue.addBulk(bulk(60))
      let most = 0
      const worker = newWorker(queue, async () => void (most = Math.max(most, (await queue.counts()).active)), {
        autorun: false,
        concurrency,
      })
      for (const maxJobs of [7, 30]) {
        const report = await worker.run({ maxJobs })
        expect(report).toEqual({ ...none, ended: 'max-jobs', started: maxJobs, completed: maxJobs })
        expect((await queue.counts()).active).toBe(0)
        expect(most).toBeLessThanOrEqual(maxJobs)
      }
      expect(await queue.counts()).toMatchObject({ completed: 37, waiting: 23 })
      expect(await worker.run({ maxJobs: 100, until: 'drained' })).toMatchObject({ ended: 'drained', completed: 23 })
    },
  )

  it('jobs in batches count one by one', async () => {
    const queue = await newQueue()
    await queue.addBulk(bulk(20))
    const sizes: number[] = []
    const worker = closing(
      new Worker(
        queue,
        (jobs) => {
          sizes.push(jobs.length)
          return jobs.map(() => null)
        },
        { autorun: false, logger: false, batch: { size: 8 } },
      ),
    )
    expect(await worker.run({ maxJobs: 11 })).toMatchObject({ ended: 'max-jobs', started: 11, completed: 11 })
    expect(sizes.reduce((sum, each) => sum + each, 0)).toBe(11)
    expect(await queue.counts()).toMatchObject({ completed: 11, waiting: 9, active: 0 })
  })

  it('a run until drained waits for the jobs of other workers, and runs what they release', async () => {
    const queue = await newQueue()
    const child = await queue.add('elsewhere')
    await queue.add('here', undefined, { after: child })
    const [held] = await queue.claim({ names: ['elsewhere'] })
    const worker = newWorker(queue, { here: () => 'done', elsewhere: () => 'done' }, { autorun: false })
    const running = worker.run({ until: 'drained' })
    await event(queue, 'worker-started', (each) => each.worker === worker.id)
    await held!.complete()
    expect(await running).toMatchObject({ ended: 'drained', started: 1, completed: 1 })
  })

  it('paused jobs, and those of names and versions that it does not handle, do not keep a run from its end', async () => {
    const queue = await newQueue()
    await queue.addBulk([{ name: 'paused' }, { name: 'other' }])
    await queue.pause('paused')
    await queue.claim({ names: ['other'] })
    const worker = newWorker(queue, { paused: () => 'done' }, { autorun: false })
    expect(await worker.run({ until: 'drained' })).toEqual({ ...none, ended: 'drained' })
  })

  it('a signal ends a run: what runs is completed, and what was prefetched is returned', async () => {
    const queue = await newQueue()
    await queue.addBulk(bulk(200))
    const ending = new AbortController()
    let ran = 0
    const worker = newWorker(queue, () => void (++ran === 50 && ending.abort()), { autorun: false })
    const report = await worker.run({ signal: ending.signal })
    expect(report).toEqual({ ...none, ended: 'signal', started: ran, completed: ran })
    expect(await queue.counts()).toMatchObject({ completed: ran, waiting: 200 - ran, active: 0 })
    expect((await queue.list({ state: 'waiting', limit: 200 })).jobs.every(({ attempt }) => attempt === 0)).toBe(true)
  })
})

describe('on a virtual clock', () => {
  function virtual(): { clock: ReturnType<typeof virtualClock>; store: Store; queue: Queue } {
    const clock = virtualClock()
    const store = closing(memory({ runtime: clock.runtime }))
    return { clock, store, queue: closing(new Queue('work', { store, logger: false })) }
  }

  it('a run until a date starts nothing from then on, and waits for what runs', async () => {
    const { clock, queue } = virtual()
    await queue.addBulk(bulk(10))
    const worker = newWorker(queue, () => new Promise((done) => clock.runtime.timer(3_000, () => done('slow'))), {
      autorun: false,
    })
    const report = await clock.until(worker.run({ until: new Date(clock.runtime.now() + 10_000) }))
    expect(report).toEqual({ ...none, ended: 'date', started: 4, completed: 4 })
    expect(clock.runtime.elapsed()).toBe(12_000)
    expect(await queue.counts()).toMatchObject({ completed: 4, waiting: 6, active: 0 })
  })

  it('a run until a date waits for jobs that are added before it', async () => {
    const { clock, queue } = virtual()
    const worker = newWorker(queue, () => 'done', { autorun: false })
    const running = worker.run({ until: new Date(clock.runtime.now() + 60_000), maxJobs: 1 })
    await clock.advance('30s')
    await queue.add('job')
    expect(await clock.until(running)).toMatchObject({ ended: 'max-jobs', completed: 1 })
    expect(clock.runtime.elapsed()).toBeLessThan(60_000)
  })

  it('a date that has passed, or a signal that has aborted, starts nothing', async () => {
    const { clock, queue } = virtual()
    await queue.add('job')
    const worker = newWorker(queue, () => 'done', { autorun: false })
    expect(await clock.until(worker.run({ until: new Date(0) }))).toEqual({ ...none, ended: 'date' })
    const report = await clock.until(worker.run({ until: 'drained', signal: AbortSignal.abort() }))
    expect(report).toEqual({ ...none, ended: 'signal' })
    expect(await queue.counts()).toMatchObject({ waiting: 1 })
  })

  it('what is due is run before a queue counts as drained; what is not due is left', async () => {
    const { clock, queue } = virtual()
    await queue.add('due', null, { delay: '1s' })
    await queue.add('not due', null, { delay: '1h' })
    await clock.advance('2s')
    const worker = newWorker(queue, () => 'done', { autorun: false })
    expect(await clock.until(worker.run({ until: 'drained' }))).toMatchObject({ completed: 1 })
    expect(await queue.counts()).toMatchObject({ completed: 1, delayed: 1 })
  })

  it('the job of a crashed run is awaited until its lease is over, and then run', async () => {
    const { clock, queue } = virtual()
    await queue.add('job')
    await clock.until(queue.claim({ lease: '20s' })) // and never settled
    const worker = newWorker(queue, () => 'done', { autorun: false })
    expect(await clock.until(worker.run({ until: 'drained' }))).toMatchObject({ started: 1, completed: 1 })
    expect(clock.runtime.elapsed()).toBeGreaterThanOrEqual(20_000)
  })

  it('jobs behind a rate are run, each in its time', async () => {
    const { clock, queue } = virtual()
    await queue.limit({ rate: { max: 2, per: '10s' } })
    await queue.addBulk(bulk(6))
    const worker = newWorker(queue, () => 'done', { autorun: false })
    expect(await clock.until(worker.run({ until: 'drained' }))).toMatchObject({ completed: 6 })
    expect(clock.runtime.elapsed()).toBeGreaterThanOrEqual(20_000)
  })

  it('the claim whose answer is lost at the end of a run is awaited, and its job is returned', async () => {
    const { clock, store: inner } = virtual()
    let lost = false
    const commit: Store['commit'] = async (batch, tx) => {
      const receipt = await inner.commit(batch, tx)
      if (receipt.asks.flat().length > 0) lost = true
      if (lost) throw new Error('the line was lost')
      return receipt
    }
    const store: Store = { ...observed(inner, () => {}), commit }
    const queue = closing(new Queue('work', { store, logger: false }))
    const { id } = await clock.until(queue.add('job'))
    const worker = newWorker(queue, () => 'done', { autorun: false })
    const running = worker.run({ until: new Date(clock.runtime.now() + 5_000) })
    await clock.advance('6s')
    expect(await inner.get([id])).toMatchObject([{ state: 'active' }])
    lost = false
    Object.assign(store, { commit: inner.commit.bind(inner) })
    expect(await clock.until(running)).toEqual({ ...none, ended: 'date' })
    expect(await inner.get([id])).toMatchObject([{ state: 'waiting', attempt: 0 }])
  })
})

describe('one run at a time', () => {
  it('a second run is refused while one is in progress, with and without options', async () => {
    const queue = newQueue()
    const [started, open] = [gate(), gate()]
    const worker = newWorker(
      queue,
      () => {
        started.open()
        return open.promise
      },
      { autorun: false },
    )
    await queue.add('job')
    const running = worker.run({ until: 'drained' })
    await started.promise
    await expect(worker.run({ maxJobs: 1 })).rejects.toMatchObject({ code: 'WORKER_RUNNING' })
    await expect(worker.run()).rejects.toMatchObject({ code: 'WORKER_RUNNING' })
    open.open()
    expect(await running).toMatchObject({ completed: 1 })
    expect(await worker.run({ until: 'drained' })).toMatchObject({ started: 0 })
  })

  it('a run that ends is refused for a worker that runs until it is closed', async () => {
    const queue = newQueue()
    const worker = newWorker(queue, () => 'done')
    await event(worker, 'worker-started')
    await expect(worker.run({ until: 'drained' })).rejects.toMatchObject({ code: 'WORKER_RUNNING' })
    await (await queue.add('job')).result()
  })

  it('a run that is asked for at once takes the place of autorun, and run() goes on after it', async () => {
    const queue = newQueue()
    await queue.addBulk(bulk(3))
    const worker = newWorker(queue, () => 'done')
    expect(await worker.run({ maxJobs: 1 })).toMatchObject({ started: 1 })
    expect(await queue.counts()).toMatchObject({ completed: 1, waiting: 2 })
    const drained = event(queue, 'completed', ({ result }) => result === 'done')
    await worker.run()
    await drained
  })

  it('a closed worker refuses a run', async () => {
    const worker = newWorker(newQueue(), () => 'done', { autorun: false })
    await worker.close()
    await expect(worker.run({ until: 'drained' })).rejects.toMatchObject({ code: 'WORKER_CLOSED' })
  })
})

it('close ends a run: it resolves with what it did, and jobs that obey their signal are returned', async () => {
  const queue = newQueue()
  const started = gate()
  const worker = newWorker(
    queue,
    (_job, ctx) =>
      new Promise((_, reject) => {
        started.open()
        ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason!))
      }),
    { autorun: false },
  )
  await queue.add('job')
  const running = worker.run({ until: 'drained' })
  await started.promise
  await expect(worker.close({ timeout: 0 })).rejects.toMatchObject({ code: 'SHUTDOWN_TIMEOUT' })
  expect(await running).toEqual({ ...none, ended: 'closed', started: 1, interrupted: 1 })
  expect(await queue.counts()).toMatchObject({ waiting: 1, active: 0 })
})

it('close ends a run whose handler never ends', async () => {
  const queue = newQueue()
  const started = gate()
  const worker = newWorker(
    queue,
    () => {
      started.open()
      return new Promise(() => {})
    },
    { autorun: false },
  )
  await queue.add('job')
  const running = worker.run({ maxJobs: 1 })
  await started.promise
  await expect(worker.close({ timeout: 0, grace: 0 })).rejects.toMatchObject({ code: 'SHUTDOWN_TIMEOUT' })
  expect(await running).toMatchObject({ ended: 'max-jobs', started: 1, lost: 1 })
})

it('a job that is cancelled while it runs is reported as lost', async () => {
  const queue = newQueue()
  const added = await queue.add('job')
  const worker = newWorker(
    queue,
    async (_job, ctx) => {
      const aborted = new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
      await added.cancel()
      await aborted
    },
    { autorun: false },
  )
  expect(await worker.run({ until: 'drained' })).toEqual({ ...none, ended: 'drained', started: 1, lost: 1 })
})

it('what a run has to deliver is delivered when it resolves, and the next run delivers again', async () => {
  const hook = await receiver()
  const webhook = webhooks({ secret: 'a secret of this test', allowPrivate: true, url: hook.url })
  const queue = closing(new Queue('work', { store: newStore(), logger: false, webhook }))
  const worker = newWorker(queue, () => 'done', { autorun: false })
  for (let run = 0; run < 2; run++) {
    const job = await queue.add('job')
    await worker.run({ maxJobs: 1 })
    expect((await job.refresh()).webhook).toMatchObject({ sent: true, pending: false })
  }
})

describe('bad options of a run', () => {
  const cases: readonly [string, WorkerRunOptions, string][] = [
    ['no condition', {}, 'INVALID_OPTION'],
    ['an unknown word', { until: 'empty' as 'drained' }, 'INVALID_OPTION'],
    ['a date that is none', { until: new Date('never') }, 'INVALID_DATE'],
    ['a number', { until: 7 as never }, 'INVALID_OPTION'],
    ['no jobs', { maxJobs: 0 }, 'INVALID_OPTION'],
    ['half a job', { maxJobs: 0.5 }, 'INVALID_OPTION'],
    ['a signal that is none', { signal: 7 as never }, 'INVALID_OPTION'],
    ['an unknown option', { max: 1 } as never, 'UNKNOWN_OPTION'],
    ['options that are none', 'drained' as never, 'INVALID_OPTION'],
  ]
  it.each(cases)('%s is refused, and nothing starts', async (_what, options, code) => {
    const queue = newQueue()
    await queue.add('job')
    const worker = newWorker(queue, () => 'done', { autorun: false })
    await expect(worker.run(options)).rejects.toMatchObject({ code })
    expect(await queue.counts()).toMatchObject({ waiting: 1 })
    expect(await worker.run({ until: 'drained' })).toMatchObject({ completed: 1 })
  })
})

// What depends on time, on a virtual clock.
import { describe, expect, it } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Runtime, Store, WorkerOptions } from 'millrace'
import { memory } from 'millrace/memory'
import type { Handler } from 'millrace'
import { virtualClock } from '../../src/testing/world/clock.js'
import type { VirtualClock } from '../../src/testing/world/clock.js'
import type { JobRecord } from '../../src/job/job.js'
import { collect, event, gate } from '../setup.js'

interface Scene {
  readonly clock: VirtualClock
  readonly store: Store
  readonly queue: Queue
  worker(handler: Handler, options?: WorkerOptions): Promise<Worker>
}

function scene(): Scene {
  const clock = virtualClock()
  const store = memory({ runtime: clock.runtime })
  const queue = new Queue('work', { store, logger: false })
  return {
    clock,
    store,
    queue,
    worker: async (handler, options = {}) => {
      const worker = new Worker(queue, handler, { logger: false, ...options, autorun: false } as object)
      await worker.run()
      return worker
    },
  }
}

function sleep(clock: VirtualClock, millis: number): Promise<void> {
  return new Promise((resolve) => void clock.runtime.timer(millis, resolve))
}

/** A clock whose ids are not those of the first. */
function anotherClock(): VirtualClock {
  return virtualClock({ seed: 2 })
}

/** Another process on the same data: a store object of its own, so that nothing is shared but the data. */
function elsewhere(store: Store, runtime?: Runtime): Queue {
  const own: Store = Object.assign(Object.create(store) as Store, runtime === undefined ? {} : { runtime })
  return new Queue('work', { store: own, logger: false })
}

describe('leases', () => {
  it('are renewed while a handler runs, however long it takes', async () => {
    const { clock, queue, worker } = scene()
    const end = gate<string>()
    const seen = collect(queue, ['stalled', 'lease-lost'])
    await worker(() => end.promise, { lease: '30s' })
    const added = await queue.add('n')
    await clock.advance('10m')
    expect((await added.refresh()).state).toBe('active')
    end.open('after ten minutes')
    expect(await clock.until(added.result())).toBe('after ten minutes')
    expect(await added.refresh()).toMatchObject({ attempt: 1, stalls: 0 })
    expect(seen).toEqual([])
  })

  it('of a worker that died run out, and its job goes to another at the cost of an attempt', async () => {
    const { clock, store, queue, worker } = scene()
    const gone = anotherClock() // this process's time stands still: it has died
    const dead = new Worker(elsewhere(store, gone.runtime), () => new Promise(() => {}), {
      logger: false,
      autorun: false,
    })
    const stalled = event(queue, 'stalled')
    const started = dead.run()
    const added = await queue.add('n', 1, { attempts: 3 })
    await gone.until(started)
    await gone.settle()
    expect((await added.refresh()).worker).toBe(dead.id)
    const alive = await worker(async (job) => job.attempt)
    expect(await clock.until(added.result())).toBe(2)
    expect((await stalled).worker).toBe(dead.id)
    expect(await added.refresh()).toMatchObject({ worker: alive.id, attempt: 2, stalls: 1 })
  })

  it('that run out in the last attempt end the job: exhausted', async () => {
    const { clock, store, queue, worker } = scene()
    const gone = anotherClock()
    const dead = new Worker(elsewhere(store, gone.runtime), () => new Promise(() => {}), {
      logger: false,
      autorun: false,
    })
    const started = dead.run()
    const added = await queue.add('n', 1, { attempts: 1 })
    await gone.until(started)
    await gone.settle()
    await worker(() => 'never')
    await expect(clock.until(added.result())).rejects.toMatchObject({ details: { error: { code: 'JOB_EXHAUSTED' } } })
  })

  it('of a handler that blocks the event loop past its lease are lost: it cannot settle, and the user is warned', async () => {
    const { clock, queue, worker } = scene()
    let runs = 0
    const busy = await worker(
      async () => {
        if (++runs > 1) return 'second run'
        clock.block('40s')
        return 'first run'
      },
      { lease: '30s' },
    )
    const seen = collect(busy, ['lease-lost'])
    const warned = event(busy, 'error', (each) => 'code' in each.error && each.error.code === 'EVENT_LOOP_BLOCKED')
    const added = await queue.add('n')
    expect(await clock.until(added.result())).toBe('second run')
    expect((await warned).error.message).toContain('blocked')
    expect(seen).toEqual(['lease-lost'])
    expect(await added.refresh()).toMatchObject({ attempt: 2, stalls: 1 })
  })

  it('that are over before the answer to a claim has come are renewed before the job starts', async () => {
    const { clock, store, queue } = scene()
    let slow = true
    const late: Store = Object.assign(Object.create(store) as Store, {
      commit: async (batch: Parameters<Store['commit']>[0]) => {
        const receipt = await store.commit(batch)
        if (slow && receipt.asks.some((jobs) => jobs.length > 0)) {
          slow = false
          await sleep(clock, 31_000)
        }
        return receipt
      },
    })
    const runs: number[] = []
    const worker = new Worker(new Queue('work', { store: late, logger: false }), (job) => void runs.push(job.attempt), {
      logger: false,
      autorun: false,
      lease: '30s',
    })
    await worker.run()
    const seen = collect(worker, ['lease-lost'])
    const added = await queue.add('n')
    await clock.until(added.result())
    expect(runs).toEqual([1])
    expect(seen).toEqual([])
  })

  it('that a blocked event loop cost are a warning in the log, where there is no listener', async () => {
    const clock = virtualClock()
    const store = memory({ runtime: clock.runtime })
    const queue = new Queue('work', { store, logger: false })
    const written: string[] = []
    const logger = {
      warn: (_details: object, message: string) => void written.push(`warn: ${message}`),
      error: (_details: object, message: string) => void written.push(`error: ${message}`),
    }
    const worker = new Worker(queue, () => clock.block('40s'), { lease: '30s', logger, autorun: false })
    await worker.run()
    await queue.add('n', 1, { attempts: 1 })
    await clock.advance('1m')
    expect(written.filter((line) => line.startsWith('warn: The event loop was blocked'))).toHaveLength(1)
    expect(written.filter((line) => line.startsWith('error'))).toEqual([])
  })

  it('of a job that is retried at once start again as soon as the old handler has ended', async () => {
    const { clock, queue, worker } = scene()
    let runs = 0
    await worker(
      async (_job, ctx) => {
        if (++runs > 1) return 'second'
        await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
        await sleep(clock, 20)
        return 'first'
      },
      { concurrency: 2 },
    )
    const added = await queue.add('n')
    await clock.settle()
    await added.cancel()
    await added.retry()
    const begun = clock.runtime.now()
    expect(await clock.until(added.result())).toBe('second')
    expect(clock.runtime.now() - begun).toBeLessThan(500)
  })

  it('of a job whose old handler was given up go on elsewhere, and here', async () => {
    const { clock, queue, worker } = scene()
    let runs = 0
    await worker(() => (++runs > 1 ? 'second' : new Promise(() => {})), { concurrency: 2, abandonAfter: '1s' })
    const added = await queue.add('n', 1, { timeout: '1s' })
    await clock.settle()
    await added.cancel()
    await clock.advance('5s')
    await added.retry()
    expect(await clock.until(added.result(), '5s')).toBe('second')
  })

  it('that are lost do not bring a second copy into the worker whose handler has not ended', async () => {
    const { clock, queue, worker } = scene()
    const end = gate()
    let copies = 0
    let most = 0
    const blocked = await worker(
      async (job) => {
        most = Math.max(most, ++copies)
        if (job.attempt === 1) {
          clock.block('40s')
          await end.promise
        }
        copies--
        return job.attempt
      },
      { lease: '30s', concurrency: 5 },
    )
    const added = await queue.add('n')
    await clock.advance('5m')
    expect(blocked.active).toBe(1)
    expect(most).toBe(1)
    end.open()
    expect(await clock.until(added.result())).toBe(2)
    expect(most).toBe(1)
  })

  it('can differ by name', async () => {
    const { clock, store, queue } = scene()
    const worker = new Worker(
      queue,
      {
        quick: { run: () => new Promise(() => {}), lease: '5s' },
        slow: { run: () => new Promise(() => {}), lease: '2m' },
      },
      { logger: false, concurrency: 2, autorun: false },
    )
    await worker.run()
    const quick = await queue.add('quick')
    const slow = await queue.add('slow')
    await clock.settle()
    const [a, b] = await store.get([quick.id, slow.id])
    expect([a!.leaseUntil! - a!.startedAt!, b!.leaseUntil! - b!.startedAt!]).toEqual([5_000, 120_000])
  })
})

describe('an outage of the store', () => {
  it('does not cost a living worker its job: reaping waits until it had the time to renew', async () => {
    const { clock, store, queue } = scene()
    let down = false
    const flaky: Store = Object.assign(Object.create(store) as Store, {
      commit: (batch: Parameters<Store['commit']>[0]) =>
        down ? Promise.reject(new Error('down')) : store.commit(batch),
      due: (query: Parameters<Store['due']>[0]) => (down ? Promise.reject(new Error('down')) : store.due(query)),
    })
    const end = gate<string>()
    const worker = new Worker(new Queue('work', { store: flaky, logger: false }), () => end.promise, {
      logger: false,
      autorun: false,
      lease: '30s',
    })
    await worker.run()
    const added = await queue.add('n')
    await clock.settle()
    expect((await added.refresh()).state).toBe('active')
    const errors = collect(worker, ['error'])
    down = true
    await clock.advance('5m') // far longer than the lease
    down = false
    await clock.advance('1m')
    end.open('still mine')
    expect(await clock.until(added.result())).toBe('still mine')
    expect(await added.refresh()).toMatchObject({ attempt: 1, stalls: 0 })
    expect(errors.length).toBeGreaterThan(0)
  })

  /** A handler that ends while the store is away; its last report goes with its settlement. */
  async function parting() {
    const { clock, store, queue } = scene()
    const faults = { down: false, renewing: async () => {} }
    const flaky: Store = Object.assign(Object.create(store) as Store, {
      commit: async (batch: Parameters<Store['commit']>[0]) => {
        if (faults.down) throw new Error('down')
        if (batch.renewals.length > 0) await faults.renewing()
        return store.commit(batch)
      },
      due: (query: Parameters<Store['due']>[0]) => (faults.down ? Promise.reject(new Error('down')) : store.due(query)),
    })
    const end = gate()
    let noted: Promise<string> | undefined
    const worker = new Worker(
      new Queue('work', { store: flaky, logger: false }),
      async (_job, ctx) => {
        await end.promise
        void ctx.progress(50)
        await sleep(clock, 1) // that is in flight, and what is reported now goes after it
        noted = ctx.progress(100).then(
          () => 'durable',
          (error: { code: string }) => error.code,
        )
      },
      { logger: false, autorun: false, lease: '30s', renewEvery: '10s' },
    )
    await worker.run()
    const added = await queue.add('n')
    await clock.settle()
    faults.down = true
    end.open()
    await clock.advance(2)
    return { clock, queue, worker, added, faults, noted: noted! }
  }

  it('settles the last report of a handler: with its job, if that is still its own', async () => {
    const { clock, added, faults, noted } = await parting()
    await clock.advance('2m') // its lease is over, and no upkeep was there to reap it
    faults.down = false
    await clock.until(added.result())
    expect([await noted, (await added.refresh()).progress]).toEqual(['durable', 100])
  })

  it('settles the last report of a handler: refused, if its lease was revoked before it could be renewed', async () => {
    const { clock, queue, added, faults, noted } = await parting()
    await clock.advance('2m')
    faults.renewing = async () => void (await queue.cancel(added.id))
    faults.down = false
    expect(await clock.until(noted)).toBe('LEASE_LOST')
    expect((await added.refresh()).state).toBe('cancelled')
  })

  it('settles the last report of a handler: as failed, if its worker is closed before the store is back', async () => {
    const { clock, worker, noted } = await parting()
    await expect(clock.until(worker.close({ timeout: '1s', grace: '1s' }), '1m')).rejects.toMatchObject({
      code: 'SHUTDOWN_TIMEOUT',
    })
    await clock.advance('1m')
    expect(await clock.until(noted)).toBe('STORE_UNAVAILABLE')
  })

  it('settles the last report of a handler: as failed, if its job is known to be lost while the store is away', async () => {
    const { clock, queue, added, noted } = await parting()
    await queue.cancel(added.id)
    expect(await clock.until(noted, '5m')).toBe('LEASE_LOST')
  })
})

describe('timeouts', () => {
  it('keep the slot and the lease of a handler that ignores them, until it is given up', async () => {
    const { clock, queue, worker } = scene()
    let copies = 0
    const one = await worker(() => new Promise(() => copies++), { lease: '30s', abandonAfter: '2m' })
    const added = await queue.add('n', 1, { timeout: '1m', attempts: 2, backoff: '1s' })
    const stuck = event(one, 'error')
    await clock.advance('2m')
    expect(copies).toBe(1)
    expect((await added.refresh()).state).toBe('active')
    await clock.advance('61s')
    expect((await stuck).error).toMatchObject({ code: 'HANDLER_STUCK' })
    await clock.advance('2s')
    expect(copies).toBe(2)
  })
})

describe('upkeep', () => {
  it('lets thousands of delays end at once, with ten workers at it, each job once', async () => {
    const { clock, queue, worker } = scene()
    const runs = new Map<string, number>()
    for (let n = 0; n < 10; n++) {
      await worker(async (job) => void runs.set(job.id, (runs.get(job.id) ?? 0) + 1), { concurrency: 50 })
    }
    await queue.addBulk(Array.from({ length: 2500 }, () => ({ name: 'n', options: { delay: '1m' } })))
    await clock.advance('59s')
    expect(runs.size).toBe(0)
    await clock.advance('2s')
    expect(runs.size).toBe(2500)
    expect(Math.max(...runs.values())).toBe(1)
  })

  it('does not lose a wake-up that comes while it is at work', async () => {
    const { clock, store, queue } = scene()
    const slow: Store = Object.assign(Object.create(store) as Store, {
      commit: async (batch: Parameters<Store['commit']>[0]) => {
        const receipt = await store.commit(batch)
        await sleep(clock, 50)
        return receipt
      },
    })
    const worker = new Worker(new Queue('work', { store: slow, logger: false }), () => 'ran', {
      logger: false,
      autorun: false,
    })
    await clock.until(worker.run())
    await clock.advance('1s')
    const begun = clock.runtime.now()
    await queue.add('a', 1, { delay: 10 })
    await clock.advance(15) // the pass for the first is under way
    const second = await queue.add('b', 1, { delay: 10 })
    await clock.until(second.result())
    expect(clock.runtime.now() - begun).toBeLessThan(1_000)
  })

  it('removes finished jobs when their time has come, and marks them stale before', async () => {
    const { clock, store } = scene()
    const queue = new Queue('kept', {
      store,
      logger: false,
      retention: { staleAfter: '1h', deleteAfter: '2h' },
    })
    const seen = collect(queue, ['stale', 'removed', 'completed'])
    const worker = new Worker(queue, () => 1, { logger: false, autorun: false })
    await worker.run()
    const added = await queue.add('n')
    const early = await queue.add('n', 1, { removeOnComplete: '10m' })
    await clock.until(added.result())
    await clock.advance('11m')
    expect(await queue.get(early.id)).toBeUndefined()
    await clock.advance('1h')
    expect(seen.toSorted()).toEqual(['completed', 'completed', 'removed', 'stale'])
    await clock.advance('1h')
    expect(await queue.get(added.id)).toBeUndefined()
  })

  it('fails, ignores or removes a dependent by the policy of its edge, level by level', async () => {
    const { clock, queue, worker } = scene()
    await worker(async (job) => {
      if (job.data === 'bad') throw new Error('bad')
      return job.data
    })
    const bad = await queue.add('n', 'bad', { attempts: 1 })
    const strict = await queue.add('n', 'strict', { after: bad })
    const above = await queue.add('n', 'above', { after: strict })
    const lenient = await queue.add('n', 'lenient', { after: { job: bad, onFailure: 'ignore' } })
    const removed = await queue.add('n', 'removed', { after: bad, onChildFailure: 'remove' })
    await expect(clock.until(above.result())).rejects.toMatchObject({
      details: { error: { code: 'DEPENDENCY_FAILED' } },
    })
    expect((await strict.refresh()).state).toBe('failed')
    expect(await clock.until(lenient.result())).toBe('lenient')
    expect(await queue.get(removed.id)).toBeUndefined()
  })
})

describe('leasing ahead', () => {
  /** A store whose commits take 5 ms, and the answers to its claims. */
  function slow(store: Store, clock: VirtualClock): { store: Store; claimed: JobRecord[] } {
    const claimed: JobRecord[] = []
    const late: Store = Object.assign(Object.create(store) as Store, {
      commit: async (batch: Parameters<Store['commit']>[0]) => {
        const receipt = await store.commit(batch)
        claimed.push(...receipt.asks.flat())
        await sleep(clock, 5)
        return receipt
      },
    })
    return { store: late, claimed }
  }

  it('is for short jobs, and what gets no slot for too long is handed back with its attempt', async () => {
    const { clock, store, queue } = scene()
    const { store: late, claimed } = slow(store, clock)
    const held = gate()
    let started = 0
    const worker = new Worker(
      new Queue('work', { store: late, logger: false }),
      async (job) => {
        started++
        await (job.data === 'slow' ? held.promise : sleep(clock, 1))
      },
      { concurrency: 10, logger: false, autorun: false },
    )
    await clock.until(worker.run())
    await queue.addBulk(Array.from({ length: 1000 }, () => ({ name: 'n', data: 'fast' })))
    await clock.until(idle(queue))
    expect(started).toBe(1000)
    expect(claimed.filter((job) => job.ahead).length).toBeGreaterThan(100)
    claimed.length = 0
    await queue.addBulk(Array.from({ length: 200 }, (_, n) => ({ name: 'n', data: n < 100 ? 'fast' : 'slow' })))
    await clock.advance('2s')
    expect(claimed.some((job) => job.ahead && job.data === '"slow"')).toBe(true)
    expect(await queue.counts()).toMatchObject({ active: 10, waiting: 90 })
    const { jobs } = await queue.list({ state: 'waiting', limit: 100 })
    expect(new Set(jobs.map((job) => job.attempt))).toEqual(new Set([0]))
  })

  it('does not let claims outrun what they come to, however short the jobs are', async () => {
    const { clock, store, queue } = scene()
    let open = 0
    let most = 0
    const counting: Store = Object.assign(Object.create(store) as Store, {
      commit: async (batch: Parameters<Store['commit']>[0]) => {
        const receipt = await store.commit(batch)
        open += receipt.asks.flat().length
        open -= batch.groups.flat().filter((change) => change.kind === 'move' && change.to === 'completed').length
        most = Math.max(most, open)
        await sleep(clock, 1)
        return receipt
      },
    })
    const worker = new Worker(new Queue('work', { store: counting, logger: false }), () => {}, {
      concurrency: 100,
      logger: false,
      autorun: false,
    })
    await clock.until(worker.run())
    await queue.addBulk(Array.from({ length: 20_000 }, () => ({ name: 'n' })))
    await clock.until(idle(queue))
    expect(open).toBe(0)
    expect(most).toBeGreaterThan(100)
    expect(most).toBeLessThan(3_000)
  })

  it('is never for jobs with one attempt', async () => {
    const { clock, store, queue } = scene()
    const { store: late, claimed } = slow(store, clock)
    const worker = new Worker(new Queue('work', { store: late, logger: false }), () => sleep(clock, 1), {
      concurrency: 10,
      logger: false,
      autorun: false,
    })
    await clock.until(worker.run())
    await queue.addBulk(Array.from({ length: 500 }, () => ({ name: 'n', options: { attempts: 1 } })))
    await clock.until(idle(queue))
    expect(claimed).toHaveLength(500)
    expect(claimed.some((job) => job.ahead)).toBe(false)
  })

  async function idle(queue: Queue): Promise<void> {
    for (;;) {
      const { waiting, active } = await queue.counts()
      if (waiting + active === 0) return
      await event(queue, 'completed')
    }
  }
})

describe('a store that fails when the worker starts', () => {
  it('is tried again until it answers, and the worker is announced then', async () => {
    const { clock, store, queue } = scene()
    let down = true
    const flaky: Store = Object.assign(Object.create(store) as Store, {
      open: () => (down ? Promise.reject(new Error('no route to host')) : store.open()),
    })
    const worker = new Worker(new Queue('work', { store: flaky, logger: false }), () => 'ran', { logger: false })
    const errors = collect(worker, ['error'])
    const announced = collect(queue, ['worker-started'])
    await clock.advance('1m')
    expect(errors.length).toBeGreaterThan(3)
    expect(announced).toEqual([])
    down = false
    const added = await queue.add('n')
    expect(await clock.until(added.result())).toBe('ran')
    expect(announced).toEqual(['worker-started'])
    await clock.until(worker.close())
  })

  it('does not keep the worker from being closed', async () => {
    const { clock, store } = scene()
    const dead: Store = Object.assign(Object.create(store) as Store, { open: () => Promise.reject(new Error('no')) })
    const worker = new Worker(new Queue('work', { store: dead, logger: false }), () => {}, { logger: false })
    await clock.advance('10s')
    await clock.until(worker.close())
  })
})

describe('closing', () => {
  it('stops asking at once, though the start is still hanging', async () => {
    const { clock, store } = scene()
    let asks = 0
    const hanging: Store = Object.assign(Object.create(store) as Store, {
      commit: (batch: Parameters<Store['commit']>[0]) => {
        asks += batch.asks.length
        return batch.groups.some((group) => group[0]?.kind === 'put') ? new Promise(() => {}) : store.commit(batch)
      },
    })
    const worker = new Worker(new Queue('work', { store: hanging, logger: false }), () => {}, {
      logger: false,
      pollEvery: 50,
    })
    await clock.advance('1s')
    await clock.until(worker.close({ timeout: 10, grace: 10 }))
    const before = asks
    await clock.advance('1m')
    expect(asks).toBe(before)
  })

  it('leaves no timer behind, and nothing that is settled later', async () => {
    const { clock, queue, worker } = scene()
    const one = await worker(() => new Promise(() => {}), { abandonAfter: '1s' })
    const added = await queue.add('n', 1, { timeout: '1s', attempts: 1 })
    await clock.settle()
    const closed = one.close({ timeout: 10, grace: 10 })
    await expect(clock.until(closed)).rejects.toMatchObject({ code: 'SHUTDOWN_TIMEOUT' })
    await clock.advance('10s')
    expect((await added.refresh()).state).toBe('active')
  })
})

describe('the registry', () => {
  it('knows live workers, and forgets those that are gone', async () => {
    const { clock, store, queue } = scene()
    const gone = anotherClock()
    const dead = new Worker(elsewhere(store, gone.runtime), { n: () => {} }, { logger: false, autorun: false })
    await gone.until(dead.run())
    await queue.pause()
    const added = await queue.add('n')
    const why = async (): Promise<string[]> => (await queue.explain(added.id)).reasons.map((reason) => reason.why)
    expect(await why()).toEqual(['paused'])
    await clock.advance('1m')
    expect(await why()).toEqual(['paused', 'no-worker'])
    const other = new Worker('work', { other: () => {} }, { store, logger: false, autorun: false })
    await other.run()
    await clock.advance('11m')
    const { cells } = await store.details({ cellsUnder: 'worker:' })
    expect(cells.map((cell) => cell.key)).toEqual([`worker:${other.id}`])
    expect(await why()).toEqual(['paused', 'no-worker'])
    await other.close()
    expect((await store.details({ cellsUnder: 'worker:' })).cells).toEqual([])
  })
})

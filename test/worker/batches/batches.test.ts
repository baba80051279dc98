// One call of a handler for many jobs, on a virtual clock.
import { describe, expect, it } from 'vitest'
import { Queue, UnrecoverableError, Worker, defineJobs, job, middleware } from 'millrace'
import type { AnyJobs, BatchHandler, BatchOptions, Handlers, Job, Store, WorkerOptions } from 'millrace'
import { memory } from 'millrace/memory'
import { z } from 'zod'
import { virtualClock } from '../../../src/testing/world/clock.js'
import type { VirtualClock } from '../../../src/testing/world/clock.js'
import { closing, collect, event, gate } from '../../setup.js'

type Options = Omit<WorkerOptions<AnyJobs>, 'batch'> & { readonly batch?: BatchOptions }

interface Scene {
  readonly clock: VirtualClock
  readonly store: Store
  readonly queue: Queue
  worker(handlers: BatchHandler | Handlers<AnyJobs>, options?: Options): Promise<Worker>
  add(count: number, options?: object): Promise<readonly Job[]>
}

function scene(): Scene {
  const clock = virtualClock()
  const store = memory({ runtime: clock.runtime })
  const queue = new Queue('work', { store, logger: false })
  return {
    clock,
    store,
    queue,
    worker: async (handlers, options = {}) => {
      const worker = new Worker(queue, handlers as never, { logger: false, ...options, autorun: false } as object)
      await worker.run()
      return worker
    },
    add: (count, options = {}) =>
      queue.addBulk(Array.from({ length: count }, (_, n) => ({ name: 'n', data: n, options }))),
  }
}

const sleep = (clock: VirtualClock, millis: number): Promise<void> =>
  new Promise((resolve) => void clock.runtime.timer(millis, resolve))

const states = async (jobs: readonly Job[]) =>
  (await Promise.all(jobs.map((each) => each.refresh()))).map((j) => j.state)

describe('a batch', () => {
  it('is what a claim brought, up to its size, and each job gets its own result', async () => {
    const { clock, worker, add } = scene()
    const calls: unknown[][] = []
    const added = await add(5)
    await worker(
      async (jobs) => {
        calls.push(jobs.map(({ data }) => data))
        return jobs.map(({ data }) => ({ twice: 2 * (data as number) }))
      },
      { batch: { size: 3 } },
    )
    expect(await clock.until(Promise.all(added.map((each) => each.result())))).toEqual(
      [0, 2, 4, 6, 8].map((twice) => ({ twice })),
    )
    expect(calls).toEqual([
      [0, 1, 2],
      [3, 4],
    ])
  })

  it('takes one slot, however many jobs are in it, and all free slots are asked for at once', async () => {
    const { clock, worker, add } = scene()
    const added = await add(50)
    let running = 0
    let most = 0
    const sizes: number[] = []
    const busy = await worker(
      async (jobs) => {
        sizes.push(jobs.length)
        most = Math.max(most, ++running)
        await sleep(clock, 1000)
        running--
        return jobs.map(() => 1)
      },
      { batch: { size: 10 }, concurrency: 3 },
    )
    await clock.settle()
    expect(running).toBe(3)
    expect(busy.active).toBe(30)
    await clock.until(Promise.all(added.map((each) => each.result())))
    expect(sizes).toEqual([10, 10, 10, 10, 10])
    expect(most).toBe(3)
  })

  it('gathers for as long as `wait`, from its first job on, then goes with what it has', async () => {
    const { clock, worker, add, queue } = scene()
    const calls: number[] = []
    await worker(
      async (jobs) => {
        calls.push(jobs.length)
        return jobs.map(() => clock.runtime.now())
      },
      { batch: { size: 10, wait: '1m' } },
    )
    const began = clock.runtime.now()
    const first = await queue.add('n')
    await clock.advance('40s')
    await add(3)
    await clock.advance('19s')
    expect(calls).toEqual([])
    expect(await clock.until(first.result())).toBe(began + 60_000)
    expect(calls).toEqual([4])
  })

  it('goes at once when it is full, however long it might gather', async () => {
    const { clock, worker, add } = scene()
    const calls: number[] = []
    await worker(
      (jobs) => {
        calls.push(jobs.length)
        return jobs.map(() => 1)
      },
      { batch: { size: 4, wait: '10m' } },
    )
    const three = await add(3)
    await clock.advance('5m')
    expect(await states(three)).toEqual(['active', 'active', 'active'])
    await add(3)
    await clock.settle()
    expect(calls).toEqual([4])
    await clock.advance('10m')
    expect(calls).toEqual([4, 2])
  })

  it('frees its slot at once when all of its jobs are lost while it gathers', async () => {
    const { clock, queue, worker } = scene()
    const run = (jobs: readonly Job[]) => jobs.map(() => 1)
    await worker({ first: run, second: run } as never, { batch: { size: 10, wait: '10m' }, concurrency: 1 })
    const jobs = await queue.addBulk([{ name: 'first' }, { name: 'first' }])
    await clock.settle()
    const second = await queue.add('second')
    await clock.settle()
    expect(await states([...jobs, second])).toEqual(['active', 'active', 'waiting'])
    await jobs[0]!.cancel()
    await clock.settle()
    expect(await states([second])).toEqual(['waiting'])
    await jobs[1]!.cancel()
    await clock.settle()
    expect(await states([second])).toEqual(['active'])
  })

  it('takes another job for one that was lost while it gathers', async () => {
    const { clock, worker, add } = scene()
    const calls: (readonly unknown[])[] = []
    await worker(
      (jobs) => {
        calls.push(jobs.map(({ data }) => data))
        return jobs.map(() => 1)
      },
      { batch: { size: 3, wait: '10m' }, concurrency: 1 },
    )
    const [first] = await add(2)
    await clock.settle()
    await first!.cancel()
    await add(2)
    await clock.settle()
    expect(calls).toEqual([[1, 0, 1]])
  })

  it('keeps the leases of what it gathers', async () => {
    const { clock, worker, queue } = scene()
    const seen = collect(queue, ['stalled', 'lease-lost'])
    await worker((jobs) => jobs.map(() => 'late'), { batch: { size: 4, wait: '10m' }, lease: '10s' })
    const added = await queue.add('n')
    expect(await clock.until(added.result())).toBe('late')
    expect(await added.refresh()).toMatchObject({ attempt: 1, stalls: 0 })
    expect(seen).toEqual([])
  })

  it('holds jobs of one name, also where one worker handles several and others one by one', async () => {
    const { clock, worker, queue } = scene()
    const calls: string[] = []
    const log = (what: string): void => void calls.push(what)
    await queue.addBulk(
      Array.from({ length: 30 }, (_, n) => ({ name: ['a', 'b', 'c'][n % 3]!, data: n, options: { attempts: 1 } })),
    )
    const all = collect(queue, ['completed'])
    await worker(
      {
        a: {
          runBatch: (jobs) => {
            log(`${[...new Set(jobs.map(({ name }) => name))].join()} ${jobs.length}`)
            return jobs.map(() => 1)
          },
          batch: { size: 10 },
        },
        b: {
          runBatch: async (jobs) => {
            log(`${[...new Set(jobs.map(({ name }) => name))].join()} ${jobs.length}`)
            return jobs.map(() => 1)
          },
          batch: { size: 4 },
        },
        c: () => log('c'),
      },
      { concurrency: 2 },
    )
    await clock.advance('1s')
    expect(all).toHaveLength(30)
    const of = (name: string): string[] => calls.filter((call) => call.startsWith(name))
    expect(of('a')).toEqual(['a 10'])
    expect(of('b')).toEqual(['b 4', 'b 4', 'b 2'])
    expect(of('c')).toHaveLength(10)
  })

  it('never leases more than its slots can run, where several names share them', async () => {
    const { clock, worker, queue } = scene()
    const hold = gate()
    for (const name of ['a', 'b', 'c']) {
      await queue.addBulk(Array.from({ length: 10 }, () => ({ name, options: { attempts: 1 } })))
    }
    const one: BatchHandler = async (jobs) => {
      await hold.promise
      return jobs.map(() => 1)
    }
    const handlers = Object.fromEntries(['a', 'b', 'c'].map((n) => [n, { runBatch: one, batch: { size: 10 } }]))
    await worker(handlers, { concurrency: 2 })
    await clock.settle()
    expect(await queue.counts()).toMatchObject({ active: 20, waiting: 10 })
    hold.open()
    await clock.advance('1s')
    expect(await queue.counts()).toMatchObject({ completed: 30 })
  })
})

describe('the result of a batch', () => {
  it('is judged job by job: a result, an error to be retried, an error for good', async () => {
    const { clock, worker, add } = scene()
    const added = await add(3, { backoff: '1h' })
    await worker(() => ['fine', new Error('again'), new UnrecoverableError('never')], { batch: { size: 3 } })
    await clock.settle()
    const [first, second, third] = await Promise.all(added.map((each) => each.refresh()))
    expect(first).toMatchObject({ state: 'completed' })
    expect(second).toMatchObject({ state: 'delayed', error: { message: 'again' } })
    expect(third).toMatchObject({ state: 'failed', error: { message: 'never' } })
  })

  it('is the same failure for each when it throws, each by its own rules', async () => {
    const { clock, worker, queue } = scene()
    const many = await queue.add('n', 0, { attempts: 3, backoff: '1h' })
    const once = await queue.add('n', 1, { attempts: 1 })
    await worker(
      async () => {
        throw new Error('the index is away')
      },
      { batch: { size: 10 } },
    )
    await clock.settle()
    expect(await many.refresh()).toMatchObject({ state: 'delayed', error: { message: 'the index is away' } })
    expect(await once.refresh()).toMatchObject({ state: 'failed', error: { message: 'the index is away' } })
  })

  it.each([
    ['too few', () => [1], '1 results for 2 jobs'],
    ['too many', () => [1, 2, 3], '3 results for 2 jobs'],
    ['none', async () => undefined as never, 'no array but undefined for 2 jobs'],
  ])('fails all of them when there are %s results', async (_what, handler, message) => {
    const { clock, worker, add } = scene()
    const added = await add(2, { attempts: 1 })
    await worker(handler, { batch: { size: 10 } })
    await clock.settle()
    for (const each of added) {
      expect(await each.refresh()).toMatchObject({ state: 'failed', error: { code: 'BATCH_RESULTS' } })
      expect((await each.refresh()).error?.message).toContain(message)
    }
  })

  it('can be put together with ctx.each, which puts what is thrown in its place', async () => {
    const { clock, worker, add } = scene()
    const added = await add(3, { attempts: 1 })
    await worker(
      (_jobs, ctx) =>
        ctx.each(async ({ data }, own) => {
          await own.log(`job ${String(data)}`)
          if (data === 1) throw new Error('not this one')
          if (data === 2) throw 'text'
          return 'done'
        }),
      { batch: { size: 3 } },
    )
    await clock.settle()
    expect(await states(added)).toEqual(['completed', 'failed', 'failed'])
    expect((await added[1]!.refresh()).error?.message).toBe('not this one')
    expect((await added[0]!.logs()).map(({ line }) => line)).toEqual(['job 0'])
  })

  it('may snooze one of the jobs, or all, at no cost', async () => {
    const { clock, worker, add } = scene()
    const added = await add(2)
    let calls = 0
    await worker(
      (jobs, ctx) => {
        if (++calls === 1) return [1, ctx.of(jobs[1]!).snooze('1h')]
        if (calls === 2) ctx.snooze('2h')
        return jobs.map(({ attempt }) => attempt)
      },
      { batch: { size: 2 } },
    )
    await clock.settle()
    expect(await states(added)).toEqual(['completed', 'delayed'])
    await clock.advance('1h')
    expect(await added[1]!.refresh()).toMatchObject({ state: 'delayed', attempt: 0 })
    expect(await clock.until(added[1]!.result())).toBe(1)
  })

  it('is held against the schemas job by job: what is invalid never reaches the handler', async () => {
    const clock = virtualClock()
    const store = memory({ runtime: clock.runtime })
    const loose = new Queue('work', { store, logger: false })
    const jobs = defineJobs({ n: job({ input: z.object({ n: z.coerce.number() }), output: z.number().max(5) }) })
    const queue = new Queue('work', { store, jobs, logger: false })
    const added = await loose.addBulk([{ n: '1' }, { m: 1 }, { n: '9' }].map((data) => ({ name: 'n', data })))
    const seen: unknown[] = []
    const worker = new Worker(
      queue,
      {
        n: async (batch) => {
          seen.push(...batch.map(({ data }) => data.n))
          return batch.map(({ data }) => data.n)
        },
      },
      { batch: { size: 10 }, logger: false, autorun: false },
    )
    await worker.run()
    await clock.settle()
    const [fine, invalid, large] = await Promise.all(added.map((each) => each.refresh()))
    expect(seen).toEqual([1, 9])
    expect(fine).toMatchObject({ state: 'completed' })
    expect(invalid).toMatchObject({ state: 'failed', error: { code: 'INVALID_PAYLOAD' } })
    expect(large).toMatchObject({ state: 'failed', error: { code: 'INVALID_RESULT' } })
  })
})

describe('a job of a batch', () => {
  it('that is cancelled aborts alone, and its result is dropped; the others settle', async () => {
    const { clock, worker, add, queue } = scene()
    const added = await add(3)
    const end = gate()
    const aborted: string[] = []
    const done = collect(queue, ['completed'])
    await worker(
      async (jobs, ctx) => {
        for (const each of jobs) {
          const { signal } = ctx.of(each)
          signal.addEventListener('abort', () => aborted.push(`${String(each.data)} ${signal.reason?.reason}`))
        }
        ctx.signal.addEventListener('abort', () => aborted.push('all'))
        await end.promise
        return jobs.map(({ data }) => data)
      },
      { batch: { size: 3 } },
    )
    await clock.settle()
    await queue.cancel(added[1]!.id)
    await clock.settle()
    expect(aborted).toEqual(['1 cancelled'])
    end.open()
    await clock.settle()
    expect(await states(added)).toEqual(['completed', 'cancelled', 'completed'])
    expect(done).toHaveLength(2)
  })

  it('that times out fails at once, while the others go on; the slot is theirs until the call ends', async () => {
    const { clock, worker, queue } = scene()
    const short = await queue.add('n', 0, { timeout: '1s', attempts: 1 })
    const long = await queue.add('n', 1)
    const end = gate()
    const aborted: (string | undefined)[] = []
    const busy = await worker(
      async (jobs, ctx) => {
        for (const each of jobs) {
          const { signal } = ctx.of(each)
          signal.addEventListener('abort', () => aborted.push(signal.reason?.reason))
        }
        await end.promise
        return jobs.map(() => 'late')
      },
      { batch: { size: 2 } },
    )
    await clock.advance('2s')
    expect(await short.refresh()).toMatchObject({ state: 'failed', error: { code: 'JOB_TIMEOUT' } })
    expect(await long.refresh()).toMatchObject({ state: 'active' })
    expect(aborted).toEqual(['timeout'])
    expect(busy.active).toBe(2)
    end.open()
    expect(await clock.until(long.result())).toBe('late')
    expect(busy.active).toBe(0)
    expect((await short.refresh()).state).toBe('failed')
  })

  it('is the last to hold the call: when all have timed out, ctx.signal aborts, and the slot is given up in the end', async () => {
    const { clock, worker, add, queue } = scene()
    const errors: string[] = []
    const stuck = await worker(
      (jobs, ctx) => {
        ctx.signal.addEventListener('abort', () => errors.push(`all: ${ctx.signal.reason?.reason}`))
        return jobs.some(({ data }) => data === 'next') ? jobs.map(() => 'ran') : new Promise(() => {})
      },
      { batch: { size: 2 }, abandonAfter: '10s' },
    )
    stuck.on('error', ({ error }) => errors.push((error as { code?: string }).code ?? ''))
    const added = await add(2, { timeout: '1s', attempts: 1 })
    await clock.advance('5s')
    expect(await states(added)).toEqual(['failed', 'failed'])
    expect(errors).toEqual(['all: timeout'])
    const next = await queue.add('n', 'next')
    expect(await clock.until(next.result())).toBe('ran')
    expect(errors).toEqual(['all: timeout', 'HANDLER_STUCK'])
  })

  it('does not run twice in one worker: its retry waits for the call that goes on', async () => {
    const { clock, worker, queue } = scene()
    const end = gate()
    let calls = 0
    let overlap = false
    let open = false
    const timed = await queue.add('n', 0, { timeout: '1s', attempts: 2, backoff: '1ms' })
    const slow = await queue.add('n', 1)
    await worker(
      async (jobs) => {
        const again = jobs.some(({ id }) => id === timed.id) && ++calls > 1
        if (again && open) overlap = true
        if (again) return jobs.map(() => 'again')
        open = true
        await end.promise
        open = false
        return jobs.map(() => 'first')
      },
      { batch: { size: 2 }, concurrency: 2 },
    )
    await clock.advance('30s')
    end.open()
    expect(await clock.until(slow.result())).toBe('first')
    expect(await clock.until(timed.result())).toBe('again')
    expect(overlap).toBe(false)
  })

  it('keeps its lease for as long as the call takes', async () => {
    const { clock, worker, add, queue } = scene()
    const seen = collect(queue, ['stalled', 'lease-lost'])
    const added = await add(3)
    await worker(
      async (jobs) => {
        await sleep(clock, 600_000)
        return jobs.map(() => 'done')
      },
      { batch: { size: 3 }, lease: '10s' },
    )
    expect(await clock.until(added[2]!.result())).toBe('done')
    expect(seen).toEqual([])
  })

  it('reports its own progress and keeps its own log', async () => {
    const { clock, worker, add, queue } = scene()
    const seen: unknown[] = []
    queue.on('progress', ({ id, progress }) => seen.push([id, progress]))
    const added = await add(2)
    await worker(
      async (jobs, { of }) => {
        await Promise.all(jobs.map((each) => of(each).progress(each.data)))
        await of(jobs[1]!).log('second')
        return jobs.map(() => 1)
      },
      { batch: { size: 2 } },
    )
    await clock.until(Promise.all(added.map((each) => each.result())))
    expect(seen).toEqual(added.map(({ id }, n) => [id, n]))
    expect(await added[0]!.logs()).toEqual([])
    expect((await added[1]!.logs()).map(({ line }) => line)).toEqual(['second'])
  })

  it('has no transaction of its own', async () => {
    const { clock, worker, add } = scene()
    const added = await add(1, { attempts: 1 })
    const codes: unknown[] = []
    await worker(
      (jobs, ctx) => {
        for (const each of [ctx, ctx.of(jobs[0]!)] as unknown as { complete: unknown; prepare: unknown }[]) {
          for (const call of ['complete', 'prepare'] as const) {
            try {
              ;(each[call] as (work: object) => void)(() => {})
            } catch (error) {
              codes.push((error as { code: string }).code)
            }
          }
        }
        return [1]
      },
      { batch: { size: 1 } },
    )
    await clock.until(added[0]!.result())
    expect(codes).toEqual(['NOT_IN_BATCH', 'NOT_IN_BATCH', 'NOT_IN_BATCH', 'NOT_IN_BATCH'])
  })
})

describe('middleware', () => {
  it('wraps each job of a batch, around the one call for all, and adds to the context of each', async () => {
    const clock = virtualClock()
    const queue = new Queue('work', { store: memory({ runtime: clock.runtime }), logger: false })
    const seen: string[] = []
    const trace = middleware<{ trace: string }>(async (each, _ctx, next) => {
      if (each.data === 2) return 'from the cache'
      seen.push(`in ${String(each.data)}`)
      try {
        return `${String(await next({ trace: `t${String(each.data)}` }))}!`
      } catch (error) {
        seen.push(`failed ${String(each.data)}`)
        throw error
      }
    })
    const added = await queue.addBulk([0, 1, 2].map((data) => ({ name: 'n', data, options: { attempts: 1 } })))
    const worker = new Worker(
      queue,
      (jobs, ctx) => {
        seen.push(`call ${jobs.length}`)
        return jobs.map((each) => (each.data === 1 ? new Error('no') : ctx.of(each).trace))
      },
      { batch: { size: 3 }, middleware: [trace], logger: false, autorun: false },
    )
    await worker.run()
    await clock.settle()
    expect(seen).toEqual(['in 0', 'in 1', 'call 2', 'failed 1'])
    expect(await clock.until(added[0]!.result())).toBe('t0!')
    expect((await added[1]!.refresh()).state).toBe('failed')
    expect(await clock.until(added[2]!.result())).toBe('from the cache')
  })
})

describe('shutdown', () => {
  it('hands back what is gathered, and waits for the call under way', async () => {
    const { clock, worker, add, queue } = scene()
    const gathering = await worker(() => [], { batch: { size: 10, wait: '1h' } })
    const added = await add(3)
    await clock.settle()
    expect(await states(added)).toEqual(['active', 'active', 'active'])
    await clock.until(gathering.close())
    expect(await Promise.all(added.map((each) => each.refresh()))).toMatchObject(
      added.map(() => ({ state: 'waiting', attempt: 0 })),
    )
    const end = gate()
    const running = await worker(
      async (jobs) => {
        await end.promise
        return jobs.map(() => 'done')
      },
      { batch: { size: 10 } },
    )
    await clock.settle()
    const closed = running.close()
    await clock.settle()
    expect(await queue.counts()).toMatchObject({ active: 3 })
    end.open()
    await clock.until(closed)
    expect(await states(added)).toEqual(['completed', 'completed', 'completed'])
  })

  it('that cannot wait aborts all signals, and jobs of a call that stops are handed back', async () => {
    const { clock, worker, add } = scene()
    const added = await add(2)
    const running = await worker(
      (_jobs, ctx) =>
        new Promise((_resolve, reject) =>
          ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason ?? new Error('no reason'))),
        ),
      { batch: { size: 2 } },
    )
    await clock.settle()
    await expect(clock.until(running.close({ timeout: '1s' }))).rejects.toMatchObject({ code: 'SHUTDOWN_TIMEOUT' })
    expect(await Promise.all(added.map((each) => each.refresh()))).toMatchObject(
      added.map(() => ({ state: 'waiting', attempt: 0 })),
    )
  })

  it('of the worker pausing gives back what is gathered', async () => {
    const { clock, worker, add } = scene()
    const gathering = await worker((jobs) => jobs.map(() => 1), { batch: { size: 10, wait: '1m' } })
    const added = await add(2)
    await clock.settle()
    gathering.pause()
    await clock.advance('5m')
    expect(await states(added)).toEqual(['waiting', 'waiting'])
    gathering.resume()
    await clock.advance('61s')
    expect(await states(added)).toEqual(['completed', 'completed'])
  })
})

describe('options of batches are checked', () => {
  const make = (handlers: unknown, options: object = {}) => {
    const queue = closing(new Queue('work', { store: memory(), logger: false }))
    return () => new Worker(queue, handlers as never, { autorun: false, logger: false, ...options } as object)
  }

  it.each([
    ['size 0', { size: 0 }, 'size must be'],
    ['half a size', { size: 1.5 }, 'size must be'],
    ['a size beyond reason', { size: 10_001 }, 'size must be'],
    ['no size', {}, 'size must be'],
    ['another option', { size: 1, waits: 1 }, 'waits'],
    ['a number', 5, 'must be { size, wait }'],
  ])('%s is refused', (_what, batch, message) => {
    expect(make(() => [], { batch })).toThrow(message)
    expect(make({ n: { runBatch: () => [], batch } })).toThrow(message)
  })

  it('a handler of batches needs a size, and is not also a handler of one', () => {
    expect(make({ n: { runBatch: () => [] } })).toThrow('say how large')
    expect(make({ n: { runBatch: () => [], run: () => 1, batch: { size: 1 } } })).toThrow('{ runBatch, batch, … }')
    expect(make({ n: { run: () => 1, batch: { size: 1 } } })).toThrow('batch')
    expect(make({ n: { runBatch: () => [] } }, { batch: { size: 5 } })).not.toThrow()
  })
})

it('batches fill up in real time, too', async () => {
  const store = closing(memory())
  const queue = closing(new Queue('work', { store, logger: false }))
  const sizes: number[] = []
  closing(
    new Worker(
      queue,
      async (jobs) => {
        sizes.push(jobs.length)
        return jobs.map(({ data }) => data)
      },
      { batch: { size: 100, wait: 20 }, concurrency: 4, logger: false },
    ),
  )
  const last = event(queue, 'completed', ({ result }) => result === 999)
  const added = await queue.addBulk(Array.from({ length: 1000 }, (_, data) => ({ name: 'n', data })))
  await last
  expect(await Promise.all(added.map((each) => each.result()))).toEqual(added.map((_, n) => n))
  expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(1000)
  expect(sizes.length).toBeLessThanOrEqual(20)
})

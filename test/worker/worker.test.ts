import { describe, expect, it } from 'vitest'
import { JobAbort, MillraceError, Queue, UnrecoverableError, Worker, middleware, phases, shutdown } from 'millrace'
import type { Handler, JobContext, Store } from 'millrace'
import { memory } from 'millrace/memory'
import { Context } from '../../src/worker/attempt/handler-context.js'
import { addActive, closing, collect, event, gate, mailbox, newQueue, newStore, newWorker } from '../setup.js'

describe('running jobs', () => {
  it('runs each job once, and no more at a time than its concurrency', async () => {
    const queue = newQueue()
    const runs = new Map<string, number>()
    let now = 0
    let most = 0
    newWorker(
      queue,
      async (job) => {
        runs.set(job.id, (runs.get(job.id) ?? 0) + 1)
        most = Math.max(most, ++now)
        await new Promise(setImmediate)
        now--
      },
      { concurrency: 7 },
    )
    const jobs = await queue.addBulk(Array.from({ length: 500 }, (_, n) => ({ name: 'n', data: n })))
    await Promise.all(jobs.map((job) => job.result()))
    expect(runs.size).toBe(500)
    expect(Math.max(...runs.values())).toBe(1)
    expect(most).toBe(7)
    expect(await queue.counts()).toMatchObject({ completed: 500, active: 0 })
  })

  it('does not take the end of another job for that of one whose settlement got lost', async () => {
    const store = newStore()
    const queue = newQueue({ store })
    const commit = store.commit.bind(store)
    let lost = 0
    store.commit = async (batch, tx) => {
      const settles = batch.groups.some((group) =>
        group.some((change) => change.kind === 'move' && change.id === 'second' && change.to === 'completed'),
      )
      if (settles && lost++ === 0) throw new MillraceError('DATABASE_LOCKED', 'not now')
      return commit(batch, tx)
    }
    newWorker(queue, {
      n: () => {},
      // It is inserted beside the settlement, and stands already: completed, by the same worker, one fence on.
      adds: async (_job, ctx) => void (await ctx.add('n', 1, { id: 'first' })),
    })
    await (await queue.add('n', 1, { id: 'first' })).result()
    const second = await queue.add('adds', 1, { id: 'second' })
    await second.result({ timeout: '10s' })
    expect(lost).toBeGreaterThan(1)
    expect(await second.refresh()).toMatchObject({ state: 'completed', attempt: 1 })
  })

  it('lets go of a job that has begun to wait for its children though no answer came', async () => {
    const store = newStore()
    const queue = newQueue({ store })
    const commit = store.commit.bind(store)
    let withoutListener = 0
    store.commit = async (batch, tx) => {
      const receipt = await commit(batch, tx)
      const waits = batch.groups.some((group) =>
        group.some((change) => change.kind === 'move' && change.id === 'parent' && change.to === 'waiting-children'),
      )
      // As often as it is sent again, so that the worker has to find out by itself.
      if (waits && withoutListener++ < 6) throw new Error('the answer got lost')
      return receipt
    }
    const worker = newWorker(queue, {
      parent: async (_job, ctx) => {
        const parts = await ctx.dependencies()
        if (parts.length === 0) ctx.waitFor([await ctx.add('child'), await ctx.add('child')])
        return parts.length
      },
      child: () => {},
    })
    worker.on('error', () => {})
    const lost = event(worker, 'lease-lost')
    await queue.pause('child') // or the commit unheard might claim them
    const parent = await queue.add('parent', 1, { id: 'parent' })
    expect((await lost).id).toBe('parent')
    await queue.resume('child')
    expect(await parent.result({ timeout: '20s' })).toBe(2)
    await worker.close({ timeout: '10s' })
    expect(withoutListener).toBe(7) // and once more, which is how it found out
    expect(await queue.counts()).toMatchObject({ completed: 3 })
  })

  it('takes jobs by priority, then first in first out, the last in first for LIFO', async () => {
    const queue = newQueue()
    await queue.add('n', 'second', { priority: 1 })
    await queue.add('n', 'third', { priority: 1 })
    await queue.add('n', 'first', { priority: -1 })
    await queue.add('n', 'lifo', { priority: 1, lifo: true })
    const last = await queue.add('n', 'last', { priority: 9 })
    const order: unknown[] = []
    newWorker(queue, async (job) => void order.push(job.data))
    await last.result()
    expect(order).toEqual(['first', 'lifo', 'second', 'third', 'last'])
  })

  it('claims only the names it handles, from all its queues', async () => {
    const store = newStore()
    const one = newQueue({ store, name: 'one' })
    const two = newQueue({ store, name: 'two' })
    const ran: string[] = []
    closing(new Worker(['one', 'two'], { mine: async (job) => void ran.push(job.queue) }, { store, logger: false }))
    const left = await one.add('other')
    await (await one.add('mine')).result()
    await (await two.add('mine')).result()
    expect(ran).toEqual(['one', 'two'])
    expect((await left.refresh()).state).toBe('waiting')
  })

  it('sees delays end, and dependents start when the last dependency has ended', async () => {
    const queue = newQueue()
    const order: unknown[] = []
    newWorker(queue, async (job) => void order.push(job.data), { concurrency: 5 })
    const a = await queue.add('n', 'a', { delay: 20 })
    const b = await queue.add('n', 'b', { delay: 1 })
    const c = await queue.add('n', 'c', { after: [a, b.id] })
    await c.result()
    expect(new Set(order)).toEqual(new Set(['a', 'b', 'c']))
    expect(order.at(-1)).toBe('c')
  })

  it('gives results that are JSON, and fails for good over one that is not', async () => {
    const queue = newQueue()
    newWorker(queue, { good: () => ({ ok: [1, 'zwei'] }), none: () => {}, bad: () => ({ when: new Date() }) })
    expect(await (await queue.add('good')).result()).toEqual({ ok: [1, 'zwei'] })
    expect(await (await queue.add('none')).result()).toBeUndefined()
    const bad = await queue.add('bad')
    await expect(bad.result()).rejects.toMatchObject({
      code: 'JOB_FAILED',
      details: { error: { code: 'INVALID_DATA' } },
    })
    expect(await bad.refresh()).toMatchObject({ state: 'failed', attempt: 1 })
  })
})

describe('failing jobs', () => {
  it('retries after the backoff until the attempts are used up, and remembers each error', async () => {
    const queue = newQueue()
    const seen = collect(queue, ['retrying', 'failed', 'completed'])
    newWorker(queue, (job) => Promise.reject(new Error(`attempt ${job.attempt}`)))
    const added = await queue.add('n', 1, { attempts: 3, backoff: 1 })
    await expect(added.result()).rejects.toMatchObject({ code: 'JOB_FAILED' })
    await added.refresh()
    expect(added.errors.map((error) => error.message)).toEqual(['attempt 1', 'attempt 2', 'attempt 3'])
    expect(new Set(added.errors.map((error) => error.fence)).size).toBe(3)
    expect(added).toMatchObject({ state: 'failed', attempt: 3, error: { message: 'attempt 3' } })
    expect(seen).toEqual(['retrying', 'retrying', 'failed'])
  })

  it('fails for good with an UnrecoverableError, or if `retryable` returns false', async () => {
    const queue = newQueue()
    newWorker(
      queue,
      {
        fatal: () => {
          throw new UnrecoverableError('never')
        },
        judged: (job) => {
          throw new Error(job.data as string)
        },
      },
      { retryable: (error) => ((error as Error).message === 'poison' ? 'fatal' : 'retry') },
    )
    const fatal = await queue.add('fatal')
    const poison = await queue.add('judged', 'poison')
    const flaky = await queue.add('judged', 'flaky', { backoff: 1, attempts: 2 })
    await Promise.allSettled([fatal.result(), poison.result(), flaky.result()])
    expect((await fatal.refresh()).attempt).toBe(1)
    expect((await poison.refresh()).attempt).toBe(1)
    expect((await flaky.refresh()).attempt).toBe(2)
  })

  it('uses custom strategies by name, and the default where one is missing', async () => {
    const queue = newQueue()
    const asked: number[] = []
    const worker = newWorker(queue, () => Promise.reject(new Error('no')), {
      backoff: {
        mine: (attempt) => {
          asked.push(attempt)
          return 1
        },
      },
    })
    const added = await queue.add('n', 1, { attempts: 3, backoff: { type: 'custom', name: 'mine' } })
    await expect(added.result()).rejects.toThrow()
    expect(asked).toEqual([1, 2, 3].slice(0, asked.length))
    expect(asked.length).toBeGreaterThanOrEqual(2)
    const lost = event(worker, 'error')
    const other = await queue.add('n', 1, { attempts: 2, backoff: { type: 'custom', name: 'theirs' } })
    expect((await lost).error).toMatchObject({ code: 'CALLBACK_FAILED' })
    await event(queue, 'retrying').catch(() => {})
    expect((await other.refresh()).state).toBe('delayed')
  })

  it('survives callbacks and results of the strangest kind', async () => {
    const queue = newQueue()
    const strange = (): never => {
      throw Object.create(null)
    }
    queue.on('waiting', strange)
    const received = event(queue, 'waiting')
    const worker = newWorker(
      queue,
      {
        fails: () => Promise.reject(new Error('no')),
        thenable: () => ({
          // oxlint-disable-next-line unicorn/no-thenable
          then() {
            throw new Error('sync then')
          },
        }),
        good: () => 'good',
      },
      { retryable: strange },
    )
    worker.on('completed', strange)
    worker.on('error', () => {})
    await expect((await queue.add('fails', 1, { attempts: 1 })).result()).rejects.toThrow('no')
    await expect((await queue.add('thenable', 1, { attempts: 1 })).result()).rejects.toThrow('sync then')
    expect(await (await queue.add('good')).result()).toBe('good')
    await received
  })

  it('asks `retryable` about what a handler threw, even if it looks like a refused payload', async () => {
    const queue = newQueue()
    newWorker(queue, () => {
      throw Object.assign(new Error('of another queue'), { name: 'MillraceError', code: 'INVALID_PAYLOAD' })
    })
    const added = await queue.add('n', 1, { attempts: 2, backoff: 1 })
    await expect(added.result()).rejects.toThrow('of another queue')
    expect((await added.refresh()).attempt).toBe(2)
  })

  it('survives a `retryable` that throws', async () => {
    const queue = newQueue()
    const worker = newWorker(queue, () => Promise.reject(new Error('no')), {
      retryable: () => {
        throw new Error('oops')
      },
    })
    const failure = event(worker, 'error')
    const added = await queue.add('n', 1, { attempts: 2, backoff: 1 })
    await expect(added.result()).rejects.toThrow()
    expect((await failure).error.message).toContain('oops')
    expect((await added.refresh()).attempt).toBe(2)
  })

  it('snoozes without using up an attempt', async () => {
    const queue = newQueue()
    let runs = 0
    newWorker(queue, (job, ctx) => {
      if (++runs < 4) ctx.snooze(1)
      return job.attempt
    })
    const added = await queue.add('n', 1, { attempts: 1 })
    expect(await added.result()).toBe(1)
    expect(runs).toBe(4)
  })

  it('snoozes even if the handler swallows what snooze throws', async () => {
    const queue = newQueue()
    let runs = 0
    newWorker(queue, (_job, ctx) => {
      try {
        if (++runs < 2) ctx.snooze(1)
      } catch {
        return 'swallowed'
      }
      return 'ran again'
    })
    expect(await (await queue.add('n')).result()).toBe('ran again')
  })
})

describe('what handlers report', () => {
  it('is durable when awaited, and announced only then', async () => {
    const queue = newQueue()
    const worker = newWorker(queue, async (job, ctx) => {
      await ctx.progress({ done: 1 })
      const mid = await queue.get(job.id)
      await ctx.log('one')
      void ctx.log('two')
      void ctx.progress(99)
      await ctx.progress(100)
      return mid?.progress
    })
    const local: unknown[] = []
    worker.on('progress', (each) => local.push(each.progress))
    const everywhere: unknown[] = []
    queue.on('progress', (each) => everywhere.push(each.progress))
    const added = await queue.add('n')
    expect(await added.result()).toEqual({ done: 1 })
    expect(everywhere).toEqual([{ done: 1 }, 100])
    expect(local).toEqual([{ done: 1 }, 100])
    expect((await added.logs()).map((line) => line.line)).toEqual(['one', 'two'])
    expect((await added.refresh()).progress).toBe(100)
  })

  it('goes with the settlement when nothing waits for it, and is not lost', async () => {
    const queue = newQueue()
    newWorker(queue, {
      sync: (_job, ctx) => {
        void ctx.progress(100)
        void ctx.log('done')
        return 1
      },
      failing: async (_job, ctx) => {
        await ctx.log('one')
        void ctx.log('why')
        throw new Error('no')
      },
    })
    const sync = await queue.add('sync')
    await sync.result()
    expect((await sync.refresh()).progress).toBe(100)
    expect((await sync.logs()).map((line) => line.line)).toEqual(['done'])
    const failing = await queue.add('failing', 1, { attempts: 1 })
    await expect(failing.result()).rejects.toThrow('no')
    expect((await failing.logs()).map((line) => line.line)).toEqual(['one', 'why'])
  })

  it('is refused by name when it is not JSON, and nothing is lost by it', async () => {
    const queue = newQueue()
    newWorker(queue, async (_job, ctx) =>
      ctx.progress({ bad: [undefined] as unknown[] }).catch((error: { code: string }) => error.code),
    )
    expect(await (await queue.add('n')).result()).toBe('INVALID_DATA')
  })

  it('is reported when it cannot be written and is not awaited, and only then', async () => {
    const queue = newQueue()
    const codeOf = (error: { code: string }): string => error.code
    const worker = newWorker(queue, {
      caught: async (_job, ctx) => [
        await ctx.progress((() => {}) as never).catch(codeOf),
        await ctx.log('x'.repeat(2_000_000)).then(() => '', codeOf),
        await Promise.allSettled([ctx.progress(1n as never)]).then(([{ status }]) => status),
      ],
      phased: phases({
        one: async (_job, ctx) => [
          await ctx.progress(150).catch(codeOf),
          await ctx.progress('x' as never).catch(codeOf),
        ],
      }),
      careless: (_job, ctx) => void ctx.progress((() => {}) as never),
    })
    const reported: string[] = []
    worker.on('error', ({ error }) => reported.push(`${(error as { code?: string }).code}: ${error.message}`))
    expect(await (await queue.add('caught')).result()).toEqual(['INVALID_DATA', 'DATA_TOO_LARGE', 'rejected'])
    expect(await (await queue.add('phased')).result()).toEqual(['INVALID_OPTION', 'INVALID_OPTION'])
    expect(reported).toEqual([])
    const failure = event(worker, 'error')
    await queue.add('careless')
    await failure
    expect(reported).toEqual([expect.stringContaining('CALLBACK_FAILED: ')])
  })
})

describe('jobs that are taken away', () => {
  it('abort the running handler with the reason, and its settlement is refused', async () => {
    const queue = newQueue()
    const aborted = mailbox<string>()
    newWorker(
      queue,
      async (_job, ctx) => {
        await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
        expect(ctx.signal.reason).toBeInstanceOf(JobAbort)
        aborted.put(ctx.signal.reason!.reason)
        return 'too late'
      },
      { concurrency: 2 },
    )
    const one = await addActive(queue, 'one')
    await one.cancel()
    expect(await aborted.next()).toBe('cancelled')
    const two = await addActive(queue, 'two')
    await two.remove()
    expect(await aborted.next()).toBe('removed')
    await expect(one.result()).rejects.toMatchObject({ code: 'JOB_CANCELLED' })
    expect((await one.refresh()).state).toBe('cancelled')
    expect(await queue.get(two.id)).toBeUndefined()
  })

  it('do not end the process when a write after that is not awaited', async () => {
    const queue = newQueue()
    const go = gate()
    const ended = gate()
    const worker = newWorker(queue, async (_job, ctx) => {
      await go.promise
      void ctx.progress(1)
      void ctx.log('late')
      void ctx.progress({ when: new Date() as never })
      setImmediate(() => {
        void ctx.progress(2)
        setImmediate(ended.open)
      })
    })
    const failure = event(worker, 'error')
    const rejections: unknown[] = []
    const received = (reason: unknown): void => void rejections.push(reason)
    process.on('unhandledRejection', received)
    const added = await addActive(queue, 'n')
    await added.cancel()
    go.open()
    await ended.promise
    expect((await failure).error.message).toContain('ctx.progress')
    process.off('unhandledRejection', received)
    expect(rejections).toEqual([])
  })

  it('reject when they write after that', async () => {
    const queue = newQueue()
    const go = gate()
    const refusal = gate<string>()
    newWorker(queue, async (_job, ctx) => {
      await go.promise
      await ctx.progress(1).catch((error: { code: string }) => refusal.open(error.code))
    })
    const added = await addActive(queue, 'n')
    await added.cancel()
    go.open()
    expect(await refusal.promise).toBe('LEASE_LOST')
  })
})

describe('timeouts', () => {
  it('abort the signal and settle when the handler has ended', async () => {
    const queue = newQueue()
    const order: string[] = []
    newWorker(queue, async (_job, ctx) => {
      await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
      order.push(ctx.signal.reason!.reason)
      await new Promise(setImmediate)
      order.push('ended')
      return 'a value that no longer counts'
    })
    const added = await queue.add('n', 1, { timeout: 5, attempts: 1 })
    await expect(added.result()).rejects.toMatchObject({ details: { error: { code: 'JOB_TIMEOUT' } } })
    expect(order).toEqual(['timeout', 'ended'])
  })

  it('give up a handler that never ends after a second limit, and report it', async () => {
    const queue = newQueue()
    const worker = newWorker(
      queue,
      { stuck: { run: () => new Promise(() => {}), timeout: 5 }, other: () => 'ran' },
      {
        abandonAfter: 5,
      },
    )
    const failure = event(worker, 'error')
    const stuck = await queue.add('stuck', 1, { attempts: 1 })
    const other = await queue.add('other')
    expect((await failure).error).toMatchObject({ code: 'HANDLER_STUCK' })
    await expect(stuck.result()).rejects.toMatchObject({ details: { error: { code: 'JOB_TIMEOUT' } } })
    expect(await other.result()).toBe('ran')
  })
})

describe('middleware', () => {
  it('wraps each run like an onion, and adds to the context', async () => {
    const queue = newQueue()
    const order: string[] = []
    const outer = middleware<{ user: string }>(async (_job, _ctx, next) => {
      order.push('outer before')
      const result = await next({ user: 'ann' })
      order.push('outer after')
      return result
    })
    const inner = middleware<{ log: (line: string) => void }>(async (_job, _ctx, next) => {
      order.push('inner before')
      const result = await next({} as never)
      order.push('inner after')
      return `${String(result)}!`
    })
    closing(new Worker(queue, async (_job, ctx) => `hello ${ctx.user}`, { middleware: [outer, inner], logger: false }))
    expect(await (await queue.add('n')).result()).toBe('hello ann!')
    expect(order).toEqual(['outer before', 'inner before', 'inner after', 'outer after'])
  })

  it('that does not wait for its handler does not end the job before it, nor hide its failure', async () => {
    const queue = newQueue()
    const strays: unknown[] = []
    const stray = (error: unknown): void => void strays.push(error)
    process.on('unhandledRejection', stray)
    const go = gate()
    const ran: string[] = []
    const worker = newWorker(queue, async (job) => {
      await go.promise
      ran.push(`attempt ${job.attempt}`)
      if (job.attempt === 1) throw new Error('not yet')
      return 'of the handler'
    })
    worker.use((_job, _ctx, next) => {
      void next({})
      return 'of the middleware'
    })
    const added = await addActive(queue, 'n', 1, { backoff: 1 })
    setImmediate(go.open)
    expect(await added.result()).toBe('of the middleware')
    expect(ran).toEqual(['attempt 1', 'attempt 2'])
    process.off('unhandledRejection', stray)
    expect(strays).toEqual([])
  })

  it('that throws fails the attempt like the handler would, and may not replace what the context has', async () => {
    const queue = newQueue()
    const worker = newWorker(queue, () => 'fine')
    worker.use(async (job, _ctx, next) => {
      if (job.data === 'throw') throw new Error('no entry')
      if (job.data === 'twice') await next({})
      return next(job.data === 'replace' ? { signal: 1 } : {})
    })
    expect(await (await queue.add('n', 'pass')).result()).toBe('fine')
    await expect((await queue.add('n', 'throw', { attempts: 1 })).result()).rejects.toThrow('no entry')
    await expect((await queue.add('n', 'replace', { attempts: 1 })).result()).rejects.toThrow('ctx.signal')
    await expect((await queue.add('n', 'twice', { attempts: 1 })).result()).rejects.toThrow('next() twice')
  })

  it('may add any other name to the context, and its calls work all the same', async () => {
    const queue = newQueue()
    const names = ['writeNote', 'attempt', 'guard', 'host', 'constructor', 'toString', '#attempt']
    const adds = middleware(async (_job, _ctx, next) =>
      next(Object.fromEntries(names.map((name) => [name, `own ${name}`]))),
    )
    const run: Handler = async (_job, ctx) => {
      await ctx.progress(50)
      await ctx.log('a line')
      return names.map((name) => (ctx as unknown as Record<string, unknown>)[name])
    }
    const handlers = { plain: run, phased: phases({ only: run as never }) }
    closing(new Worker(queue, handlers as never, { middleware: [adds], logger: false }))
    for (const name of ['plain', 'phased']) {
      const added = await queue.add(name)
      expect(await added.result()).toEqual(names.map((each) => `own ${each}`))
      expect((await added.refresh()).progress).toBe(name === 'plain' ? 50 : 100)
      expect(await added.logs()).toMatchObject([{ line: 'a line' }])
    }
  })

  it.each(['__proto__', ...Object.getOwnPropertyNames(Context.prototype).filter((name) => name !== 'constructor')])(
    'may not replace ctx.%s',
    async (name) => {
      const queue = newQueue()
      const worker = newWorker(queue, () => 'fine')
      worker.use((_job, _ctx, next) => next(JSON.parse(`{ ${JSON.stringify(name)}: {} }`) as object))
      await expect((await queue.add('n', 1, { attempts: 1 })).result()).rejects.toThrow(`ctx.${name}`)
    },
  )
})

describe('limits over all workers', () => {
  it('are never exceeded', async () => {
    const queue = newQueue()
    let now = 0
    let most = 0
    const run = async (): Promise<void> => {
      most = Math.max(most, ++now)
      await new Promise(setImmediate)
      now--
    }
    for (let n = 0; n < 4; n++) newWorker(queue, run, { concurrency: 5, maxGlobalConcurrency: 3 })
    const jobs = await queue.addBulk(Array.from({ length: 200 }, () => ({ name: 'n' })))
    await Promise.all(jobs.map((job) => job.result()))
    expect(most).toBe(3)
  })

  it('count a cancelled job until its handler has ended', async () => {
    const queue = newQueue()
    const end = gate()
    const ran: unknown[] = []
    newWorker(
      queue,
      async (job) => {
        ran.push(job.data)
        if (job.data === 1) await end.promise
      },
      { concurrency: 2, maxGlobalConcurrency: 1 },
    )
    const first = await addActive(queue, 'n', 1)
    await first.cancel()
    const second = await queue.add('n', 2)
    expect((await second.refresh()).state).toBe('waiting')
    expect((await queue.explain(second.id)).reasons).toEqual([{ why: 'limit', of: 'queue', concurrency: 1 }])
    expect(ran).toEqual([1])
    end.open()
    await second.result()
    expect(ran).toEqual([1, 2])
  })
})

describe('events', () => {
  it('are announced once each, the same on the queue for everybody', async () => {
    const store = newStore()
    const queue = newQueue({ store })
    const elsewhere = newQueue({ store })
    const types = [
      'waiting',
      'delayed',
      'active',
      'completed',
      'retrying',
      'failed',
      'waiting-children',
      'drained',
    ] as const
    const seen = collect(queue, types)
    const also = collect(elsewhere, types)
    const worker = newWorker(queue, (job) => {
      if (job.attempt === 1 && job.data === 'flaky') throw new Error('first')
    })
    const own = collect(worker, ['active', 'completed', 'retrying', 'failed'])
    const parent = await queue.add('n', 'flaky', { backoff: 1 })
    const child = await queue.add('n', 'child', { after: parent })
    await Promise.all([child.result(), event(worker, 'completed', (each) => each.id === child.id)])
    const expected = [
      ...['waiting', 'waiting-children', 'active', 'drained', 'retrying', 'delayed'],
      ...['waiting', 'active', 'drained', 'completed', 'waiting', 'active', 'drained', 'completed'],
    ]
    expect(seen.toSorted()).toEqual(expected.toSorted())
    expect(also).toEqual(seen)
    expect(own).toEqual(['active', 'retrying', 'active', 'completed', 'active', 'completed'])
  })

  it('go on when a listener throws, which is reported on `error` once', async () => {
    const queue = newQueue()
    const errors: string[] = []
    queue.on('completed', () => {
      throw new Error('bad listener')
    })
    queue.on('completed', () => Promise.reject(new Error('bad async listener')))
    queue.on('error', (each) => {
      errors.push(each.error.message)
      throw new Error('bad error listener')
    })
    newWorker(queue, () => 1)
    expect(await (await queue.add('n')).result()).toBe(1)
    expect(await (await queue.add('n')).result()).toBe(1)
    expect(errors.filter((each) => each.includes('bad listener'))).toHaveLength(2)
    expect(errors.filter((each) => each.includes('bad async listener'))).toHaveLength(2)
    expect(errors).toHaveLength(4)
  })

  it('report workers that start and stop', async () => {
    const queue = newQueue()
    const seen: string[] = []
    for (const type of ['worker-started', 'worker-stopping', 'worker-stopped'] as const) {
      queue.on(type, (each) => seen.push(`${each.type} ${each.worker}`))
    }
    const worker = newWorker(queue, () => {})
    const own = collect(worker, ['worker-started', 'worker-stopping', 'worker-stopped'])
    await worker.run()
    await worker.close()
    expect(own).toEqual(['worker-started', 'worker-stopping', 'worker-stopped'])
    expect(seen).toEqual(own.map((type) => `${type} ${worker.id}`))
  })
})

describe('pausing a worker', () => {
  it('stops it from taking jobs, but not those running', async () => {
    const queue = newQueue()
    const end = gate()
    const worker = newWorker(queue, async (job) => (job.data === 1 ? end.promise : undefined))
    const first = await addActive(queue, 'n', 1)
    worker.pause()
    const second = await queue.add('n', 2)
    end.open()
    await first.result()
    expect((await second.refresh()).state).toBe('waiting')
    worker.resume()
    await second.result()
  })

  it('waits for run() without autorun', async () => {
    const queue = newQueue()
    const worker = newWorker(queue, () => 1, { autorun: false })
    const added = await queue.add('n')
    await new Promise(setImmediate)
    expect((await added.refresh()).state).toBe('waiting')
    await worker.run()
    expect(await added.result()).toBe(1)
  })
})

describe('a store that fails', () => {
  function failing(inner: Store): Store & { down: boolean } {
    const store = {
      down: false,
      name: 'failing',
      can: inner.can,
      ...(inner.runtime !== undefined && { runtime: inner.runtime }),
      open: () => inner.open(),
      close: () => inner.close(),
      watch: inner.watch.bind(inner),
      find: inner.find.bind(inner),
      get: inner.get.bind(inner),
      details: inner.details.bind(inner),
      tally: inner.tally.bind(inner),
      commit: (batch: Parameters<Store['commit']>[0]) =>
        store.down ? Promise.reject(new Error('connection refused')) : inner.commit(batch),
      due: (query: Parameters<Store['due']>[0]) =>
        store.down ? Promise.reject(new Error('connection refused')) : inner.due(query),
    }
    return store
  }

  it('is survived: an error event, and work goes on when it is back', async () => {
    const store = failing(newStore())
    const queue = newQueue({ store })
    const first = gate()
    const worker = newWorker(queue, async (job) => (job.data === 1 ? first.promise : job.data), {
      concurrency: 2,
      reconnect: 5,
    })
    const one = await addActive(queue, 'n', 1)
    store.down = true
    const failure = event(worker, 'error')
    first.open()
    expect((await failure).error).toMatchObject({ code: 'STORE_UNAVAILABLE' })
    await expect(queue.add('n', 2)).rejects.toMatchObject({ code: 'STORE_UNAVAILABLE' })
    store.down = false
    await one.result()
    expect(await (await queue.add('n', 3)).result()).toBe(3)
    expect(await one.refresh()).toMatchObject({ state: 'completed', attempt: 1 })
  })
})

describe('closing', () => {
  it('waits for what runs, and is idempotent', async () => {
    const queue = newQueue()
    const end = gate()
    const worker = newWorker(queue, () => end.promise)
    const added = await addActive(queue, 'n')
    const closed = Promise.all([worker.close(), worker.close()])
    const later = await queue.add('n')
    end.open()
    await closed
    expect((await added.refresh()).state).toBe('completed')
    expect((await later.refresh()).state).toBe('waiting')
    await expect(worker.run()).rejects.toMatchObject({ code: 'WORKER_CLOSED' })
  })

  it('aborts what does not end in time, hands it back with its attempt, and only then rejects', async () => {
    const queue = newQueue()
    const reasons: string[] = []
    const worker = newWorker(queue, async (_job, ctx) => {
      await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
      reasons.push(ctx.signal.reason!.reason)
      throw ctx.signal.reason
    })
    const added = await addActive(queue, 'n')
    await expect(worker.close({ timeout: 5 })).rejects.toMatchObject({ code: 'SHUTDOWN_TIMEOUT', details: { left: 0 } })
    expect(reasons).toEqual(['shutdown'])
    expect(await added.refresh()).toMatchObject({ state: 'waiting', attempt: 0 })
  })

  it('completes a job whose handler returns after the abort', async () => {
    const queue = newQueue()
    const worker = newWorker(queue, async (_job, ctx: JobContext) => {
      await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
      return 'done all the same'
    })
    const added = await addActive(queue, 'n')
    await expect(worker.close({ timeout: 5 })).rejects.toMatchObject({ code: 'SHUTDOWN_TIMEOUT' })
    expect(await added.refresh()).toMatchObject({ state: 'completed', returned: 'done all the same' })
  })

  it('does not hand back a job whose handler ignores its signal', async () => {
    const queue = newQueue()
    const worker = newWorker(queue, () => new Promise(() => {}))
    const added = await addActive(queue, 'n')
    await expect(worker.close({ timeout: 1, grace: 1 })).rejects.toMatchObject({
      code: 'SHUTDOWN_TIMEOUT',
      details: { left: 1 },
    })
    expect((await added.refresh()).state).toBe('active')
  })

  it('refuses bad options before anything is closed, and can be done right afterwards', async () => {
    const queue = newQueue()
    const worker = newWorker(queue, () => 1)
    await expect(worker.close({ timeot: 5 } as never)).rejects.toMatchObject({ code: 'UNKNOWN_OPTION' })
    await expect(shutdown([worker, queue], { timeout: '30 sconds' })).rejects.toMatchObject({
      code: 'INVALID_DURATION',
    })
    expect(await (await queue.add('n')).result()).toBe(1)
    await worker.close()
  })

  it('closes workers, then queues, then the rest, whatever the order they are given in', async () => {
    const store = memory()
    const queue = new Queue('work', { store, logger: false })
    const end = gate()
    const worker = new Worker(queue, () => end.promise, { logger: false })
    const added = await addActive(queue, 'n')
    const done = shutdown([store, queue, worker])
    const settled = event(queue, 'completed')
    end.open()
    await done
    expect((await settled).id).toBe(added.id)
  })

  it('closes all parts in order, also when one fails, and then throws the first error', async () => {
    const order: string[] = []
    const part = (name: string, error?: Error): { close: () => Promise<void> } => ({
      close: () => {
        order.push(name)
        return error === undefined ? Promise.resolve() : Promise.reject(error)
      },
    })
    await expect(shutdown([part('a', new Error('first')), part('b', new Error('second')), part('c')])).rejects.toThrow(
      'first',
    )
    expect(order).toEqual(['a', 'b', 'c'])
    await expect(shutdown([undefined] as never)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    await expect(shutdown([], { timeot: 1 } as never)).rejects.toMatchObject({ code: 'UNKNOWN_OPTION' })
  })

  it('comes by itself when the store was closed under the worker, which reports that once', async () => {
    const store = memory()
    const queue = new Queue('work', { store, logger: false })
    const worker = new Worker(queue, () => {}, { logger: false, autorun: false, pollEvery: 1 })
    await worker.run()
    const errors: string[] = []
    worker.on('error', (each) => errors.push((each.error as { code?: string }).code ?? ''))
    const failure = event(worker, 'error')
    await store.close()
    await failure
    await worker.close()
    expect(errors).toEqual(['STORE_CLOSED'])
  })
})

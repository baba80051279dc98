// Signals: what a job waits for without a slot, and what others send to it, before or after.
import { describe, expect, test } from 'vitest'
import { Queue, UnrecoverableError, Worker, isMillraceError } from 'millrace'
import type { AnyJobs, Handlers, Job, Store } from 'millrace'
import { memory } from 'millrace/memory'
import { virtualClock } from 'millrace/testing'
import type { VirtualClock } from 'millrace/testing'
import { kinds, stores } from '../stores.js'
import { closing, collect, event, gate } from '../setup.js'

const make = stores()
const DAY = 24 * 60 * 60 * 1000

function stage(store: Store, handlers: Handlers<AnyJobs>) {
  const queue = closing(new Queue('work', { store, logger: false, defaults: { attempts: 3, backoff: 1 } }))
  const worker = closing(new Worker(queue, handlers, { concurrency: 1, logger: false }))
  return { queue, worker }
}

/** Waits for an approval, and records each of its runs. */
function approving(runs: number[] = [], timeout?: number): Handlers<AnyJobs> {
  return {
    order: async (job, ctx) => {
      runs.push(job.attempt)
      return ctx.waitForSignal('approved', timeout === undefined ? {} : { timeout })
    },
    other: () => 'meanwhile',
  }
}

/** Adds a job and waits until it waits. */
async function addWaiting(queue: Queue, name = 'order'): Promise<Job> {
  const waiting = event(queue, 'waiting-children')
  const added = await queue.add(name)
  await waiting
  return added
}

/** The row of every signal in the store. */
async function rowsOf(store: Store) {
  return (await store.find({ queue: 'work' })).items.filter(({ kind }) => kind === 'signal')
}

describe.each(kinds)('on %s', (kind) => {
  test('a job waits for a signal without its slot and its attempt, and goes on with what was sent', async () => {
    const runs: number[] = []
    const { queue } = stage(await make(kind), approving(runs))
    const added = await addWaiting(queue)
    expect(await (await queue.add('other')).result()).toBe('meanwhile') // in the only slot there is
    expect((await added.refresh()).attempt).toBe(0)
    expect((await queue.explain(added.id)).text).toContain("waits for signal 'approved'.")
    expect(await queue.signal(added.id, 'approved', { by: 'Ada', codes: [1, null] })).toBe(true)
    expect(await added.result()).toEqual({ by: 'Ada', codes: [1, null] })
    expect(runs).toEqual([1, 1])
  })

  test('no signal is lost if it comes first, and none is taken twice', async () => {
    const runs: number[] = []
    const store = await make(kind)
    const queue = closing(new Queue('work', { store, logger: false }))
    const added = await queue.add('order')
    const sent = await Promise.all(['a', 'b', 'c'].map((data) => queue.signal(added.id, 'approved', data)))
    expect(sent.filter((taken) => taken)).toHaveLength(1)
    expect(await added.signal('approved', 'd')).toBe(false)
    closing(new Worker(queue, approving(runs), { logger: false }))
    expect(await added.result()).toBe(['a', 'b', 'c'][sent.indexOf(true)])
    expect(runs).toEqual([1]) // it did not have to wait
    expect(await added.signal('approved', 'e')).toBe(false)
  })

  test('of many who send at once to one that waits, one is taken', async () => {
    const { queue } = stage(await make(kind), approving())
    const added = await addWaiting(queue)
    const sent = await Promise.all(Array.from({ length: 5 }, (_, n) => queue.signal(added.id, 'approved', n)))
    expect(sent.filter((taken) => taken)).toHaveLength(1)
    expect(await added.result()).toBe(sent.indexOf(true))
  })

  test('a wait that is over rejects with SIGNAL_TIMEOUT, and the handler goes on', async () => {
    const { queue } = stage(await make(kind), {
      order: async (_job, ctx) => {
        try {
          return await ctx.waitForSignal('approved', { timeout: 10 })
        } catch (error) {
          if (!isMillraceError(error, 'SIGNAL_TIMEOUT')) throw error
          return error.message
        }
      },
    })
    const added = await queue.add('order')
    expect(await added.result()).toBe("Signal 'approved' did not come within 10 ms.")
  })

  test('a signal that was taken is there in later attempts, and for a retry by hand', async () => {
    let broken = 2
    const seen: unknown[] = []
    const { queue } = stage(await make(kind), {
      order: async (_job, ctx) => {
        seen.push(await ctx.waitForSignal('early'), await ctx.waitForSignal('approved'))
        broken--
        if (broken === 1) throw new Error('once more')
        if (broken === 0) throw new UnrecoverableError('by hand')
        return 'done'
      },
    })
    const paused = queue.pause()
    const added = await queue.add('order')
    await paused
    await queue.signal(added.id, 'early', 'early')
    const [waiting, failed] = [event(queue, 'waiting-children'), event(queue, 'failed')]
    await queue.resume()
    await waiting
    await queue.signal(added.id, 'approved', 'yes')
    await failed
    await added.retry()
    expect(await added.result()).toBe('done')
    expect(seen).toEqual(['early', 'yes', 'early', 'yes', 'early', 'yes'])
  })

  test('a signal that came before is not taken, and another is refused, once its job has finished in whatever way', async () => {
    const { queue } = stage(await make(kind), {
      completed: (_job, ctx) => ctx.waitForSignal('approved'),
      failed: async (_job, ctx) => {
        await ctx.waitForSignal('approved')
        throw new UnrecoverableError('over')
      },
      cancelled: async (_job, ctx) => [await ctx.waitForSignal('approved'), await ctx.waitForSignal('late')],
      'timed-out': (_job, ctx) => ctx.waitForSignal('approved', { timeout: 1 }).catch(() => 'late'),
    })
    for (const state of ['completed', 'failed', 'cancelled'] as const) {
      const added = await addWaiting(queue, state)
      const ended = event(queue, state)
      expect(await queue.signal(added.id, 'approved', 1)).toBe(true)
      if (state === 'cancelled') await added.cancel()
      await ended
      expect(await queue.signal(added.id, 'approved', 2)).toBe(false)
      expect(await added.signal('approved', 2)).toBe(false)
      const other = { code: 'INVALID_STATE', details: { id: added.id, state } }
      await expect(queue.signal(added.id, 'late')).rejects.toMatchObject(other)
      await expect(added.signal('late')).rejects.toMatchObject(other)
      await added.remove()
      await expect(queue.signal(added.id, 'approved')).rejects.toMatchObject({ code: 'JOB_NOT_FOUND' })
    }
    const late = await queue.add('timed-out')
    expect(await late.result()).toBe('late')
    expect(await queue.signal(late.id, 'approved')).toBe(false)
  })

  test('rows of signals are hidden from those who look at jobs', async () => {
    const store = await make(kind)
    const { queue } = stage(store, {
      order: async (_job, ctx) => {
        await ctx.waitForSignal('approved')
        return (await ctx.dependencies()).length
      },
    })
    const received = collect(queue, ['delayed', 'completed', 'failed', 'cancelled', 'removed'])
    const added = await addWaiting(queue)
    const [row] = await rowsOf(store)
    expect(row).toMatchObject({ parentId: added.id, state: 'delayed', name: 'signal' })
    expect((await queue.list()).jobs.map(({ id }) => id)).toEqual([added.id])
    expect((await queue.list({ parent: added.id })).jobs).toEqual([])
    expect(await queue.counts()).toMatchObject({ delayed: 0, 'waiting-children': 1 })
    expect(await queue.get(row!.id)).toBeUndefined()
    expect(await queue.remove(row!.id)).toBe(false)
    await expect(queue.cancel(row!.id)).rejects.toThrow('There is no job')
    expect(await queue.promote({ all: true })).toBe(0)
    expect(await queue.remove({ state: 'delayed' })).toBe(0)
    await queue.signal(added.id, 'approved')
    expect(await added.result()).toBe(0)
    expect(received).toEqual(['completed'])
  })
})

describe.each(kinds.slice(0, 2))('in one process, on %s', (kind) => {
  test('signals to finished, unknown and foreign jobs are refused', async () => {
    const store = await make(kind)
    const { queue } = stage(store, { other: () => 1 })
    const added = await queue.add('other')
    await added.result()
    await expect(queue.signal(added.id, 'approved')).rejects.toMatchObject({ code: 'INVALID_STATE' })
    await expect(queue.signal('nobody', 'approved')).rejects.toMatchObject({ code: 'JOB_NOT_FOUND' })
    await expect(queue.signal(added.id, '')).rejects.toMatchObject({ code: 'INVALID_NAME' })
    const elsewhere = closing(new Queue('elsewhere', { store, logger: false }))
    await expect(elsewhere.signal(added.id, 'approved')).rejects.toMatchObject({ code: 'JOB_NOT_FOUND' })
    const later = await queue.add('later')
    await expect(later.signal('approved', new Date() as never)).rejects.toMatchObject({ code: 'INVALID_DATA' })
    expect(await rowsOf(store)).toEqual([])
  })

  test('a signal that comes while its job is about to wait is found', async () => {
    const store = await make(kind)
    const { queue } = stage(store, {
      order: async (_job, ctx) => {
        await ctx.step('load', () => 1)
        const wait = ctx.waitForSignal('approved')
        wait.catch(async () => {
          // The handler is being left, and its wait is not durable yet.
          await queue.signal(added.id, 'approved', 'just now')
          sent.open()
        })
        await wait.catch(() => sent.promise)
        return wait
      },
    })
    const sent = gate()
    const added = await queue.add('order')
    expect(await added.result()).toBe('just now')
  })

  test('a signal that was sent in a transaction which was rolled back did not come', async () => {
    const store = await make(kind)
    if (!store.can.transactions) return
    const { queue } = stage(store, approving())
    const added = await addWaiting(queue)
    const undone = queue.transaction(async () => {
      expect(await queue.signal(added.id, 'approved', 'undone')).toBe(true)
      throw new Error('undo')
    })
    await expect(undone).rejects.toThrow('undo')
    expect(await queue.signal(added.id, 'approved', 'done')).toBe(true)
    expect(await added.result()).toBe('done')
  })

  test('a job that was cancelled while it waited waits on when it is retried, also with its children cancelled', async () => {
    const { queue } = stage(await make(kind), approving())
    const added = await addWaiting(queue)
    await added.cancel({ cascade: true })
    await expect(queue.signal(added.id, 'approved')).rejects.toMatchObject({ code: 'INVALID_STATE' })
    await added.retry()
    expect((await added.refresh()).state).toBe('waiting-children')
    await queue.signal(added.id, 'approved', 'at last')
    expect(await added.result()).toBe('at last')
  })

  test('two signals are waited for one after the other, in any order in which they come', async () => {
    const { queue } = stage(await make(kind), {
      order: async (_job, ctx) => [await ctx.waitForSignal('first'), await ctx.waitForSignal('second')],
    })
    const added = await addWaiting(queue)
    await queue.signal(added.id, 'second', 2)
    await queue.signal(added.id, 'first', 1)
    expect(await added.result()).toEqual([1, 2])
  })

  test('a job with the id of a removed one does not get the signals of that', async () => {
    const store = await make(kind)
    const { queue } = stage(store, approving())
    await queue.pause()
    const old = await queue.add('order', undefined, { id: 'same' })
    await queue.signal('same', 'approved', 'old')
    await old.remove()
    // Made in another millisecond, because that distinguishes the ids of signals.
    while (Date.now() <= old.createdAt) await new Promise(setImmediate)
    const waiting = event(queue, 'waiting-children')
    const added = await queue.add('order', undefined, { id: 'same' })
    await queue.resume()
    await waiting
    expect(await queue.signal('same', 'approved', 'new')).toBe(true)
    expect(await added.result()).toBe('new')
  })
})

describe('on a virtual clock', () => {
  /** Days on which the process sleeps, but for a minute of each. */
  async function pass(clock: VirtualClock, days: number): Promise<void> {
    for (let day = 0; day < days; day++) {
      clock.block(DAY - 60_000)
      await clock.advance(60_000)
    }
  }

  async function scene(handlers: Handlers<AnyJobs>, delay = 0) {
    const clock = virtualClock()
    const store = closing(memory({ runtime: clock.runtime }))
    const { queue } = stage(store, handlers)
    const added = await queue.add('order', undefined, { delay })
    await clock.settle()
    return { clock, store, queue, added }
  }

  test('a wait is over exactly when its time is, and no signal is taken then', async () => {
    const { clock, queue, added } = await scene(approving([], 5000))
    const failed = added.result().catch((error: unknown) => error)
    await clock.advance(4999)
    expect((await added.refresh()).state).toBe('waiting-children')
    expect((await queue.explain(added.id)).text).toContain("waits for signal 'approved', until 2023-11-14T22:13:25")
    await clock.advance(1)
    await clock.settle()
    expect(await queue.signal(added.id, 'approved')).toBe(false)
    expect(await clock.until(failed)).toMatchObject({ message: expect.stringContaining('did not come within 5000 ms') })
    expect((await added.refresh()).errors.map(({ code }) => code)).toEqual(
      Array.from({ length: 3 }, () => 'SIGNAL_TIMEOUT'),
    )
  })

  test('a signal without a bound is waited for, for as long as its job is there', async () => {
    const { clock, queue, added } = await scene(approving())
    await pass(clock, 100)
    expect((await added.refresh()).state).toBe('waiting-children')
    await queue.signal(added.id, 'approved', 'after a hundred days')
    expect(await clock.until(added.result())).toBe('after a hundred days')
  })

  test('a signal that came first is kept for as long as its job waits for its turn', async () => {
    const { clock, queue, added } = await scene(approving(), 30 * DAY)
    await queue.signal(added.id, 'approved', 'early')
    await pass(clock, 30)
    expect(await clock.until(added.result())).toBe('early')
  })

  test('rows of signals, sent or not, are gone a day after their job at the latest', async () => {
    const { clock, store, queue, added } = await scene(approving())
    const other = await queue.add('other')
    await clock.until(other.result())
    const late = await queue.add('late') // without a handler
    await queue.signal(late.id, 'approved', 'never read')
    expect(await rowsOf(store)).toHaveLength(2)
    await pass(clock, 3)
    expect(await rowsOf(store)).toHaveLength(2)
    await added.cancel()
    await added.remove()
    await late.remove()
    await pass(clock, 1)
    expect(await rowsOf(store)).toEqual([])
  })
})

// Transactions and leases: none is lost over an open transaction, and who has lost its lease leaves nothing behind.
import { describe, expect, it } from 'vitest'
import { MillraceError, Queue, Worker } from 'millrace'
import type { Store } from 'millrace'
import { virtualClock } from '../../../../src/testing/world/clock.js'
import type { VirtualClock } from '../../../../src/testing/world/clock.js'
import { closing, collect, event, gate } from '../../../setup.js'
import { scenes, write } from './file-store.js'
import type { FileStore } from './file-store.js'

const scene = scenes()

function sleep(clock: VirtualClock, millis: number): Promise<void> {
  return new Promise((resolve) => void clock.runtime.timer(millis, resolve))
}

describe('a transaction that is open when a lease is about to run out', () => {
  it('is rolled back, and the attempt fails and is tried again', async () => {
    const clock = virtualClock()
    const { queue, worker, effects } = await scene({ store: { runtime: clock.runtime } })
    const works = worker(
      async (job, ctx) => {
        await ctx.complete(async ({ tx }) => {
          const insert = tx.prepare('INSERT INTO effects (what) VALUES (?)')
          insert.run(`attempt ${job.attempt}`)
          if (job.attempt === 1) await sleep(clock, 60_000)
          try {
            insert.run(`attempt ${job.attempt}, later`)
          } finally {
            write(tx, `attempt ${job.attempt}, at last`)
          }
        })
      },
      { lease: '30s' },
    )
    const seen = collect(works, ['lease-lost', 'retrying', 'completed'])
    const added = await queue.add('n', 1, { backoff: 1 })
    await clock.until(added.result())
    const second = ['attempt 2', 'attempt 2, later', 'attempt 2, at last']
    expect(effects()).toEqual(second)
    expect(seen).toEqual(['retrying', 'completed'])
    expect(await added.refresh()).toMatchObject({ attempt: 2, stalls: 0, errors: [{ code: 'TRANSACTION_TOO_LONG' }] })
    await clock.advance('2m') // the callback of the first attempt goes on, and finds no transaction to write to
    expect(effects()).toEqual(second)
  })

  it('aborts the signal of the handler, and fails whatever it returns', async () => {
    const clock = virtualClock()
    const { queue, worker, effects } = await scene({ store: { runtime: clock.runtime } })
    worker(
      async (job, ctx) => {
        if (job.attempt > 1) return 'second'
        await ctx.complete(async ({ tx }) => write(tx, 'first'))
        await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
        expect(ctx.signal.reason?.reason).toBe('timeout')
        return 'first'
      },
      { lease: '30s' },
    )
    const added = await queue.add('n', 1, { backoff: 1 })
    expect(await clock.until(added.result())).toBe('second')
    expect((await added.refresh()).errors).toMatchObject([{ code: 'TRANSACTION_TOO_LONG' }])
    expect(effects()).toEqual([])
  })

  it('leaves its own lease to a handler that goes on, until that has ended', async () => {
    const clock = virtualClock()
    const { queue, worker } = await scene({ store: { runtime: clock.runtime } })
    const works = worker(
      async (job, ctx) => {
        if (job.attempt > 1) return
        await ctx.complete(async () => {})
        await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
        await sleep(clock, 50_000)
      },
      { lease: '30s' },
    )
    const seen = collect(works, ['lease-lost', 'retrying'])
    const added = await queue.add('n', 1, { backoff: 1 })
    await clock.until(added.result())
    expect(await added.refresh()).toMatchObject({ stalls: 0, errors: [{ code: 'TRANSACTION_TOO_LONG' }] })
    expect(seen).toEqual(['retrying'])
  })

  it('does not cost the leases of others in the same process, however short', async () => {
    const clock = virtualClock()
    const { queue, store, worker, effects } = await scene({ store: { runtime: clock.runtime } })
    const going = gate()
    const other = closing(
      new Worker('other', async () => going.promise, { store, logger: false, lease: '2s' }) as Worker,
    )
    const elsewhere = closing(new Queue('other', { store, logger: false }))
    const short = await elsewhere.add('short')
    await clock.until(event(other, 'active').catch(() => {}) as Promise<void>, '1s').catch(() => {})
    worker(
      async (job, ctx) => {
        await ctx.complete(async ({ tx }) => {
          if (job.attempt === 1) await sleep(clock, 10_000)
          write(tx, 'written')
        })
      },
      { lease: '30s' },
    )
    const lost = collect(other, ['lease-lost'])
    const added = await queue.add('n', 1, { backoff: 1 })
    await clock.until(added.result())
    expect((await added.refresh()).errors).toMatchObject([{ code: 'TRANSACTION_TOO_LONG' }])
    expect(effects()).toEqual(['written'])
    going.open()
    await clock.until(short.result())
    expect(await short.refresh()).toMatchObject({ attempt: 1, stalls: 0 })
    expect(lost).toEqual([])
  })

  it('has a fresh lease to begin with', async () => {
    const clock = virtualClock()
    const { queue, worker, effects } = await scene({ store: { runtime: clock.runtime } })
    worker(
      async (_job, ctx) => {
        await sleep(clock, 18_000) // most of the lease is over, and the next renewal has not come
        await ctx.complete(async ({ tx }) => {
          await sleep(clock, 15_000)
          write(tx, 'written')
        })
      },
      { lease: '30s', renewEvery: '20s' },
    )
    const added = await queue.add('n', 1, { attempts: 1 })
    await clock.until(added.result())
    expect(effects()).toEqual(['written'])
  })

  it('is given up with a handler that goes on after its timeout', async () => {
    const clock = virtualClock()
    const { queue, worker, effects } = await scene({ store: { runtime: clock.runtime } })
    const works = worker(
      async (job, ctx) => {
        if (job.attempt > 1) return 'second'
        await ctx.complete(async ({ tx }) => write(tx, 'first'))
        return new Promise(() => {})
      },
      { lease: '10m', abandonAfter: '1s' },
    )
    const stuck = event(works, 'error', ({ error }) => 'code' in error && error.code === 'HANDLER_STUCK')
    const added = await queue.add('n', 1, { backoff: 1, timeout: '5s' })
    expect(await clock.until(added.result())).toBe('second')
    await stuck
    expect(effects()).toEqual([])
  })
})

describe('leases between the phases', () => {
  it('are renewed, however long the work in between takes', async () => {
    const clock = virtualClock()
    const { queue, worker, effects } = await scene({ store: { runtime: clock.runtime } })
    const seen = collect(queue, ['stalled', 'retrying'])
    worker(
      async (_job, ctx) => {
        await ctx.prepare({ mode: 'staged' }, async ({ tx }) => write(tx, 'prepared'))
        await sleep(clock, 300_000)
        await ctx.complete(async ({ tx }) => write(tx, 'completed'))
      },
      { lease: '30s' },
    )
    const added = await queue.add('n')
    await clock.until(added.result())
    expect(effects()).toEqual(['prepared', 'completed'])
    expect(await added.refresh()).toMatchObject({ attempt: 1, stalls: 0 })
    expect(seen).toEqual([])
  })
})

describe('a worker that has lost its lease', () => {
  it('cannot begin to complete', async () => {
    const clock = virtualClock()
    const { queue, worker, effects } = await scene({ store: { runtime: clock.runtime } })
    const errors: unknown[] = []
    const works = worker(
      async (job, ctx) => {
        if (job.attempt === 1) {
          clock.block('40s')
          await sleep(clock, 11_000) // the renewal that came too late has been noticed by now
        }
        try {
          await ctx.complete(async ({ tx }) => write(tx, `attempt ${job.attempt}`))
        } catch (error) {
          errors.push(error)
          throw error
        }
      },
      { lease: '30s' },
    )
    const lost = collect(works, ['lease-lost'])
    const added = await queue.add('n')
    await clock.until(added.result())
    expect(effects()).toEqual(['attempt 2'])
    expect(errors).toMatchObject([{ code: 'LEASE_LOST' }])
    expect(lost).toEqual(['lease-lost'])
  })

  it('inside its transaction has its writes rolled back: the settlement is fenced there', async () => {
    const clock = virtualClock()
    const { queue, worker, effects } = await scene({ store: { runtime: clock.runtime } })
    worker(
      async (job, ctx) => {
        await ctx.complete(async ({ tx }) => {
          write(tx, `attempt ${job.attempt}`)
          if (job.attempt === 1) clock.block('40s') // no timer can fire, and the lease is over
        })
      },
      { lease: '30s' },
    )
    const added = await queue.add('n', 1, { backoff: 1 })
    await clock.until(added.result())
    expect(effects()).toEqual(['attempt 2'])
  })

  it('to a cancellation between the phases writes nothing more', async () => {
    const { queue, worker, effects, elsewhere } = await scene()
    const prepared = gate()
    const ended = gate<unknown>()
    worker(
      async (job, ctx) => {
        await ctx.prepare({ mode: 'staged' }, async ({ tx }) => write(tx, job.id))
        prepared.open()
        await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
        await ctx.complete(async ({ tx }) => write(tx, 'completed')).catch((error: unknown) => ended.open(error))
      },
      { lease: '1h' },
    )
    const added = await queue.add('n')
    await prepared.promise
    await elsewhere().cancel(added.id)
    expect(await ended.promise).toMatchObject({
      code: 'LEASE_LOST',
      message: expect.stringContaining('cancelled') as string,
    })
    expect(effects()).toEqual([added.id])
    expect((await added.refresh()).state).toBe('cancelled')
  })
})

describe('a worker that is closed', () => {
  it('leaves nothing of a handler that does not end, and lets go of the store', async () => {
    const { queue, store, worker, effects } = await scene()
    const inside = gate()
    const works = worker(async (_job, ctx) =>
      ctx.complete(async ({ tx }) => {
        write(tx, 'never')
        inside.open()
        await new Promise(() => {})
      }),
    )
    await queue.add('n')
    await inside.promise
    await expect(works.close({ timeout: 0, grace: 1 })).rejects.toMatchObject({ code: 'SHUTDOWN_TIMEOUT' })
    await queue.close()
    await store.close()
    expect(effects()).toEqual([])
  })

  it('settles what a handler that heeds its signal completed, and hands back what it did not', async () => {
    const { queue, worker, effects } = await scene()
    const both = gate()
    let inside = 0
    const works = worker(
      async (job, ctx) => {
        await ctx.complete(async ({ tx }) => write(tx, job.data as string))
        if (++inside === 1) both.open()
        await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
        if (job.data === 'hands back') throw new Error('stopped')
      },
      { concurrency: 1 },
    )
    const added = await queue.add('n', 'completes')
    await both.promise
    await works.close({ timeout: 0 }).catch(() => {})
    expect((await added.refresh()).state).toBe('completed')
    expect(effects()).toEqual(['completes'])
    const other = worker(
      async (job, ctx) => {
        await ctx.complete(async ({ tx }) => write(tx, job.data as string))
        again.open()
        await new Promise((resolve) => ctx.signal.addEventListener('abort', resolve))
        throw new Error('stopped')
      },
      { concurrency: 1 },
    )
    const again = gate()
    const back = await queue.add('n', 'hands back')
    await again.promise
    await other.close({ timeout: 0 }).catch(() => {})
    expect(await back.refresh()).toMatchObject({ state: 'waiting', attempt: 0 })
    expect(effects()).toEqual(['completes'])
  })
})

describe('a commit whose answer is lost', () => {
  /** The same store, but for its transactions. */
  function failing(store: FileStore, transact: Store['transact']): FileStore {
    return new Proxy(store, {
      get: (target, key) => {
        if (key === 'transact') return transact
        const own: unknown = Reflect.get(target, key, target)
        return typeof own === 'function' ? (own.bind(target) as unknown) : own
      },
    })
  }

  it('is detected by the fence: what was applied is not done again', async () => {
    const { store, path: _path, effects } = await scene()
    let lost = 0
    const flaky = failing(store, async (work, within) => {
      const answer = await store.transact!(work, within)
      if (within === undefined && lost++ === 0) throw new Error('the connection was cut')
      return answer
    })
    const queue = closing(new Queue('flaky', { store: flaky, logger: false }))
    const works = closing(
      new Worker(
        queue,
        async (job, ctx) =>
          ctx.complete(async ({ tx }) => {
            write(tx, `attempt ${job.attempt}`)
            return 'done'
          }),
        { logger: false },
      ),
    )
    const seen = collect(works, ['completed', 'retrying', 'lease-lost'])
    const completed = event(works, 'completed')
    const added = await queue.add('n', 1, { backoff: 1 })
    expect(await added.result()).toBe('done')
    expect((await completed).result).toBe('done')
    expect(effects()).toEqual(['attempt 1'])
    expect(seen).toEqual(['completed'])
  })

  it('and what was not applied is done again', async () => {
    const { store, effects } = await scene()
    let failed = 0
    const flaky = failing(store, (work, within) =>
      store.transact!(async (tx) => {
        const answer = await work(tx)
        if (within === undefined && failed++ === 0) throw new MillraceError('STORE_UNAVAILABLE', 'no commit')
        return answer
      }, within),
    )
    const queue = closing(new Queue('flaky', { store: flaky, logger: false }))
    closing(
      new Worker(queue, async (job, ctx) => ctx.complete(async ({ tx }) => write(tx, `attempt ${job.attempt}`)), {
        logger: false,
      }),
    )
    const added = await queue.add('n', 1, { backoff: 1 })
    await added.result()
    expect(effects()).toEqual(['attempt 2'])
    expect((await added.refresh()).errors).toMatchObject([{ code: 'STORE_UNAVAILABLE' }])
  })
})

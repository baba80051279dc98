// Children while running: `ctx.add`, `ctx.waitFor`, and what became of those waited for.
import { describe, expect, test } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Ended, Handlers, AnyJobs, Store } from 'millrace'
import { move } from '../../../src/job/change.js'
import { memory } from '../../../src/memory.js'
import { closing, event } from '../../setup.js'
import { kinds, stores } from '../../stores.js'

const make = stores()

function stage(store: Store, handlers: Handlers<AnyJobs>, concurrency = 1) {
  const queue = closing(new Queue('work', { store, logger: false, defaults: { attempts: 2, backoff: 1 } }))
  const worker = closing(new Worker(queue, handlers, { concurrency, logger: false, autorun: false }))
  return { queue, worker, run: () => void worker.run() }
}

describe.each(kinds)('on %s', (kind) => {
  test('a handler waits for its children without its slot and its attempt, and runs again with their results', async () => {
    const runs: [attempt: number, known: number][] = []
    const { queue, run } = stage(await make(kind), {
      split: async (job, ctx) => {
        const parts = await ctx.dependencies()
        runs.push([job.attempt, parts.length])
        if (parts.length > 0) return parts.map((part) => part.status === 'completed' && part.result)
        const children = (job.data as number[]).map((n) => ctx.add('part', n))
        return ctx.waitFor(await Promise.all(children))
      },
      part: (job) => 2 * (job.data as number),
    })
    const added = await queue.add('split', [1, 2, 3])
    run()
    expect(await added.result()).toEqual([2, 4, 6]) // with one slot, which the waiting parent does not hold
    expect(runs).toEqual([
      [1, 0],
      [1, 3],
    ])
    expect((await queue.list({ parent: added.id })).jobs.map(({ name }) => name)).toEqual(['part', 'part', 'part'])
  })

  test('children of an attempt that fails are not added', async () => {
    const { queue, run } = stage(await make(kind), {
      parent: async (job, ctx) => {
        await ctx.add('child', job.attempt)
        if (job.attempt === 1) throw new Error('not yet')
        return 'done'
      },
      child: (job) => job.data,
    })
    const added = await queue.add('parent')
    run()
    expect(await added.result()).toBe('done')
    const { jobs } = await queue.list({ parent: added.id })
    expect(jobs.map(({ data }) => data)).toEqual([2])
  })

  test.each(['ctx.add', 'add in complete', 'continueWith'])(
    'an attempt whose %s is not awaited fails if that has failed, however long ago',
    async (call) => {
      const fails = (add: (name: string, data: never) => Promise<unknown>): Promise<void> => {
        void add('child', (() => {}) as never)
        return new Promise((resolve) => void setImmediate(resolve))
      }
      const { queue, run } = stage(await make(kind), {
        parent: async (_job, ctx) => {
          if (call === 'ctx.add') await fails(ctx.add)
          else await ctx.complete(({ add, continueWith }) => fails(call === 'continueWith' ? continueWith : add))
          return 'all is well'
        },
        // Code that handles the error decides for itself.
        handles: async (_job, ctx) => {
          await ctx.add('child', () => {}).catch(() => {})
          await ctx.complete(async ({ add }) => void (await add('child', () => {}).catch(() => {})))
          return 'handled'
        },
      })
      const [added, handled] = await Promise.all([queue.add('parent', 1, { attempts: 1 }), queue.add('handles')])
      run()
      await expect(added.result()).rejects.toMatchObject({ message: expect.stringContaining('JSON') as string })
      expect((await added.refresh()).error?.code).toBe('INVALID_DATA')
      expect(await handled.result()).toBe('handled')
    },
  )

  test('children are added in the commit that completes their parent, also from inside of complete', async () => {
    const { queue, run } = stage(await make(kind), {
      parent: async (_job, ctx) => {
        await ctx.add('child', 'outside')
        await ctx.complete(async ({ add }) => {
          await add('child', 'inside')
          await ctx.add('child', 'by the context')
        })
        void ctx.add('child', 'not awaited')
        return 'done'
      },
    })
    const added = await queue.add('parent')
    run()
    await added.result()
    const { jobs } = await queue.list({ parent: added.id })
    expect(new Set(jobs.map(({ data }) => data))).toEqual(
      new Set(['by the context', 'inside', 'not awaited', 'outside']),
    )
  })

  test('a child that stands already is waited for in place of a new one', async () => {
    const { queue, run } = stage(await make(kind), {
      parent: async (_job, ctx) => {
        const ended = await ctx.dependencies()
        if (ended.length > 0) return ended.map(({ id }) => id)
        const twice = await ctx.add('child', 1, { id: 'fixed' })
        const keyed = await ctx.add('child', 2, { dedup: { key: 'once' } })
        return ctx.waitFor([twice, keyed])
      },
      child: () => 'done',
    })
    await queue.add('child', 1, { id: 'fixed' })
    const standing = await queue.add('child', 2, { dedup: { key: 'once' }, delay: '1h' })
    const added = await queue.add('parent', undefined, { priority: -1 })
    const waits = event(queue, 'waiting-children')
    run()
    await waits
    await standing.promote()
    expect(await added.result()).toEqual(['fixed', standing.id])
  })

  test('a failed child fails its parent, or is ignored, as the wait declares', async () => {
    const { queue, run } = stage(await make(kind), {
      parent: async (job, ctx) => {
        const ended: readonly Ended[] = await ctx.dependencies()
        if (ended.length > 0) return ended
        const bad = await ctx.add('bad', undefined, { attempts: 1 })
        const good = await ctx.add('good')
        return ctx.waitFor([{ job: bad, onFailure: job.data as 'fail' }, good], { onFailure: 'ignore' })
      },
      bad: () => {
        throw new TypeError('as planned')
      },
      good: () => 1,
    })
    const fatal = await queue.add('parent', 'fail')
    const ignoring = await queue.add('parent', 'ignore')
    run()
    await expect(fatal.result()).rejects.toMatchObject({ code: 'JOB_FAILED' })
    expect(await ignoring.result()).toMatchObject([
      { name: 'bad', status: 'failed', error: { name: 'TypeError', message: 'as planned' } },
      { name: 'good', status: 'completed', result: 1 },
    ])
  })

  test('a wait for what has been waited for already is refused', async () => {
    const { queue, run } = stage(await make(kind), {
      part: () => 1,
      parent: async (_, ctx) => {
        const part = await ctx.add('part', 1, { id: 'always the same' })
        return ctx.waitFor(part)
      },
    })
    const added = await queue.add('parent', undefined, { attempts: 1 })
    run()
    await expect(added.result()).rejects.toThrow('has waited for all of these')
  })

  test('what cannot be waited for fails the attempt with a reason', async () => {
    const { queue, run, worker } = stage(await make(kind), {
      parent: (job, ctx) => ctx.waitFor(job.data as string[]),
      late: async (_job, ctx) => {
        await ctx.complete(() => 1)
        return ctx.waitFor('other')
      },
    })
    for (const [name, data, code] of [
      ['parent', [], 'INVALID_OPTION'],
      ['parent', ['own'], 'WAIT_CYCLE'],
      ['parent', ['nobody'], 'DEPENDENCY_MISSING'],
      ['late', null, 'CALLED_OUT_OF_ORDER'],
    ] as const) {
      const failed = event(worker, 'failed')
      await queue.add(name, data, {
        id: data?.[0] === 'own' ? 'own' : `job-${code}-${name}-${data?.length}`,
        attempts: 1,
      })
      run()
      expect((await failed).error.code).toBe(code)
    }
  })

  test('a parent that is retried by hand after its child was has the result', async () => {
    let broken = true
    const { queue, run } = stage(await make(kind), {
      parent: async (_job, ctx) => await ctx.dependencies(),
      child: () => {
        if (broken) throw new Error('broken')
        return 'mended'
      },
    })
    const child = await queue.add('child', undefined, { attempts: 1 })
    const parent = await queue.add('parent', undefined, { after: child })
    const failed = event(queue, 'failed', ({ id }) => id === parent.id)
    run()
    await failed
    broken = false
    await child.retry()
    expect(await child.result()).toBe('mended')
    await parent.retry()
    expect(await parent.result()).toMatchObject([{ status: 'completed', result: 'mended' }])
  })

  test('removing a job that others wait for is refused with the list of them, unless cascaded', async () => {
    const { queue } = stage(await make(kind), { none: () => 0 })
    const base = await queue.add('base')
    const first = await queue.add('next', 1, { after: base })
    const second = await queue.add('next', 2, { after: [base, first] })
    const third = await queue.add('next', 3, { after: second })
    const other = await queue.add('other')
    await expect(base.remove()).rejects.toMatchObject({
      code: 'JOB_HAS_DEPENDENTS',
      details: { dependents: [first.id, second.id] },
    })
    await expect(queue.remove(base.id, { cascade: 'yes' as never })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    expect(await queue.remove(base.id, { cascade: true })).toBe(true)
    for (const each of [base, first, second, third]) expect(await queue.get(each.id)).toBeUndefined()
    expect(await queue.get(other.id)).toBeDefined()
  })

  test('cancelling with cascade cancels the children, to any depth', async () => {
    const { queue, run } = stage(await make(kind), {
      parent: async (job, ctx) =>
        ctx.waitFor(
          await ctx.add(job.data === 0 ? 'slow' : 'parent', (job.data as number) - 1, {
            delay: job.data === 0 ? '1h' : 0,
          }),
        ),
    })
    const added = await queue.add('parent', 2)
    const deepest = event(queue, 'delayed')
    run()
    const { id } = await deepest
    expect(await queue.cancel(added.id, { cascade: true })).toBe(true)
    expect((await queue.get(id))!.state).toBe('cancelled')
    expect((await queue.counts()).cancelled).toBe(4)
    expect((await queue.counts()).failed).toBe(0)
  })
})

test('a handler that lost its lease does not read what a later attempt waits for as cancelled', async () => {
  const store = closing(memory())
  const queue = new Queue('q', { store })
  const handler: { started(): void; goOn(): void; read(dependencies: unknown): void } = {
    ...{ started: () => {}, goOn: () => {}, read: () => {} },
  }
  const started = new Promise<void>((resolve) => void (handler.started = resolve))
  const mayGoOn = new Promise<void>((resolve) => void (handler.goOn = resolve))
  const read = new Promise<unknown>((resolve) => void (handler.read = resolve))
  const worker = new Worker(
    queue,
    {
      parent: async (_job, ctx) => {
        handler.started()
        await mayGoOn
        handler.read(await ctx.dependencies().catch((error: unknown) => error))
      },
    },
    { logger: false },
  )
  const job = await queue.add('parent')
  await started
  const child = await queue.add('child', undefined, { delay: '1h' })
  const [record] = await store.get([job.id])
  const waits = { ...move(record!, 'waiting-children'), waitsFor: [{ on: child.id, policy: 'fail' as const }] }
  const { groups } = await store.commit({ writer: 'another', seq: 1, groups: [[waits]], renewals: [], asks: [] })
  expect(groups).toMatchObject([{ ok: true }])
  handler.goOn()
  expect(await read).toMatchObject({ code: 'LEASE_LOST' })
  await worker.close()
  await queue.close()
})

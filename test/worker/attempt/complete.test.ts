// `ctx.complete` on a store without transactions: the settlement and the jobs it brings are one group.
import { describe, expect, it } from 'vitest'
import { Worker, defineJobs, job } from 'millrace'
import { memory } from 'millrace/memory'
import { z } from 'zod'
import { closing, collect, event, newQueue, newStore, newWorker } from '../../setup.js'

describe('ctx.complete without transactions', () => {
  it('settles, adds and continues in one commit', async () => {
    const store = closing(memory())
    const groups: string[][] = []
    const received: typeof store = Object.assign(Object.create(store) as typeof store, {
      commit: (batch: Parameters<typeof store.commit>[0]) => {
        for (const group of batch.groups)
          groups.push(group.map((change) => `${change.kind} ${'to' in change ? change.to : ''}`.trim()))
        return store.commit(batch)
      },
    })
    const queue = newQueue({ store: received })
    newWorker(queue, {
      first: async (_job, ctx) => {
        await ctx.complete(async ({ add, continueWith }) => {
          await add('also', 1)
          await continueWith('next', 2)
        })
        return 'first'
      },
      next: async (current) => `${current.chainIndex} ${String(current.data)}`,
    })
    const waits = event(queue, 'completed', ({ name }) => name === 'next')
    const first = await queue.add('first')
    const dependent = await queue.add('dependent', 1, { after: first })
    expect(await first.result()).toBe('first')
    expect((await waits).result).toBe('1 2')
    expect(groups).toContainEqual(['move completed', 'insert', 'insert'])
    expect((await dependent.refresh()).state).toBe('waiting') // released by the end of the chain, not of its first job
    expect((await queue.list({ name: 'also' })).jobs).toHaveLength(1)
  })

  it('undoes all of it over an error that comes after it', async () => {
    const queue = newQueue()
    newWorker(queue, {
      first: async (current, ctx) => {
        await ctx.complete(async ({ add, continueWith }) => {
          await add('also')
          await continueWith('next')
        })
        if (current.attempt === 1) throw new Error('after complete')
      },
    })
    await (await queue.add('first', 1, { backoff: 1 })).result()
    expect((await queue.list()).jobs.map(({ name }) => name)).toEqual(['first', 'also', 'next'])
  })

  it('gives the defaults and the schemas of the queue to what it adds', async () => {
    const jobs = defineJobs({
      first: job<undefined, void>(),
      next: job({ input: z.object({ n: z.coerce.number() }), attempts: 7 }),
    })
    const queue = newQueue({ jobs, defaults: { priority: 4 }, retention: { deleteAfter: '1h' } })
    const errors: unknown[] = []
    closing(
      new Worker(
        queue,
        {
          first: async (_job, ctx) => {
            await ctx.complete(async ({ add, continueWith }) => {
              await add('next', { n: 'x' }).catch((error: unknown) => errors.push(error))
              await continueWith('next', { n: '5' }, { priority: 9 })
              await add('next', { n: 6 })
            })
          },
        },
        { logger: false },
      ),
    )
    await (await queue.add('first')).result()
    const { jobs: added } = await queue.list({ name: 'next' })
    expect(errors).toMatchObject([{ code: 'INVALID_PAYLOAD' }])
    expect(added.map(({ attempts, priority, data }) => ({ attempts, priority, data }))).toEqual([
      { attempts: 7, priority: 4, data: { n: 6 } },
      { attempts: 7, priority: 9, data: { n: '5' } },
    ])
  })

  it('works in a worker that was given names of queues', async () => {
    const store = newStore()
    const one = newQueue({ store, name: 'one' })
    const two = newQueue({ store, name: 'two' })
    closing(
      new Worker(
        ['one', 'two'],
        { n: async (_job, ctx) => ctx.complete(async ({ add }) => void (await add('child'))) },
        { store, logger: false },
      ),
    )
    await (await one.add('n')).result()
    await (await two.add('n')).result()
    expect((await one.list({ name: 'child' })).jobs).toHaveLength(1)
    expect((await two.list({ name: 'child' })).jobs).toHaveLength(1)
  })

  it('leaves out what stands already, and returns that where it was not wanted', async () => {
    const queue = newQueue()
    const standing = await queue.add('child', 'standing', { dedup: { key: 'k' }, delay: '1h' })
    const windowed = await queue.add('child', 'windowed', { dedup: { key: 'w', window: '1h' } })
    await queue.remove(windowed.id)
    await queue.add('child', 'by id', { id: 'given' })
    newWorker(queue, {
      keeps: async (_job, ctx) =>
        ctx.complete(async ({ add, continueWith }) => {
          await add('child', 1, { dedup: { key: 'k' } })
          await add('child', 2)
          await add('child', 3, { dedup: { key: 'w' } })
          await add('child', 4, { id: 'given' })
          await add('child', 5, { dedup: { key: 'twice' } })
          await add('child', 6, { dedup: { key: 'twice' } })
          await add('child', 7)
          await continueWith('child', 8)
        }),
      rejects: async (_job, ctx) =>
        ctx.complete(async ({ add }) => {
          await add('child', 'never')
          await add('child', 'never', { dedup: { key: 'k', mode: 'reject' } })
        }),
      replaces: async (_job, ctx) =>
        ctx.complete(async ({ add }) => add('child', 'never', { dedup: { key: 'k', mode: 'replace' } })),
      clashes: async (_job, ctx) => ctx.complete(async ({ continueWith }) => continueWith('other', 1, { id: 'given' })),
      depends: async (_job, ctx) => ctx.complete(async ({ add }) => add('child', 'never', { after: 'nowhere' })),
    })
    await (await queue.add('keeps')).result()
    const { jobs } = await queue.list({ name: 'child' })
    expect(jobs.map(({ data }) => data)).toEqual(['standing', 'by id', 2, 5, 7, 8])
    expect((await standing.refresh()).data).toBe('standing')

    const failure = async (name: string): Promise<unknown> => {
      const added = await queue.add(name, 1, { attempts: 1 })
      await added.result().catch(() => {})
      return (await added.refresh()).error?.code
    }
    expect(await failure('rejects')).toBe('DUPLICATE_JOB')
    expect(await failure('replaces')).toBe('INVALID_OPTION')
    expect(await failure('clashes')).toBe('DUPLICATE_ID')
    expect(await failure('depends')).toBe('DEPENDENCY_MISSING')
    expect((await queue.list({ name: 'child' })).jobs).toHaveLength(6)
  })

  it('is reported as any other settlement', async () => {
    const queue = newQueue()
    const worker = newWorker(queue, async (_job, ctx) => ctx.complete(async () => 'done'))
    const seen = collect(worker, ['active', 'completed'])
    const completed = event(worker, 'completed')
    expect(await (await queue.add('n')).result()).toBe('done')
    expect((await completed).result).toBe('done')
    expect(seen).toEqual(['active', 'completed'])
  })

  it('does not settle a job that was cancelled meanwhile', async () => {
    const queue = newQueue()
    newWorker(queue, async (current, ctx) => {
      await ctx.complete(async ({ add }) => void (await add('child')))
      await queue.cancel(current.id)
      return 'too late'
    })
    const added = await queue.add('n')
    await expect(added.result()).rejects.toMatchObject({ code: 'JOB_CANCELLED' })
    expect((await queue.list()).jobs.map(({ name }) => name)).toEqual(['n'])
  })
})

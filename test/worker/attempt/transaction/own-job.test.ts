// A handler's transaction settles its job: nothing else ends that job inside of it.
import { describe, expect, it } from 'vitest'
import { Queue, UnrecoverableError, Worker } from 'millrace'
import type { Job, JobContext } from 'millrace'
import { closing } from '../../../setup.js'
import { stores, transacting } from '../../../stores.js'

const open = stores()

type Ending = (queue: Queue, job: Job, ctx: JobContext) => Promise<unknown>

const endings: Readonly<Record<string, Ending>> = {
  'cancelled by its handle': (_queue, job) => job.cancel(),
  'cancelled by its id': (queue, job) => queue.cancel(job.id),
  'cancelled by a filter': (queue) => queue.cancel({ name: 'n' }),
  'cancelled in a savepoint': (queue, job) => queue.transaction(async () => queue.cancel(job.id)),
  removed: (queue, job) => queue.remove(job.id),
  'completed as the chain it is': (queue, job) => queue.chain(job.id).complete(({ complete }) => complete(() => 1)),
}

describe.each(transacting)('on %s, inside ctx.complete one’s own job', (kind) => {
  async function setUp(handler: (job: Job, ctx: JobContext, queue: Queue) => Promise<unknown>): Promise<Queue> {
    const queue: Queue = closing(new Queue('work', { store: await open(kind), logger: false }))
    closing(new Worker(queue, { n: (job, ctx) => handler(job, ctx, queue) }, { logger: false }))
    return queue
  }

  it.each(Object.entries(endings))('cannot be %s; who catches that goes on', async (_how, end) => {
    const queue = await setUp(async (job, ctx) =>
      ctx.complete(async () => {
        const error: unknown = await end(queue, job, ctx).catch((each: unknown) => each)
        await queue.add('beside', 1)
        return (error as { code?: string }).code
      }),
    )
    const added = await queue.add('n')
    expect(await added.result()).toBe('OWN_JOB')
    expect(await added.refresh()).toMatchObject({ state: 'completed', attempt: 1 })
    expect((await queue.list({ name: 'beside' })).jobs).toHaveLength(1)
  })

  it('fails for good, once, where that is not caught', async () => {
    const queue = await setUp(async (job, ctx) => ctx.complete(async () => job.cancel()))
    const added = await queue.add('n', 1, { attempts: 5, backoff: 1 })
    await expect(added.result()).rejects.toMatchObject({
      details: { error: { code: 'OWN_JOB', message: expect.stringContaining('UnrecoverableError') as string } },
    })
    expect(await added.refresh()).toMatchObject({ state: 'failed', attempt: 1 })
  })

  it('is failed for good by throwing, and others may be cancelled', async () => {
    const queue = await setUp(async (_job, ctx) => {
      await ctx.prepare({ mode: 'staged' }, async () => queue.cancel({ name: 'other' }))
      throw new UnrecoverableError('enough')
    })
    const other = await queue.add('other')
    const added = await queue.add('n', 1, { attempts: 5 })
    await expect(added.result()).rejects.toMatchObject({ details: { error: { message: 'enough' } } })
    expect(await other.refresh()).toMatchObject({ state: 'cancelled' })
  })

  it('can be cancelled outside of it, between prepare and complete', async () => {
    const queue = await setUp(async (job, ctx) => {
      await ctx.prepare({ mode: 'staged' }, async () => {})
      await job.cancel()
      return ctx.complete(async () => queue.add('not to be'))
    })
    const added = await queue.add('n', 1, { attempts: 5 })
    await expect(added.result()).rejects.toMatchObject({ code: 'JOB_CANCELLED' })
    expect((await queue.list({ name: 'not to be' })).jobs).toEqual([])
  })
})

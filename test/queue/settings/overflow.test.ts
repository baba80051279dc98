// `onFull: 'drop-oldest'` wherever a job is added: in flows, beside and after a settlement, and by schedules.
import { describe, expect, test } from 'vitest'
import { FlowProducer, Queue, Worker } from 'millrace'
import type { AnyJobs, Handlers, Job, Store } from 'millrace'
import { closing, event } from '../../setup.js'
import { kinds, stores } from '../../stores.js'

const make = stores()

async function stage(store: Store, maxBacklog: number) {
  const queue = closing(new Queue('drops', { store, logger: false, defaults: { attempts: 1 } }))
  await queue.limit({ group: { maxBacklog, onFull: 'drop-oldest' } })
  const fill = (...names: string[]) =>
    queue.addBulk(names.map((name) => ({ name: 'held', options: { id: name, group: 'g' } })))
  const work = (handlers: Handlers<AnyJobs>) => closing(new Worker(queue, handlers, { logger: false }))
  const dropped = async (): Promise<string[]> => {
    const { jobs } = await queue.list({ state: 'cancelled' })
    for (const { error } of jobs) expect(error?.code).toBe('JOB_DROPPED')
    return jobs.map(({ id }) => id)
  }
  return { queue, fill, work, dropped, flows: closing(new FlowProducer({ store })) }
}

describe.each(kinds)('on %s', (kind) => {
  test('a flow pushes out as many as it needs, and is refused whole where it alone is too much', async () => {
    const { queue, fill, dropped, flows } = await stage(await make(kind), 3)
    await fill('a', 'b', 'c')
    const child = { name: 'child', queueName: 'drops', options: { group: 'g' } }
    await flows.add({ name: 'parent', queueName: 'drops', children: [child, child] })
    expect(await dropped()).toEqual(['a', 'b'])
    const root = { name: 'parent', queueName: 'drops', options: { group: 'g' } }
    await expect(flows.add({ ...root, children: [child, child, child] })).rejects.toMatchObject({
      code: 'QUEUE_FULL',
      details: { node: 'the root' },
    })
    expect(await dropped()).toEqual(['a', 'b'])
    expect(await queue.counts()).toMatchObject({ waiting: 3, 'waiting-children': 1 })
  })

  test('several flows at once push out one for each, and none too many', async () => {
    const { queue, dropped, flows } = await stage(await make(kind), 2)
    const one = { name: 'held', queueName: 'drops', options: { group: 'g' } }
    await Promise.all(Array.from({ length: 5 }, () => flows.addBulk([one, one])))
    expect(await queue.counts()).toMatchObject({ waiting: 2, cancelled: 8 })
    expect(await dropped()).toHaveLength(8)
  })

  test('children added by a handler push out the oldest, with its settlement or when it waits for them', async () => {
    const { queue, fill, work, dropped } = await stage(await make(kind), 2)
    await fill('a', 'b')
    work({
      adds: async (_, ctx) => void (await ctx.add('held', 1, { group: 'g', id: 'c' })),
      completes: (_, ctx) => ctx.complete(async ({ add }) => void (await add('held', 1, { group: 'g', id: 'd' }))),
      waits: async (_, ctx) => {
        if ((await ctx.dependencies()).length === 0) {
          // One of them stands already: both are sorted out together.
          const both = [ctx.add('held', 1, { id: 'd' }), ctx.add('quick', 1, { group: 'g', id: 'e' })]
          ctx.waitFor((await Promise.all(both)).slice(1))
        }
        return 'waited'
      },
      quick: () => 'quick',
    })
    await (await queue.add('adds')).result()
    expect(await dropped()).toEqual(['a'])
    await (await queue.add('completes')).result()
    expect(await dropped()).toEqual(['a', 'b'])
    expect(await (await queue.add('waits')).result()).toBe('waited')
    expect((await dropped()).toSorted()).toEqual(['a', 'b', 'c'])
  })

  test('a chain goes on though its next job has to push out another', async () => {
    const { queue, fill, work, dropped } = await stage(await make(kind), 1)
    await fill('a')
    work({
      first: (_, ctx) =>
        ctx.complete(async ({ continueWith }) => void (await continueWith('second', 1, { group: 'g' }))),
      second: () => 'second',
    })
    expect(await queue.chain(await queue.add('first')).result()).toBe('second')
    expect(await dropped()).toEqual(['a'])
    await fill('b')
    const approval = await queue.add('approval')
    await queue.chain(approval).complete(({ complete }) =>
      complete(async ({ add, continueWith }) => {
        await add('held', 1, { id: 'aside' })
        await continueWith('second', 2, { group: 'g' })
      }),
    )
    expect(await queue.chain(approval).result()).toBe('second')
    expect(await dropped()).toEqual(['a', 'b'])
    expect((await queue.get('aside'))?.state).toBe('waiting')
  })

  test('a run of a schedule pushes out the oldest, once for all who look after it', async () => {
    const { queue, fill, work, dropped } = await stage(await make(kind), 2)
    await fill('a', 'b')
    const done = event(queue, 'completed', ({ name }) => name === 'run')
    await queue.schedule('k', { every: '50ms', limit: 1, name: 'run', options: { group: 'g' } })
    for (let each = 0; each < 3; each++) work({ run: (job: Job) => job.group })
    await done
    expect(await dropped()).toEqual(['a'])
    expect(await queue.schedules()).toMatchObject([{ count: 1, skipped: undefined, state: 'ended' }])
  })

  test('a group that rejects refuses all of them', async () => {
    const { queue, fill, work, dropped, flows } = await stage(await make(kind), 1)
    await queue.limit({ group: { onFull: 'reject' } })
    await fill('a')
    work({
      first: (_, ctx) => ctx.complete(async ({ continueWith }) => void (await continueWith('n', 1, { group: 'g' }))),
      adds: async (_, ctx) => void (await ctx.add('n', 1, { group: 'g' })),
    })
    for (const name of ['first', 'adds']) {
      const refused = (await queue.add(name)).result()
      await expect(refused).rejects.toMatchObject({ code: 'JOB_FAILED', cause: { code: 'QUEUE_FULL' } })
    }
    const flow = flows.add({ name: 'n', queueName: 'drops', options: { group: 'g' } })
    await expect(flow).rejects.toMatchObject({ code: 'QUEUE_FULL' })
    expect(await dropped()).toEqual([])
  })
})

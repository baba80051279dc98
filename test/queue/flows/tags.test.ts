// Tags of jobs that belong together: of flows, chains, children and dependents. Each job has its own.
import { describe, expect, test } from 'vitest'
import { FlowProducer } from 'millrace'
import type { Queue } from 'millrace'
import { closing, newQueue, newWorker } from '../../setup.js'
import { served, stores } from '../../stores.js'

const make = stores()

/** The names of the jobs with a tag, the oldest first. */
async function tagged(queue: Queue, tag: string): Promise<readonly string[]> {
  return (await queue.list({ tags: tag })).jobs.map(({ name }) => name)
}

describe.each(served)('on %s', (kind) => {
  test('the jobs of a flow are found by their own tags, before and after it has ended', async () => {
    const store = await make(kind)
    const queue = newQueue({ store })
    const flows = closing(new FlowProducer({ store }))
    const { job, children } = await flows.add({
      name: 'report',
      queueName: 'work',
      options: { tags: ['tenant:7', 'report'] },
      children: [
        { name: 'fetch', queueName: 'work', options: { tags: ['tenant:7', 'fetch'] } },
        { name: 'plain', queueName: 'work' },
      ],
    })
    expect(job.tags).toEqual(['tenant:7', 'report'])
    expect(children.map((child) => child.job.tags)).toEqual([['tenant:7', 'fetch'], []])
    const before = await tagged(queue, 'tenant:7')
    expect(before.toSorted()).toEqual(['fetch', 'report'])
    await newWorker(queue, () => 'done').run({ until: 'drained' })
    expect(await tagged(queue, 'tenant:7')).toEqual(before)
    expect(await queue.count({ tags: 'tenant:7', state: 'completed' })).toEqual({ count: 2, exact: true })
    expect(await queue.count({ tags: { all: ['tenant:7', 'fetch'] }, parent: job.id })).toEqual({
      count: 1,
      exact: true,
    })
    expect(await queue.remove({ tags: 'report' })).toBe(1)
    expect(await tagged(queue, 'tenant:7')).toEqual(['fetch'])
  })

  test('a flow of which one job has bad tags is refused whole', async () => {
    const store = await make(kind)
    const flows = closing(new FlowProducer({ store }))
    const children = [{ name: 'fetch', queueName: 'work', options: { tags: ['twice', 'twice'] } }]
    await expect(flows.add({ name: 'report', queueName: 'work', children })).rejects.toMatchObject({
      code: 'INVALID_TAGS',
    })
    expect((await newQueue({ store }).list()).jobs).toEqual([])
  })

  test('a continuation, a child and a dependent have the tags they are given, and none of the job before', async () => {
    const queue = newQueue({ store: await make(kind) })
    const first = await queue.add('first', 1, { tags: ['order:1'] })
    const dependent = await queue.add('dependent', 1, { after: first, tags: ['order:1', 'after'] })
    const worker = newWorker(queue, {
      first: async (_job, ctx) => {
        await ctx.add('beside', 1, { tags: ['order:1'] })
        return ctx.complete(({ continueWith }) => continueWith('second', 1, { tags: ['second'] }))
      },
      second: (_job, ctx) => ctx.complete(({ continueWith }) => continueWith('third', 1)),
      third: () => 'done',
      beside: () => 'done',
      dependent: () => 'done',
    })
    await worker.run({ until: 'drained' })
    expect((await dependent.refresh()).state).toBe('completed')
    expect((await tagged(queue, 'order:1')).toSorted()).toEqual(['beside', 'dependent', 'first'])
    expect(await tagged(queue, 'second')).toEqual(['second'])
    const chain = await queue.list({ chain: first.id })
    expect(chain.jobs.map(({ name, tags }) => [name, tags])).toEqual([
      ['first', ['order:1']],
      ['second', ['second']],
      ['third', []],
    ])
    expect((await queue.list({ chain: first.id, tags: 'second' })).jobs).toHaveLength(1)
    await queue.chain(first.id).remove()
    expect((await tagged(queue, 'order:1')).toSorted()).toEqual(['beside', 'dependent'])
    expect(await tagged(queue, 'second')).toEqual([])
  })
})

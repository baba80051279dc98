// Bulk operations with filters of tags, times and errors: what they find, in every pass.
import { describe, expect, test } from 'vitest'
import { FlowProducer } from 'millrace'
import type { JobFilter, Queue, Store } from 'millrace'
import { runBulk } from '../../../../src/queue/operations/bulk/run.js'
import { connect } from '../../../../src/store/connection.js'
import { closing, newQueue, newWorker } from '../../../setup.js'
import { kinds, stores } from '../../../stores.js'

const make = stores()

/** Runs an operation to its end; returns what it has done. */
async function operate(store: Store, queue: Queue, request: Parameters<Queue['operate']>[0]): Promise<unknown> {
  const operation = await queue.operate(request)
  const [row] = await store.get([operation.id])
  await runBulk(
    { connection: connect(store), lease: 10_000, now: () => Date.now() + 1_000, stopped: () => false },
    row!,
  )
  return (await operation.refresh()).toJSON()
}

describe.each(kinds)('on %s', (kind) => {
  /** A parent that failed because its child did, of one tag, and a job of another that failed as the child did. */
  const scene = async (): Promise<{ store: Store; queue: Queue }> => {
    const store = await make(kind)
    const queue = newQueue({ store })
    const of = (tag: string) => ({ attempts: 1, tags: [tag] })
    const flows = closing(new FlowProducer({ store }))
    const child = { name: 'child', queueName: 'work', options: of('wanted') }
    const { job } = await flows.add({ name: 'parent', queueName: 'work', options: of('wanted'), children: [child] })
    await queue.add('other', 1, of('unwanted'))
    const worker = newWorker(queue, () => Promise.reject(Object.assign(new Error('no'), { code: 'ENOPE' })))
    await expect(job.result()).rejects.toMatchObject({ name: expect.any(String) })
    await expect.poll(async () => (await queue.counts()).failed).toBe(3)
    await worker.close()
    return { store, queue }
  }

  test.each<[string, JobFilter]>([
    ['a tag', { tags: 'wanted' }],
    ['a tag and times of the end', { tags: 'wanted', finished: { from: '1h' }, state: 'failed' }],
    ['a tag and the time of adding', { tags: { any: ['wanted'] }, created: { from: '1h' } }],
  ])('by %s, a failed flow is retried from the bottom up, and others are left alone', async (_what, where) => {
    const { store, queue } = await scene()
    expect(await operate(store, queue, { do: 'retry', where })).toMatchObject({
      state: 'completed',
      done: 2,
      refused: {},
    })
    const { jobs } = await queue.list()
    const states = jobs.map(({ name, state }) => `${name} ${state}`)
    expect(states.toSorted()).toEqual(['child waiting', 'other failed', 'parent waiting-children'])
  })

  test('by the code of an error, what failed with it is removed, page by page from the last that ended', async () => {
    const { store, queue } = await scene()
    const where = { error: { code: 'ENOPE' }, finished: { from: '1h' }, state: 'failed' } as const
    // The parent waits for its child no more, and failed for a reason of its own.
    expect(await operate(store, queue, { do: 'remove', where, rate: { max: 1000, per: '1s' } })).toMatchObject({
      done: 2,
    })
    expect((await queue.list()).jobs.map(({ name }) => name)).toEqual(['parent'])
  })

  test('by tags and times of the end, a call retries more jobs than it does by itself', async () => {
    const store = await make(kind)
    const queue = newQueue({ store })
    const tags = (n: number): readonly string[] => (n % 6 === 0 ? ['skip'] : ['wanted', `n:${n % 3}`])
    await queue.addBulk(Array.from({ length: 1_500 }, (_, n) => ({ name: 'job', data: n, options: { tags: tags(n) } })))
    expect(await queue.cancel({ tags: { any: ['wanted', 'skip'] } })).toBe(1_500)
    expect(await queue.retry({ tags: 'wanted', finished: { from: '1h' } })).toBe(1_250)
    expect(await queue.count({ tags: 'skip', state: 'cancelled' })).toEqual({ count: 250, exact: true })
    expect(await queue.counts()).toMatchObject({ waiting: 1_250, cancelled: 250 })
    expect((await queue.operations()).operations.map((each) => [each.do, each.state, each.done])).toEqual([
      ['retry', 'completed', 1_250],
      ['cancel', 'completed', 1_500],
    ])
  })
})

// Retries by hand of jobs that depend on others: they wait for what goes on, and never run with a failure that was not ignored.
import { describe, expect, test } from 'vitest'
import { FlowProducer, Queue, Worker } from 'millrace'
import type { AnyJobs, Ended, Handlers, Job, Store } from 'millrace'
import { memory } from 'millrace/memory'
import { observed } from '../../observed-store.js'
import { closing, event, newQueue, newWorker } from '../../setup.js'
import { kinds, stores } from '../../stores.js'

const make = stores()

function stage(store: Store, handlers: Handlers<AnyJobs>) {
  const queue = closing(new Queue('work', { store, logger: false, defaults: { attempts: 1 } }))
  const worker = closing(new Worker(queue, handlers, { concurrency: 50, logger: false, autorun: false }))
  return { queue, worker, run: () => void worker.run() }
}

/** Resolves when so many jobs have failed. */
async function failures(queue: Queue, count: number): Promise<void> {
  let seen = 0
  await event(queue, 'failed', () => ++seen === count)
}

/** Handlers of a tree whose leaves fail until they are mended. `given` is what each other job was given, run by run. */
function tree() {
  const given: [id: string, results: readonly unknown[]][] = []
  const leaves = { fail: true }
  const gather = (job: Job, ended: readonly Ended[]): string => {
    given.push([job.id, ended.map((each) => (each.status === 'completed' ? each.result : each.status))])
    return job.id
  }
  const handlers: Handlers<AnyJobs> = {
    leaf: (job) => {
      if (leaves.fail) throw new Error('not yet')
      return `${job.id}!`
    },
    node: async (job, ctx) => gather(job, await ctx.dependencies()),
    own: async (job, ctx) => {
      const ended = await ctx.dependencies()
      if (ended.length > 0) return gather(job, ended)
      return ctx.waitFor(await ctx.add('leaf', undefined, { id: `${job.id}-leaf` }))
    },
  }
  return { given, leaves, handlers }
}

function inOrder<T>(given: readonly (readonly [id: string, T])[]) {
  return given.toSorted(([a], [b]) => a.localeCompare(b))
}

describe.each(kinds)('on %s', (kind) => {
  test('a whole failed flow that is retried waits from the bottom up, and each job runs once with the results', async () => {
    const { given, leaves, handlers } = tree()
    const store = await make(kind)
    const { queue, worker, run } = stage(store, handlers)
    const flows = new FlowProducer({ store, queues: [queue] })
    const leaf = (id: string) => ({ name: 'leaf', queueName: 'work', options: { id } })
    await flows.add({
      name: 'node',
      queueName: 'work',
      options: { id: 'top' },
      children: [
        { name: 'node', queueName: 'work', options: { id: 'left' }, children: [leaf('a'), leaf('b')] },
        { name: 'node', queueName: 'work', options: { id: 'right' }, children: [leaf('c')] },
      ],
    })
    const failed = failures(queue, 6)
    run()
    await failed
    leaves.fail = false
    expect(await queue.retry({ state: 'failed' })).toBe(6)
    expect(await (await queue.get('top'))!.result()).toBe('top')
    await worker.close()
    expect(inOrder(given)).toEqual([
      ['left', ['a!', 'b!']],
      ['right', ['c!']],
      ['top', ['left', 'right']],
    ])
  })

  test('jobs that wait for children of their own, or run after others, wait for them again in whichever order they are retried', async () => {
    const { given, leaves, handlers } = tree()
    const { queue, worker, run } = stage(await make(kind), handlers)
    // Each own job is added before what it waits for, and `last` after it.
    for (const id of ['one', 'two']) await queue.add('own', undefined, { id })
    const last = await queue.add('node', undefined, { id: 'last', after: ['one', 'two'] })
    const failed = failures(queue, 5)
    run()
    await failed
    leaves.fail = false
    expect(await queue.retry({ state: 'failed' })).toBe(5)
    expect(await last.result()).toBe('last')
    await worker.close()
    expect(inOrder(given)).toEqual([
      ['last', ['one', 'two']],
      ['one', ['one-leaf!']],
      ['two', ['two-leaf!']],
    ])
  })

  test('a retry is refused with the failed dependency, and succeeds after that one was retried', async () => {
    const { given, leaves, handlers } = tree()
    const { queue, worker, run } = stage(await make(kind), handlers)
    const leaf = await queue.add('leaf', undefined, { id: 'leaf' })
    const node = await queue.add('node', undefined, { id: 'node', after: [leaf] })
    const failed = failures(queue, 2)
    run()
    await failed
    await expect(node.retry()).rejects.toMatchObject({
      code: 'DEPENDENCY_FAILED',
      details: { id: 'node', dependency: 'leaf' },
    })
    expect(await queue.retry({ name: 'node' })).toBe(0)
    expect((await node.refresh()).state).toBe('failed')
    leaves.fail = false
    await queue.pause()
    expect(await leaf.retry()).toBe(true)
    expect(await node.retry()).toBe(true)
    expect((await node.refresh()).state).toBe('waiting-children')
    await queue.resume()
    expect(await node.result()).toBe('node')
    await worker.close()
    expect(given).toEqual([['node', ['leaf!']]])
  })

  test('a retry that is refused names the job to retry: the last of a chain, its queue if it is another, or that it was removed', async () => {
    const { leaves, handlers } = tree()
    const store = await make(kind)
    const onward: Handlers<AnyJobs> = {
      ...handlers,
      first: (_job, ctx) =>
        ctx.complete(async ({ continueWith }) => void (await continueWith('leaf', undefined, { id: 'second' }))),
    }
    const { queue, run } = stage(store, onward)
    const etl = closing(new Queue('etl', { store, logger: false, defaults: { attempts: 1 } }))
    const elsewhere = closing(new Worker(etl, onward, { logger: false, autorun: false }))
    const first = await etl.add('first', undefined, { id: 'first' })
    const node = await queue.add('node', undefined, { id: 'node', after: [first] })
    const failed = failures(queue, 1)
    run()
    void elsewhere.run()
    await failed
    await expect(node.retry()).rejects.toMatchObject({
      code: 'DEPENDENCY_FAILED',
      message: expect.stringMatching(
        /cannot start over: job first, which it waits for, went on with job second in queue 'etl', and that is failed\. Retry that one first\.$/,
      ) as string,
      details: { id: 'node', dependency: 'first', job: 'second', state: 'failed' },
    })
    await queue.chain('first').remove()
    await etl.chain('first').remove()
    await expect(node.retry()).rejects.toMatchObject({
      message: expect.stringMatching(/job first, which it waits for, was removed\. Add both anew\.$/) as string,
      details: { id: 'node', dependency: 'first', state: 'removed' },
    })
    expect(leaves.fail).toBe(true)
  })

  test('a dependency that fails again fails the job again', async () => {
    const { given, handlers } = tree()
    const { queue, worker, run } = stage(await make(kind), handlers)
    const leaf = await queue.add('leaf', undefined, { id: 'leaf' })
    const node = await queue.add('node', undefined, { id: 'node', after: [leaf] })
    const failed = failures(queue, 2)
    run()
    await failed
    const again = failures(queue, 2)
    expect(await queue.retry({ state: 'failed' })).toBe(2)
    await again
    await worker.close()
    expect((await node.refresh()).error?.code).toBe('DEPENDENCY_FAILED')
    expect(given).toEqual([])
  })
})

test('a retry of many pages starts over those whose dependencies come pages after them', async () => {
  const { given, leaves, handlers } = tree()
  const { queue, worker, run } = stage(await make('memory'), handlers)
  const count = 600 // over a page of parents, and then their children
  await queue.addBulk(Array.from({ length: count }, (_, n) => ({ name: 'own', options: { id: `own-${n}` } })))
  const failed = failures(queue, 2 * count)
  run()
  await failed
  leaves.fail = false
  let seen = 0
  const done = event(queue, 'completed', () => ++seen === 2 * count)
  expect(await queue.retry({ state: 'failed' })).toBe(2 * count)
  await done
  await worker.close()
  expect(given.length).toBe(count)
  expect(given.every(([id, results]) => results[0] === `${id}-leaf!`)).toBe(true)
})

test('jobs that could not start over are read again a few at a time, with their payloads', async () => {
  const of = closing(memory())
  const sizes: number[] = []
  const store: Store = {
    ...observed(of, () => {}),
    get: (ids, tx) => {
      sizes.push(ids.length)
      return of.get(ids, tx)
    },
  }
  const queue = newQueue({ store })
  const child = await queue.add('child', 1, { attempts: 1 })
  const parents = await queue.addBulk(
    Array.from({ length: 120 }, () => ({ name: 'parent', options: { after: child.id } })),
  )
  newWorker(queue, {
    child: () => {
      throw new Error('no')
    },
    parent: () => {},
  })
  for (const parent of parents) await expect(parent.result()).rejects.toMatchObject({ code: 'JOB_FAILED' })
  sizes.length = 0
  expect(await queue.retry({ name: 'parent' })).toBe(0)
  expect(sizes.reduce((sum, n) => sum + n, 0)).toBeGreaterThanOrEqual(120)
  expect(Math.max(...sizes)).toBeLessThanOrEqual(50)
})

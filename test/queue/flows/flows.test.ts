// Flows: trees of jobs that are saved whole, released from their leaves up, and fail by their policies.
import { describe, expect, test } from 'vitest'
import { FlowProducer, Queue, Worker, defineJobs, isMillraceError, job } from 'millrace'
import type { Ended, FlowJob, MillraceError, Store } from 'millrace'
import { limitsOf } from '../../limits.js'
import { closing, event } from '../../setup.js'
import { kinds, stores } from '../../stores.js'

const make = stores()

/** What a call was refused with. */
async function refusal(call: Promise<unknown>): Promise<MillraceError> {
  const error = await call.then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  if (!isMillraceError(error)) throw new Error(`not refused: ${String(error)}`)
  return error
}

function stage(store: Store) {
  const flows = closing(new FlowProducer({ store }))
  const queue = closing(new Queue('reports', { store, logger: false }))
  const etl = closing(new Queue('etl', { store, logger: false }))
  return { flows, queue, etl }
}

const report: FlowJob = {
  name: 'send-report',
  queueName: 'reports',
  data: { reportId: 42 },
  children: [
    { name: 'fetch', queueName: 'etl', data: { source: 'db' } },
    { name: 'fetch', queueName: 'etl', data: { source: 'api' } },
  ],
}

describe.each(kinds)('on %s', (kind) => {
  test('a parent waits for its children in other queues, and is given their results in order', async () => {
    const { flows, queue, etl } = stage(await make(kind))
    const { job, children } = await flows.add(report)
    expect(job.state).toBe('waiting-children')
    expect(children.map((child) => [child.job.state, child.job.parentId])).toEqual([
      ['waiting', job.id],
      ['waiting', job.id],
    ])
    let seen: readonly Ended[] = []
    closing(new Worker(etl, { fetch: (each) => (each.data as { source: string }).source }, { concurrency: 2 }))
    closing(new Worker(queue, { 'send-report': async (_job, ctx) => (seen = await ctx.dependencies()).length }))
    expect(await job.result()).toBe(2)
    expect(seen).toEqual([
      { id: children[0]!.job.id, name: 'fetch', status: 'completed', result: 'db' },
      { id: children[1]!.job.id, name: 'fetch', status: 'completed', result: 'api' },
    ])
  })

  test('a flow of which one job cannot be added is refused whole, and the error names the job', async () => {
    const { flows, etl, queue } = stage(await make(kind))
    await etl.add('fetch', 1, { id: 'taken', dedup: { key: 'once' } })
    const withChild = (options: FlowJob['options'], extra: Partial<FlowJob> = {}): FlowJob => ({
      ...report,
      children: [...report.children!, { name: 'fetch', queueName: 'etl', data: 3, options, ...extra }],
    })
    for (const [flow, code] of [
      [withChild({ id: 'taken' }), 'DUPLICATE_JOB'],
      [withChild({ dedup: { key: 'once' } }), 'DUPLICATE_JOB'],
      [withChild({ after: 'nobody' }), 'DEPENDENCY_MISSING'],
      [withChild({ attempts: 0 }), 'INVALID_ATTEMPTS'],
      [withChild({ delai: 5 } as never), 'UNKNOWN_OPTION'],
      [withChild({}, { data: 1n }), 'INVALID_DATA'],
      [withChild({}, { queueName: '' }), 'INVALID_NAME'],
      [withChild({}, { onFailure: 'explode' as never }), 'INVALID_OPTION'],
      [withChild({}, { children: {} as never }), 'INVALID_OPTION'],
    ] as const) {
      const error = await refusal(flows.add(flow))
      expect([error.code, error.details['node']], error.message).toEqual([code, 'children[2]'])
      expect(error.message).toContain('children[2]')
    }
    const twins: FlowJob = {
      ...report,
      children: ['a', 'a'].map((id) => ({ name: 'x', queueName: 'etl', data: 1, options: { id } })),
    }
    expect(await refusal(flows.add(twins))).toMatchObject({ code: 'DUPLICATE_JOB' })
    const own = { name: 'x', queueName: 'etl', data: 1, children: [] as FlowJob[] }
    own.children.push(own)
    expect(await refusal(flows.add(own))).toMatchObject({ code: 'INVALID_OPTION' })
    expect(await refusal(flows.add(undefined as never))).toMatchObject({ code: 'INVALID_OPTION' })
    expect((await etl.list()).jobs.map(({ id }) => id)).toEqual(['taken'])
    expect((await queue.list()).jobs).toEqual([])
  })

  test('a queue that is full refuses the whole flow', async () => {
    const store = await make(kind)
    const { flows, etl, queue } = stage(store)
    await limitsOf(store, 'etl', { backlog: 1, by: 'queue' })
    expect(await refusal(flows.add(report))).toMatchObject({ code: 'QUEUE_FULL', details: { node: 'children[1]' } })
    expect((await etl.list()).jobs.length + (await queue.list()).jobs.length).toBe(0)
  })

  test('failures are decided by policy, level by level up to the root', async () => {
    const { flows, queue } = stage(await make(kind))
    const leaf = (name: string, onFailure?: FlowJob['onFailure']): FlowJob => ({
      name,
      queueName: 'reports',
      data: null,
      options: { attempts: 1 },
      ...(onFailure && { onFailure }),
    })
    const tree = (onFailure: 'fail' | 'ignore' | 'remove'): FlowJob => ({
      name: 'root',
      queueName: 'reports',
      data: null,
      options: { onChildFailure: 'ignore' },
      children: [
        { name: 'middle', queueName: 'reports', data: null, children: [leaf('bad', onFailure), leaf('good')] },
      ],
    })
    closing(
      new Worker(
        queue,
        {
          bad: () => {
            throw new Error('as planned')
          },
          good: () => 'fine',
          middle: async (_job, ctx) => (await ctx.dependencies()).map(({ status }) => status),
          root: async (_job, ctx) => await ctx.dependencies(),
        },
        { logger: false },
      ),
    )
    const failing = await flows.add(tree('fail'))
    const [middle] = (await failing.job.result()) as Ended[]
    expect(middle).toMatchObject({ name: 'middle', status: 'failed', error: { code: 'DEPENDENCY_FAILED' } })
    expect(middle).not.toHaveProperty('error.stack')
    const ignoring = await flows.add(tree('ignore'))
    expect(await ignoring.job.result()).toMatchObject([{ status: 'completed', result: ['failed', 'completed'] }])
    const removing = await flows.add(tree('remove'))
    expect(await removing.job.result()).toMatchObject([{ name: 'middle', status: 'cancelled' }])
    expect(await queue.get(removing.children[0]!.job.id)).toBeUndefined()
  })

  test('with cancelSiblings, the failure of one child cancels the unfinished others and their children first', async () => {
    const { flows, queue } = stage(await make(kind))
    const slow = (name = 'slow'): FlowJob => ({ name, queueName: 'reports', data: null, options: { delay: '1h' } })
    const { job, children } = await flows.add({
      name: 'parent',
      queueName: 'reports',
      data: null,
      options: { cancelSiblings: true },
      children: [
        { name: 'bad', queueName: 'reports', data: null, options: { attempts: 1 } },
        slow(),
        { ...slow(), onFailure: 'ignore' },
        { name: 'middle', queueName: 'reports', data: null, children: [slow()] },
      ],
    })
    const failed = event(queue, 'failed', ({ id }) => id === job.id)
    closing(
      new Worker(
        queue,
        {
          bad: () => {
            throw new Error('as planned')
          },
          parent: () => 'never',
        },
        { logger: false },
      ),
    )
    await failed
    const states = await Promise.all(children.map(async (child) => (await child.job.refresh()).state))
    expect(states).toEqual(['failed', 'cancelled', 'cancelled', 'cancelled'])
    expect((await children[3].children[0].job.refresh()).state).toBe('cancelled')
    expect((await job.refresh()).error).toMatchObject({ code: 'DEPENDENCY_FAILED' })
  })

  test('with cancelSiblings, more children than are read at a time are all cancelled before their parent', async () => {
    const { flows, queue } = stage(await make(kind))
    const slow: FlowJob = { name: 'slow', queueName: 'reports', data: null, options: { delay: '1h' } }
    const { job, children } = await flows.add({
      name: 'parent',
      queueName: 'reports',
      data: null,
      options: { cancelSiblings: true },
      children: [
        { name: 'bad', queueName: 'reports', data: null, options: { attempts: 1 } },
        { name: 'middle', queueName: 'reports', data: null, children: Array.from({ length: 250 }, () => slow) },
      ],
    })
    const failed = event(queue, 'failed', ({ id }) => id === job.id)
    closing(
      new Worker(
        queue,
        {
          bad: () => {
            throw new Error('as planned')
          },
        },
        { logger: false },
      ),
    )
    await failed
    expect((await children[1].job.refresh()).state).toBe('cancelled')
    expect((await queue.list({ name: 'slow', state: 'delayed', limit: 1 })).jobs).toEqual([])
  })

  test('results of children outlive them', async () => {
    const { flows, queue } = stage(await make(kind))
    const { job } = await flows.add({
      name: 'parent',
      queueName: 'reports',
      data: null,
      children: [{ name: 'child', queueName: 'reports', data: null, options: { removeOnComplete: true } }],
    })
    closing(new Worker(queue, { child: () => ({ n: 1 }), parent: async (_job, ctx) => await ctx.dependencies() }))
    expect(await job.result()).toMatchObject([{ status: 'completed', result: { n: 1 } }])
  })

  test('a tree ten thousand deep is saved and released', { timeout: 60_000 }, async () => {
    const { flows, queue } = stage(await make(kind))
    let tree: FlowJob = { name: 'step', queueName: 'reports', data: 0 }
    for (let depth = 1; depth < 10_000; depth++)
      tree = { name: 'step', queueName: 'reports', data: depth, children: [tree] }
    const { job } = await flows.add(tree)
    expect(job.state).toBe('waiting-children')
    expect((await queue.counts()).waiting).toBe(1)
    expect((await queue.counts())['waiting-children']).toBe(9_999)
  })

  test('ten thousand children are saved in one commit', { timeout: 60_000 }, async () => {
    const { flows, queue } = stage(await make(kind))
    const children = Array.from({ length: 9_999 }, (_, n): FlowJob => ({
      name: 'child',
      queueName: 'reports',
      data: n,
    }))
    const flow = await flows.add({ name: 'parent', queueName: 'reports', data: null, children })
    expect(flow.job.pending).toBe(9_999)
    expect(flow.children[9_998]!.job.data).toBe(9_998)
    expect((await queue.counts()).waiting).toBe(9_999)
  })
})

test.each([
  [{ name: 'fetch' }, "('fetch'): it has no queueName: give it one", 'queue name'],
  [{ name: 'fetch', queue: 'etl' }, 'it has a queue, and no queueName: write queueName', 'queue name'],
  [{ name: 'fetch', queueName: { name: 'etl' } }, 'its queueName must be a string, not', 'queue name'],
  [{ queueName: 'etl' }, "(in queue 'etl'): it has no name: give it one", 'job name'],
])('a job of a flow that does not say what it is or where it goes is refused: %o', async (child, message, what) => {
  const { flows } = stage(await make('memory'))
  const error = await refusal(flows.add({ name: 'report', queueName: 'work', children: [child as unknown as FlowJob] }))
  expect(error).toMatchObject({ code: 'INVALID_NAME', details: { node: 'children[0]', what } })
  expect(error.message).toContain(message)
  expect(error.message).toContain("{ name: 'fetch', queueName: 'etl' }")
})

test('what is repeated cannot be part of a flow', async () => {
  const { flows, queue } = stage(await make('memory'))
  const options = { repeat: { every: '1h' } } as object
  await expect(flows.add({ ...report, options })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  expect(await queue.schedules()).toEqual([])
})

test('queues lend a flow their defaults and their jobs', async () => {
  const store = await make('memory')
  const jobs = defineJobs({ fetch: job<{ source: string }>({ attempts: 7 }) })
  const etl = closing(new Queue('etl', { store, jobs, defaults: { priority: 5 }, retention: { deleteAfter: '1d' } }))
  const flows = closing(new FlowProducer({ store, queues: [etl] }))
  const { job: added } = await flows.add({ name: 'fetch', queueName: 'etl', data: { source: 'db' } })
  expect([added.attempts, added.priority]).toEqual([7, 5])
  // @ts-expect-error refused when compiled, and when run
  const misspelt = flows.add({ name: 'fetsch', queueName: 'etl', data: 1 })
  expect(await refusal(misspelt)).toMatchObject({ code: 'UNKNOWN_JOB' })
  const other = await make('memory')
  expect(() => new FlowProducer({ store: other, queues: [etl] })).toThrow('another store')
})

test('several flows are each added by themselves', async () => {
  const { flows, queue } = stage(await make('memory'))
  const added = await flows.addBulk([report, { name: 'alone', queueName: 'reports', data: 1, children: [] }])
  expect(added.map((flow) => [flow.job.name, flow.children.length])).toEqual([
    ['send-report', 2],
    ['alone', 0],
  ])
  expect((await queue.counts()).waiting).toBe(1)
  await flows.close()
  expect(await refusal(flows.add(report))).toMatchObject({ code: 'QUEUE_CLOSED' })
})

// The jobs around a job: flows, chains, and what waits for what.
import { describe, expect, test } from 'vitest'
import { FlowProducer, Queue, Worker } from 'millrace'
import type { GraphEdge, JobGraph } from 'millrace'
import { portions } from '../../src/store/read-pages.js'
import { DEPENDENTS_LISTED } from '../../src/store/store.js'
import { served, stores } from '../stores.js'
import { closing } from '../setup.js'

const make = stores()

/** The parts of a context that these handlers use. */
interface Adding {
  add(name: string, data: unknown): Promise<unknown>
}
interface Continuing {
  complete(plan: (planning: { continueWith: Adding['add'] }) => Promise<void>): Promise<unknown>
}

const layersIn = ({ nodes }: JobGraph): Record<string, number> =>
  Object.fromEntries(nodes.map(({ name, layer }) => [name, layer]))

/** The edges of a graph by the names of their jobs. */
const linksIn = ({ nodes, edges }: JobGraph): readonly string[] => {
  const names = new Map(nodes.map(({ id, name }) => [id, name]))
  return edges.map(({ kind, from, to }) => `${names.get(from)!} ${kind} ${names.get(to)!}`).toSorted()
}

describe.each(served)('on %s', (kind) => {
  test('a diamond has three layers, and its critical path is the slower side', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const top = await queue.add('top')
    const [left, right] = [await queue.add('left', 0, { after: top }), await queue.add('right', 0, { after: [top] })]
    const bottom = await queue.add('bottom', 0, { after: [left, { job: right, onFailure: 'ignore' }] })
    await queue.add('stranger')
    const graphs = await Promise.all([top, left, bottom].map(({ id }) => queue.graph(id)))
    for (const graph of graphs) {
      expect(layersIn(graph)).toEqual({ top: 0, left: 1, right: 1, bottom: 2 })
      expect(linksIn(graph)).toEqual([
        'left dependency bottom',
        'right dependency bottom',
        'top dependency left',
        'top dependency right',
      ])
      expect(graph.folded).toEqual([])
    }
    expect(graphs[0]!.edges).toContainEqual<GraphEdge>({
      ...{ kind: 'dependency', from: right.id, to: bottom.id, state: 'open', policy: 'ignore' },
    })
    for (const name of ['top', 'right']) {
      const [claimed] = await queue.claim({ names: [name] })
      await claimed!.complete()
    }
    const after = await bottom.graph()
    expect(after.critical[0]).toBe(top.id)
    expect(after.critical.at(-1)).toBe(bottom.id)
    expect(after.criticalTime).toBe(
      after.nodes.filter(({ id }) => after.critical.includes(id)).reduce((sum, { ran }) => sum + ran, 0),
    )
    expect(after.nodes.find(({ name }) => name === 'right')).toMatchObject({ state: 'completed', attempt: 1 })
    expect(JSON.parse(JSON.stringify(after))).toEqual(after)
  })

  test('a flow has its children before their parent, from whichever of its jobs one looks', async () => {
    const store = await make(kind)
    const queue = closing(new Queue('work', { store, logger: false }))
    const flows = closing(new FlowProducer({ store }))
    const { job: root } = await flows.add({
      queueName: 'work',
      name: 'order',
      children: [
        { queueName: 'work', name: 'fetch', children: [{ queueName: 'work', name: 'token' }] },
        { queueName: 'work', name: 'stock' },
      ],
    })
    const graph = await queue.graph(root.id)
    expect(layersIn(graph)).toEqual({ token: 0, stock: 0, fetch: 1, order: 2 })
    expect(linksIn(graph)).toEqual(['fetch dependency order', 'stock dependency order', 'token dependency fetch'])
    const [token] = await queue.list({ name: 'token' }).then(({ jobs }) => jobs)
    expect((await token!.graph()).nodes.map(({ id }) => id).toSorted()).toEqual(
      graph.nodes.map(({ id }) => id).toSorted(),
    )
  })

  test('a chain in a flow is followed from its first job to its last, and then to the parent', async () => {
    const store = await make(kind)
    const queue = closing(new Queue('work', { store, logger: false }))
    const flows = closing(new FlowProducer({ store }))
    const children = [{ queueName: 'work', name: 'draft' }]
    const { job: root } = await flows.add({ queueName: 'work', name: 'publish', children })
    const handlers = {
      draft: (_job: unknown, ctx: Continuing) =>
        ctx.complete(async ({ continueWith }) => void (await continueWith('review', 0))),
      review: () => 1,
      publish: () => 2,
    }
    closing(new Worker(queue, handlers as never, { logger: false }))
    await root.result()
    const graph = await queue.graph(root.id)
    expect(layersIn(graph)).toEqual({ draft: 0, review: 1, publish: 2 })
    expect(linksIn(graph)).toEqual(['draft chain review', 'review dependency publish'])
    expect(graph.critical).toHaveLength(3)
    const [draft] = (await queue.list({ name: 'draft' })).jobs
    expect(linksIn(await draft!.graph())).toEqual(linksIn(graph))
  })

  test('a child that its parent does not wait for comes after it', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const handlers = {
      order: async (_job: unknown, ctx: Adding) => void (await ctx.add('mail', 0)),
      mail: () => 1,
    }
    const order = await queue.add('order', 0)
    closing(new Worker(queue, handlers as never, { logger: false }))
    await order.result()
    const graph = await queue.graph(order.id)
    expect(linksIn(graph)).toEqual(['order child mail'])
    expect(layersIn(graph)).toEqual({ order: 0, mail: 1 })
    const [mail] = (await queue.list({ name: 'mail' })).jobs
    expect(linksIn(await mail!.graph())).toEqual(['order child mail'])
  })

  test('a dependency that has been removed is still in the graph', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const first = await queue.add('first', 0, { removeOnComplete: true })
    const second = await queue.add('second', 0, { after: first })
    const [claimed] = await queue.claim({ names: ['first'] })
    await claimed!.complete()
    const graph = await queue.graph(second.id)
    expect(graph.nodes).toContainEqual(
      expect.objectContaining({ id: first.id, name: 'first', state: 'removed', layer: 0 }),
    )
    expect(linksIn(graph)).toEqual(['first dependency second'])
  })

  test('of very many children, 500 jobs are in the graph and the others are counted by state', async () => {
    const store = await make(kind)
    const queue = closing(new Queue('work', { store, logger: false }))
    const flows = closing(new FlowProducer({ store }))
    const children = Array.from({ length: 900 }, () => ({ queueName: 'work', name: 'part' }))
    const { job: root } = await flows.add({ queueName: 'work', name: 'whole', children })
    for (const claimed of await queue.claim({ names: ['part'], max: 3 })) await claimed.complete()
    const graph = await queue.graph(root.id)
    expect(graph.nodes).toHaveLength(500)
    expect(graph.edges).toHaveLength(499)
    expect(graph.nodes[0]).toMatchObject({ name: 'whole', layer: 1 })
    expect(graph.folded).toMatchObject([{ of: root.id, as: 'children', count: 401, atLeast: false }])
    const states = graph.nodes.map(({ state }) => state)
    const completed = states.filter((state) => state === 'completed').length + (graph.folded[0]!.states.completed ?? 0)
    expect(completed).toBe(3)
    const [part] = (await queue.list({ name: 'part', limit: 1 })).jobs
    const around = await part!.graph()
    expect([around.nodes.length, around.nodes[0]!.id]).toEqual([500, part!.id])
    expect(around.folded.reduce((sum, { count }) => sum + count, 0)).toBe(401)
  })
})

test('of ten thousand children, all are counted', async () => {
  const store = await make('memory')
  const queue = closing(new Queue('work', { store, logger: false }))
  const root = await queue.add('root')
  for (let n = 0; n < 10; n++) {
    const jobs = Array.from({ length: 1_000 }, () => ({ name: 'part', options: { after: root } }))
    await queue.addBulk(jobs)
  }
  const graph = await queue.graph(root.id)
  expect(graph.nodes).toHaveLength(500)
  expect(graph.folded).toEqual([
    { of: root.id, as: 'dependents', count: 9_501, states: { 'waiting-children': 9_501 }, atLeast: false },
  ])
})

test('of more dependents than a store lists, those are counted, and the graph says that there are others', async () => {
  for (const kind of ['memory', 'SQLite'] as const) {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const root = await queue.add('root')
    const jobs = Array.from({ length: DEPENDENTS_LISTED + 1 }, () => ({ name: 'part', options: { after: root } }))
    for (const portion of portions(jobs, 1_000)) await queue.addBulk(portion)
    const { folded } = await queue.graph(root.id)
    expect(folded).toEqual([
      { of: root.id, as: 'dependents', count: 9_501, states: { 'waiting-children': 9_501 }, atLeast: true },
    ])
  }
})

test('of ten thousand children by parentId, 499 are in the graph and the others are counted', async () => {
  const store = await make('memory')
  const queue = closing(new Queue('work', { store, logger: false, maxDataBytes: 1e9 }))
  const handlers = {
    order: async (_job: unknown, ctx: Adding) => {
      await Promise.all(Array.from({ length: 10_000 }, () => ctx.add('part', 0)))
    },
  }
  const order = await queue.add('order', 0)
  closing(new Worker(queue, handlers as never, { logger: false }))
  await order.result()
  const graph = await queue.graph(order.id)
  expect(graph.nodes).toHaveLength(500)
  expect(graph.edges).toHaveLength(499)
  expect(graph.folded).toEqual([
    { of: order.id, as: 'children', count: 9_501, states: { waiting: 9_501 }, atLeast: false },
  ])
})

// conformance/cases/dependencies.ts: cases on dependencies: the commit that ends the last one also releases the dependent.
import { has, must, present, same } from '../check.js'
import { ask, first, ids, openEdge, second } from '../driver.js'
import { area } from '../harness.js'
import { cancel, complete, insert, remove, update } from '../changes.js'

/** Cases of dependencies that complete. */
export const dependencies = area('dependencies', {
  'a job with unfinished dependencies waits for them': async (h) => {
    const d = first(h)
    const child = await d.add('child')
    const parent = await d.add('parent', { after: [child] })
    has(parent, { state: 'waiting-children', pending: 1, dueAt: undefined }, 'a job waits for its dependency')
    same(ids(await d.claim(5)), [child.id], 'a job that waits for another is not claimed')
    const edge = openEdge(parent.id, child.id, 'child')
    same(await d.edges(parent), [edge], 'a dependency not ended is an open edge')
  },

  'a dependent is released in the commit that ends its last dependency': async (h) => {
    const d = first(h)
    const child = await d.running('child')
    const parent = await d.add('parent', { after: [child] })
    const { asks } = await d.commit({ groups: [complete(child)], asks: [ask(1)] })
    const claimed = present(asks[0]?.[0], 'the claim of the settling batch can claim the dependent')
    has(claimed, { id: parent.id, pending: 0, state: 'active' }, 'a released job counts no dependencies')
    same(
      (await d.edges(parent)).map(({ state }) => state),
      ['ended'],
      'an edge whose chain ended well has ended',
    )
  },

  'a job waits for all its dependencies': async (h) => {
    const d = first(h)
    const children = [await d.running('a'), await d.running('b'), await d.running('c')]
    const parent = await d.add('parent', { after: children })
    same(parent.pending, 3, 'each dependency counts')
    for (const [index, child] of children.entries()) {
      has(await d.job(parent), { state: 'waiting-children', pending: 3 - index }, 'each end counts down by one')
      await d.land(complete(child))
    }
    has(await d.job(parent), { state: 'waiting', pending: 0 }, 'the last end releases')
  },

  'two dependencies that end in one batch count twice': async (h) => {
    const d = first(h)
    const [a, b, c] = [await d.running('a'), await d.running('b'), await d.running('c')]
    const parent = await d.add('parent', { after: [a, b, c] })
    await d.commit({ groups: [complete(a), complete(b)] })
    has(await d.job(parent), { pending: 1, state: 'waiting-children' }, 'two ends in one batch count twice')
    await d.land(complete(c))
    has(await d.job(parent), { pending: 0, state: 'waiting' }, 'the third end releases')
  },

  'two dependencies that end in one group count twice': async (h) => {
    const d = first(h)
    const [a, b] = [await d.running('a'), await d.running('b')]
    const parent = await d.add('parent', { after: [a, b] })
    await d.land(complete(a), complete(b))
    has(await d.job(parent), { pending: 0, state: 'waiting' }, 'two ends in one group count twice')
  },

  'two handles that end the last two dependencies at once release the dependent': async (h) => {
    const d = first(h)
    const other = await second(h)
    for (let round = 0; round < 25; round++) {
      const [a, b] = [await d.running(`a-${round}`), await d.running(`b-${round}`)]
      const parent = await d.add('parent', { after: [a, b], queue: 'parents' })
      await Promise.all([d.land(complete(a)), other.land(complete(b))])
      has(await d.job(parent), { pending: 0, state: 'waiting' }, 'no end is lost between two handles')
    }
  },

  'a released job whose date is still ahead is delayed until then': async (h) => {
    const d = first(h)
    const child = await d.running('child')
    const parent = await d.add('parent', { after: [child], run: { in: 60_000 } })
    has(parent, { state: 'waiting-children', dueAt: undefined }, 'dependencies come before a date')
    await d.land(complete(child))
    const released = await d.job(parent)
    has(released, { state: 'delayed', runAt: parent.runAt, dueAt: parent.runAt }, 'a released job waits for its date')
    same(parent.runAt, parent.createdAt + 60_000, 'a delay counts from the add')
    await h.advance(60_000)
    await d.upkeep()
    has(await d.job(parent), { state: 'waiting' }, 'a released job runs when its date has come')
  },

  'a released job whose date has passed waits no longer': async (h) => {
    const d = first(h)
    const child = await d.running('child')
    const parent = await d.add('parent', { after: [child], run: { in: 10_000 } })
    await h.advance(15_000)
    await d.land(complete(child))
    has(await d.job(parent), { state: 'waiting' }, 'a date that has passed delays nothing')
  },

  'an edge to a chain that ended well has ended from the start': async (h) => {
    const d = first(h)
    const child = await d.running('child')
    await d.land(complete(child))
    const parent = await d.add('parent', { after: [child] })
    has(parent, { state: 'waiting', pending: 0 }, 'a job whose dependencies have all ended runs at once')
    same(
      (await d.edges(parent)).map(({ state }) => state),
      ['ended'],
      'an edge to an ended chain has ended from the start',
    )
    const later = await d.add('later', { after: [child], run: { in: 5_000 } })
    has(later, { state: 'delayed', pending: 0 }, 'a job whose dependencies have all ended still waits for its date')
  },

  'an ended dependency counts no more beside an open one': async (h) => {
    const d = first(h)
    const done = await d.running('done')
    await d.land(complete(done))
    const open = await d.running('open')
    const parent = await d.add('parent', { after: [done, open] })
    has(parent, { state: 'waiting-children', pending: 1 }, 'only open dependencies count')
    await d.land(complete(open))
    has(await d.job(parent), { state: 'waiting', pending: 0 }, 'the open one releases')
  },

  'a flow is one group: children first, then the jobs that wait for them': async (h) => {
    const d = first(h)
    const inserted = await d.land(
      insert('leaf-1', 'leaf', { parent: 'middle' }),
      insert('leaf-2', 'leaf', { parent: 'middle' }),
      insert('middle', 'middle', { after: ['leaf-1', 'leaf-2'], parent: 'root' }),
      insert('root', 'root', { after: ['middle'] }),
    )
    same(
      inserted.map(({ pending }) => pending),
      [0, 0, 2, 1],
      'an edge may lead to a job inserted earlier in the group',
    )
    for (const expected of [['leaf-1', 'leaf-2'], ['middle'], ['root']]) {
      const claimed = await d.claim(10)
      same(ids(claimed), expected, 'a flow runs from its leaves to its root')
      await d.commit({ groups: claimed.map((job) => complete(job)) })
    }
  },

  'several edges to one chain count once': async (h) => {
    const d = first(h)
    const child = await d.running('child')
    const next = insert('next', 'child', { chain: { id: child.chainId, index: 1 } })
    const parent = await d.add('parent', { after: [child, child] })
    same(parent.pending, 1, 'two edges to one job count once')
    await d.land(complete(child, { continuation: next }))
    const both = await d.add('parent', { after: [child.id, 'next'], queue: 'other' })
    same(both.pending, 1, 'two edges to two jobs of one chain count once')
    await d.land(complete(await d.claimOne()))
    has(await d.job(parent), { state: 'waiting', pending: 0 }, 'one end releases')
    has(await d.job(both), { state: 'waiting', pending: 0 }, 'one end releases')
  },

  'one end releases many dependents': async (h) => {
    const d = first(h)
    const child = await d.running('child')
    const parents = await d.addMany(120, 'parent', { after: [child] })
    await d.land(complete(child))
    const claimed = await d.claim(200)
    same(new Set(ids(claimed)), new Set(ids(parents)), 'every dependent is released')
  },

  'dependents released by one commit are claimed in the order in which they were added': async (h) => {
    const d = first(h)
    const child = await d.running('child')
    const parents = [await d.add('a', { after: [child] }), await d.add('b', { after: [child] })]
    parents.push(await d.add('c', { after: [child] }))
    await d.land(complete(child))
    same(ids(await d.claim(3)), ids(parents), 'the first to wait is the first to run')
  },

  'a chain is not released while one of its jobs is unfinished': async (h) => {
    const d = first(h)
    const head = await d.running('step')
    const parent = await d.add('parent', { after: [head], queue: 'other' })
    const next = insert('step-2', 'step', { chain: { id: head.id, index: 1 } })
    await d.land([...complete(head, { continuation: next }), { kind: 'release', chain: head.id, outcome: 'completed' }])
    has(await d.job(parent), { state: 'waiting-children', pending: 1 }, 'a chain that continues cannot be released')
  },

  'a chain with a continuation releases only when its last job ends': async (h) => {
    const d = first(h)
    const head = await d.running('step')
    const parent = await d.add('parent', { after: [head], queue: 'other' })
    const chain = (index: number) => ({ chain: { id: head.id, index } })
    await d.land(complete(head, { continuation: insert('step-2', 'step', chain(1)) }))
    has(await d.job(parent), { state: 'waiting-children', pending: 1 }, 'a chain that continues has not ended')
    const late = await d.add('late', { after: [head], queue: 'other' })
    has(late, { state: 'waiting-children', pending: 1 }, 'an edge to the finished head waits for the chain')
    const middle = await d.claimOne()
    has(middle, { id: 'step-2', chainId: head.id, chainIndex: 1 }, 'a continuation belongs to the chain')
    await d.land(complete(middle, { continuation: insert('step-3', 'step', chain(2)) }))
    const atEnd = await d.add('end', { after: ['step-3'], queue: 'other' })
    same((await d.edges(atEnd))[0]?.chain, head.id, 'an edge to any job of a chain is an edge to the chain')
    await d.land(complete(await d.claimOne()))
    for (const job of [parent, late, atEnd]) has(await d.job(job), { state: 'waiting', pending: 0 }, 'its end releases')
    has(
      await d.add('after', { after: [head] }),
      { state: 'waiting' },
      'an edge to the head of an ended chain has ended from the start',
    )
  },

  'an end and a new edge at the same moment never leave a job waiting for ever': async (h) => {
    const d = first(h)
    const other = await second(h)
    for (let round = 0; round < 40; round++) {
      const child = await d.running(`child-${round}`)
      const [, parent] = await Promise.all([
        d.land(complete(child)),
        other.add('parent', { after: [child], queue: 'parents' }),
      ])
      has(await d.job(parent), { state: 'waiting', pending: 0 }, 'a race between an end and a new edge is settled')
    }
    same((await d.claim(100, { queues: ['parents'] })).length, 40, 'every dependent can be claimed')
  },

  'a dependent that is changed while it waits is released all the same': async (h) => {
    const d = first(h)
    const child = await d.running('child')
    const parent = await d.add('parent', { after: [child] })
    await d.land(update(parent, { data: '"new"', priority: 4 }))
    await d.land(complete(child))
    has(await d.job(parent), { state: 'waiting', data: '"new"', priority: 4 }, 'a change does not lose the edge')
  },

  'a dependent that is cancelled or removed stays so when its dependency ends': async (h) => {
    const d = first(h)
    const child = await d.running('child')
    const [cancelled, removed, kept] = [
      await d.add('cancelled', { after: [child] }),
      await d.add('removed', { after: [child] }),
      await d.add('kept', { after: [child] }),
    ]
    await d.land(cancel(cancelled))
    await d.land(remove(removed))
    await d.land(complete(child))
    has(await d.job(cancelled), { state: 'cancelled' }, 'a cancelled dependent is not released')
    must(!(await d.exists(removed.id)), 'a removed dependent does not come back')
    same(ids(await d.claim(5)), [kept.id], 'the other dependents are released')
    must(
      (await d.details(child)).dependents.every((edge) => edge.dependent !== removed.id),
      'a removed job has no edges',
    )
  },
})

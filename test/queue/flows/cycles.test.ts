// Jobs that would wait for one another for ever: refused by name, or explained where a commit could not detect it.
import { describe, expect, test } from 'vitest'
import { FlowProducer, Queue, Worker } from 'millrace'
import type { AnyJobs, Handlers, Job, Store } from 'millrace'
import { cycleAmong } from '../../../src/queue/flows/cycles.js'
import { insert } from '../../../src/conformance/changes.js'
import { closing, event, gate } from '../../setup.js'
import { kinds, stores } from '../../stores.js'

const make = stores()

function stage(store: Store) {
  const queue = closing(new Queue('rings', { store, logger: false, defaults: { attempts: 1 } }))
  const work = (handlers: Handlers<AnyJobs>) => closing(new Worker(queue, handlers, { logger: false, concurrency: 5 }))
  return { queue, work, flows: closing(new FlowProducer({ store })) }
}

/** What a job failed with that was to wait for ever. */
async function cycleOf(job: Job): Promise<unknown> {
  const failed = (await job.result().catch((error: unknown) => error)) as Error
  expect(failed.cause).toMatchObject({ code: 'WAIT_CYCLE' })
  return (failed.cause as Error).message
}

describe.each(kinds)('on %s', (kind) => {
  test('a child does not wait for its parent, nor for one that waits for that', async () => {
    const { queue, work, flows } = stage(await make(kind))
    work({
      child: (job, ctx) => ctx.waitFor(job.data as string),
      parent: () => {},
    })
    await queue.pause()
    const children = [{ name: 'child', queueName: 'rings', data: 'after', options: { id: 'kid' } }]
    const options = { id: 'parent', onChildFailure: 'ignore' } as const
    const { children: added } = await flows.add({ name: 'parent', queueName: 'rings', options, children })
    await queue.add('parent', 1, { id: 'after', after: 'parent' })
    await queue.resume()
    expect(await cycleOf(added[0]!.job)).toContain('kid waits for after, which waits for parent, which waits for kid')
    await (await queue.get('after'))!.result()
  })

  test('a flow in which a job waits for its own ancestor is refused, and one that names a later job is refused with its name', async () => {
    const { queue, flows } = stage(await make(kind))
    const at = (id: string, after: string[], children: object[] = []) =>
      ({ name: 'n', queueName: 'rings', options: { id, after }, children }) as never
    await expect(flows.add(at('root', [], [at('mid', [], [at('leaf', ['root'])])]))).rejects.toMatchObject({
      code: 'WAIT_CYCLE',
      details: { node: 'children[0].children[0]', cycle: ['leaf', 'root', 'mid', 'leaf'] },
    })
    await expect(flows.add(at('own', ['own']))).rejects.toMatchObject({ code: 'WAIT_CYCLE' })
    const later = flows.add(at('root', [], [at('one', ['two']), at('two', [])]))
    await expect(later).rejects.toMatchObject({ code: 'DEPENDENCY_MISSING', details: { node: 'children[0]' } })
    await expect(later).rejects.toThrow('job two of the same flow comes after it')
    await expect(flows.add(at('root', ['nobody']))).rejects.toThrow('there is no job nobody')
    expect(await queue.counts()).toMatchObject({ waiting: 0, 'waiting-children': 0 })
  })

  test('a job does not wait for a child that waits for it, be it new or one that stands', async () => {
    const { queue, work } = stage(await make(kind))
    work({
      fresh: async (job, ctx) => ctx.waitFor(await ctx.add('leaf', 1, { id: 'leaf', after: job.id })),
      stands: async (job, ctx) => {
        await queue.add('leaf', 1, { dedup: { key: 'one' }, after: job.id, id: 'standing' })
        ctx.waitFor(await ctx.add('leaf', 1, { dedup: { key: 'one' }, id: 'never' }))
      },
      own: (job, ctx) => ctx.waitFor(job.id),
      leaf: () => {},
    })
    expect(await cycleOf(await queue.add('fresh', 1, { id: 'a' }))).toContain('a waits for leaf, which waits for a')
    expect(await queue.get('leaf')).toBeUndefined()
    const stands = await queue.add('stands', 1, { id: 'b' })
    expect(await cycleOf(stands)).toContain('b waits for standing, which waits for b')
    expect(await cycleOf(await queue.add('own', 1, { id: 'c' }))).toContain('its own chain')
  })

  test('a chain does not go on with a job that waits for the chain', async () => {
    const { queue, work } = stage(await make(kind))
    work({
      first: (job, ctx) =>
        ctx.complete(async ({ continueWith }) => {
          const { after } = job.data as { after: string[] }
          await continueWith('last', 1, { after })
        }),
      adds: async (job, ctx) => {
        const leaf = await ctx.add('last', 1, { id: 'leaf', after: job.id })
        await ctx.complete(async ({ continueWith }) => void (await continueWith('last', 1, { after: leaf.id })))
      },
      last: () => 'last',
    })
    await queue.pause()
    const own = await queue.add('first', { after: ['own'] }, { id: 'own' })
    const ring = await queue.add('first', { after: ['waiter'] }, { id: 'ring' })
    await queue.add('last', 1, { id: 'between', after: 'ring' })
    await queue.add('last', 1, { id: 'waiter', after: ['between'] })
    const adds = await queue.add('adds', 1, { id: 'adds' })
    const approved = await queue.add('approval', 1, { id: 'approved' })
    await queue.add('last', 1, { id: 'after-approval', after: approved })
    const approving = queue
      .chain(approved)
      .complete(({ complete }) =>
        complete(async ({ continueWith }) => void (await continueWith('last', 1, { after: 'after-approval' }))),
      )
    await expect(approving).rejects.toMatchObject({
      code: 'WAIT_CYCLE',
      details: { cycle: ['approved', 'after-approval', 'approved'] },
    })
    await queue.resume()
    expect(await cycleOf(own)).toContain('own waits for its own chain')
    expect(await cycleOf(ring)).toContain('ring waits for waiter, which waits for between, which waits for ring')
    expect(await cycleOf(adds)).toContain('adds waits for leaf, which waits for adds')
    // What is no cycle goes on.
    const free = await queue.add('last')
    expect(await queue.chain(await queue.add('first', { after: [free.id] })).result()).toBe('last')
  })

  test('two jobs that begin to wait for one another at the same moment are reported by explain', async () => {
    const store = await make(kind)
    const { queue, work } = stage(store)
    // Each looks before the other waits.
    const both = gate()
    let looks = 0
    const details = store.details.bind(store)
    store.details = async (query, tx) => {
      const answer = await details(query, tx)
      if (looks < 2 && query.jobs !== undefined) {
        looks += query.jobs.length // reads of one turn travel together
        if (looks >= 2) both.open()
        await both.promise
      }
      return answer
    }
    const [a, b] = await Promise.all([queue.add('waits', 'b', { id: 'a' }), queue.add('waits', 'a', { id: 'b' })])
    const waiting = ['a', 'b'].map((id) => event(queue, 'waiting-children', (each) => each.id === id))
    await queue.counts()
    work({ waits: (job, ctx) => ctx.waitFor(job.data as string) })
    await Promise.all(waiting)
    expect(await queue.explain('a')).toMatchObject({
      reasons: [{ why: 'dependencies' }, { why: 'cycle', jobs: ['a', 'b', 'a'] }],
    })
    expect((await queue.explain('b')).text).toContain('b waits for a, which waits for b; cancel one of them')
    await b.cancel()
    await expect(a.result()).rejects.toMatchObject({ cause: { code: 'DEPENDENCY_FAILED' } })
  })
})

test('a long line of planned jobs, each of which waits for the one before, is looked through in linear space', () => {
  const planned = Array.from({ length: 50_000 }, (_, n) =>
    insert(`job ${n}`, 'work', { after: n === 0 ? ['job 49999'] : [`job ${n - 1}`] }),
  )
  const cycle = cycleAmong('job 49999', planned)!
  expect([cycle.length, cycle[0], cycle[1], cycle.at(-2), cycle.at(-1)]).toEqual([
    50_001,
    'job 49999',
    'job 49998',
    'job 0',
    'job 49999',
  ])
})

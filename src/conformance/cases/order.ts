// conformance/cases/order.ts: cases on claim order.
import type { JobRecord } from '../../job/job.js'
import { has, must, present, same } from '../check.js'
import { ask, first, ids, LEASE, second } from '../driver.js'
import { area } from '../harness.js'
import { handBack, insert, promote, retry, fail, failAndRetry, update } from '../changes.js'

/** Cases of claim order: by priority, then by `ord`. */
export const order = area('order', {
  'jobs are claimed in the order of their insertion': async (h) => {
    const d = first(h)
    const [a, b] = [await d.addMany(5, 'work'), await d.addMany(5, 'work')]
    const inserted = await d.land(...Array.from({ length: 5 }, (_, i) => insert(`g-${i}`, 'work')))
    const expected = ids([...a, ...b, ...inserted])
    same(ids(await d.claim(4)), expected.slice(0, 4), 'the oldest go first')
    same(ids(await d.claim(100)), expected.slice(4), 'the next claim continues where the last ended')
    same(await d.claim(1), [], 'when nothing is waiting nothing is claimed')
  },

  'a lower priority goes first, negative ones included': async (h) => {
    const d = first(h)
    for (const priority of [5, 0, -3, 10, -3, 0]) await d.add('work', { priority })
    const claimed = await d.claim(6)
    same(
      claimed.map(({ priority }) => priority),
      [-3, -3, 0, 0, 5, 10],
      'lower priorities go first',
    )
    same(
      ids(claimed),
      ['3', '5', '2', '6', '1', '4'].map((n) => `first-${n}`),
      'equal priorities go by insertion',
    )
  },

  'a LIFO job goes before all others of its priority': async (h) => {
    const d = first(h)
    await d.add('work', { id: 'fifo-1' })
    await d.add('work', { id: 'lifo-1', lifo: true })
    await d.add('work', { id: 'fifo-2' })
    await d.add('work', { id: 'lifo-2', lifo: true })
    await d.add('work', { id: 'urgent', priority: -1 })
    const expected = ['urgent', 'lifo-2', 'lifo-1', 'fifo-1', 'fifo-2']
    same(ids(await d.claim(5)), expected, 'the newest LIFO job goes first, before FIFO jobs of its priority')
  },

  'several names are merged into one order': async (h) => {
    const d = first(h)
    for (const name of ['a', 'b', 'a', 'c', 'b', 'a']) await d.add(name)
    await d.add('c', { priority: -1 })
    const claimed = await d.claim(5, { names: ['c', 'b', 'a'] })
    same(
      ids(claimed),
      ['7', '1', '2', '3', '4'].map((n) => `first-${n}`),
      'the heads of all names are merged',
    )
  },

  'several queues are merged by priority, each in its own order': async (h) => {
    const d = first(h)
    for (const queue of ['x', 'y', 'x', 'y', 'z']) await d.add('work', { queue })
    await d.add('work', { id: 'urgent', queue: 'y', priority: -1 })
    const claimed = await d.claim(10, { queues: ['x', 'y'] })
    same(claimed[0]?.id, 'urgent', 'the lowest priority of all requested queues goes first')
    const from = (queue: string): readonly string[] => ids(claimed.filter((job) => job.queue === queue))
    same(from('x'), ['first-1', 'first-3'], 'each queue keeps its order')
    same(from('y'), ['urgent', 'first-2', 'first-4'], 'each queue keeps its order')
    same(from('z'), [], 'a queue that was not requested is skipped')
  },

  'a stalled job keeps its position': async (h) => {
    const d = first(h)
    await d.addMany(3, 'work')
    const held = await d.claimOne()
    await h.advance(LEASE)
    await d.upkeep()
    same(ids(await d.claim(3)), [held.id, 'first-2', 'first-3'], 'a job whose lease expired keeps its position')
  },

  'a job handed back keeps its position and its attempt': async (h) => {
    const d = first(h)
    await d.addMany(2, 'work')
    const held = await d.claimOne()
    await d.land(handBack(held))
    has(await d.job(held), { state: 'waiting', attempt: 0 }, 'a job handed back has its attempt back')
    same(ids(await d.claim(2)), [held.id, 'first-2'], 'a job handed back keeps its position')
  },

  'a job that was delayed goes behind those that wait already': async (h) => {
    const d = first(h)
    await d.add('work', { id: 'delayed', run: { in: 1_000 } })
    await d.add('work', { id: 'early' })
    await h.advance(1_000)
    await d.upkeep()
    await d.add('work', { id: 'late' })
    same(ids(await d.claim(3)), ['early', 'delayed', 'late'], 'a delay that ends puts its job behind')
  },

  'a job promoted by hand goes behind those that wait already': async (h) => {
    const d = first(h)
    const delayed = await d.add('work', { id: 'delayed', run: { in: 60_000 } })
    await d.add('work', { id: 'early' })
    await d.land(promote(delayed))
    same(ids(await d.claim(2)), ['early', 'delayed'], 'a promoted job goes behind')
  },

  'a job retried after a failure goes behind those that wait already': async (h) => {
    const d = first(h)
    await d.addMany(3, 'work')
    const [one, two] = await d.claim(2)
    await d.land(failAndRetry(present(one, 'two jobs are claimed'), 1_000))
    await d.land(fail(present(two, 'two jobs are claimed')))
    await d.land(retry(await d.job('first-2')))
    await h.advance(1_000)
    await d.upkeep()
    same(ids(await d.claim(3)), ['first-3', 'first-2', 'first-1'], 'a retried job goes behind')
  },

  'a changed priority moves a waiting job to its new position': async (h) => {
    const d = first(h)
    const jobs = await d.addMany(3, 'work')
    await d.land(update(present(jobs[2], 'three jobs'), { priority: -1 }))
    same(ids(await d.claim(3)), ['first-3', 'first-1', 'first-2'], 'a waiting job goes by its new priority')
  },

  'two claimers never share a job': async (h) => {
    const d = first(h)
    const other = await second(h)
    await d.addMany(200, 'work')
    const drain = async (by: typeof d, worker: string): Promise<readonly JobRecord[]> => {
      const taken: JobRecord[] = []
      for (;;) {
        const claimed = await by.claim(7, { worker })
        if (claimed.length === 0) return taken
        taken.push(...claimed)
      }
    }
    const [mine, theirs] = await Promise.all([drain(d, 'one'), drain(other, 'two')])
    const all = ids([...mine, ...theirs])
    same(new Set(all).size, all.length, 'no job is claimed twice')
    same(all.length, 200, 'every waiting job is claimed')
    must(
      mine.every(({ worker }) => worker === 'one'),
      'a claimed job names the worker that claimed it',
    )
  },

  'two claims of one batch never share a job': async (h) => {
    const d = first(h)
    await d.addMany(5, 'work')
    const { asks } = await d.commit({
      asks: [ask(2, { worker: 'x' }), ask(1, { worker: 'y' }), ask(9, { worker: 'z' })],
    })
    same(asks.map(ids), [['first-1', 'first-2'], ['first-3'], ['first-4', 'first-5']], 'claims are applied in order')
  },

  'a claim sees everything in its batch': async (h) => {
    const d = first(h)
    const { asks } = await d.commit({ groups: [[insert('fresh', 'work')]], asks: [ask(1)] })
    same(
      asks[0]?.map(({ id }) => id),
      ['fresh'],
      'a job added in the batch of a claim can be claimed by it',
    )
  },
})

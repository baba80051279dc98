// Retention on every store, in real time.
import { describe, expect, it } from 'vitest'
import { FlowProducer } from 'millrace'
import type { AddOptions, FlowJob, Handler, Job, Queue, Store } from 'millrace'
import { kinds, stores } from '../../stores.js'
import { closing, event, gate, mailbox, newQueue, newWorker } from '../../setup.js'

const make = stores()

/** The same data in another process: a store object of its own, so that nothing else is shared. */
const apart = (store: Store): Store =>
  new Proxy(store, {
    get: (target, key) => {
      const value: unknown = Reflect.get(target, key, target)
      return typeof value === 'function' ? (value.bind(target) as unknown) : value
    },
  })

interface Callback {
  readonly what: string
  readonly job: Job
}

/** A queue that records every callback and every event of retention, in the order in which they come. */
function observedQueue(store: Store, ages: object): { queue: Queue; next: () => Promise<Callback> } {
  const received = mailbox<Callback>()
  const queue = newQueue({
    store,
    retention: {
      ...ages,
      onStale: (job: Job) => received.put({ what: 'onStale', job }),
      onDelete: (job: Job) => received.put({ what: 'onDelete', job }),
    },
  })
  return { queue, next: received.next }
}

describe.each(kinds)('retention on %s', (kind) => {
  it('marks eligible terminal jobs as stale, runs onStale(job), emits stale', async () => {
    const store = await make(kind)
    const { queue, next } = observedQueue(store, { staleAfter: 1, deleteAfter: '1d' })
    const stale = event(queue, 'stale')
    newWorker(queue, (job) => job.data)
    const added = await queue.add('n', 'kept')
    const { what, job } = await next()
    expect([what, job.id, await job.result()]).toEqual(['onStale', added.id, 'kept'])
    expect(await stale).toMatchObject({ type: 'stale', id: added.id })
    expect((await store.get([added.id]))[0]).toMatchObject({ state: 'completed', stale: true })
  })

  it('deletes stale jobs past the delete cutoff, runs onDelete(job), emits removed', async () => {
    const store = await make(kind)
    const { queue, next } = observedQueue(store, { staleAfter: 1, deleteAfter: 50 })
    const removed = event(queue, 'removed')
    newWorker(queue, (job) => job.data)
    const added = await queue.add('n', 'gone')
    expect((await next()).what).toBe('onStale')
    const { what, job } = await next()
    // A callback comes after the commit: the job is gone, and the callback has its last record.
    expect(await store.get([added.id])).toEqual([undefined])
    expect([what, job.id, job.state, job.data]).toEqual(['onDelete', added.id, 'completed', 'gone'])
    expect(await removed).toMatchObject({ type: 'removed', id: added.id })
  })

  it('runs independently from job execution: while handlers hang, and while callbacks do', async () => {
    const store = await make(kind)
    const open = gate()
    const deleted = mailbox<string>()
    const queue = newQueue({
      store,
      retention: {
        deleteAfter: 1,
        onDelete: async ({ id }) => {
          deleted.put(id)
          await open.promise
        },
      },
    })
    const handler: Handler = (job) => (job.name === 'hangs' ? open.promise : undefined)
    newWorker(queue, handler, { concurrency: 2 })
    const hangs = event(queue, 'active')
    await queue.add('hangs')
    await hangs
    await queue.add('n', 1, { id: 'first' })
    expect(await deleted.next()).toBe('first')
    // The callback hangs as well; jobs go on, and so does what is due.
    await queue.add('n', 1, { id: 'second', delay: 5 })
    expect(await deleted.next()).toBe('second')
    open.open()
  })

  it('each job is passed to a callback once, by the process that removed it, and never in a process without a callback', async () => {
    const store = await make(kind)
    const received = mailbox<string>()
    const onDelete = ({ id }: Job): void => received.put(id)
    const one = newQueue({ store, retention: { deleteAfter: 1, onDelete } })
    const two = newQueue({ store: apart(store), retention: { deleteAfter: 1, onDelete } })
    const without = newQueue({ store: apart(store), retention: { deleteAfter: 1 } })
    for (const queue of [one, two, without]) await newWorker(queue, () => 1, { concurrency: 5, autorun: false }).run()
    await without.addBulk(Array.from({ length: 60 }, (_, n) => ({ name: 'n', options: { id: `${n}` } })))
    const seen: string[] = []
    while (seen.length < 60) seen.push(await received.next())
    expect(new Set(seen).size).toBe(60)
    expect((await without.counts()).completed).toBe(0)
  })

  it('a flow is removed as a whole, the parent last, and a member with a rule of its own is removed alone', async () => {
    const store = await make(kind)
    // More than go in one commit; on PostgreSQL, their ends take their time, one parent having so many.
    const many = kind === 'PostgreSQL' ? 60 : 1_100
    const { queue, next } = observedQueue(store, { deleteAfter: 1 })
    const flows = closing(new FlowProducer({ store, queues: [queue] }))
    const own = event(queue, 'removed')
    const released = event(queue, 'waiting', ({ id }) => id === 'parent')
    await queue.pause('parent')
    newWorker(queue, (job) => job.data, { concurrency: 100 })
    const child = (id: string, options: AddOptions = {}): FlowJob => ({
      name: 'n',
      queueName: 'work',
      data: 1,
      options: { id, ...options },
    })
    await flows.add({
      ...child('parent'),
      name: 'parent',
      children: [child('own', { removeOnComplete: true }), ...Array.from({ length: many }, (_, n) => child(`${n}`))],
    })
    expect((await own).id).toBe('own')
    await released
    expect((await queue.counts()).completed).toBe(many)
    await queue.resume('parent')
    const gone: string[] = []
    while (gone.length <= many) gone.push((await next()).job.id)
    expect([new Set(gone).size, gone.at(-1)]).toEqual([many + 1, 'parent'])
    expect((await queue.list()).jobs).toEqual([])
  })
})

// A world in which only fetch claims and settles jobs: the server sees to all that happens by time alone.
import { describe, expect, it } from 'vitest'
import { FlowProducer, Queue } from 'millrace'
import type { Store } from 'millrace'
import { memory } from 'millrace/memory'
import { serve } from 'millrace/server'
import { webhooks } from 'millrace/webhooks'
import { closing, event } from '../setup.js'
import { kinds, stores } from '../stores.js'
import { receiver } from '../features/webhooks/receiver.js'

interface Claimed {
  readonly id: string
  readonly name: string
  readonly fence: number
  readonly attempt: number
  readonly data: unknown
}

/** A worker that has nothing but fetch. */
interface FetchWorker {
  post(path: string, body: object): Promise<{ readonly status: number; readonly body: { readonly jobs: Claimed[] } }>
  /** Waits for the next job. */
  next(fields?: object): Promise<Claimed>
  complete(job: Claimed): Promise<void>
  /** Closes the server. */
  close(): Promise<void>
}

async function start(store: Store, queues?: readonly (Queue | string)[]): Promise<FetchWorker> {
  const server = closing(serve({ store, logger: false, ...(queues !== undefined && { queues }) }))
  const { url } = await server.listen({ port: 0 })
  const post: FetchWorker['post'] = async (path, body) => {
    const headers = { 'content-type': 'application/json' }
    const response = await fetch(`${url}/v1${path}`, { method: 'POST', headers, body: JSON.stringify(body) })
    return { status: response.status, body: (await response.json()) as { jobs: Claimed[] } }
  }
  return {
    post,
    close: () => server.close(),
    async next(fields = {}) {
      for (;;) {
        const { body } = await post('/claims', { worker: 'f', queues: ['mail'], wait: '25s', ...fields })
        if (body.jobs.length > 0) return body.jobs[0]!
      }
    },
    async complete({ id, fence }) {
      expect(await post(`/jobs/${id}/complete`, { fence })).toMatchObject({ status: 200 })
    },
  }
}

describe.each(kinds)('on %s, with workers over HTTP alone', (kind) => {
  const newStore = stores()
  const world = async (): Promise<{ readonly store: Store; readonly queue: Queue; readonly worker: FetchWorker }> => {
    const store = await newStore(kind)
    return { store, queue: closing(new Queue('mail', { store, logger: false })), worker: await start(store) }
  }

  it('delayed jobs start when they are due, retries as well', async () => {
    const { queue, worker } = await world()
    const { id } = await queue.add('send', 1, { delay: 30, backoff: 20 })
    const first = await worker.next()
    expect(first.id).toBe(id)
    await worker.post(`/jobs/${id}/fail`, { fence: first.fence, error: { message: 'no' } })
    expect(await worker.next()).toMatchObject({ id, attempt: 2 })
  })

  it('a schedule makes its runs', async () => {
    const { queue, worker } = await world()
    await queue.schedule('often', { name: 'tick', every: 50 })
    await worker.complete(await worker.next())
    expect(await worker.next()).toMatchObject({ name: 'tick', attempt: 1 })
  })

  it('a job whose worker is gone runs again when its lease is over', async () => {
    const { queue, worker } = await world()
    const { id } = await queue.add('send')
    await worker.next({ lease: 50 })
    expect(await worker.next()).toMatchObject({ id, attempt: 2 })
  })

  it('a failed child fails its parent', async () => {
    const { store, queue, worker } = await world()
    const failed = event(queue, 'failed', ({ name }) => name === 'report')
    const flow = {
      name: 'report',
      queueName: 'mail',
      data: 1,
      children: [{ name: 'page', queueName: 'mail', data: 2 }],
    }
    await new FlowProducer({ store }).add(flow)
    const { id, fence } = await worker.next()
    await worker.post(`/jobs/${id}/fail`, { fence, error: { message: 'no' }, retry: false })
    await failed
  })

  it('finished jobs are removed as their producer said, by age and by number', async () => {
    const { queue, worker } = await world()
    const aged = event(queue, 'removed', ({ name }) => name === 'aged')
    await queue.add('aged', 1, { removeOnComplete: '20ms' })
    await worker.complete(await worker.next())
    await aged
    const counted = event(queue, 'removed', ({ name }) => name === 'counted')
    for (const n of [1, 2]) await queue.add('counted', n, { removeOnComplete: { count: 1 } })
    for (let n = 0; n < 2; n++) await worker.complete(await worker.next())
    await counted
  })

  it('a bulk operation is carried out', async () => {
    const { queue } = await world()
    await queue.addBulk(Array.from({ length: 20 }, (_, data) => ({ name: 'send', data, options: { delay: '1h' } })))
    const operation = await queue.operate({ do: 'cancel', where: { state: 'delayed' } })
    await operation.result()
    expect(await queue.counts()).toMatchObject({ delayed: 0, cancelled: 20 })
  })
})

it('the webhooks of a queue that the server was given are delivered', async () => {
  const store = closing(memory())
  const hook = await receiver()
  const webhook = webhooks({ url: hook.url, unsigned: true, allowPrivate: true })
  const queue = closing(new Queue('mail', { store, webhook, logger: false }))
  const worker = await start(store, [queue])
  const { status } = await worker.post('/queues/mail/jobs', { name: 'send', data: 1 })
  expect(status).toBe(201)
  const job = await worker.next()
  await worker.complete(job)
  expect(JSON.parse((await hook.next()).body)).toMatchObject({ data: { id: job.id } })
  await worker.close() // and with it the connection that the receiver would wait for
})

it('the retention of a queue that the server was given holds, with its callbacks', async () => {
  const store = closing(memory())
  let deleted = (_id: string): void => {}
  const gone = new Promise<string>((resolve) => (deleted = resolve))
  const retention = { deleteAfter: '20ms', onDelete: ({ id }: { readonly id: string }) => deleted(id) }
  const queue = closing(new Queue('mail', { store, retention, logger: false }))
  const worker = await start(store, [queue])
  await worker.post('/queues/mail/jobs', { name: 'send' })
  const job = await worker.next()
  await worker.complete(job)
  expect(await gone).toBe(job.id)
})

it('a server that is closed, or read-only, does nothing by itself', async () => {
  const inner = memory()
  let due = 0
  let watching = 0
  const store: Store = closing({
    ...{ name: inner.name, can: inner.can, open: () => inner.open(), commit: (batch) => inner.commit(batch) },
    get: (ids) => inner.get(ids),
    find: (query) => inner.find(query),
    details: (query) => inner.details(query),
    tally: (queues, tx, options) => inner.tally(queues, tx, options),
    due: (query) => {
      due++
      return inner.due(query)
    },
    watch: (options, listener) => {
      watching++
      const stop = inner.watch(options, listener)
      return () => {
        watching--
        stop()
      }
    },
    close: () => inner.close(),
  })
  const reading = serve({ store, readOnly: true, logger: false })
  await reading.fetch(new Request('http://localhost/v1'))
  const before = due
  await reading.close()
  expect({ due: before, watching }).toEqual({ due: 1, watching: 0 }) // the one of the request
  const server = serve({ store, logger: false })
  const body = JSON.stringify({ name: 'send', options: { delay: 20 } })
  const headers = { 'content-type': 'application/json' }
  await server.fetch(new Request('http://localhost/v1/queues/mail/jobs', { method: 'POST', headers, body }))
  await server.close()
  const after = due
  const late = closing(new Queue('mail', { store, logger: false }))
  await late.add('send', 1, { delay: 1 })
  expect({ due: due - after, watching }).toEqual({ due: 0, watching: 0 })
})

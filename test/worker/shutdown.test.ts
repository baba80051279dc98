// The order in which a program ends, with everything that can hang hanging.
import { describe, expect, it } from 'vitest'
import { Queue, Worker, shutdown } from 'millrace'
import { webhooks } from 'millrace/webhooks'
import type { Closable, Store } from 'millrace'
import { isSent, DELIVERIES } from '../../src/job/webhooks.js'
import { kinds, stores } from '../stores.js'
import { event, gate } from '../setup.js'
import { receiver, silence } from '../features/webhooks/receiver.js'

const near = { secret: 'a secret of this test', allowPrivate: true } as const

/** Closes a store, and looks at it just before. */
function ending(store: Store, look: () => Promise<void>): Closable {
  return {
    close: async () => {
      await look()
      await store.close()
    },
  }
}

describe.each(kinds)('%s', (kind) => {
  const make = stores()

  it('shutdown waits for deliveries in flight, so that their results are written before the store is closed', async () => {
    const hook = await receiver()
    const store = await make(kind)
    const steps: string[] = []
    const queue = new Queue('work', { store, logger: false, webhook: webhooks({ ...near, url: hook.url }) })
    const worker = new Worker(queue, () => 'done', { logger: false })
    const answered = gate()
    hook.answers((response) => void answered.promise.then(() => response.writeHead(204).end()))
    worker.on('worker-stopping', () => steps.push('worker-stopping'))
    worker.on('worker-stopped', () => steps.push('worker-stopped'))
    const { id } = await queue.add('a')
    await hook.next()
    const stopping = event(worker, 'worker-stopping')
    const end = ending(store, async () => {
      const [job] = await store.get([id])
      steps.push(`closing the store, and the webhook is ${isSent(job!) ? 'sent' : 'not sent'}`)
    })
    const ended = shutdown([end, worker, queue])
    await stopping
    answered.open()
    await ended
    expect(steps).toEqual(['worker-stopping', 'worker-stopped', 'closing the store, and the webhook is sent'])
  })

  it('stop new work, wait, abort, wait again, wait for deliveries, remove listeners, close the store, then rethrow', async () => {
    const hook = await receiver()
    const store = await make(kind)
    const steps: string[] = []
    const queue = new Queue('work', { store, logger: false, webhook: webhooks({ ...near, url: hook.url }) })
    const started: string[] = []
    const all = gate()
    const begin = (name: string): void => {
      if (started.push(name) === 3) all.open()
    }
    const worker = new Worker(
      queue,
      {
        quick: () => begin('quick'),
        obeys: (_job, ctx) =>
          new Promise((_, reject) => {
            begin('obeys')
            ctx.signal.addEventListener('abort', () => {
              steps.push(`aborted by ${ctx.signal.reason?.reason}`)
              reject(ctx.signal.reason!)
            })
          }),
        ignores: () => {
          begin('ignores')
          return new Promise(() => {})
        },
      },
      { concurrency: 3, logger: false },
    )
    worker.on('worker-stopped', () => steps.push('stopped'))

    // What hangs: a handler that obeys, one that does not, a delivery, and a listener. Whatever else can hang goes here.
    hook.answers(silence)
    const hanging = {
      obeys: await queue.add('obeys', undefined, { webhook: false }),
      ignores: await queue.add('ignores', undefined, { webhook: false }),
      delivery: await queue.add('quick'),
      listener: worker.on('worker-stopping', () => {
        steps.push('stopping')
        return new Promise(() => {})
      }),
    }
    await all.promise
    await hook.next()

    const end = ending(store, async () => {
      const ids = [hanging.obeys.id, hanging.ignores.id, hanging.delivery.id]
      const states = (await store.get(ids)).map((job) => `${job?.state} ${job?.attempt}`)
      const { items } = await store.find({ queue: DELIVERIES, limit: 10, order: 'oldest' })
      const deliveries = items.map(({ state, attempt }) => `${state} ${attempt}`)
      steps.push(`jobs: ${states.join(', ')}; deliveries: ${deliveries.join(', ')}; listeners: ${queue.emitter.size}`)
    })
    queue.on('completed', () => {})
    const stopping = event(worker, 'worker-stopping')
    const ended = shutdown([queue, end, worker], { timeout: 200, grace: 100 })
    const outcome = expect(ended).rejects.toMatchObject({ code: 'SHUTDOWN_TIMEOUT', details: { left: 1 } })
    await stopping
    await queue.add('quick') // no worker takes it any more
    await outcome
    // The event that it stops comes once it is durable, which may take longer than the timeout given here.
    expect([...steps.slice(0, 2).toSorted().toReversed(), ...steps.slice(2)]).toEqual([
      'stopping',
      'aborted by shutdown',
      'stopped',
      'jobs: waiting 0, active 1, completed 1; deliveries: waiting 0; listeners: 0',
    ])
    expect(started.toSorted()).toEqual(['ignores', 'obeys', 'quick'])
    await expect(store.get(['any'])).rejects.toMatchObject({ code: 'STORE_CLOSED' })
  })

  it('a delivery that was interrupted gets its attempt back, and is sent by the next worker', async () => {
    const hook = await receiver()
    const store = await make(kind)
    const options = { store, logger: false, webhook: webhooks({ ...near, url: hook.url }) } as const
    const queue = new Queue('work', options)
    const worker = new Worker(queue, () => 'done', { logger: false })
    hook.answers(silence)
    const job = await queue.add('a')
    const first = await hook.next()
    await expect(shutdown([queue, worker], { timeout: 20, grace: 200 })).rejects.toMatchObject({
      code: 'SHUTDOWN_TIMEOUT',
      message: expect.stringContaining('Deliveries'),
    })
    const after = new Queue('work', options)
    const delivered = event(after, 'webhook-delivered')
    const next = new Worker(after, () => 'done', { logger: false })
    expect(await delivered).toMatchObject({ id: job.id, attempts: 1 })
    expect((await hook.next()).headers['webhook-id']).toBe(first.headers['webhook-id'])
    await shutdown([next, after, store])
  })
})

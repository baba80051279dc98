// Webhooks on every store: which ends of jobs are delivered, where to, in which order, and what is recorded about it.
import { describe, expect, it } from 'vitest'
import { Queue, Worker, storeCounts } from 'millrace'
import { verifyWebhook, webhooks } from 'millrace/webhooks'
import type { Handler, Job, Store, WebhookOptions } from 'millrace'
import { kinds, stores } from '../../stores.js'
import { closing, collect, event, gate } from '../../setup.js'
import { ofDelivery } from './deliveries.js'
import { receiver } from './receiver.js'

const SECRET = `whsec_${Buffer.from('a secret that nobody knows').toString('base64')}`
/** What fits a receiver beside the test. */
const near = { secret: SECRET, allowPrivate: true, backoff: { type: 'fixed', delay: 1 } } as const

describe.each(kinds)('%s', (kind) => {
  const make = stores()

  async function scene(
    options: WebhookOptions,
    handler: Handler = () => 'done',
  ): Promise<{ store: Store; queue: Queue; worker: Worker; errors: Error[] }> {
    const store = await make(kind)
    const queue = closing(new Queue('work', { store, logger: false, webhook: webhooks({ ...near, ...options }) }))
    const worker = closing(new Worker(queue, handler, { logger: false }))
    const errors: Error[] = []
    worker.on('error', ({ error }) => errors.push(error))
    return { store, queue, worker, errors }
  }

  /** The job as it stands. */
  async function fresh(queue: Queue, { id }: Pick<Job, 'id'>): Promise<Job> {
    return (await queue.get(id))!
  }

  it('a job that is not kept is removed once its end was delivered', async () => {
    const hook = await receiver()
    const { queue } = await scene({ url: hook.url })
    const delivered = event(queue, 'webhook-delivered')
    const added = await queue.add('a', 1, { removeOnComplete: true })
    expect(await delivered).toMatchObject({ id: added.id, webhookSent: true })
    expect((await hook.next()).method).toBe('POST')
  })

  it('deliveries that end side by side, in several workers, are all written down', async () => {
    const hook = await receiver()
    const { queue } = await scene({ url: hook.url, concurrency: 4 })
    for (let more = 0; more < 3; more++) closing(new Worker(queue, () => 'done', { logger: false }))
    let delivered = 0
    const all = gate()
    queue.on('webhook-delivered', () => void (++delivered === 7 && all.open()))
    const first = event(queue, 'webhook-delivered')
    const job = await queue.add('a')
    await first
    await Promise.all(Array.from({ length: 6 }, () => queue.redeliver(job.id)))
    await all.promise
    const { webhook } = await fresh(queue, job)
    expect([webhook?.sent, webhook?.deliveries.length]).toEqual([true, 7])
  })

  it('completed is persisted, then announced, then delivered, and webhookSent is seen in a later event', async () => {
    const hook = await receiver()
    const { queue, store } = await scene({ url: hook.url }, (job) => ({ twice: (job.data as number) * 2 }))
    const seen: string[] = []
    let stood: unknown
    hook.answers((response) => {
      seen.push('received')
      void queue.list().then(({ jobs }) => {
        stood = jobs.map(({ state, webhook }) => [state, webhook?.sent, webhook?.pending])
        response.writeHead(204).end()
      })
    })
    const completed = event(queue, 'completed').then((each) => (seen.push('completed'), each))
    const delivered = event(queue, 'webhook-delivered').then((each) => (seen.push('webhook-delivered'), each))
    const added = await queue.add('double', 21)

    expect(await completed).not.toHaveProperty('webhookSent')
    expect(await delivered).toMatchObject({
      id: added.id,
      queue: 'work',
      name: 'double',
      url: hook.url,
      event: 'completed',
      attempts: 1,
      webhookSent: true,
    })
    expect(seen.at(-1)).toBe('webhook-delivered')
    expect(stood).toEqual([['completed', false, true]])

    const { body, headers, method } = await hook.next()
    expect(method).toBe('POST')
    expect(headers['content-type']).toBe('application/json')
    const job = await fresh(queue, added)
    expect(verifyWebhook(SECRET, headers, body)).toEqual({
      type: 'job.completed',
      timestamp: new Date(job.finishedAt!).toISOString(),
      data: { id: added.id, queue: 'work', name: 'double', attempt: 1, chainId: added.id, result: { twice: 42 } },
    })
    expect(job.webhook).toMatchObject({ url: hook.url, sent: true, pending: false })
    expect(job.webhook?.deliveries).toEqual([
      { id: headers['webhook-id'], at: expect.any(Number), event: 'completed', url: hook.url, attempt: 1, status: 204 },
    ])
    // Deliveries are no jobs of the user's.
    expect((await queue.list()).jobs).toHaveLength(1)
    expect(Object.keys(await storeCounts(store))).toEqual(['work'])
  })

  it('delivers failures and cancellations, whichever process ends the job', async () => {
    const hook = await receiver()
    const { queue } = await scene({ url: hook.url }, () => {
      throw new TypeError('no such address')
    })
    const ends = async (): Promise<unknown> => JSON.parse((await hook.next()).body)
    const failing = await queue.add('send', undefined, { attempts: 1, group: 'ann' })
    expect(await ends()).toMatchObject({
      type: 'job.failed',
      data: { id: failing.id, attempt: 1, group: 'ann', error: { name: 'TypeError', message: 'no such address' } },
    })
    expect(hook.all[0]!.body).not.toContain('stack')

    const waiting = await queue.add('send', undefined, { delay: '1h' })
    await queue.cancel(waiting.id)
    expect(await ends()).toMatchObject({ type: 'job.cancelled', data: { id: waiting.id, attempt: 0 } })

    const approved = await queue.add('approve', undefined, { delay: '1h' })
    await queue.chain(approved.id).complete(({ complete }) => complete(() => 'yes'))
    expect(await ends()).toMatchObject({ type: 'job.completed', data: { id: approved.id, result: 'yes' } })
  })

  it('attempts that fail are retried and written down, and giving up is announced; a replay by hand starts over', async () => {
    const hook = await receiver()
    const { queue } = await scene({ url: hook.url, attempts: 2 })
    hook.answers(500, 404)
    const failed = event(queue, 'webhook-failed')
    const added = await queue.add('a')
    expect(await failed).toMatchObject({
      id: added.id,
      event: 'completed',
      attempts: 2,
      error: { code: 'WEBHOOK_FAILED', message: 'The webhook was not delivered: it was answered 404.' },
    })
    const [first, second] = [await hook.next(), await hook.next()]
    expect(second.headers['webhook-id']).toBe(first.headers['webhook-id'])
    const given = await fresh(queue, added)
    expect(given.state).toBe('completed')
    expect(given.webhook).toMatchObject({ sent: false, pending: false })
    expect(given.webhook!.deliveries.map(({ attempt, status, error }) => [attempt, status, error])).toEqual([
      [1, 500, 'The webhook was not delivered: it was answered 500.'],
      [2, 404, 'The webhook was not delivered: it was answered 404.'],
    ])

    const delivered = event(queue, 'webhook-delivered')
    const id = await queue.redeliver(added.id)
    expect(await delivered).toMatchObject({ id: added.id, webhookSent: true, attempts: 1 })
    const third = await hook.next()
    expect(third.headers['webhook-id']).toBe(id)
    expect(id).not.toBe(first.headers['webhook-id'])
    expect(third.body).toBe(first.body)
    expect((await fresh(queue, added)).webhook).toMatchObject({ sent: true, pending: false })
    const again = event(queue, 'webhook-delivered')
    expect(await (await fresh(queue, added)).redeliver()).not.toBe(id)
    await again
    await expect(queue.add('b', 1, { delay: '1h' }).then((each) => each.redeliver())).rejects.toMatchObject({
      code: 'INVALID_STATE',
    })
  })

  it('webhook bookkeeping does not crash when a job is removed before or during its delivery', async () => {
    const hook = await receiver()
    const { queue, errors } = await scene({ url: hook.url })
    await queue.add('a', undefined, { removeOnComplete: true })
    expect(JSON.parse((await hook.next()).body)).toMatchObject({ type: 'job.completed', data: { result: 'done' } })

    const [arrived, removed] = [gate(), gate()]
    hook.answers((response) => {
      arrived.open()
      void removed.promise.then(() => response.writeHead(200).end())
    })
    const gone = await queue.add('b')
    await arrived.promise
    await queue.remove(gone.id)
    removed.open()
    await hook.next()
    const last = event(queue, 'webhook-delivered', ({ name }) => name === 'c') // that of the first job may still come
    const kept = await queue.add('c')
    expect((await last).id).toBe(kept.id)
    expect(errors).toEqual([])
  })

  it('a job that runs again while its end is being delivered is left alone, and its next end is delivered anew', async () => {
    const hook = await receiver()
    const [second, run] = [gate(), gate()]
    let runs = 0
    const { queue, store, errors } = await scene({ url: hook.url }, async () => {
      if (++runs === 1) throw new Error('the first time')
      second.open()
      return run.promise
    })
    const [arrived, again] = [gate(), gate()]
    hook.answers((response) => {
      arrived.open()
      void again.promise.then(() => response.writeHead(200).end())
    })
    const delivered = collect(queue, ['webhook-delivered'])
    const job = await queue.add('a', undefined, { attempts: 1 })
    await arrived.promise
    await queue.retry(job.id)
    await second.promise
    const over = ofDelivery(store, 'removed')
    again.open()
    await over
    expect((await fresh(queue, job)).webhook?.deliveries).toEqual([])
    const next = event(queue, 'webhook-delivered')
    run.open()
    expect(await next).toMatchObject({ event: 'completed' })
    const end = await fresh(queue, job)
    expect(end.webhook?.sent).toBe(true)
    expect(end.webhook?.deliveries.at(-1)).toMatchObject({ event: 'completed', status: 204 })
    expect(delivered).toHaveLength(1)
    expect(errors).toEqual([])
    expect(hook.all.map(({ body }) => JSON.parse(body).type as string)).toEqual(['job.failed', 'job.completed'])
  })

  it('a job that ends in a committed transaction of its handler is delivered, and after a rollback it is not', async () => {
    const hook = await receiver()
    const { queue } = await scene({ url: hook.url }, async (job, ctx) => {
      await ctx.complete(() => 'within')
      if (job.attempt === 1) throw new Error('rolled back')
    })
    const retrying = event(queue, 'retrying')
    const job = await queue.add('a', undefined, { backoff: 1 })
    expect(JSON.parse((await hook.next()).body)).toMatchObject({ data: { id: job.id, attempt: 2, result: 'within' } })
    await retrying
    expect(hook.all).toHaveLength(1)
  })

  // What follows is decided by the rules and by the worker, whatever the store.
  if (kind === 'PostgreSQL') return

  it('jobs that end in batches are delivered one by one', async () => {
    const hook = await receiver()
    const store = await make(kind)
    const webhook = webhooks({ ...near, url: hook.url })
    const queue = closing(new Queue('work', { store, logger: false, webhook }))
    await queue.addBulk([1, 2, 3].map((data) => ({ name: 'a', data })))
    const run = (jobs: readonly Job[]): unknown[] => jobs.map(({ data }) => data)
    closing(new Worker(queue, run, { logger: false, batch: { size: 3 } }))
    const delivered = [await hook.next(), await hook.next(), await hook.next()]
    expect(delivered.map(({ body }) => JSON.parse(body).data.result as number).toSorted((a, b) => a - b)).toEqual([
      1, 2, 3,
    ])
  })

  it('a per-job webhook overrides that of the queue, stamped when it is added', async () => {
    const [queues, own] = [await receiver(), await receiver()]
    const { queue } = await scene({ url: queues.url, on: ['completed', 'failed'] })
    const silent = await queue.add('a', undefined, { webhook: false })
    const elsewhere = await queue.add('b', undefined, { webhook: own.url })
    expect(await own.next()).toMatchObject({ body: expect.stringContaining(elsewhere.id) })
    const cancelled = await queue.add('c', undefined, { delay: '1h', webhook: { on: ['cancelled'] } })
    const unannounced = await queue.add('c', undefined, { delay: '1h' })
    await unannounced.cancel()
    await cancelled.cancel()
    const plain = await queue.add('d')
    const delivered = [await queues.next(), await queues.next()].map(({ body }) => JSON.parse(body).data.id as string)
    expect(delivered.toSorted()).toEqual([cancelled.id, plain.id].toSorted())
    expect(silent.webhook).toBeUndefined()
    expect(elsewhere.webhook).toMatchObject({ url: own.url, on: ['completed', 'failed'], sent: false, deliveries: [] })
    expect(own.all).toHaveLength(1)
  })

  it('a job settled by a process without webhooks is delivered by a later process that has them', async () => {
    const hook = await receiver()
    const store = await make(kind)
    const plain = closing(new Queue('work', { store, logger: false }))
    const worker = closing(new Worker(plain, () => 1, { logger: false }))
    const completed = event(plain, 'completed')
    const job = await plain.add('a', undefined, { webhook: hook.url })
    await completed
    await worker.close()
    expect(hook.all).toEqual([])
    const queue = closing(new Queue('work', { store, logger: false, webhook: webhooks(near) }))
    closing(new Worker(queue, { other: () => {} }, { logger: false }))
    expect(verifyWebhook(SECRET, (await hook.next()).headers, hook.all[0]!.body).data.id).toBe(job.id)
  })

  it('giving up on a job that is gone is reported, since it cannot be looked up', async () => {
    const hook = await receiver()
    const { queue, worker } = await scene({ url: hook.url, attempts: 1 })
    hook.answers((response) => void queue.remove({ all: true }).then(() => response.writeHead(500).end()))
    const reported = event(worker, 'error')
    const job = await queue.add('a')
    expect((await reported).error).toMatchObject({ code: 'WEBHOOK_FAILED', details: { id: job.id } })
  })

  it('runs of a schedule and jobs of a chain carry the webhook of their queue', async () => {
    const hook = await receiver()
    const { queue } = await scene({ url: hook.url })
    await queue.schedule('often', { every: 10, limit: 1, name: 'tick' })
    expect(JSON.parse((await hook.next()).body)).toMatchObject({ type: 'job.completed', data: { name: 'tick' } })
  })

  it('explain reports that the end of a job is still to be delivered, and whether a live worker can do so', async () => {
    const hook = await receiver()
    hook.answers((response) => response.writeHead(503).end())
    const store = await make(kind)
    const webhook = webhooks({ ...near, url: hook.url, backoff: '1h' })
    const queue = closing(new Queue('work', { store, logger: false, webhook }))
    const plain = closing(new Worker('work', () => 'done', { store, logger: false }))
    const job = await queue.add('a')
    await job.result()
    const before = await queue.explain(job.id)
    expect(before.reasons).toMatchObject([
      { why: 'finished', state: 'completed' },
      { why: 'delivery', url: hook.url, queue: 'work', sent: false },
    ])
    expect(before.text).toContain('no live worker sends the deliveries of queue work')
    await plain.close()
    const started = ofDelivery(store, 'worker-started')
    const delayed = ofDelivery(store, 'retrying')
    closing(new Worker(queue, () => 'done', { logger: false }))
    await Promise.all([started, delayed])
    const after = await queue.explain(job.id)
    expect(after.reasons[1]).toMatchObject({ why: 'delivery', sent: true })
    expect(after.text).toContain(`its end is still to be delivered to ${hook.url}.`)
  })

  it('a job with many ends keeps the last 20 entries', async () => {
    const hook = await receiver()
    const { queue } = await scene({ url: hook.url })
    const first = event(queue, 'webhook-delivered')
    const job = await queue.add('a')
    await first
    for (let sent = 1; sent < 23; sent++) {
      const delivered = event(queue, 'webhook-delivered')
      await queue.redeliver(job.id)
      await delivered
    }
    const { deliveries } = (await fresh(queue, job)).webhook!
    expect(deliveries).toHaveLength(20)
    expect(deliveries.at(-1)!.id).toBe(hook.all.at(-1)!.headers['webhook-id'])
  })
})

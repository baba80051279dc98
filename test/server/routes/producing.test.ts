// Adding jobs, flows and signals over HTTP, and waiting for their ends.
import { describe, expect, it } from 'vitest'
import { Queue, defineJobs, job } from 'millrace'
import { memory } from 'millrace/memory'
import { webhooks } from 'millrace/webhooks'
import { closing, newWorker } from '../../setup.js'
import { QUEUE, newWorld } from './world.js'
import type { Parts, Read, Who, World } from './world.js'

const params = { queue: QUEUE }
const JOBS = '/v1/queues/{queue}/jobs'
const BULK = '/v1/queues/{queue}/bulk'

const add = (world: World, body: unknown, parts: Parts = {}, who: Who = 'produce'): Promise<Read> =>
  world.ask(who, 'POST', JOBS, { params, body, ...parts })
const keyed = (key: string): Parts => ({ headers: { 'idempotency-key': key } })

/** A schema that takes objects with a text `to`. */
const mail = {
  '~standard': {
    version: 1,
    vendor: 'test',
    validate: (value: unknown) =>
      typeof (value as { to?: unknown } | null)?.to === 'string'
        ? { value: value as { to: string } }
        : { issues: [{ message: 'to is missing' }] },
  },
} as const

describe('one job', () => {
  it('is added with its data and options, null and absent data apart', async () => {
    const world = newWorld()
    const first = await add(world, { name: 'send', data: null, options: { delay: '1h', attempts: null, tags: ['a'] } })
    expect(first.status).toBe(201)
    expect(first.body).toMatchObject({ queue: QUEUE, name: 'send', state: 'delayed', duplicate: false })
    const handle = (await world.queue.get(first.body.id))!
    expect(handle).toMatchObject({ data: null, attempts: Infinity })
    const second = await add(world, { name: 'send', options: { runAt: '2100-01-01T00:00:00Z' } })
    expect(second.body.runAt).toBe(Date.UTC(2100, 0, 1))
    expect((await world.queue.get(second.body.id))!.data).toBeUndefined()
  })

  it('is added once under a key, also after the server was restarted, and refused with another payload', async () => {
    const world = newWorld()
    const body = { name: 'send', data: { to: 'ann' } }
    const first = await add(world, body, keyed('order-7'))
    expect(first).toMatchObject({ status: 201, body: { duplicate: false } })
    expect(first.body.id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
    await world.server.close()
    const later = newWorld({ store: world.store })
    const again = await add(later, body, keyed('"order-7"'))
    expect(again).toMatchObject({ status: 200, body: { id: first.body.id, duplicate: true } })
    for (const other of [
      { name: 'send', data: { to: 'bob' } },
      { name: 'send' },
      { name: 'call', data: { to: 'ann' } },
    ]) {
      const refused = await add(later, other, keyed('order-7'))
      expect(refused).toMatchObject({ status: 422, body: { code: 'IDEMPOTENCY_MISMATCH' } })
    }
    const elsewhere = await add(later, { name: 'send', data: 'x' }, keyed('order-7'), 'admin')
    expect(elsewhere.status).toBe(201) // the key of another token
    expect(await later.queue.counts()).toMatchObject({ waiting: 2 })
  })

  it('takes no key of its own beside an Idempotency-Key, and no bad key', async () => {
    const world = newWorld()
    const both = await add(world, { name: 'send', options: { id: 'mine' } }, keyed('k'))
    expect(both).toMatchObject({ status: 400, body: { details: { at: 'body.options.id' } } })
    expect((await add(world, { name: 'send' }, keyed('k'.repeat(256)))).status).toBe(400)
    expect(await world.queue.counts()).toMatchObject({ waiting: 0 })
  })

  it('is checked by the schema of its queue', async () => {
    const store = closing(memory())
    const queue = closing(new Queue(QUEUE, { store, jobs: defineJobs({ send: job({ input: mail }) }), logger: false }))
    const world = newWorld({ store, queues: [queue] })
    expect(await add(world, { name: 'send', data: {} })).toMatchObject({
      status: 422,
      body: { code: 'INVALID_PAYLOAD' },
    })
    expect(await add(world, { name: 'sned', data: {} })).toMatchObject({ status: 422, body: { code: 'UNKNOWN_JOB' } })
    expect((await add(world, { name: 'send', data: { to: 'ann' } })).status).toBe(201)
  })

  it('cannot have the server call any URL, nor wait for jobs of other queues, nor take a key of the whole store', async () => {
    const store = closing(memory())
    const webhook = webhooks({ url: 'https://hooks.example.com/in', unsigned: true })
    const queue = closing(new Queue(QUEUE, { store, webhook, logger: false }))
    const world = newWorld({ store, queues: [queue, 'other'] })
    const asking = async (options: object): Promise<Read> => add(world, { name: 'send', options })
    expect(await asking({ webhook: 'https://10.0.0.1/' })).toMatchObject({ status: 403, body: { code: 'FORBIDDEN' } })
    expect((await asking({ webhook: { url: 'https://hooks.example.com/mine' } })).status).toBe(201)
    expect((await asking({ dedup: { key: 'k', scope: 'global' } })).status).toBe(403)
    expect((await asking({ dedup: { key: 'k' } })).status).toBe(201)
    const secret = await new Queue('other', { store, logger: false }).add('pay', { amount: 7 }, { id: 'pay-7' })
    for (const after of [secret.id, [{ id: secret.id }], { job: secret.id }, { job: { id: secret.id } }]) {
      expect(await asking({ after })).toMatchObject({ status: 409, body: { code: 'DEPENDENCY_MISSING' } })
    }
    const taken = await asking({ id: 'pay-7' })
    expect(taken).toMatchObject({ status: 409, body: { code: 'DUPLICATE_ID' } })
    expect(taken.body.detail).not.toMatch(/'other'|'pay'/)
    expect((await asking({ repeat: { every: '1h' } })).status).toBe(400)
  })
})

describe('many jobs', () => {
  it('are each added or refused by themselves, in order', async () => {
    const world = newWorld()
    await world.queue.add('send', 0, { dedup: { key: 'k' } })
    const jobs = [
      { name: 'send', data: 1 },
      { name: 'send', data: 2, options: { dedup: { key: 'k', mode: 'reject' } } },
      { name: 'send', data: 3, options: { dedup: { key: 'k' } } },
    ]
    const { status, body } = await world.ask('produce', 'POST', BULK, { params, body: { jobs } })
    expect(status).toBe(200)
    expect(body.jobs).toMatchObject([{ duplicate: false }, { code: 'DUPLICATE_JOB', status: 409 }, { duplicate: true }])
  })

  it('are not added at all if one is malformed, and the answer says which', async () => {
    const world = newWorld()
    const jobs = [{ name: 'send' }, { name: 'send', options: { priority: 1.5 } }]
    const { status, body } = await world.ask('produce', 'POST', BULK, { params, body: { jobs } })
    expect(status).toBe(400)
    expect(body).toMatchObject({ code: 'INVALID_PRIORITY', details: { at: 'body.jobs[1]' } })
    expect(await world.queue.counts()).toMatchObject({ waiting: 0 })
  })

  it('are added once under a key; a job that differs is a problem of its own', async () => {
    const world = newWorld()
    const send = (data: readonly unknown[]): Promise<Read> =>
      world.ask('produce', 'POST', BULK, {
        params,
        body: { jobs: data.map((each) => ({ name: 'send', data: each })) },
        ...keyed('b'),
      })
    const first = await send([1, 2])
    const again = await send([1, 3, 4])
    expect(again.body.jobs).toMatchObject([
      { id: first.body.jobs[0].id, duplicate: true },
      { code: 'IDEMPOTENCY_MISMATCH' },
      { duplicate: false },
    ])
  })
})

describe('a flow', () => {
  const page = (n: number): object => ({ name: 'page', queueName: QUEUE, data: n })
  const tree = (data: unknown = 'r'): object => ({
    name: 'report',
    queueName: QUEUE,
    data,
    children: [page(1), page(2)],
  })

  it('is added whole, and once under a key', async () => {
    const world = newWorld()
    const send = (body: object): Promise<Read> => world.ask('produce', 'POST', '/v1/flows', { body, ...keyed('f') })
    const first = await send(tree())
    expect(first).toMatchObject({ status: 201, body: { job: { state: 'waiting-children' }, children: [{}, {}] } })
    const again = await send(tree())
    expect(again).toMatchObject({ status: 200, body: { job: { id: first.body.job.id, duplicate: true } } })
    expect(again.body.children.map((each: { job: { id: string } }) => each.job.id)).toEqual(
      first.body.children.map((each: { job: { id: string } }) => each.job.id),
    )
    expect(await send(tree('other'))).toMatchObject({ status: 422, body: { code: 'IDEMPOTENCY_MISMATCH' } })
    expect(await world.queue.counts()).toMatchObject({ waiting: 2, 'waiting-children': 1 })
  })

  it('is refused for any queue in it that the token does not hold for', async () => {
    const world = newWorld()
    const body = { ...tree(), children: [{ name: 'pay', queueName: 'other' }] }
    expect(await world.ask('produce', 'POST', '/v1/flows', { body })).toMatchObject({ status: 403 })
    expect(await world.queue.counts()).toMatchObject({ waiting: 0, 'waiting-children': 0 })
  })

  it('has a bound on its jobs', async () => {
    const world = newWorld()
    const body = { ...tree(), children: Array.from({ length: 1_000 }, (_, n) => page(n)) }
    expect(await world.ask('produce', 'POST', '/v1/flows', { body })).toMatchObject({ status: 400 })
  })
})

describe('a result', () => {
  const result = (world: World, id: string, wait?: string): Promise<Read> =>
    world.ask('produce', 'GET', '/v1/jobs/{id}/result', {
      params: { id },
      ...(wait !== undefined && { query: { wait } }),
    })

  it('is awaited, and comes back as the stored text', async () => {
    const world = newWorld()
    const { id } = await world.queue.add('send')
    expect(await result(world, id)).toMatchObject({ status: 202, body: { state: 'waiting' } })
    const waits = result(world, id, '25s')
    newWorker(world.queue, async () => ({ n: 1.5 }))
    const { status, text } = await waits
    expect({ status, text }).toEqual({ status: 200, text: '{"state":"completed","result":{"n":1.5}}' })
  })

  it('is shown without secrets to a token that may only read', async () => {
    const world = newWorld()
    const { id } = await world.queue.add('send')
    const waits = result(world, id, '25s')
    newWorker(world.queue, async () => ({ token: 'abc' }))
    expect((await waits).body).toMatchObject({ result: { token: 'abc' } })
    const { body } = await world.ask('read', 'GET', '/v1/jobs/{id}/result', { params: { id } })
    expect(body).toMatchObject({ result: { token: '•••' } })
  })

  it('of a job that failed is its error, without the stack', async () => {
    const world = newWorld()
    const { status, text, body } = await result(world, await world.failed())
    expect(status).toBe(200)
    expect(body).toMatchObject({ state: 'failed', error: { message: 'as the sample needs it' } })
    expect(text).not.toContain('stack')
  })

  it('may be awaited by so many requests of a token at a time', async () => {
    const world = newWorld({ limits: { waitingPerToken: 1 } })
    const { id } = await world.queue.add('send')
    const first = result(world, id, '25s')
    const busy = await result(world, id, '25s')
    expect(busy).toMatchObject({ status: 503, body: { code: 'SERVER_BUSY' } })
    await (await world.queue.get(id))!.cancel()
    expect((await first).body).toMatchObject({ state: 'cancelled' })
    expect(await result(world, id, '25s')).toMatchObject({ status: 200 })
  })

  it('of a job that is removed ends the wait', async () => {
    const world = newWorld()
    const { id } = await world.queue.add('send')
    const waits = result(world, id, '25s')
    await (await world.queue.get(id))!.remove()
    expect([404, 410]).toContain((await waits).status) // 404: it was gone before the wait began
  })
})

it('a signal is taken once', async () => {
  const world = newWorld()
  const id = await world.waiting()
  const send = (): Promise<Read> =>
    world.ask('produce', 'POST', '/v1/jobs/{id}/signals/{name}', { params: { id, name: 'go' }, body: { data: 1 } })
  expect((await send()).body).toEqual({ taken: true })
  expect((await send()).body).toEqual({ taken: false })
})

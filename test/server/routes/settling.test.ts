// Settling over HTTP: each call is bound to its fence, a loser is told so, and a winner may say it again.
import { describe, expect, it } from 'vitest'
import { Queue, defineJobs, job } from 'millrace'
import { memory } from 'millrace/memory'
import { closing, event } from '../../setup.js'
import { stores } from '../../stores.js'
import { QUEUE, newWorld } from './world.js'
import type { Leased, Read, Who, World } from './world.js'

const say = (
  world: World,
  { id, fence }: Leased,
  call: string,
  fields: object = {},
  who: Who = 'work',
): Promise<Read> => world.ask(who, 'POST', `/v1/jobs/{id}/${call}`, { params: { id }, body: { fence, ...fields } })
const failure = { error: { name: 'TimeoutError', message: 'no answer', code: 'ETIMEDOUT', stack: 'at a.py:7' } }

describe('a settlement', () => {
  it('completes with a result, children and the next of the chain, in one commit', async () => {
    const world = newWorld()
    const lease = await world.leased()
    const fields = { result: { n: 1 }, add: [{ name: 'child', data: 1 }], next: { name: 'then', data: 2 } }
    expect((await say(world, lease, 'complete', fields)).body).toEqual({ state: 'completed', repeated: false })
    const { jobs } = await world.queue.list()
    expect(jobs.map((each) => each.toJSON())).toMatchObject([
      { id: lease.id, state: 'completed' },
      { name: 'child', parentId: lease.id },
      { name: 'then', chainId: lease.id },
    ])
    expect((await world.queue.get(lease.id))!.returned).toEqual({ n: 1 })
  })

  it('fails with the error of the client, by the rules of the job or after the wait that it gives', async () => {
    const world = newWorld()
    const first = await world.leased()
    const retried = await say(world, first, 'fail', { ...failure, in: '1h' })
    expect(retried.body).toMatchObject({ state: 'delayed', repeated: false, runAt: expect.any(Number) })
    expect(await world.queue.get(first.id)).toMatchObject({
      state: 'delayed',
      errors: [{ name: 'TimeoutError', message: 'no answer', code: 'ETIMEDOUT', stack: 'at a.py:7' }],
    })
    const second = await world.leased()
    expect((await say(world, second, 'fail', { ...failure, retry: false })).body).toMatchObject({ state: 'failed' })
    const third = await world.leased()
    const fatal = { error: { name: 'UnrecoverableError', message: 'never' } }
    expect((await say(world, third, 'fail', fatal)).body).toMatchObject({ state: 'failed' })
    expect((await world.queue.get(third.id))!.error?.stack).toBeUndefined()
  })

  it('snoozes, releases and holds, without counting the attempt', async () => {
    const world = newWorld()
    const first = await world.leased()
    expect((await say(world, first, 'snooze', { for: '1h' })).body).toMatchObject({ state: 'delayed' })
    const second = await world.leased()
    expect((await say(world, second, 'release')).body).toEqual({ state: 'waiting', repeated: false })
    const third = await world.leased()
    expect((await say(world, third, 'hold', { for: '1h' })).body).toEqual({ state: 'waiting', repeated: false })
    const body = { worker: 'w1', queues: [QUEUE], max: 9 }
    expect((await world.ask('work', 'POST', '/v1/claims', { body })).body.jobs).toEqual([])
    for (const { id } of [first, third]) expect((await world.queue.get(id))!.attempt).toBe(0)
  })

  it('with a backoff that only workers know needs a wait of its own', async () => {
    const world = newWorld()
    await world.queue.add('send', 1, { backoff: { type: 'custom', name: 'moon' } })
    const body = { worker: 'w1', queues: [QUEUE] }
    const [lease] = (await world.ask('work', 'POST', '/v1/claims', { body })).body.jobs
    expect(await say(world, lease, 'fail', failure)).toMatchObject({ status: 422, body: { code: 'UNKNOWN_BACKOFF' } })
    expect((await say(world, lease, 'fail', { ...failure, in: 0 })).body).toEqual({ state: 'waiting', repeated: false })
  })

  it('whose result its schema refuses leaves the job with the worker', async () => {
    const store = closing(memory())
    const output = {
      '~standard': {
        version: 1,
        vendor: 'test',
        validate: (value: unknown) => (value === 'good' ? { value } : { issues: [{ message: 'not good' }] }),
      },
    } as const
    const queue = closing(new Queue(QUEUE, { store, jobs: defineJobs({ send: job({ output }) }), logger: false }))
    const world = newWorld({ store, queues: [queue] })
    const lease = await world.leased()
    expect(await say(world, lease, 'complete', { result: 'bad' })).toMatchObject({
      status: 422,
      body: { code: 'INVALID_RESULT' },
    })
    expect((await say(world, lease, 'complete', { result: 'good' })).body).toMatchObject({ state: 'completed' })
  })
})

describe('what a worker writes while it runs', () => {
  it('is progress, lines and steps; of a step, the first result stands', async () => {
    const world = newWorld()
    const lease = await world.leased()
    expect((await say(world, lease, 'progress', { progress: { at: 7 } })).status).toBe(200)
    expect((await say(world, lease, 'log', { lines: ['one', 'two'] })).status).toBe(200)
    const step = (fence: number, result: unknown): Promise<Read> =>
      world.ask('work', 'PUT', '/v1/jobs/{id}/steps/{name}', {
        params: { id: lease.id, name: 'charge' },
        body: { fence, result },
      })
    expect((await step(lease.fence, { paid: 1.5 })).text).toBe('{"kept":true,"result":{"paid":1.5}}')
    expect((await step(lease.fence, 'again')).text).toBe('{"kept":false,"result":{"paid":1.5}}')
    expect(await step(lease.fence + 1, 'again')).toMatchObject({ status: 409 })
    const handle = (await world.queue.get(lease.id))!
    expect(handle.progress).toEqual({ at: 7 })
    expect((await handle.logs()).map(({ line }) => line)).toEqual(['one', 'two'])
    expect(await handle.steps()).toMatchObject([{ name: 'charge' }])
  })

  it('two results of one step that come at the same time: one stands, and both are told which', async () => {
    const world = newWorld()
    const lease = await world.leased()
    const parts = { params: { id: lease.id, name: 's' } }
    const both = await Promise.all(
      [1, 2].map((result) =>
        world.ask('work', 'PUT', '/v1/jobs/{id}/steps/{name}', { ...parts, body: { fence: lease.fence, result } }),
      ),
    )
    expect(both.map(({ body }) => body)).toEqual([
      { kept: true, result: 1 },
      { kept: false, result: 1 },
    ])
  })

  it('a heartbeat renews the lease for as long as it was, or as it says', async () => {
    const world = newWorld()
    const lease = await world.leased()
    expect((await say(world, lease, 'heartbeat')).body).toEqual({ leaseMs: 30_000, state: 'running' })
    expect((await say(world, lease, 'heartbeat', { lease: '5m' })).body).toMatchObject({ leaseMs: 300_000 })
    expect((await say(world, lease, 'heartbeat')).body).toMatchObject({ leaseMs: 300_000 })
    await world.server.close()
    const body = { worker: 'w2', queues: [QUEUE], lease: '7m' }
    const later = newWorld({ store: world.store })
    await later.waiting()
    const [other] = (await later.ask('work', 'POST', '/v1/claims', { body })).body.jobs
    await later.server.close()
    const third = newWorld({ store: world.store }) // has to ask the registry
    expect((await say(third, other, 'heartbeat')).body).toMatchObject({ leaseMs: 420_000 })
  })
})

describe('a loser', () => {
  const calls = [
    ['heartbeat', {}],
    ['progress', { progress: 1 }],
    ['log', { lines: ['x'] }],
    ['complete', { result: 1 }],
    ['fail', failure],
    ['snooze', { for: 1 }],
    ['release', {}],
    ['hold', { for: 1 }],
  ] as const
  const losses = [
    [
      'cancelled',
      (world: World, id: string) => world.queue.get(id).then((each) => each!.cancel({ reason: 'stop it' })),
    ],
    [
      'completed-elsewhere',
      (world: World, id: string) => world.queue.get(id).then((each) => each!.fail(new Error('by hand'))),
    ],
  ] as const

  it.each(losses)('whose job was %s learns why from every call, and writes nothing', async (reason, lose) => {
    for (const [call, fields] of calls) {
      const world = newWorld()
      const lease = await world.leased()
      await lose(world, lease.id)
      const before = await world.queue.get(lease.id)
      const lost = await say(world, lease, call, fields)
      expect(lost, call).toMatchObject({ status: 409, body: { code: 'LEASE_LOST', details: { reason } } })
      if (reason === 'cancelled') expect(lost.body.details.cancelReason).toBe('stop it')
      expect((await world.queue.get(lease.id))!.toJSON()).toEqual(before!.toJSON())
    }
  })

  it('whose job was removed gets 410, and one whose fence is old or guessed 409', async () => {
    for (const [call, fields] of calls) {
      const world = newWorld()
      const lease = await world.leased()
      for (const fence of [0, lease.fence - 1, lease.fence + 1]) {
        const lost = await say(world, { ...lease, fence }, call, fields)
        expect(lost, call).toMatchObject({ status: 409, body: { code: 'LEASE_LOST' } })
      }
      await (await world.queue.get(lease.id))!.remove()
      expect(await say(world, lease, call, fields), call).toMatchObject({ status: 410, body: { code: 'JOB_REMOVED' } })
    }
  })

  it('is any other token, even with the right fence and for the same queue', async () => {
    for (const [call, fields] of calls) {
      const world = newWorld()
      const lease = await world.leased()
      for (const who of ['admin', 'everybody'] as const) {
        expect(await say(world, lease, call, fields, who), call).toMatchObject({ status: 409 })
      }
      expect(await say(world, lease, call, fields, 'stranger'), call).toMatchObject({ status: 404 })
      expect(await world.queue.get(lease.id)).toMatchObject({ state: 'active' })
    }
  })
})

describe.each(['memory', 'SQLite', 'PostgreSQL'] as const)('on %s, a settlement that is said again', (kind) => {
  const newStore = stores()
  const settlements = [
    ['complete', { result: 1 }, 'completed'],
    ['fail', { ...failure, retry: false }, 'failed'],
    ['fail', { ...failure, in: '1h' }, 'delayed'],
    ['snooze', { for: '1h' }, 'delayed'],
    ['release', {}, 'waiting'],
  ] as const

  it('by its winner is repeated, also after the server was restarted; another one is not', async () => {
    for (const [call, fields, state] of settlements) {
      const world = newWorld({ store: await newStore(kind) })
      const lease = await world.leased()
      const first = await say(world, lease, call, fields)
      expect(first.body, call).toMatchObject({ state, repeated: false })
      const again = await say(world, lease, call, fields)
      expect(again, call).toMatchObject({ status: 200, body: { state, repeated: true } })
      await world.server.close()
      const later = newWorld({ store: world.store })
      expect(await say(later, lease, call, fields), call).toMatchObject({
        status: 200,
        body: { state, repeated: true },
      })
      expect(await say(later, lease, call, fields, 'everybody'), call).toMatchObject({ status: 409 })
      const others = settlements.filter((each) => each[0] !== call)
      for (const [other, more] of others) expect(await say(later, lease, other, more)).toMatchObject({ status: 409 })
    }
  })

  it('by one whose lease expired meanwhile is refused, whatever became of the job', async () => {
    const world = newWorld({ store: await newStore(kind) })
    await world.queue.add('send', 1, { attempts: 2 })
    const body = { worker: 'w1', queues: [QUEUE], lease: 10 }
    const stalled = event(world.queue, 'stalled')
    const [lease] = (await world.ask('work', 'POST', '/v1/claims', { body })).body.jobs
    await stalled
    for (const [call, fields] of settlements) {
      expect(await say(world, lease, call, fields), call).toMatchObject({
        status: 409,
        body: { details: { reason: 'lease-lost' } },
      })
    }
  })
})

// What the operating routes do, and what the audit tells of it.
import { describe, expect, it } from 'vitest'
import { Queue } from 'millrace'
import { closing, newWorker } from '../../setup.js'
import { kinds, stores } from '../../stores.js'
import { QUEUE, newWorld } from './world.js'
import type { World } from './world.js'

const newStore = stores()
const params = { queue: QUEUE }

/** The entries of the audit, the newest first. */
// oxlint-disable-next-line typescript/no-explicit-any -- tests look into them
async function audit(world: World): Promise<any[]> {
  return (await world.ask('everybody', 'GET', '/v1/audit')).body.entries
}

describe('one job', () => {
  it('is cancelled with a reason, retried, changed, promoted and removed', async () => {
    const world = newWorld()
    const { id } = await world.queue.add('send', { to: 'ann' }, { delay: '1h' })
    const at = { params: { id } }
    const cancelled = await world.ask('admin', 'POST', '/v1/jobs/{id}/cancel', {
      ...at,
      body: { reason: 'not wanted' },
    })
    expect(cancelled.body).toMatchObject({ done: true, job: { state: 'cancelled', error: { message: 'not wanted' } } })
    const again = await world.ask('admin', 'POST', '/v1/jobs/{id}/cancel', at)
    expect(again.body).toMatchObject({ done: false, job: { state: 'cancelled' } })
    const edited = await world.ask('admin', 'PATCH', '/v1/jobs/{id}', { ...at, body: { data: { to: 'bob' } } })
    expect(edited.body).toMatchObject({ done: true, job: { data: { to: 'bob' } } })
    const retried = await world.ask('admin', 'POST', '/v1/jobs/{id}/retry', at)
    expect(retried.body).toMatchObject({ done: true, job: { state: 'waiting' } })
    const later = await world.ask('admin', 'PATCH', '/v1/jobs/{id}', { ...at, body: { delay: '1h', priority: 3 } })
    expect(later.body).toMatchObject({ done: true, job: { state: 'delayed', priority: 3 } })
    const promoted = await world.ask('admin', 'POST', '/v1/jobs/{id}/promote', at)
    expect(promoted.body).toMatchObject({ done: true, job: { state: 'waiting' } })
    const removed = await world.ask('admin', 'DELETE', '/v1/jobs/{id}', at)
    expect(removed.body).toEqual({ done: true })
    expect(await world.queue.get(id)).toBeUndefined()
  })

  it('takes null as data', async () => {
    const world = newWorld()
    const id = await world.waiting()
    const { body } = await world.ask('admin', 'PATCH', '/v1/jobs/{id}', { params: { id }, body: { data: null } })
    expect(body).toMatchObject({ done: true, job: { data: null } })
  })

  it('is not changed in a state that forbids it, and the answer says why', async () => {
    const world = newWorld()
    const id = await world.waiting()
    const { status, body } = await world.ask('admin', 'POST', '/v1/jobs/{id}/retry', { params: { id } })
    expect([status, body.code]).toEqual([409, 'INVALID_STATE'])
    expect(await audit(world)).toMatchObject([
      { action: 'retry', outcome: 'refused', why: expect.stringContaining('INVALID_STATE') },
    ])
  })

  it('that others wait for is not removed, unless with them', async () => {
    const world = newWorld()
    const first = await world.queue.add('send')
    const second = await world.queue.add('send', null, { after: [first.id] })
    const at = { params: { id: first.id } }
    const refused = await world.ask('admin', 'DELETE', '/v1/jobs/{id}', at)
    expect([refused.status, refused.body.code]).toEqual([409, 'JOB_HAS_DEPENDENTS'])
    const done = await world.ask('admin', 'DELETE', '/v1/jobs/{id}', { ...at, query: { cascade: '1' } })
    expect(done.body).toEqual({ done: true })
    expect(await world.queue.get(second.id)).toBeUndefined()
  })

  it('keeps to the schema of its queue', async () => {
    const schema = {
      '~standard': {
        version: 1 as const,
        vendor: 'test',
        validate: (value: unknown) =>
          typeof value === 'string' ? { value } : { issues: [{ message: 'must be text' }] },
      },
    }
    const { defineJobs, job } = await import('millrace')
    const { memory } = await import('millrace/memory')
    const store = closing(memory())
    const jobs = defineJobs({ send: job({ input: schema }) })
    const queue = closing(new Queue(QUEUE, { store, jobs, logger: false }))
    const world = newWorld({ store, queues: [queue] })
    const { id } = await queue.add('send', 'text')
    const { status, body } = await world.ask('admin', 'PATCH', '/v1/jobs/{id}', { params: { id }, body: { data: 7 } })
    expect([status, body.code]).toEqual([422, 'INVALID_PAYLOAD'])
  })
})

describe.each(kinds)('many jobs on %s', (kind) => {
  it('are planned, changed by a durable operation, and counted', async () => {
    const world = newWorld({ store: await newStore(kind) })
    for (let n = 0; n < 12; n++) await world.failed()
    const where = { state: 'failed' }
    const plan = await world.ask('admin', 'POST', '/v1/queues/{queue}/retry', { params, body: { where, dryRun: true } })
    expect(plan.status).toBe(200)
    expect(plan.body).toMatchObject({ count: 12, exact: true, names: { send: { failed: 12 } } })
    expect(plan.body.samples).toHaveLength(10)
    const begun = await world.ask('admin', 'POST', '/v1/queues/{queue}/retry', {
      params,
      body: { where, reason: 'the provider is back' },
    })
    expect(begun.status).toBe(202)
    const { id } = begun.body
    expect(begun.body).toMatchObject({ state: 'running', matched: 12, by: 'admin', reason: 'the provider is back' })
    newWorker(world.queue, { send: async () => {} })
    await (await world.queue.operation(id))!.result()
    const ended = await world.ask('read', 'GET', '/v1/queues/{queue}/operations/{id}', { params: { ...params, id } })
    expect(ended.body).toMatchObject({ state: 'completed', done: 12 })
    const list = await world.ask('read', 'GET', '/v1/queues/{queue}/operations', { params })
    expect(list.body.operations).toMatchObject([{ id }])
    const entries = await audit(world)
    expect(entries).toMatchObject([
      { action: 'retry many', outcome: 'done', by: 'admin', reason: 'the provider is back', result: { operation: id } },
    ]) // and none of the dry run
  })
})

describe('many jobs', () => {
  it('are not changed by an empty filter, unless all are meant', async () => {
    const world = newWorld()
    await world.waiting()
    for (const body of [{}, { where: {} }]) {
      const answer = await world.ask('admin', 'POST', '/v1/queues/{queue}/cancel', { params, body })
      expect([answer.status, answer.body.code]).toEqual([400, 'NO_FILTER'])
    }
    const all = await world.ask('admin', 'POST', '/v1/queues/{queue}/cancel', { params, body: { all: true } })
    expect([all.status, all.body.matched]).toEqual([202, 1])
  })

  it('are changed no further once the operation is cancelled, or paused', async () => {
    const world = newWorld()
    for (let job = 0; job < 3; job++) await world.waiting()
    const slow = { all: true, rate: { max: 1, per: '1h' } }
    const { body } = await world.ask('admin', 'POST', '/v1/queues/{queue}/cancel', { params, body: slow })
    const at = { params: { ...params, id: body.id } }
    const steer = async (what: string): Promise<unknown> =>
      (await world.ask('admin', 'POST', `/v1/queues/{queue}/operations/{id}/${what}`, at)).body
    expect(await steer('pause')).toMatchObject({ done: true, operation: { state: 'paused' } })
    expect(await steer('resume')).toMatchObject({ done: true, operation: { state: 'running' } })
    expect(await steer('cancel')).toMatchObject({ done: true, operation: { state: 'cancelled' } })
    expect(await steer('cancel')).toMatchObject({ done: false })
  })
})

describe('a queue', () => {
  it('is paused, resumed, held, limited and marked', async () => {
    const world = newWorld()
    const put = async (method: string, path: string, body?: unknown): Promise<unknown> => {
      const answer = await world.ask('admin', method, `/v1/queues/{queue}/${path}`, { params, body })
      expect(answer.status, answer.text).toBe(200)
      return answer.body
    }
    await put('POST', 'pause')
    await put('POST', 'pause', { name: 'send' })
    expect(await world.queue.paused()).toEqual({ queue: true, names: ['send'] })
    await put('POST', 'resume')
    await put('POST', 'hold', { for: '10m', group: 't7' })
    const limits = await put('PATCH', 'limits', { concurrency: 5, names: { send: { rate: { max: 1, per: '1s' } } } })
    expect(limits).toEqual({
      limits: { concurrency: 5, names: { send: { rate: { max: 1, per: 1000 } } }, group: {}, groups: {} },
    })
    await put('POST', 'marks', { text: 'deploy 4f2' })
    const read = await world.ask('read', 'GET', '/v1/queues/{queue}/limits', { params })
    expect(read.body).toMatchObject({
      limits: { concurrency: 5 },
      uses: [
        { of: 'queue', what: 'concurrency', used: 0, max: 5 },
        { of: 'name', name: 'send', what: 'rate', used: 0, max: 1 },
      ],
      leases: {},
      paused: { queue: false, names: ['send'] },
      holds: [{ group: 't7', by: 'admin' }],
    })
    expect(await put('POST', 'unhold', { group: 't7' })).toEqual({ done: true })
    expect(await put('POST', 'unhold', { group: 't7' })).toEqual({ done: false })
    const series = await world.ask('read', 'GET', '/v1/queues/{queue}/series', { params })
    expect(series.body.marks).toMatchObject([{ text: 'deploy 4f2' }])
  })

  it('has schedules put, run, paused, backfilled and removed', async () => {
    const world = newWorld()
    const at = { params: { ...params, key: 'nightly' } }
    const path = '/v1/queues/{queue}/schedules/{key}'
    const body = { name: 'send', every: '1h', data: { token: 'hush' } }
    const put = await world.ask('admin', 'PUT', path, { ...at, body })
    expect(put.body).toMatchObject({ key: 'nightly', name: 'send', state: 'scheduled' })
    const bad = await world.ask('admin', 'PUT', path, { ...at, body: { name: 'send', cron: 'never' } })
    expect([bad.status, bad.body.code]).toEqual([400, 'INVALID_SCHEDULE'])
    const run = await world.ask('admin', 'POST', `${path}/run`, at)
    expect((await world.queue.get(run.body.id))?.data).toEqual({ token: 'hush' })
    const overlap = await world.ask('admin', 'POST', `${path}/run`, at)
    expect([overlap.status, overlap.body.code]).toEqual([409, 'SCHEDULE_OVERLAP'])
    expect((await world.ask('admin', 'POST', `${path}/pause`, at)).body).toEqual({ done: true })
    const read = await world.ask('read', 'GET', path, at)
    expect(read.body).toMatchObject({ state: 'paused', runs: [{ id: run.body.id }], data: { token: '•••' } })
    expect((await world.ask('admin', 'POST', `${path}/resume`, at)).body).toEqual({ done: true })
    expect((await world.ask('admin', 'DELETE', path, at)).body).toEqual({ done: true })
    expect((await world.ask('admin', 'DELETE', path, at)).body).toEqual({ done: false })
    expect((await world.ask('read', 'GET', path, at)).status).toBe(404)
    expect(JSON.stringify(await audit(world))).not.toContain('hush')
  })
})

describe('the audit', () => {
  it('has an entry before the change, which stays where the server ends in it', async () => {
    const world = newWorld()
    const { id } = await world.queue.add('send', null, { delay: '1h' })
    // The store fails once the entry has been written, as where the process dies between.
    const { commit } = world.store
    let commits = 0
    world.store.commit = (batch, tx) => {
      if (batch.groups.length > 0 && ++commits > 1) return Promise.reject(new Error('gone'))
      return commit.call(world.store, batch, tx)
    }
    const cancelled = world.ask('admin', 'POST', '/v1/jobs/{id}/cancel', { params: { id } })
    const answer = await cancelled
    world.store.commit = commit
    expect(answer.status).toBe(503)
    expect(await audit(world)).toMatchObject([{ action: 'cancel', outcome: 'asked', params: { id } }])
  })

  it('prevents a change that it cannot record', async () => {
    const world = newWorld()
    const { commit } = world.store
    world.store.commit = () => Promise.reject(new Error('gone'))
    const { status } = await world.ask('admin', 'POST', '/v1/queues/{queue}/pause', { params })
    world.store.commit = commit
    expect(status).toBe(503)
    expect((await world.queue.paused()).queue).toBe(false)
  })

  it('is written for no refused role, no failed login, and no reader', async () => {
    const world = newWorld()
    await world.ask('read', 'POST', '/v1/queues/{queue}/pause', { params })
    await world.ask(undefined, 'POST', '/v1/queues/{queue}/pause', { params })
    await world.ask(undefined, 'POST', '/v1/session')
    await world.ask('read', 'GET', '/v1/queues')
    expect(await audit(world)).toEqual([])
  })

  it('shows an admin of some queues the entries of those alone', async () => {
    const world = newWorld()
    await world.ask('admin', 'POST', '/v1/queues/{queue}/pause', { params })
    await world.ask('stranger', 'POST', '/v1/queues/{queue}/pause', { params: { queue: 'other' } })
    const own = await world.ask('stranger', 'GET', '/v1/audit')
    expect(own.body.entries).toMatchObject([{ by: 'stranger', queue: 'other' }])
    const some = await world.ask('everybody', 'GET', '/v1/audit', { query: { queue: QUEUE } })
    expect(some.body.entries).toMatchObject([{ by: 'admin', queue: QUEUE }])
    const by = await world.ask('everybody', 'GET', '/v1/audit', { query: { by: 'stranger' } })
    expect(by.body.entries).toMatchObject([{ by: 'stranger' }])
  })

  it('keeps how a large body begins, and no secrets of it', async () => {
    const world = newWorld()
    const id = await world.waiting()
    const data = { password: 'hush', text: 'x'.repeat(20_000) }
    await world.ask('admin', 'PATCH', '/v1/jobs/{id}', { params: { id }, body: { data } })
    const [entry] = await audit(world)
    expect(entry.bodyStart).toContain('"password":"•••"')
    expect(entry.bodyStart.length).toBeLessThan(10_000)
  })

  it('goes to the log as well', async () => {
    const lines: string[] = []
    const log = (_: object, message: string): void => void lines.push(message)
    const world = newWorld({ logger: { info: log, warn: log, error: log } })
    await world.ask('admin', 'POST', '/v1/queues/{queue}/pause', { params })
    expect(lines).toEqual(['admin: POST /v1/queues/{queue}/pause'])
  })
})

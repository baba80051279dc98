// Claims over HTTP: they wait in line, are woken by what is added, and hand back what their client cannot take.
import { setMaxListeners } from 'node:events'
import { describe, expect, it } from 'vitest'
import { Queue, defineJobs, job } from 'millrace'
import type { Store } from 'millrace'
import { memory } from 'millrace/memory'
import type { Batch, Receipt } from '../../../src/store/store.js'
import { observed } from '../../observed-store.js'
import { closing, event, gate } from '../../setup.js'
import { QUEUE, newWorld } from './world.js'
import type { Read, Who, World } from './world.js'

const claimBody = (more: object = {}): object => ({ worker: 'w1', queues: [QUEUE], ...more })
const claim = (world: World, more: object = {}, who: Who = 'work', headers = {}): Promise<Read> =>
  world.ask(who, 'POST', '/v1/claims', { body: claimBody(more), headers })

/** A store that reports how many claims each commit carried. */
function watched(): { store: Store; asked: (times: number) => Promise<void>; asks: () => number } {
  let asks = 0
  const waits: { readonly times: number; readonly done: () => void }[] = []
  const count = (batch: Batch, _receipt: Receipt): void => {
    asks += batch.asks.length
    for (const each of waits) if (asks >= each.times) each.done()
  }
  const store = closing(observed(memory(), count))
  const asked = (times: number): Promise<void> =>
    new Promise((done) => {
      if (asks >= times) done()
      else waits.push({ times, done })
    })
  return { store, asked, asks: () => asks }
}

describe('a claim', () => {
  it('gets jobs with all that their worker needs, and their data as the stored text', async () => {
    const world = newWorld()
    const { id } = await world.queue.add('send', { n: 1.5 }, { attempts: Infinity, group: 'g', tags: ['t'] })
    const { status, text, body } = await claim(world, { lease: '1m' })
    expect(status).toBe(200)
    expect(text).toContain('"data":{"n":1.5}')
    expect(body.state).toBe('running')
    expect(body.jobs).toMatchObject([
      { id, queue: QUEUE, name: 'send', version: 1, attempt: 1, attempts: null, fence: 1, leaseMs: 60_000, group: 'g' },
    ])
    expect(body.jobs[0].worker).toBe('work/w1')
    expect((await claim(world)).body.jobs).toEqual([])
  })

  it('takes names and versions, several queues, and leases of its own for a name', async () => {
    const world = newWorld()
    await world.queue.add('send')
    await world.queue.add('call')
    expect((await claim(world, { names: ['other'] })).body.jobs).toEqual([])
    const handles = [{ name: 'call', versions: [1], lease: '2m' }]
    expect((await claim(world, { handles, max: 9 })).body.jobs).toMatchObject([{ name: 'call', leaseMs: 120_000 }])
    expect((await claim(world, { handles: [{ name: 'send', versions: [2] }] })).body.jobs).toEqual([])
    await new Queue('other', { store: world.store, logger: false }).add('pay')
    const both = { queues: [QUEUE, 'other'], max: 9 }
    expect(await claim(world, both)).toMatchObject({ status: 403 })
    expect((await claim(world, both, 'everybody')).body.jobs).toMatchObject([{ name: 'send' }, { name: 'pay' }])
  })

  it('brings the steps of earlier attempts and what the job depended on', async () => {
    const world = newWorld()
    const first = await world.queue.add('send')
    await world.queue.add('send', 2, { after: first })
    const { jobs } = (await claim(world)).body
    const params = { id: jobs[0].id }
    const { fence } = jobs[0]
    await world.ask('work', 'PUT', '/v1/jobs/{id}/steps/{name}', {
      params: { ...params, name: 's' },
      body: { fence, result: 7 },
    })
    await world.ask('work', 'POST', '/v1/jobs/{id}/release', { params, body: { fence } })
    const again = (await claim(world, { include: ['steps', 'dependencies'] })).body.jobs[0]
    expect(again).toMatchObject({ id: first.id, steps: [{ name: 's', result: 7 }], dependencies: [] })
    await world.ask('work', 'POST', '/v1/jobs/{id}/complete', { params, body: { fence: again.fence, result: 'r' } })
    const next = (await claim(world, { include: ['dependencies'] })).body.jobs[0]
    expect(next.dependencies).toMatchObject([{ id: first.id, name: 'send', state: 'completed', result: 'r' }])
  })

  it('gets no job whose data its schema refuses: that fails for good, as in any worker', async () => {
    const store = closing(memory())
    const input = {
      '~standard': {
        version: 1,
        vendor: 'test',
        validate: (value: unknown) => (value === 'good' ? { value } : { issues: [{ message: 'not good' }] }),
      },
    } as const
    const queue = closing(new Queue(QUEUE, { store, jobs: defineJobs({ send: job({ input }) }), logger: false }))
    const world = newWorld({ store, queues: [queue] })
    const bad = await world.queue.add('send', 'bad') // by a process that has no schema
    const good = await world.queue.add('send', 'good')
    expect((await claim(world)).body.jobs).toMatchObject([{ id: good.id }])
    expect(await world.queue.get(bad.id)).toMatchObject({ state: 'failed', error: { code: 'INVALID_PAYLOAD' } })
    expect(await claim(world, { names: ['sned'] })).toMatchObject({ status: 422, body: { code: 'UNKNOWN_JOB' } })
  })

  it('under an Idempotency-Key gets the same jobs again, and an empty answer is not kept', async () => {
    const world = newWorld()
    const key = { 'idempotency-key': 'c-1' }
    expect((await claim(world, {}, 'work', key)).body.jobs).toEqual([])
    const id = await world.waiting()
    await world.waiting()
    const first = await claim(world, {}, 'work', key)
    expect(first.body.jobs).toMatchObject([{ id }])
    expect((await claim(world, {}, 'work', key)).text).toBe(first.text)
    expect((await claim(world, {}, 'admin', key)).text).not.toBe(first.text) // the key of another token
  })
})

describe('claims that wait', () => {
  it('are woken by a job, the one that came first first', async () => {
    const { store, asked } = watched()
    const world = newWorld({ store })
    const first = claim(world, { worker: 'a', wait: '25s' })
    await asked(1)
    const second = claim(world, { worker: 'b', wait: '25s' })
    const one = await world.waiting('one')
    expect((await first).body.jobs).toMatchObject([{ id: one, worker: 'work/a' }])
    const two = await world.waiting('two')
    expect((await second).body.jobs).toMatchObject([{ id: two, worker: 'work/b' }])
  })

  it('are woken in portions: a hundred waiting claims cost one claim each time they wait, and few for a job', async () => {
    const { store, asked, asks } = watched()
    const world = newWorld({ store, limits: { waitingPerToken: 200 } })
    const gone = new AbortController()
    setMaxListeners(0, gone.signal)
    await claim(world, { worker: 'w' })
    const before = asks()
    const waiting = Array.from({ length: 100 }, () => send(world, gone.signal))
    await asked(before + 1)
    await world.waiting()
    const winner = await Promise.race(waiting)
    expect(winner.jobs).toHaveLength(1)
    expect(asks() - before).toBeLessThan(100)
    gone.abort()
  })

  it('leave no job unclaimed when many are added at once', async () => {
    const { store } = watched()
    const world = newWorld({ store, limits: { waitingPerToken: 200 } })
    const waiting = Array.from({ length: 50 }, () => send(world, new AbortController().signal))
    await world.queue.addBulk(Array.from({ length: 50 }, (_, data) => ({ name: 'send', data })))
    const answers = await Promise.all(waiting)
    expect(new Set(answers.map(({ jobs }) => jobs[0].data)).size).toBe(50)
  })

  it('wait for each queue and set of names by themselves', async () => {
    const { store, asked } = watched()
    const world = newWorld({ store })
    const calls = claim(world, { names: ['call'], wait: '25s' })
    const sends = claim(world, { names: ['send'], wait: '25s' })
    await asked(2)
    await world.queue.add('send', 1)
    expect((await sends).body.jobs).toMatchObject([{ name: 'send' }])
    await world.queue.add('call', 1)
    expect((await calls).body.jobs).toMatchObject([{ name: 'call' }])
  })

  it('whose client has gone get nothing: the next job goes to the next', async () => {
    const { store, asked } = watched()
    const world = newWorld({ store })
    const gone = new AbortController()
    const first = send(world, gone.signal)
    await asked(1)
    const second = claim(world, { wait: '25s' })
    gone.abort()
    await first
    const id = await world.waiting()
    expect((await second).body.jobs).toMatchObject([{ id, attempt: 1 }])
  })

  it('whose client goes while the claim is on its way hand the job back, with its attempt', async () => {
    const gone = new AbortController()
    // Goes once the store has claimed, before the server knows.
    const store = closing(
      observed(memory(), (_, { asks }) => void (asks.some((jobs) => jobs.length > 0) && gone.abort())),
    )
    const world = newWorld({ store })
    const id = await world.waiting()
    const back = event(world.queue, 'waiting', (each) => each.id === id)
    expect((await send(world, gone.signal)).jobs).toEqual([])
    await back
    expect(await world.queue.get(id)).toMatchObject({ state: 'waiting', attempt: 0 })
  })

  it('have bounds, for each token and for all', async () => {
    const { store, asked } = watched()
    const world = newWorld({ store, limits: { waiting: 3, waitingPerToken: 2 } })
    const gone = new AbortController()
    const waiting = [send(world, gone.signal), send(world, gone.signal)]
    await asked(1)
    const refused = await claim(world, { wait: '1s' })
    expect(refused).toMatchObject({ status: 503, body: { code: 'SERVER_BUSY' } })
    expect(refused.headers.get('retry-after')).toBe('5')
    expect((await claim(world)).status).toBe(200) // one that does not wait
    const other = send(world, gone.signal, 'admin')
    await Promise.resolve()
    expect(await claim(world, { wait: '1s' }, 'everybody')).toMatchObject({ status: 503 })
    gone.abort()
    await Promise.all([...waiting, other])
    expect((await claim(world, { wait: 1 })).status).toBe(200)
  })

  it('are answered without jobs when the server closes', async () => {
    const { store, asked } = watched()
    const world = newWorld({ store })
    const waits = claim(world, { wait: '25s' })
    await asked(1)
    await world.server.close()
    expect(await waits).toMatchObject({ status: 200, body: { jobs: [] } })
    expect(await claim(world)).toMatchObject({ status: 503, body: { code: 'SERVER_BUSY' } })
  })

  it('fail when the store does, and get what it claimed all the same once it answers', async () => {
    const fails = gate()
    let failing = false
    const inner = memory()
    const store = closing<Store>({
      ...observed(inner, () => {}),
      commit: async (batch) => {
        const receipt = await inner.commit(batch)
        if (!failing || batch.asks.length === 0) return receipt
        fails.open()
        throw new Error('the connection broke')
      },
    })
    const world = newWorld({ store })
    await claim(world)
    const id = await world.waiting()
    failing = true
    const lost = claim(world, { wait: '25s' })
    await fails.promise
    failing = false
    expect((await lost).body.jobs).toMatchObject([{ id }])
  })
})

/** Sends a claim that waits, from a client that may go; returns the answer. */
async function send(world: World, signal: AbortSignal, who: Who = 'work'): Promise<Read['body']> {
  const response = await world.send(who, 'POST', '/v1/claims', { body: claimBody({ wait: '25s' }), signal })
  return response.json()
}

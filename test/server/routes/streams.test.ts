// Streams: events of queues, and what is sampled once a second for all readers together.
import { writeFile } from 'node:fs/promises'
import { describe, expect, it } from 'vitest'
import { Queue } from 'millrace'
import { memory } from 'millrace/memory'
import { createToken, tokenList, tokens } from 'millrace/server'
import type { Auth, Principal } from 'millrace/server'
import { virtualClock } from 'millrace/testing'
import { reading } from '../../queue/events/read-sse.js'
import type { Reading } from '../../queue/events/read-sse.js'
import { closing, newWorker } from '../../setup.js'
import { freshFolder } from '../../stores/sqlite/folder.js'
import { QUEUE, newWorld } from './world.js'
import type { Parts, Who, World } from './world.js'

const params = { queue: QUEUE }

async function open(world: World, who: Who, path: string, parts: Parts = {}): Promise<Reading> {
  const response = await world.send(who, 'GET', path, parts)
  expect(response.status).toBe(200)
  expect(response.headers.get('content-type')).toContain('text/event-stream')
  return reading(response.body!)
}

describe('the events of a queue', () => {
  it('come without secrets, and resume after the last one that was read', async () => {
    const world = newWorld()
    const stream = await open(world, 'read', '/v1/queues/{queue}/events', { params })
    expect((await stream.event('snapshot')).data).toMatchObject({ counts: { waiting: 0 } })
    newWorker(world.queue, { send: async () => ({ password: 'hush', ok: true }) })
    await world.waiting()
    const added = await stream.event('waiting')
    const completed = await stream.event('completed')
    expect(completed.data.result).toEqual({ password: '•••', ok: true })
    await stream.cancel()
    const headers = { 'last-event-id': added.id! }
    const resumed = await open(world, 'read', '/v1/queues/{queue}/events', { params, headers })
    expect((await resumed.event('completed')).id).toBe(completed.id)
    await resumed.cancel()
  })

  it('of one job end with it', async () => {
    const world = newWorld()
    const id = await world.waiting({ token: 'hush' })
    const query = { job: id, fields: 'state,data' }
    const stream = await open(world, 'read', '/v1/queues/{queue}/events', { params, query })
    expect((await stream.event('snapshot')).data.job).toEqual({ state: 'waiting', data: { token: '•••' } })
    await world.queue.cancel(id)
    expect((await stream.event('end')).data).toMatchObject({ id, state: 'cancelled' })
    expect(await stream.next()).toBeUndefined()
  })

  it('are refused for options that the library refuses', async () => {
    const world = newWorld()
    const query = { events: 'finished' }
    const { status, body } = await world.ask('read', 'GET', '/v1/queues/{queue}/events', { params, query })
    expect([status, body.code]).toEqual([400, 'INVALID_OPTION'])
  })
})

describe('all events', () => {
  it('are those of the queues of the caller, and resume', async () => {
    const world = newWorld()
    const other = closing(new Queue('other', { store: world.store, logger: false }))
    const stream = await open(world, 'read', '/v1/events')
    const everything = await open(world, 'everybody', '/v1/events')
    await stream.next() // it watches from now on
    await everything.next()
    await other.add('hidden')
    const id = await world.waiting()
    const added = await stream.event('waiting')
    expect(added.data).toMatchObject({ queue: QUEUE, id })
    expect((await everything.event('waiting')).data).toMatchObject({ queue: 'other' })
    await stream.cancel()
    await everything.cancel()
    const next = await world.waiting()
    const resumed = await open(world, 'read', '/v1/events', { headers: { 'last-event-id': added.id! } })
    expect((await resumed.event('waiting')).data.id).toBe(next)
    await resumed.cancel()
  })
})

describe('live', () => {
  it('shows queues, rates, workers and what needs attention, and later only what changed', async () => {
    const clock = virtualClock()
    const store = closing(memory({ runtime: clock.runtime }))
    const world = newWorld({ store })
    const other = closing(new Queue('other', { store, logger: false }))
    await other.add('hidden')
    await world.waiting()
    await clock.advance('20s')
    const stream = await open(world, 'read', '/v1/live')
    const first = await stream.event('queues')
    expect(first.data.rows).toMatchObject([{ queue: QUEUE, counts: { waiting: 1 }, in: 0, oldestWaiting: 20_000 }])
    const { items } = (await stream.event('attention')).data
    expect(items).toMatchObject([{ kind: 'no-worker', level: 'error', queue: QUEUE, name: 'send' }])
    expect(items[0].text).toBe("No live worker handles 'send': 1 wait, the oldest for 20 s.")
    await world.waiting()
    await world.waiting()
    const second = stream.event('queues')
    await clock.advance('1s')
    expect((await second).data.rows).toMatchObject([{ queue: QUEUE, counts: { waiting: 3 }, in: 2 }])
    newWorker(world.queue, { send: async () => {} }, { workerName: 'w7' })
    const workers = stream.until(({ event, data }) => event === 'workers' && data.rows.length > 0)
    await clock.advance('10s')
    expect((await workers).at(-1)!.data.rows).toMatchObject([{ queues: [QUEUE], state: 'running' }])
    const calm = await stream.until(({ event, data }) => event === 'attention' && data.items.length === 0)
    expect(JSON.stringify(calm)).not.toContain('other')
    await stream.cancel()
  })

  it('is sampled once for all readers, records no events, and stops when nobody reads', async () => {
    const clock = virtualClock()
    const store = closing(memory({ runtime: clock.runtime }))
    const world = newWorld({ store, queues: [QUEUE] }) // a server of any queue looks for new ones
    await world.waiting()
    let tallies = 0
    let watches = 0
    const { tally, watch } = store
    store.tally = (...given) => (tallies++, tally.apply(store, given))
    store.watch = (...given) => (watches++, watch.apply(store, given))
    const streams = await Promise.all(Array.from({ length: 20 }, () => open(world, 'read', '/v1/live')))
    for (const stream of streams) expect((await stream.event('queues')).data.rows).toHaveLength(1)
    await clock.advance('10s')
    // Ten samples of one read each, of which two or three read heads as well.
    expect(tallies).toBeGreaterThanOrEqual(10)
    expect(tallies).toBeLessThanOrEqual(16)
    for (const stream of streams) await stream.cancel()
    await clock.settle()
    const before = tallies
    await clock.advance('1h')
    expect(tallies).toBe(before)
    expect(watches).toBe(0)
  })

  it('keeps its frames small, however many queues there are', async () => {
    const store = closing(memory())
    const world = newWorld({ store })
    for (let n = 0; n < 200; n++) {
      const queue = new Queue(`queue-with-a-name-of-some-length-${n}`, { store, logger: false })
      await queue.add('send')
      await queue.close()
    }
    const stream = await open(world, 'everybody', '/v1/live')
    const seen = new Set<string>()
    while (seen.size < 200) {
      const { event, data } = (await stream.next())!
      expect(JSON.stringify(data ?? '').length).toBeLessThanOrEqual(4_100)
      if (event === 'queues') for (const { queue } of data.rows) seen.add(queue)
    }
    await stream.cancel()
    const some = await open(world, 'everybody', '/v1/live', { query: { queues: 'queue-with-a-name-of-some-length-7' } })
    expect((await some.event('queues')).data.rows).toHaveLength(1)
    await some.cancel()
  })

  it('goes on after the store failed', async () => {
    const clock = virtualClock()
    const store = closing(memory({ runtime: clock.runtime }))
    const world = newWorld({ store })
    const stream = await open(world, 'read', '/v1/live')
    await stream.event('queues')
    const { tally } = store
    store.tally = () => Promise.reject(new Error('gone'))
    await clock.advance('3s')
    store.tally = tally
    await world.waiting()
    const next = stream.event('queues')
    await clock.advance('2s')
    expect((await next).data.rows).toMatchObject([{ counts: { waiting: 1 } }])
    await stream.cancel()
  })
})

describe('a live job', () => {
  it('is shown as it changes, with its log and without secrets, until it ends', async () => {
    const clock = virtualClock()
    const store = closing(memory({ runtime: clock.runtime }))
    const world = newWorld({ store })
    const id = await world.waiting({ token: 'hush', to: 'ann' })
    const stream = await open(world, 'read', '/v1/jobs/{id}/live', { params: { id } })
    const first = stream.event('job')
    await clock.advance('1s')
    expect((await first).data).toMatchObject({ id, state: 'waiting', data: { token: '•••', to: 'ann' } })
    newWorker(world.queue, {
      send: async (_job, ctx) => {
        await ctx.log('password=hush')
        await ctx.log('two')
      },
    })
    const ended = stream.until(({ event }) => event === 'end')
    await clock.advance('3s')
    const frames = await ended
    const lines = frames.filter(({ event }) => event === 'logs').flatMap(({ data }) => data.lines)
    expect(lines.map(({ line }: { line: string }) => line)).toEqual(['password=•••', 'two'])
    expect(frames.at(-1)!.data).toEqual({ id, state: 'completed' })
    expect(await stream.next()).toBeUndefined()
  })

  it('that is removed ends the stream', async () => {
    const clock = virtualClock()
    const store = closing(memory({ runtime: clock.runtime }))
    const world = newWorld({ store })
    const id = await world.waiting()
    const stream = await open(world, 'read', '/v1/jobs/{id}/live', { params: { id } })
    await world.queue.remove(id)
    const end = stream.event('end')
    await clock.advance('1s')
    expect((await end).data).toEqual({ id, state: 'removed' })
  })
})

describe('streams', () => {
  it('of one token are bounded, and one that is closed makes room', async () => {
    const world = newWorld({ limits: { streams: 2 } })
    const [one, two] = [await open(world, 'read', '/v1/live'), await open(world, 'read', '/v1/events')]
    await two.next()
    const refused = await world.ask('read', 'GET', '/v1/live')
    expect([refused.status, refused.body.code]).toEqual([429, 'RATE_LIMITED'])
    expect(refused.headers.get('retry-after')).toBe('1')
    const others = await open(world, 'everybody', '/v1/live')
    await others.cancel()
    await one.cancel()
    const third = await open(world, 'read', '/v1/live')
    await third.cancel()
    await two.cancel()
  })

  it('end when the server closes, and tell when to connect again', async () => {
    const world = newWorld()
    const response = await world.send('read', 'GET', '/v1/live')
    const events = await world.send('read', 'GET', '/v1/queues/{queue}/events', { params })
    await reading(events.clone().body!).next()
    const closed = world.server.close()
    expect(await response.text()).toMatch(/retry: \d+\n\n$/)
    expect(await events.text()).toMatch(/retry: \d+\n\n$/)
    await closed
  })
})

describe('the streams of a caller', () => {
  const file = freshFolder()
  const ann: Principal = { name: 'ann', roles: ['read'], queues: [QUEUE] }
  const paths = [
    '/v1/queues/{queue}/events',
    '/v1/events',
    '/v1/live',
    '/v1/jobs/{id}/live',
    '/v1/store/watch',
    '/v1/store/watch?events=1',
  ]

  interface Streams {
    /** The paths of those that have ended. */
    readonly ended: Set<string>
    readonly all: Promise<unknown>
  }

  /** Opens every kind of stream with these headers, and reads them to their ends. */
  async function openAll(world: World, headers: Record<string, string>): Promise<Streams> {
    const id = await world.waiting()
    const sent = { params: { ...params, id }, headers: { ...headers, 'millrace-protocol': '1' } }
    const ended = new Set<string>()
    const responses = await Promise.all(paths.map((path) => world.send(undefined, 'GET', path, sent)))
    expect(responses.map(({ status }) => status)).toEqual(paths.map(() => 200))
    const all = Promise.all(responses.map((response, at) => response.text().then(() => ended.add(paths[at]!))))
    return { ended, all }
  }

  const bearer = (token: string): Record<string, string> => ({ authorization: `Bearer ${token}` })

  it('end within 30 s after its token has expired, and those of others go on', async () => {
    const clock = virtualClock()
    const expires = new Date(clock.runtime.now() + 60_000).toISOString()
    const [short, long] = [createToken({ ...ann, expires }), createToken({ ...ann, name: 'bob' })]
    const auth = tokenList([short.entry, long.entry], clock.runtime)
    const world = newWorld({ store: closing(memory({ runtime: clock.runtime })), auth })
    const streams = await openAll(world, bearer(short.token))
    const others = await openAll(world, bearer(long.token))
    await clock.advance('59s')
    expect([...streams.ended]).toEqual([])
    await clock.advance('31s')
    await streams.all
    await clock.advance('5m')
    expect([...others.ended]).toEqual([])
    await world.server.close()
    await others.all
  })

  it('end after its token was taken out of the file', async () => {
    const clock = virtualClock()
    const [gone, stays] = [createToken(ann), createToken({ ...ann, name: 'bob' })]
    const path = file('tokens.json')
    await writeFile(path, JSON.stringify([gone.entry, stays.entry]))
    const auth = tokens(path, clock.runtime)
    const world = newWorld({ store: closing(memory({ runtime: clock.runtime })), auth })
    const streams = await openAll(world, bearer(gone.token))
    const others = await openAll(world, bearer(stays.token))
    await writeFile(path, JSON.stringify([stays.entry]))
    await clock.advance('15s')
    await streams.all
    expect([...others.ended]).toEqual([])
    await world.server.close()
    await others.all
  })

  it('end with its session', async () => {
    const clock = virtualClock()
    const { token, entry } = createToken(ann)
    const store = closing(memory({ runtime: clock.runtime }))
    const world = newWorld({ store, auth: tokenList([entry], clock.runtime), session: { lasts: '1m' } })
    const login = await world.send(undefined, 'POST', '/v1/session', {
      headers: { ...bearer(token), 'sec-fetch-site': 'same-origin' },
    })
    const streams = await openAll(world, { cookie: login.headers.get('set-cookie')!.split(';')[0]! })
    await clock.advance('59s')
    expect([...streams.ended]).toEqual([])
    await clock.advance('31s')
    await streams.all
  })

  it.each<[string, () => ReturnType<Auth>]>([
    ['has other queues', () => ({ ...ann, queues: ['other'] })],
    ['has other roles', () => ({ ...ann, roles: ['produce'] })],
    ['cannot be judged', () => Promise.reject(new Error('The database of users is gone.'))],
    ['is not judged in time', () => new Promise(() => {})],
  ])('end when it %s', async (_what, later) => {
    const clock = virtualClock()
    let judge: () => ReturnType<Auth> = () => ann
    const store = closing(memory({ runtime: clock.runtime }))
    const world = newWorld({ store, auth: () => judge() })
    const streams = await openAll(world, {})
    await clock.advance('5m')
    expect([...streams.ended]).toEqual([])
    judge = later
    await clock.advance('30s')
    await streams.all
  })
})

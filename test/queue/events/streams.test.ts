// The events of a queue as a stream: its life, and what makes it fit for browsers.
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { setImmediate } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { Queue, Worker, eventStreamHeaders, shutdown } from 'millrace'
import type { Store } from 'millrace'
import { memory } from 'millrace/memory'
import { sqlite } from 'millrace/sqlite'
import { serve } from '../../../examples/streaming/server.js'
import { scheduleId } from '../../../src/job/schedules/schedule.js'
import { JobOperations } from '../../../src/queue/operations/job-operations.js'
import { EventStreamSource, eventStream } from '../../../src/queue/events/sse.js'
import { note } from '../../../src/job/lifecycle.js'
import { Driver } from '../../../src/conformance/driver.js'
import { connect } from '../../../src/store/connection.js'
import { virtualClock } from '../../../src/testing/world/clock.js'
import { kinds, stores } from '../../stores.js'
import { observed } from '../../observed-store.js'
import { closing, gate, newQueue, newWorker } from '../../setup.js'
import { freshFolder } from '../../stores/sqlite/folder.js'
import { counting } from '../counting-watchers.js'
import { open, reading } from './read-sse.js'
import type { Frame } from './read-sse.js'

const store = stores()
const file = freshFolder()

const types = (frames: readonly Frame[]): readonly (string | undefined)[] => frames.map(({ event }) => event)

describe.each(kinds)('the life of a stream, on %s', (kind) => {
  it('optional snapshot is written first', async () => {
    const queue = newQueue({ store: await store(kind) })
    const job = await queue.add('film', { title: 'Safety Last' })
    const whole = open(queue)
    const snapshot = (await whole.next())!
    expect(snapshot.event).toBe('snapshot')
    expect(snapshot.data).toMatchObject({ type: 'snapshot', queue: 'work', counts: { waiting: 1, active: 0 } })
    expect(snapshot.data).not.toHaveProperty('job')

    const one = open(queue, { jobId: job.id })
    const shown = (await one.next())!.data.job
    expect(shown).toMatchObject({ id: job.id, state: 'waiting' })
    expect(shown).not.toHaveProperty('data')
    const filled = open(queue, { jobId: job.id, data: true })
    expect((await filled.next())!.data.job).toMatchObject({ id: job.id, data: { title: 'Safety Last' } })
    expect((await open(queue, { jobId: 'nobody' }).next())!.data.job).toBeNull()

    const without = open(queue, { snapshot: false })
    await queue.add('film')
    expect(types(await without.until(({ event }) => event === 'waiting'))).toEqual([undefined, 'waiting'])
  })

  it('event listeners are attached: what happens from then on is published once, in order, each with its cursor', async () => {
    const queue = newQueue({ store: await store(kind) })
    const stream = open(queue)
    await stream.event('snapshot')
    const worker = newWorker(queue, { film: async (_job, ctx) => (await ctx.progress(50), 'done') })
    const { id } = await queue.add('film')
    const frames = (await stream.until(({ event }) => event === 'completed')).filter(
      ({ event }) => event !== 'worker-started' && event !== 'drained',
    )
    expect(types(frames)).toEqual(['waiting', 'active', 'progress', 'completed'])
    expect(frames.map(({ data }) => data.id)).toEqual([id, id, id, id])
    expect(frames[1]!.data).toMatchObject({
      type: 'active',
      worker: worker.id,
      attempt: 1,
      queue: 'work',
      name: 'film',
    })
    expect(frames[3]!.data).toMatchObject({ result: 'done' })
    expect(frames[3]!.data).not.toHaveProperty('cursor')
    expect(new Set(frames.map((frame) => frame.id)).size).toBe(4)
  })

  it('a client that reconnects with Last-Event-ID misses nothing, and gets nothing twice', async () => {
    const queue = newQueue({ store: await store(kind) })
    const first = open(queue, { events: ['waiting'] })
    await first.event('snapshot')
    await queue.addBulk(Array.from({ length: 3 }, (_, n) => ({ name: 'film', data: n, options: { id: `job ${n}` } })))
    const seen = await first.until(({ data }) => data.id === 'job 1')
    await first.cancel()
    await queue.add('film', 3, { id: 'job 3' })

    const second = open(queue, { events: ['waiting'], lastEventId: seen.at(-1)!.id! })
    const missed = await second.until(({ data }) => data?.id === 'job 3')
    await queue.add('film', 4, { id: 'job 4' })
    const later = await second.until(({ data }) => data?.id === 'job 4')
    const reported = [...missed, ...later].filter(({ event }) => event !== undefined)
    expect(types(reported)).toEqual(['waiting', 'waiting', 'waiting']) // no snapshot: it has received all before
    expect(reported.map(({ data }) => data.id)).toEqual(['job 2', 'job 3', 'job 4'])
  })

  it('leaves out the rows of schedules and of signals, from now on and when it resumes', async () => {
    const queue = newQueue({ store: await store(kind) })
    const first = open(queue)
    await first.event('snapshot')
    await queue.add('film', 0, { id: 'job 0' })
    const { id } = await first.event('waiting')
    await queue.schedule('daily', { every: '1d', name: 'film' })
    await queue.schedule('daily', { every: '2d', name: 'film' })
    await queue.signal('job 0', 'go')
    await queue.unschedule('daily')
    await queue.add('film', 1, { id: 'job 1' })
    const last = ({ data }: Frame): boolean => data?.id === 'job 1'
    expect((await first.until(last)).map(({ data }) => data.id)).toEqual(['job 1'])
    const second = open(queue, { lastEventId: id! })
    const resumed = (await second.until(last)).filter(({ event }) => event !== undefined)
    expect(resumed.map(({ data }) => data.id)).toEqual(['job 1'])
  })

  it('cancelling the reader removes all attached listeners, the keepalive timer is cleared, and no queue state is modified', async () => {
    const { store: own, watchers, timers } = counting(await store(kind))
    const queue = closing(new Queue('work', { store: own, logger: false, series: false }))
    await queue.add('film', {}, { id: 'job' })
    const before = [JSON.stringify(await queue.get('job')), JSON.stringify(await queue.counts({ by: 'name' }))]
    expect({ watchers: watchers(), timers: timers() }).toEqual({ watchers: 0, timers: 0 })

    const aborter = new AbortController()
    const streams = [
      open(queue),
      open(queue, { jobId: 'job', snapshot: false }),
      open(queue, { lastEventId: '1' }),
      open(queue, { signal: aborter.signal }),
    ]
    for (const stream of streams) await stream.next()
    expect({ watchers: watchers(), timers: timers() }).toEqual({ watchers: 2, timers: 5 }) // one shared, one that resumes; pings, and the poll of jobs
    const pending = streams[0]!.next() // a pending read ends as well
    for (const stream of streams.slice(0, 3)) await stream.cancel()
    expect(await pending).toBeUndefined()
    expect({ watchers: watchers(), timers: timers() }).toEqual({ watchers: 1, timers: 1 })
    const ended = streams[3]!.next()
    aborter.abort()
    expect(await ended).toBeUndefined()
    expect({ watchers: watchers(), timers: timers() }).toEqual({ watchers: 0, timers: 0 })
    expect([JSON.stringify(await queue.get('job')), JSON.stringify(await queue.counts({ by: 'name' }))]).toEqual(before)

    const last = open(queue)
    await last.next()
    const closed = last.next()
    await queue.close()
    expect(await closed).toBeUndefined()
    expect({ watchers: watchers(), timers: timers() }).toEqual({ watchers: 0, timers: 0 })
  })

  it('a reader that does not read while 10,000 events happen costs no more than its buffer, and misses none of them', async () => {
    const own = await store(kind)
    const operations = new JobOperations(connect(own), undefined, 1_000_000)
    const queue = newQueue({ store: own })
    const outlet = new EventStreamSource('work', operations, { buffer: 500 })
    const stream = reading(new ReadableStream<Uint8Array>(outlet, { highWaterMark: 0 }))
    await stream.event('snapshot')
    let most = 0
    for (let n = 0; n < 10_000; n += 1_000) {
      await queue.addBulk(
        Array.from({ length: 1_000 }, (_, at) => ({ name: 'film', options: { id: `job ${n + at}` } })),
      )
      most = Math.max(most, outlet.waiting)
    }
    const seen = await stream.until(({ data }) => data?.id === 'job 9999')
    expect(most).toBeGreaterThan(0)
    expect(most).toBeLessThanOrEqual(500)
    expect(seen.map(({ data }) => data.id)).toEqual(Array.from({ length: 10_000 }, (_, n) => `job ${n}`))
    await queue.add('film', undefined, { id: 'one more' }) // and it receives what comes then
    expect((await stream.event('waiting')).data.id).toBe('one more')
    await stream.cancel()
    expect(operations.subscription.size).toBe(0)
  })
})

describe('a stream', () => {
  it('periodic ping keepalive starts: every 15 s, with the cursor of the stream', async () => {
    const clock = virtualClock()
    const own = memory({ runtime: clock.runtime })
    const queue = new Queue('work', { store: own, logger: false })
    const stream = open(queue, { events: ['completed'] })
    await stream.next()
    for (let n = 0; n < 3; n++) {
      const ping = stream.next()
      await clock.advance('14s')
      let reported = false
      void ping.then(() => (reported = true))
      await clock.settle()
      expect(reported).toBe(false)
      await clock.advance('1s')
      expect(await ping).toEqual({ comment: 'ping' })
    }
    await queue.add('film') // which it does not send
    const ping = stream.next()
    await clock.advance('15s')
    const { id } = (await ping)!
    expect(id).toMatch(/^\d+$/)
    await stream.cancel()
    const resumed = open(queue, { lastEventId: id! })
    await queue.add('film', undefined, { id: 'later' })
    expect((await resumed.event('waiting')).data.id).toBe('later')
    await resumed.cancel()
  })

  it.each(['schedules', 'signals'] as const)('moves on where only rows of %s change', async (what) => {
    const clock = virtualClock()
    const own = memory({ runtime: clock.runtime, ring: 5 })
    const queue = new Queue('work', { store: own, logger: false })
    const stream = open(queue)
    await stream.event('snapshot')
    await queue.add('film', 0, { id: 'job' })
    await stream.event('waiting')
    for (let n = 0; n < 20; n++) {
      if (what === 'schedules') await queue.schedule('daily', { every: `${n + 1}h`, name: 'film' })
      else await queue.signal('job', `signal ${n}`)
    }
    if (what === 'schedules') await queue.unschedule('daily')
    const ping = stream.next()
    await clock.advance('15s')
    const { id } = (await ping)!
    expect(id).toMatch(/^\d+$/)
    await stream.cancel()
    const resumed = open(queue, { lastEventId: id! })
    await queue.add('film', 1, { id: 'later' })
    const frames = await resumed.until(({ data }) => data?.id === 'later')
    expect(types(frames)).toEqual([undefined, 'waiting'])
    await resumed.cancel()
    await queue.close()
  })

  it('pings do not pile up for a reader that does not read', async () => {
    const clock = virtualClock()
    const own = memory({ runtime: clock.runtime })
    const outlet = new EventStreamSource('work', new JobOperations(connect(own), undefined, 1000), {})
    const stream = reading(new ReadableStream<Uint8Array>(outlet, { highWaterMark: 0 }))
    await clock.advance('1h')
    expect(outlet.waiting).toBe(1)
    expect((await stream.next())!.event).toBe('snapshot')
    await stream.cancel()
  })

  it.each(['memory', 'SQLite'] as const)('sends a gap to a client that comes back too late, on %s', async (kind) => {
    const own = closing(kind === 'memory' ? memory({ ring: 10 }) : sqlite(file('ring.db'), { ring: 10 }))
    const queue = newQueue({ store: own })
    const first = open(queue)
    await first.event('snapshot')
    await queue.add('film', 0, { id: 'job 0' })
    const { id } = await first.event('waiting')
    await first.cancel()
    for (let n = 1; n <= 20; n++) await queue.add('film', n, { id: `job ${n}` })
    const second = open(queue, { lastEventId: id! })
    const frames = await second.until(({ data }) => data?.id === 'job 20')
    const reported = types(frames).filter((type) => type !== undefined)
    expect(reported).toEqual(['gap', 'snapshot', ...Array.from({ length: 10 }, () => 'waiting')])
    expect(frames.find(({ event }) => event === 'gap')!.data).toMatchObject({ type: 'gap', queue: 'work' })
    expect(frames.find(({ event }) => event === 'snapshot')!.data.counts.waiting).toBe(21)

    const third = open(queue, { lastEventId: 'never was', snapshot: false })
    expect(types(await third.until(({ event }) => event === 'waiting'))).toEqual([undefined, 'gap', 'waiting'])
  })

  it('sends a gap to a reader that was slower than the ring, and goes on from there', async () => {
    const queue = newQueue({ store: closing(memory({ ring: 50 })) })
    const stream = open(queue, { buffer: 10 })
    await stream.event('snapshot')
    for (let n = 0; n < 200; n++) await queue.add('film', n, { id: `job ${n}` })
    const frames = await stream.until(({ data }) => data?.id === 'job 199')
    const ids = frames.flatMap(({ data }) => (data.id as string | undefined) ?? (data.type as string))
    expect(ids.slice(0, 12)).toEqual([...Array.from({ length: 10 }, (_, n) => `job ${n}`), 'gap', 'snapshot'])
    expect(ids.slice(12)).toEqual(Array.from({ length: 50 }, (_, n) => `job ${150 + n}`))
  })

  it('is bounded by what its events weigh, however few they are', async () => {
    const queue = newQueue()
    const operations = new JobOperations(connect(queue.store), undefined, 1_000_000)
    const outlet = new EventStreamSource('work', operations, {})
    const stream = reading(new ReadableStream<Uint8Array>(outlet, { highWaterMark: 0 }))
    await stream.event('snapshot')
    newWorker(queue, () => 'x'.repeat(1_000_000))
    const jobs = await queue.addBulk(Array.from({ length: 20 }, () => ({ name: 'film' })))
    await Promise.all(jobs.map((job) => job.result()))
    expect(outlet.waiting).toBeLessThan(60)
    const ends = (await stream.until(({ event, data }) => event === 'completed' && data.id === jobs.at(-1)!.id)).filter(
      ({ event }) => event === 'completed',
    )
    expect(ends.map(({ data }) => data.id)).toEqual(jobs.map(({ id }) => id))
    await stream.cancel()
  })

  it.each(['memory', 'SQLite'] as const)(
    'reads what it missed about once, a little in each turn of the event loop, on %s',
    async (kind) => {
      const of = kind === 'memory' ? memory() : sqlite(file('missed.db'), { synchronous: 'off' })
      let [turn, handed, most] = [0, 0, 0]
      const perTurn = new Map<number, number>()
      const own: Store = {
        ...observed(of, () => {}),
        watch: (options, listener) => {
          return of.watch(options, (notice) => {
            if (options.from !== undefined) {
              handed += notice.events.length
              perTurn.set(turn, (perTurn.get(turn) ?? 0) + notice.events.length)
              most = Math.max(most, JSON.stringify(notice.events).length)
            }
            listener(notice)
          })
        },
      }
      const queue = newQueue({ store: closing(own) })
      const first = open(queue)
      await first.event('snapshot')
      await queue.add('film', {}, { id: 'first' })
      const { id } = await first.event('waiting')
      await first.cancel()
      const worker = newWorker(queue, () => 'x'.repeat(40_000), { concurrency: 50 })
      const jobs = await queue.addBulk(Array.from({ length: 600 }, () => ({ name: 'film' })))
      await Promise.all(jobs.map((job) => job.result()))
      await worker.close()

      const reading = new AbortController()
      const count = (async () => {
        for (; !reading.signal.aborted; turn++) await setImmediate()
      })()
      const stream = open(queue, { lastEventId: id!, events: ['completed', 'worker-stopped'], buffer: 20 })
      const frames = await stream.until(({ event }) => event === 'worker-stopped')
      reading.abort()
      await count
      expect(frames.filter(({ event }) => event === 'completed')).toHaveLength(601)
      expect(handed).toBeLessThan(3 * 1_900) // 1,800 events of jobs, and some of the queue and the worker
      expect(most).toBeLessThan(2_000_000)
      expect(Math.max(...perTurn.values())).toBeLessThan(1_100)
      await stream.cancel()
    },
  )

  it('loses nothing that happens while its snapshot is taken', async () => {
    const of = memory()
    const taking = gate()
    const own: Store = { ...observed(of, () => {}), tally: async (queues) => (await taking.promise, of.tally(queues)) }
    const queue = newQueue({ store: closing(own) })
    const stream = open(queue, { buffer: 1 })
    const first = stream.next()
    for (let n = 0; n < 5; n++) await queue.add('film', n, { id: `job ${n}` })
    taking.open()
    expect((await first)!.event).toBe('snapshot')
    const frames = await stream.until(({ data }) => data?.id === 'job 4')
    expect(frames.map(({ data }) => data.id)).toEqual(['job 0', 'job 1', 'job 2', 'job 3', 'job 4'])
  })

  it('shows neither data that was not asked for nor the query of a webhook', async () => {
    const queue = newQueue()
    const webhook = 'https://hooks.example.com/in?token=secret'
    const { id } = await queue.add('film', { card: 'hidden' }, { webhook })
    const frame = (await open(queue, { jobId: id }).next())!
    expect(frame.data.job.extras.webhook).toMatchObject({ url: 'https://hooks.example.com/in', on: expect.anything() })
    expect(JSON.stringify(frame)).not.toMatch(/secret|hidden/)
    expect((await queue.get(id))!.webhook!.url).toBe(webhook) // which is for those who hold the queue

    const [stream, d] = [open(queue, { snapshot: false }), new Driver(queue.store, 'writer')]
    await queue.add('film', {}, { id: 'other' })
    const [held] = await d.claim(1, { queues: ['work'] })
    const about = JSON.stringify({ url: webhook, event: 'completed', attempts: 1, webhookSent: true })
    await d.land([note(held!, { events: [{ type: 'webhook-delivered', about }] })])
    const delivered = await stream.event('webhook-delivered')
    expect(delivered.data).toMatchObject({ url: 'https://hooks.example.com/in', event: 'completed' })
    expect(() => queue.eventStream({ data: 'yes' as never })).toThrow('data must be true or false')
  })

  it('shows nothing of what a schedule adds, which may hold the query of a webhook', async () => {
    const queue = newQueue()
    const webhook = 'https://hooks.example.com/in?token=secret'
    await queue.schedule('nightly', { cron: '0 0 * * *', name: 'film', data: { card: 'hidden' }, options: { webhook } })
    const frame = (await open(queue, { jobId: scheduleId('work', 'nightly'), data: true }).next())!
    expect(frame.data.job).toMatchObject({ kind: 'schedule', name: 'film' })
    expect(JSON.stringify(frame)).not.toMatch(/secret|hidden/)
  })

  it('sends only the events of its queue, its job and its types', async () => {
    const queue = newQueue()
    const other = newQueue({ store: queue.store, name: 'other' })
    const ends = open(queue, { events: ['cancelled', 'removed'] })
    const one = open(queue, { jobId: 'b', end: false })
    await ends.event('snapshot')
    await one.event('snapshot')
    for (const id of ['a', 'b']) await queue.add('film', {}, { id })
    await other.add('film', {}, { id: 'c' })
    for (const id of ['c', 'a', 'b']) await (id === 'c' ? other : queue).cancel(id)
    await queue.remove('b')
    const byType = await ends.until(({ event }) => event === 'removed')
    expect(byType.map(({ event, data }) => [event, data.id])).toEqual([
      ['cancelled', 'a'],
      ['cancelled', 'b'],
      ['removed', 'b'],
    ])
    expect(types(await one.until(({ event }) => event === 'removed'))).toEqual(['waiting', 'cancelled', 'removed'])
  })

  it('ends with an error if its snapshot cannot be taken, and frees what it held', async () => {
    const {
      store: own,
      watchers,
      timers,
    } = counting({
      ...observed(memory(), () => {}),
      tally: () => Promise.reject(new Error('no tally')),
    })
    const queue = closing(new Queue('work', { store: own, logger: false }))
    const stream = open(queue)
    await expect(stream.next()).rejects.toThrow('no tally')
    expect({ watchers: watchers(), timers: timers() }).toEqual({ watchers: 0, timers: 0 })
  })

  it('is ended at once by a signal that has aborted', async () => {
    const stream = open(newQueue(), { signal: AbortSignal.abort() })
    expect(await stream.next()).toBeUndefined()
  })

  it.each([
    [{ events: ['complete'] }, 'INVALID_OPTION', /'complete'.*did you mean 'completed'/],
    [{ events: ['error'] }, 'INVALID_OPTION', /There is no event 'error' here/],
    [{ events: [] }, 'INVALID_OPTION', /events must name one type at least/],
    [{ events: null }, 'INVALID_OPTION', /events must be a list/],
    [{ events: 'completed' }, 'INVALID_OPTION', /events must be a list/],
    [{ jobId: '' }, 'INVALID_ID', /job id/],
    [{ lastEventId: 5 }, 'INVALID_OPTION', /lastEventId must be a string/],
    [{ buffer: 0 }, 'INVALID_OPTION', /buffer must be a whole number/],
    [{ snapshot: 'no' }, 'INVALID_OPTION', /snapshot must be true or false/],
    [{ signal: null }, 'INVALID_OPTION', /signal must be an AbortSignal/],
    [{ signal: 5 }, 'INVALID_OPTION', /signal must be an AbortSignal/],
    [{ type: 'completed' }, 'UNKNOWN_OPTION', /type/],
  ])('refuses %o', (options, code, message) => {
    const queue = newQueue()
    expect(() => queue.eventStream(options as never)).toThrow(expect.objectContaining({ code }))
    expect(() => queue.eventStream(options as never)).toThrow(message)
  })

  it('takes an id that is empty or null as none', async () => {
    const queue = newQueue()
    for (const lastEventId of ['', null]) expect((await open(queue, { lastEventId }).next())!.event).toBe('snapshot')
  })

  it('is refused by a queue that has been closed, and inside a transaction', async () => {
    const queue = newQueue({ store: await store('SQLite') })
    await queue.transaction(async () => {
      expect(() => queue.eventStream()).toThrow(expect.objectContaining({ code: 'IN_TRANSACTION' }))
    })
    await queue.close()
    expect(() => queue.eventStream()).toThrow(expect.objectContaining({ code: 'QUEUE_CLOSED' }))
  })

  it('is the body of an answer', async () => {
    const queue = newQueue()
    const response = new Response(queue.eventStream(), { headers: eventStreamHeaders })
    expect(response.headers.get('content-type')).toContain('text/event-stream')
    const stream = reading(response.body!)
    expect((await stream.next())!.event).toBe('snapshot')
    await stream.cancel()
  })

  it('is freed when a client of node:http leaves, as in the example', async () => {
    const freed = gate()
    const { store: own, watchers, timers } = counting(memory(), () => freed.open())
    const queue = closing(new Queue('work', { store: own, logger: false, series: false }))
    const server = serve(queue).listen(0)
    try {
      await once(server, 'listening')
      const leaving = new AbortController()
      const { port } = server.address() as AddressInfo
      const response = await fetch(`http://localhost:${port}/events`, { signal: leaving.signal })
      expect(response.headers.get('content-type')).toBe(eventStreamHeaders['content-type'])
      const stream = reading(response.body as ReadableStream<Uint8Array>)
      await stream.event('snapshot')
      await queue.add('film')
      await stream.event('waiting')
      expect({ watchers: watchers(), timers: timers() }).toEqual({ watchers: 1, timers: 1 })
      leaving.abort()
      await freed.promise
      expect({ watchers: watchers(), timers: timers() }).toEqual({ watchers: 0, timers: 0 })
    } finally {
      server.closeAllConnections()
      server.close()
    }
  })

  it('keeps text of any kind in one frame', async () => {
    const queue = newQueue()
    const stream = open(queue, { events: ['completed'] })
    newWorker(queue, () => 'a\n\nb\r\u2028c: \u{1F680}')
    await queue.add('film')
    expect((await stream.event('completed')).data.result).toBe('a\n\nb\r\u2028c: \u{1F680}')
  })

  it('goes on while listeners of the queue come and go', async () => {
    const queue = newQueue()
    const operations = new JobOperations(connect(queue.store), undefined, 1000)
    const streams = [reading(eventStream('work', operations, {})), reading(eventStream('work', operations, {}))]
    for (const stream of streams) await stream.event('snapshot')
    expect(operations.subscription.size).toBe(2)
    await streams[0]!.cancel()
    expect(operations.subscription.size).toBe(1)
    await queue.add('film', {}, { id: 'x' })
    expect((await streams[1]!.event('waiting')).data.id).toBe('x')
    operations.close()
    expect(await streams[1]!.next()).toBeUndefined()
    expect(operations.subscription.size).toBe(0)
  })

  it('lets a process end once all is closed, with a stream that has no reader', async () => {
    const { store: own, watchers, timers } = counting(memory())
    const queue = new Queue('work', { store: own, logger: false })
    const worker = new Worker(queue, () => {}, { logger: false })
    queue.eventStream()
    await (await queue.add('film')).result()
    await shutdown([worker, queue, own])
    await setImmediate()
    expect({ watchers: watchers(), timers: timers() }).toEqual({ watchers: 0, timers: 0 })
  })
})

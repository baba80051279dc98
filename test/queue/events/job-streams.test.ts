// Streams of one job: they end with it, contain the requested fields, and are kept open by pings.
import { describe, expect, it } from 'vitest'
import { Queue, phases } from 'millrace'
import type { Store } from 'millrace'
import { memory } from 'millrace/memory'
import { virtualClock } from 'millrace/testing'
import { observed } from '../../observed-store.js'
import { counting } from '../counting-watchers.js'
import { closing, event, gate, newQueue, newWorker } from '../../setup.js'
import { served, stores } from '../../stores.js'
import { open } from './read-sse.js'
import type { Frame, Reading } from './read-sse.js'

const store = stores()

/** All frames up to the end of a stream. */
async function rest(stream: Reading): Promise<Frame[]> {
  const frames: Frame[] = []
  for (let frame = await stream.next(); frame !== undefined; frame = await stream.next()) frames.push(frame)
  return frames
}

const types = (frames: readonly Frame[]): unknown[] => frames.map(({ event: type, comment }) => type ?? comment)

describe.each(served)('a stream of one job, on %s', (kind) => {
  it('ends with the job, and frees what it held', async () => {
    const { store: own, watchers, timers } = counting(await store(kind))
    const queue = closing(new Queue('work', { store: own, logger: false }))
    await queue.add('film', {}, { id: 'other', delay: '1h' })
    const { id } = await queue.add('film')
    const stream = open(queue, { jobId: id })
    expect((await stream.next())!.event).toBe('snapshot')
    const worker = newWorker(queue, () => 'done')
    const frames = await rest(stream)
    expect(types(frames)).toEqual(['active', 'completed', 'end'])
    expect(frames.at(-1)!.data).toEqual({ type: 'end', id, at: expect.any(Number), state: 'completed' })
    await worker.close()
    expect({ watchers: watchers(), timers: timers() }).toEqual({ watchers: 0, timers: 0 })
  })

  it.each(['failed', 'cancelled', 'removed'] as const)(
    'ends when the job is %s, though that is no type it sends',
    async (how) => {
      const queue = newQueue({ store: await store(kind) })
      const job = await queue.add('film', undefined, { attempts: 1 })
      const stream = open(queue, { jobId: job.id, events: ['progress'] })
      await stream.next()
      if (how === 'cancelled') await job.cancel()
      else if (how === 'removed') await job.remove()
      else
        newWorker(queue, () => {
          throw new Error('no')
        })
      const frames = await rest(stream)
      expect(frames.map(({ event: type, data }) => [type, data?.state])).toEqual([['end', how]])
    },
  )

  it('of a job that has finished sends its snapshot and ends; of one that does not exist as well', async () => {
    const queue = newQueue({ store: await store(kind) })
    const job = await queue.add('film')
    await job.cancel()
    const frames = await rest(open(queue, { jobId: job.id }))
    expect(types(frames)).toEqual(['snapshot', 'end'])
    expect(frames[0]!.data.job).toMatchObject({ id: job.id, state: 'cancelled' })
    expect(frames[1]!.data.state).toBe('cancelled')
    const none = await rest(open(queue, { jobId: 'nobody' }))
    expect(types(none)).toEqual(['snapshot', 'end'])
    expect([none[0]!.data.job, none[1]!.data.state]).toEqual([null, 'removed'])
    expect(types(await rest(open(queue, { jobId: job.id, snapshot: false })))).toEqual(['ping', 'end'])
  })

  it('that resumes is sent what it missed, up to the end', async () => {
    const queue = newQueue({ store: await store(kind) })
    const job = await queue.add('film', undefined, { delay: '1h' })
    queue.on('waiting', () => {}) // so that events are kept
    const first = open(queue, { jobId: job.id, ping: 1 })
    await first.next()
    const waiting = event(queue, 'waiting')
    await job.promote()
    await waiting
    const { id } = await first.event('waiting')
    await first.cancel()
    await job.cancel()
    const frames = await rest(open(queue, { jobId: job.id, lastEventId: id! }))
    expect(types(frames)).toEqual(['ping', 'cancelled', 'end'])
  })

  it('that resumes after its end ends at once, and goes on if the job runs again', async () => {
    const queue = newQueue({ store: await store(kind) })
    const job = await queue.add('film')
    await job.cancel()
    for (const watched of [true, false]) {
      if (watched) queue.on('waiting', () => {})
      const { id } = (await rest(open(queue, { jobId: job.id }))).at(-1)!
      expect(id).toMatch(/\.end$/)
      expect(types(await rest(open(queue, { jobId: job.id, lastEventId: id! })))).toEqual(['ping', 'end'])
      await job.retry()
      const again = open(queue, { jobId: job.id, lastEventId: id! })
      await again.next()
      await job.cancel()
      const frames = await rest(again)
      expect(types(frames).slice(-2)).toEqual(['cancelled', 'end'])
    }
  })

  it('that does not end with the job goes on', async () => {
    const queue = newQueue({ store: await store(kind) })
    const stream = open(queue, { jobId: 'later', end: false })
    expect((await stream.next())!.data.job).toBeNull()
    const job = await queue.add('film', undefined, { id: 'later' })
    await job.cancel()
    await job.remove()
    expect(types(await stream.until((frame) => frame.event === 'removed'))).toEqual(['waiting', 'cancelled', 'removed'])
    await stream.cancel()
  })
})

describe('a stream of one job', () => {
  it('shows no counts of its queue unless they are asked for', async () => {
    const queue = newQueue()
    const { id } = await queue.add('film')
    expect((await open(queue, { jobId: id }).next())!.data).not.toHaveProperty('counts')
    expect((await open(queue, { jobId: id, counts: true }).next())!.data.counts).toMatchObject({ waiting: 1 })
    expect((await open(queue, { counts: false }).next())!.data).not.toHaveProperty('counts')
  })

  it('shows only the fields that were asked for, in its snapshot and in its events', async () => {
    const queue = newQueue()
    const { id } = await queue.add('film', { card: 'hidden' }, { attempts: 2, backoff: 0 })
    const stream = open(queue, { jobId: id, fields: ['state', 'progress', 'error'] })
    expect((await stream.next())!.data).toEqual({ type: 'snapshot', at: expect.any(Number), job: { state: 'waiting' } })
    newWorker(queue, async (job, ctx) => {
      await ctx.progress({ done: job.attempt })
      if (job.attempt === 1) throw new Error('try again')
      return { secret: 'hidden' }
    })
    const frames = await rest(stream)
    const base = { id, at: expect.any(Number) as number }
    expect(frames.map(({ data }) => data as object)).toEqual([
      { type: 'active', ...base },
      { type: 'progress', ...base, progress: { done: 1 } },
      { type: 'retrying', ...base, error: { name: 'Error', message: 'try again' } },
      { type: 'waiting', ...base },
      { type: 'active', ...base },
      { type: 'progress', ...base, progress: { done: 2 } },
      { type: 'completed', ...base },
      { type: 'end', ...base, state: 'completed' },
    ])
    const last = (await rest(open(queue, { jobId: id, fields: ['returned', 'errors', 'data', 'queue'] })))[0]!
    expect(last.data).toEqual({
      type: 'snapshot',
      queue: 'work',
      at: expect.any(Number),
      job: {
        queue: 'work',
        data: { card: 'hidden' },
        returned: { secret: 'hidden' },
        errors: [
          {
            ...{ name: 'Error', message: 'try again', attempt: 1, outcome: 'retried' },
            ...{ fence: expect.any(Number), at: expect.any(Number) },
            ...{ startedAt: expect.any(Number), runAt: expect.any(Number) },
          },
        ],
      },
    })
    const withData = (await rest(open(queue, { jobId: id, fields: ['id'], data: true })))[0]!
    expect(withData.data.job).toEqual({ id, data: { card: 'hidden' } })
  })

  it('shows phases only if they were asked for, without the stacks of their errors', async () => {
    const queue = newQueue()
    newWorker(queue, {
      film: phases({
        load: async (_job, ctx) => await ctx.progress(50),
        cut: () => {
          throw new Error('no scissors')
        },
      }),
    })
    for (const [fields, shows] of [
      [['state'], false],
      [['phases'], true],
    ] as const) {
      const id = `film ${shows}`
      const stream = open(queue, { jobId: id, fields, end: false })
      await stream.next()
      await queue.add('film', undefined, { id, attempts: 1 })
      const frames = await stream.until((frame) => frame.event === 'failed')
      expect(JSON.stringify(frames).includes('load')).toBe(shows)
      expect(JSON.stringify(frames)).not.toContain('failure')
      const [{ data }] = (await rest(open(queue, { jobId: id, fields }))) as [Frame]
      expect(JSON.stringify(data)).not.toContain('stack')
      expect(data.job.phases?.cut.error).toEqual(shows ? { name: 'Error', message: 'no scissors' } : undefined)
      await stream.cancel()
    }
  })

  it('shows the webhook of a job only if it was asked for, and its URL without query', async () => {
    const queue = newQueue()
    const webhook = 'https://hooks.example.com/in?token=secret'
    const { id } = await queue.add('film', {}, { webhook })
    expect((await open(queue, { jobId: id, fields: ['state'] }).next())!.data.job).toEqual({ state: 'waiting' })
    const shown = (await open(queue, { jobId: id, fields: ['webhook'] }).next())!.data.job
    expect(shown).toMatchObject({ webhook: { url: 'https://hooks.example.com/in', deliveries: [] } })
  })

  it('shows what was asked for of every job, if it is of a whole queue', async () => {
    const queue = newQueue()
    const stream = open(queue, { fields: ['name'], snapshot: false })
    await queue.add('film', {}, { id: 'job' })
    const waiting = await stream.event('waiting')
    expect(waiting.data).toEqual({ type: 'waiting', id: 'job', name: 'film', at: expect.any(Number) })
    await stream.cancel()
  })

  it('ends by its poll if the event of the end does not arrive', async () => {
    const clock = virtualClock()
    const own = memory({ runtime: clock.runtime })
    const queue = closing(new Queue('work', { store: own, logger: false }))
    const job = await queue.add('film')
    await job.cancel()
    queue.on('waiting', () => {})
    await queue.add('film', undefined, { id: 'other' })
    const seen = open(queue)
    await seen.next()
    await queue.add('film', undefined, { id: 'another' })
    const { id } = await seen.event('waiting')
    await seen.cancel()
    // Its cursor is after the end of the job, and it does not know that the stream had ended.
    const frames = await clock.until(rest(open(queue, { jobId: job.id, lastEventId: id! })))
    expect(frames.at(-1)).toMatchObject({ event: 'end', data: { state: 'cancelled' } })
  })

  it('reads the job again after a gap, and ends if it has ended, without a snapshot as well', async () => {
    const own = memory({ ring: 5 })
    const queue = closing(new Queue('work', { store: own, logger: false }))
    queue.on('drained', () => {})
    const job = await queue.add('film')
    const stream = open(queue)
    await stream.next()
    await queue.add('film')
    const { id } = await stream.event('waiting')
    await stream.cancel()
    await job.cancel()
    for (let n = 0; n < 10; n++) await queue.add('film')
    for (const snapshot of [true, false]) {
      const frames = await rest(open(queue, { jobId: job.id, lastEventId: id!, snapshot }))
      expect(types(frames)).toEqual(['ping', 'gap', ...(snapshot ? ['snapshot'] : []), 'end'])
    }
  })

  it('sends what a slow reader missed before it ends', async () => {
    const queue = newQueue()
    const job = await queue.add('film')
    const stream = open(queue, { jobId: job.id, buffer: 2 })
    await stream.next()
    const completed = event(queue, 'completed')
    newWorker(queue, async (_job, ctx) => {
      for (let n = 0; n < 20; n++) await ctx.progress(n)
    })
    await completed
    const frames = await rest(stream)
    expect(frames.filter((frame) => frame.event === 'progress').map(({ data }) => data.progress as number)).toEqual(
      Array.from({ length: 20 }, (_, n) => n),
    )
    expect(types(frames).slice(-2)).toEqual(['completed', 'end'])
  })

  it('does not end by its snapshot before it has sent what its buffer had no room for', async () => {
    const of = memory()
    const reading = gate()
    const own: Store = { ...observed(of, () => {}), get: async (ids) => (await reading.promise, of.get(ids)) }
    const queue = newQueue({ store: closing(own) })
    const { id } = await queue.add('film')
    const stream = open(queue, { jobId: id, buffer: 1 })
    const first = stream.next()
    const completed = event(queue, 'completed')
    const worker = newWorker(queue, async (_job, ctx) => {
      for (let n = 0; n < 5; n++) await ctx.progress(n)
    })
    await completed
    reading.open()
    const frames = [(await first)!, ...(await rest(stream))]
    expect(types(frames)).toEqual(['snapshot', 'active', ...Array<string>(5).fill('progress'), 'completed', 'end'])
    await worker.close()
  })
})

describe('a stream', () => {
  it('pings at the given interval, or never', async () => {
    const clock = virtualClock()
    const queue = closing(new Queue('work', { store: memory({ runtime: clock.runtime }), logger: false }))
    const often = open(queue, { ping: '2s' })
    const never = open(queue, { ping: false })
    await often.next()
    await never.next()
    for (let n = 0; n < 3; n++) {
      const ping = often.next()
      await clock.advance('2s')
      expect(await ping).toEqual({ comment: 'ping' })
    }
    let received = false
    void never.next().then(() => (received = true))
    await clock.advance('1h')
    expect(received).toBe(false)
    await often.cancel()
    await never.cancel()
  })

  it('sends a browser the delay before it reconnects, if it is given', async () => {
    const queue = newQueue()
    expect(await open(queue, { retry: '1.5s' }).next()).toEqual({ retry: '1500' })
    expect(await open(queue).next()).not.toHaveProperty('retry')
  })

  it.each([
    [{ end: true }, 'INVALID_OPTION', /end needs a jobId/],
    [{ jobId: 'a', end: 'yes' }, 'INVALID_OPTION', /end must be true or false/],
    [{ counts: 1 }, 'INVALID_OPTION', /counts must be true or false/],
    [{ fields: [] }, 'INVALID_OPTION', /fields must name one field at least/],
    [{ fields: 'state' }, 'INVALID_OPTION', /fields must be a list/],
    [{ fields: ['states'] }, 'INVALID_OPTION', /did you mean 'state'/],
    [{ fields: ['result'] }, 'INVALID_OPTION', /fields must be one of/],
    [{ ping: 0 }, 'INVALID_DURATION', /ping must be longer than 0/],
    [{ ping: 'often' }, 'INVALID_DURATION', /ping/],
    [{ ping: true }, 'INVALID_DURATION', /ping/],
    [{ retry: 0 }, 'INVALID_DURATION', /retry must be longer than 0/],
    [{ retry: -1 }, 'INVALID_DURATION', /retry/],
  ])('refuses %o', (options, code, message) => {
    const queue = newQueue()
    expect(() => queue.eventStream(options as never)).toThrow(expect.objectContaining({ code }))
    expect(() => queue.eventStream(options as never)).toThrow(message)
  })
})

// ctx.hold and queue.hold: no worker starts what is held, work goes on by itself, and what was leased before goes back.
import { setImmediate as nextTurn } from 'node:timers/promises'
import { describe, expect, it, test } from 'vitest'
import { Queue, Worker, defineJobs, job } from 'millrace'
import type { Job, JobContext, Store } from 'millrace'
import { memory } from 'millrace/memory'
import { MAX_HOLDS } from '../../src/job/holds.js'
import { virtualClock } from '../../src/testing/world/clock.js'
import { closing, event, gate } from '../setup.js'
import { served, stores } from '../stores.js'

const make = stores()

const queueOn = (store: Store): Queue => closing(new Queue('calls', { store, logger: false }))

/** Waits until so many jobs of a queue are active. */
async function untilActive(queue: Queue, count: number): Promise<void> {
  while ((await queue.counts()).active !== count) await nextTurn()
}

describe.each(served)('on %s', (kind) => {
  test('a handler holds its name: the job keeps its place and its attempt, others of the name wait, and work goes on by itself', async () => {
    const queue = queueOn(await make(kind))
    const ran: string[] = []
    let limited = true
    await queue.add('call', 1, { id: 'first' })
    await queue.add('call', 2, { id: 'second' })
    await queue.add('other', 3, { id: 'third' })
    const settled = event(queue, 'completed', ({ id }) => id === 'second')
    const others = event(queue, 'completed', ({ id }) => id === 'third')
    const first = closing(
      new Worker(
        queue,
        (each, ctx) => {
          ran.push(each.id)
          if (each.id !== 'first' || !limited) return
          limited = false
          ctx.hold('400ms')
        },
        { logger: false, workerName: 'caller', pollEvery: '1h' },
      ),
    )
    await others
    expect(ran).toEqual(['first', 'third'])
    expect(await queue.get('first')).toMatchObject({ state: 'waiting', attempt: 0 })
    const { reasons, text } = await queue.explain('second')
    const [hold] = await queue.holds()
    if (hold !== undefined) {
      expect(hold).toMatchObject({ name: 'call', by: first.id, job: 'first' })
      expect(reasons).toEqual([{ why: 'held', of: 'name', until: hold.until, by: first.id, job: 'first' }])
      expect(text).toContain(`its name is held by ${first.id} for job first until`)
    }
    await settled
    expect(ran).toEqual(['first', 'third', 'first', 'second'])
    expect(await queue.get('first')).toMatchObject({ state: 'completed', attempt: 1 })
  })

  test('what another worker has prefetched goes back when a handler holds it, and does not start', async () => {
    const store = await make(kind)
    const [queue, other] = [queueOn(store), queueOn(store)]
    const [blocked, isBlocked] = [gate(), gate()]
    let started = 0
    let blocking = true
    const busy = closing(
      new Worker(
        other,
        {
          call: async () => {
            started++
            if (!blocking || (await other.counts()).active <= 5) return
            blocking = false
            isBlocked.open()
            await blocked.promise
          },
        },
        { logger: false, concurrency: 1, autorun: false },
      ),
    )
    await queue.addBulk(Array.from({ length: 3000 }, () => ({ name: 'call' })))
    await busy.run()
    await isBlocked.promise
    await queue.add('limited')
    const held = event(queue, 'waiting', ({ name }) => name === 'limited')
    const limited = new Worker(
      queue,
      { limited: (_job: Job, ctx: JobContext) => ctx.hold('10m', { of: 'queue' }) },
      { logger: false },
    )
    const holder = closing(limited)
    await held
    await untilActive(queue, 1) // what was prefetched is back
    const before = started
    blocked.open()
    await untilActive(queue, 0)
    expect(started).toBe(before)
    expect(await queue.holds()).toMatchObject([{ by: holder.id }])
    const again = event(queue, 'active', ({ name }) => name === 'call')
    expect(await queue.unhold()).toBe(true)
    await again
  })

  test('a held queue starts nothing until the hold is over, or is removed', async () => {
    const queue = queueOn(await make(kind))
    await queue.hold('1h', { by: 'ann' })
    await queue.hold('1m')
    const ran = event(queue, 'completed')
    closing(new Worker(queue, () => {}, { logger: false, pollEvery: '1h' }))
    const { id } = await queue.add('call')
    const { reasons } = await queue.explain(id)
    expect(reasons[0]).toMatchObject({ why: 'held', of: 'queue', by: 'ann' })
    expect(await queue.unhold({ name: 'call' })).toBe(false)
    expect(await queue.unhold()).toBe(true)
    await ran
    expect(await queue.holds()).toEqual([])
  })
})

test('what a worker has prefetched goes back the moment one of its handlers holds it', async () => {
  const clock = virtualClock()
  const queue = queueOn(memory({ runtime: clock.runtime }))
  const started: number[] = []
  await queue.addBulk(Array.from({ length: 500 }, (_, n) => ({ name: 'call', data: n })))
  let held = false
  const worker = closing(
    new Worker(
      queue,
      async ({ data }, ctx) => {
        started.push(data as number)
        await new Promise<void>((resolve) => void clock.runtime.timer(1, resolve))
        if (data === 250 && !held) {
          held = true
          ctx.hold('1m')
        }
      },
      { logger: false, concurrency: 1, autorun: false },
    ),
  )
  await worker.run()
  await clock.advance('5s')
  expect(started.at(-1)).toBe(250)
  expect(await queue.counts()).toMatchObject({ active: 0, waiting: 250 })
  await clock.advance('1m')
  expect(started.slice(250)).toEqual([250, ...Array.from({ length: 250 }, (_, n) => 250 + n)])
})

test('a hold ends at its time: work goes on then, and not at a poll', async () => {
  const clock = virtualClock()
  const queue = queueOn(memory({ runtime: clock.runtime }))
  const ran: number[] = []
  const start = clock.runtime.now()
  const worker = closing(
    new Worker(queue, () => void ran.push(clock.runtime.now() - start), {
      logger: false,
      autorun: false,
      pollEvery: '1h',
    }),
  )
  await worker.run()
  await queue.hold('90s', { group: 'acme' })
  await queue.add('call', 1, { group: 'acme' })
  await queue.add('call', 2, { group: 'bolt' })
  await clock.advance('5m')
  expect(ran).toEqual([0, 90_000])
})

test('jobs of a batch hold their like, all at once or one by one', async () => {
  const clock = virtualClock()
  const queue = queueOn(memory({ runtime: clock.runtime }))
  const calls: unknown[][] = []
  await queue.addBulk([1, 2, 3].map((data) => ({ name: 'call', data, options: { group: `g${data}` } })))
  const worker = closing(
    new Worker(
      queue,
      {
        call: {
          runBatch: (jobs, ctx) => {
            calls.push(jobs.map(({ data }) => data))
            if (calls.length === 1)
              return jobs.map((each) => (each.data === 2 ? ctx.of(each).hold('1m', { of: 'group' }) : 0))
            return jobs.map(() => 0)
          },
          batch: { size: 5 },
        },
      },
      { logger: false, autorun: false },
    ),
  )
  await worker.run()
  await clock.advance('2m')
  expect(calls).toEqual([[1, 2, 3], [2]])
})

describe('bad input', () => {
  const jobs = defineJobs({ call: job<number>() })
  const queue = (): Queue<typeof jobs> => closing(new Queue('calls', { store: closing(memory()), jobs, logger: false }))

  it('of queue.hold is refused by code, and nothing is written', async () => {
    const calls = queue()
    const refused = (work: Promise<unknown>, code: string) => expect(work).rejects.toMatchObject({ code })
    await refused(calls.hold(0), 'INVALID_DURATION')
    await refused(calls.hold('5 years'), 'INVALID_DURATION')
    await refused(calls.hold('400d'), 'INVALID_DURATION')
    await refused(calls.hold('1m', { name: 'call', group: 'g' }), 'INVALID_OPTION')
    await refused(calls.hold('1m', { nam: 'call' } as object), 'UNKNOWN_OPTION')
    await refused(calls.hold('1m', { name: 'none' as 'call' }), 'UNKNOWN_JOB')
    await refused(calls.hold('1m', { group: '' }), 'INVALID_NAME')
    await refused(calls.hold('1m', { by: 'x'.repeat(300) }), 'INVALID_NAME')
    await refused(calls.unhold({ by: 'ann' } as object), 'UNKNOWN_OPTION')
    expect(await calls.holds()).toEqual([])
  })

  it('of ctx.hold fails the job, with the reason', async () => {
    const calls = queue()
    const failed = event(calls, 'failed')
    closing(
      new Worker(calls, { call: (_job: Job, ctx: JobContext) => ctx.hold('1m', { of: 'group' }) }, { logger: false }),
    )
    await calls.add('call', 1, { attempts: 1 })
    expect((await failed).error).toMatchObject({ code: 'INVALID_OPTION' })
    expect(await calls.holds()).toEqual([])
  })

  it('is one hold too many: refused for a caller; a handler’s job runs again later, and the worker reports it', async () => {
    const calls = queue()
    await Promise.all(Array.from({ length: MAX_HOLDS }, (_, n) => calls.hold('1h', { group: `g${n}` })))
    await expect(calls.hold('1h', { group: 'more' })).rejects.toMatchObject({ code: 'TOO_MANY_HOLDS' })
    const delayed = event(calls, 'delayed')
    const worker = closing(
      new Worker(calls, { call: (_job: Job, ctx: JobContext) => ctx.hold('1m') }, { logger: false, autorun: false }),
    )
    const reported = new Promise<unknown>((resolve) => void worker.on('error', ({ error }) => resolve(error)))
    await worker.run()
    const { id } = await calls.add('call', 1)
    expect(await reported).toMatchObject({ code: 'TOO_MANY_HOLDS' })
    expect((await delayed).id).toBe(id)
    expect(await calls.get(id)).toMatchObject({ state: 'delayed', attempt: 0 })
  })
})

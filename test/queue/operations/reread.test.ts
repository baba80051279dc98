// The net under those who wait: on a store from which no event ever arrives, the end of a job is found all the same.
import { expect, test } from 'vitest'
import { Queue } from 'millrace'
import type { Job, Store } from 'millrace'
import type { Notice } from '../../../src/store/store.js'
import { memory } from 'millrace/memory'
import { Driver } from '../../../src/conformance/driver.js'
import { complete, insert } from '../../../src/conformance/changes.js'
import { virtualClock } from '../../../src/testing/world/clock.js'
import type { VirtualClock } from '../../../src/testing/world/clock.js'
import { observed } from '../../observed-store.js'

interface Deaf {
  readonly queue: Queue
  readonly d: Driver
  readonly clock: VirtualClock
  /** The ids of each read since this was last asked. */
  reads(): readonly (readonly string[])[]
  /** Some events were missed. */
  miss(): void
  /** The next reads fail. */
  fail(times: number): void
  /** Reads of these jobs fail; those of no others do. */
  spoil(ids: readonly string[]): void
}

function deaf(): Deaf {
  const clock = virtualClock()
  const of = memory({ runtime: clock.runtime })
  const reads: (readonly string[])[] = []
  const listeners = new Set<(notice: Notice) => void>()
  let failing = 0
  let spoilt = new Set<string>()
  const store: Store = {
    ...observed(of, () => {}),
    watch: (_options, listener) => {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
    get: (ids) => {
      reads.push(ids)
      return failing-- > 0 || ids.some((id) => spoilt.has(id))
        ? Promise.reject(new Error('the connection is gone'))
        : of.get(ids)
    },
  }
  const queue = new Queue('mill', { store, logger: false })
  return {
    queue,
    d: new Driver(of, 'writer'),
    clock,
    reads: () => reads.splice(0),
    miss: () => listeners.forEach((listener) => listener({ work: [], due: [], revoked: [], events: [], gap: true })),
    fail: (n) => void (failing = n),
    spoil: (ids) => void (spoilt = new Set(ids)),
  }
}

/** Completes a job by hand. */
async function finish(d: Driver, { id }: Pick<Job, 'id'>, result: unknown): Promise<void> {
  await d.land(
    complete(
      (await d.claim(10)).find((job) => job.id === id)!,
      { result },
    ),
  )
}

test('a result without an event is found, also after a read that failed', async () => {
  const { queue, d, clock, fail } = deaf()
  const job = await queue.add('work')
  const result = job.result()
  await clock.settle()
  await finish(d, job, 'done')
  fail(1)
  await clock.advance('31s')
  await clock.advance('15s')
  expect(await result).toBe('done')
})

test('those who begin to wait at once, or have missed events, look together', async () => {
  const { queue, d, clock, reads, miss } = deaf()
  const jobs = await queue.addBulk(Array.from({ length: 1_000 }, () => ({ name: 'work' })))
  const results = jobs.map((job) => job.result())
  const seen = jobs.slice(0, 100).map(async (job) => {
    for await (const { state } of job.observe()) if (state === 'completed') return
  })
  for (const again of [() => {}, miss]) {
    again()
    await clock.settle()
    const sizes = reads().map((ids) => ids.length)
    expect(sizes.reduce((sum, n) => sum + n, 0)).toBeGreaterThanOrEqual(1_000)
    expect(sizes.length).toBeLessThan(30)
    expect(Math.max(...sizes)).toBeLessThanOrEqual(256)
  }
  for (const held of await d.claim(1_000)) await d.land(complete(held, { result: held.id }))
  miss()
  expect(await Promise.all(results)).toEqual(jobs.map(({ id }) => id))
  await Promise.all(seen)
})

test('those who wait for large jobs look at a few at a time', async () => {
  const { queue, clock, reads, miss } = deaf()
  const jobs = await queue.addBulk(Array.from({ length: 64 }, () => ({ name: 'work', data: 'x'.repeat(500_000) })))
  const results = jobs.map((job) => job.result().catch(() => {}))
  await clock.settle()
  reads()
  miss()
  await clock.settle()
  expect(Math.max(...reads().map((ids) => ids.length))).toBeLessThanOrEqual(4)
  await queue.close()
  await Promise.all(results)
})

test('a job that cannot be read fails those alone who wait for it', async () => {
  const { queue, d, clock, spoil } = deaf()
  const jobs = await queue.addBulk(Array.from({ length: 20 }, () => ({ name: 'work' })))
  for (const held of await d.claim(20)) await d.land(complete(held, { result: held.id }))
  spoil([jobs[3]!.id])
  const results = Promise.allSettled(jobs.map((job) => job.result()))
  await clock.settle()
  const failed = (await results).flatMap(({ status }, at) => (status === 'rejected' ? [at] : []))
  expect(failed).toEqual([3])
})

test('an observer sees a change without an event, once', async () => {
  const { queue, d, clock } = deaf()
  const job = await queue.add('work')
  const seen: string[] = []
  const observing = (async () => {
    for await (const { state } of job.observe()) seen.push(state)
  })()
  await clock.advance('1h')
  expect(seen).toEqual(['waiting'])
  await finish(d, job, 'done')
  await clock.advance('15s')
  await observing
  expect(seen).toEqual(['waiting', 'completed'])
})

test('the end of a chain without an event is found, whatever it continued with', async () => {
  const { queue, d, clock } = deaf()
  const job = await queue.add('work')
  const result = queue.chain(job.id).result()
  await clock.advance('1m')
  const [held] = await d.claim(1)
  await d.land(complete(held!, { continuation: insert('next', 'work', { chain: { id: job.id, index: 1 } }) }))
  await clock.advance('1m')
  await finish(d, { id: 'next' }, 'end')
  await clock.advance('1m')
  expect(await result).toBe('end')
})

test('the reads of many who wait travel together, and none is made for a short wait', async () => {
  const { queue, d, clock, reads } = deaf()
  const jobs = await queue.addBulk(Array.from({ length: 1_000 }, () => ({ name: 'work' })))
  const results = jobs.map((job) => job.result())
  await clock.settle()
  reads()
  await clock.advance('14s')
  expect(reads()).toEqual([])
  await clock.advance('16s')
  const sizes = reads().map((ids) => ids.length)
  expect(sizes.reduce((sum, n) => sum + n, 0)).toBe(1_000)
  expect(sizes.length).toBeLessThan(10)
  expect(Math.max(...sizes)).toBeLessThanOrEqual(256)
  for (const held of await d.claim(1_000)) await d.land(complete(held, { result: held.id }))
  await clock.advance('15s')
  expect(await Promise.all(results)).toEqual(jobs.map(({ id }) => id))
})

test('few large jobs are read at a time', async () => {
  const { queue, clock, reads } = deaf()
  const jobs = await queue.addBulk(Array.from({ length: 64 }, () => ({ name: 'work', data: 'x'.repeat(500_000) })))
  const results = jobs.map((job) => job.result().catch(() => {}))
  await clock.settle()
  await clock.advance('30s')
  reads()
  await clock.advance('15s')
  expect(Math.max(...reads().map((ids) => ids.length))).toBeLessThanOrEqual(4)
  await queue.close()
  await Promise.all(results)
})

test('jobs that cannot be read do not keep others from being read, and are read when they can be', async () => {
  const { queue, d, clock, spoil } = deaf()
  const jobs = await queue.addBulk(Array.from({ length: 400 }, () => ({ name: 'work' })))
  const found: string[] = []
  const results = jobs.map((job) => job.result().then((id) => void found.push(id as string)))
  await clock.settle()
  for (const held of await d.claim(400)) await d.land(complete(held, { result: held.id }))
  const bad = [0, 17, 18, 200].map((at) => jobs[at]!.id)
  spoil(bad)
  await clock.advance('31s')
  const others = jobs.map(({ id }) => id).filter((id) => !bad.includes(id))
  expect(found.toSorted()).toEqual(others.toSorted())
  spoil([])
  await clock.advance('15s')
  await Promise.all(results)
  expect(new Set(found.slice(others.length))).toEqual(new Set(bad))
})

test('a store that is down is asked a few times in a round, reported once, and read from where it stopped', async () => {
  const { queue, d, clock, reads, fail, spoil } = deaf()
  const jobs = await queue.addBulk(Array.from({ length: 400 }, () => ({ name: 'work' })))
  const errors: unknown[] = []
  queue.on('error', ({ error }) => errors.push(error))
  const results = jobs.map((job) => job.result())
  await clock.settle()
  for (const held of await d.claim(400)) await d.land(complete(held, { result: held.id }))
  reads()
  fail(1_000)
  await clock.advance('31s')
  const asked = reads()
  expect(asked.length).toBeLessThanOrEqual(8)
  await clock.advance('15s')
  const again = reads()
  expect(again.length).toBeLessThanOrEqual(8)
  expect(again[0]).not.toEqual(asked[0])
  expect(errors).toEqual([expect.objectContaining({ code: 'STORE_UNAVAILABLE' })])
  fail(0)
  await clock.advance('15s')
  expect(await Promise.all(results)).toEqual(jobs.map(({ id }) => id))
  const open = await queue.addBulk(Array.from({ length: 2 }, () => ({ name: 'work' })))
  const waits = open.map((job) => job.result().catch(() => {}))
  await clock.advance('31s')
  spoil(open.map(({ id }) => id))
  await clock.advance('15s')
  await clock.advance('15s')
  expect(errors).toHaveLength(2)
  await queue.close()
  await Promise.all(waits)
})

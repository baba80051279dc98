// How many jobs a worker prefetches: bounded in bytes as well as in number.
import { expect, test } from 'vitest'
import { virtualClock } from 'millrace/testing'
import type { Ask } from '../../src/store/store.js'
import type { HandlerAttempt } from '../../src/worker/attempt/handler-attempt.js'
import { Claimer } from '../../src/worker/claimer.js'
import type { AcceptClaimed } from '../../src/worker/claimer.js'
import type { Leases } from '../../src/worker/leases.js'
import type { WorkerParts } from '../../src/worker/parts.js'
import { Prefetch } from '../../src/worker/prefetch.js'
import { RunTally } from '../../src/worker/run-tally.js'
import { Slots } from '../../src/worker/slots.js'
import type { JobRecord } from '../../src/job/job.js'
import { record } from '../job/lifecycle.records.js'
import { turn } from '../store/manual-store.js'

const MiB = 2 ** 20

/** Slots that start nothing, filled by a claimer from answers given by hand. */
function open(jobs: (ask: Ask) => { readonly jobs: readonly JobRecord[]; readonly again?: number }) {
  const clock = virtualClock()
  const asks: Ask[] = []
  const dry: (readonly (string | undefined)[])[] = []
  const connection = {
    runtime: clock.runtime,
    store: { can: {} },
    claims: {
      roundTrip: 100,
      claim: (request: Ask) => {
        asks.push(request)
        return Promise.resolve(jobs(request))
      },
    },
  }
  const parts = {
    id: 'worker',
    queues: ['queue'],
    connection,
    settings: {
      concurrency: 1,
      handles: [{ name: undefined, lease: 30_000 }],
      pollEvery: 1_000_000,
      onlyBatchSize: undefined,
    },
    backpressure: { isOn: false },
    run: new RunTally(),
    errors: { responded: () => {}, report: () => {} },
  } as unknown as WorkerParts
  const slots = new Slots(parts, () => {})
  const prefetch = new Prefetch(clock.runtime.elapsed)
  const accept: AcceptClaimed = (records, _sentAt, ranDry) => {
    for (const each of records) slots.push({ record: each, handler: {} } as HandlerAttempt)
    dry.push(ranDry)
    for (let unit = slots.next(true); unit !== undefined; unit = slots.next(true)) slots.take(unit as HandlerAttempt)
  }
  const claimer = new Claimer(parts, slots, {} as Leases, prefetch, { accept, unstarted: () => slots.unstarted })
  return { clock, claimer, prefetch, slots, asks, dry }
}

let ids = 0
const job = (bytes: number): JobRecord => record({ id: `${++ids}`, data: 'x'.repeat(bytes) })

/** Lets the claimer measure that a thousand jobs end every 100 ms. */
async function measureFastJobs({ prefetch, clock }: ReturnType<typeof open>): Promise<void> {
  for (let n = 0; n < 1_000; n++) prefetch.ended()
  await clock.advance(100)
}

test('no further jobs are prefetched while those that wait for a slot hold many bytes', async () => {
  // As a store does: at most 8 MiB in one answer.
  const opened = open((ask) => ({
    jobs: Array.from({ length: Math.min(8, ask.want + ask.ahead) }, () => job(MiB)),
    again: 0,
  }))
  await measureFastJobs(opened)
  const { claimer, slots, asks } = opened
  claimer.start()
  for (let n = 0; n < 100; n++) {
    await turn()
    claimer.wake()
  }
  expect(slots.aheadBytes).toBeGreaterThan(8 * MiB)
  expect(slots.aheadBytes).toBeLessThanOrEqual(25 * MiB)
  const claims = asks.length
  claimer.wake()
  await turn()
  expect(asks.length).toBe(claims)
  expect(slots.takePrefetched().length).toBe(claims * 8 - 1)
  expect(slots.aheadBytes).toBe(0)
})

test('small jobs are prefetched as before', async () => {
  const opened = open((ask) => ({ jobs: Array.from({ length: ask.want + ask.ahead }, () => job(100)) }))
  await measureFastJobs(opened)
  opened.claimer.start()
  await turn()
  expect(opened.slots.ahead).toBe(1_000)
})

test('an answer that was full is no sign that the store ran dry', async () => {
  let left = 3
  const opened = open(() => (left-- > 0 ? { jobs: [job(9 * MiB)], again: 0 } : { jobs: [] }))
  await measureFastJobs(opened)
  opened.claimer.start()
  for (let n = 0; n < 10; n++) await opened.clock.advance(1)
  expect(opened.asks.length).toBe(3)
  expect(opened.dry.slice(0, 3)).toEqual([[], [], []])
})

// How many jobs a worker prefetches: bounded in bytes as well as in number.
import { expect, test } from 'vitest'
import { virtualClock } from 'millrace/testing'
import type { Ask } from '../../src/store/store.js'
import type { Attempt } from '../../src/worker/attempt/attempt.js'
import { Claimer } from '../../src/worker/claimer.js'
import type { ClaimerHost } from '../../src/worker/claimer.js'
import { Slots } from '../../src/worker/slots.js'
import type { SlotHost } from '../../src/worker/slots.js'
import type { JobRecord } from '../../src/job/job.js'
import { record } from '../job/lifecycle.records.js'
import { turn } from '../store/manual-store.js'

const MiB = 2 ** 20

/** Slots that start nothing, filled by a claimer from answers given by hand. */
function open(jobs: (ask: Ask) => { readonly jobs: readonly JobRecord[]; readonly again?: number }) {
  const clock = virtualClock()
  const asks: Ask[] = []
  const dry: (readonly (string | undefined)[])[] = []
  const slots = new Slots(1, { mayStart: () => true } as unknown as SlotHost)
  const attemptOf = (each: JobRecord): Attempt => ({ record: each, handler: {}, start: () => {} }) as unknown as Attempt
  const host = {
    id: 'worker',
    queues: ['queue'],
    connection: {
      runtime: clock.runtime,
      store: { can: {} },
      claims: {
        roundTrip: 100,
        claim: (request: Ask) => {
          asks.push(request)
          return Promise.resolve(jobs(request))
        },
      },
    },
    settings: { handles: [{ name: undefined, lease: 30_000 }], pollEvery: 1_000_000, onlyBatchSize: undefined },
    slots,
    closing: () => false,
    backpressure: () => false,
    claimed: (records: readonly JobRecord[], _sentAt: number, ranDry: readonly (string | undefined)[]) => {
      for (const each of records) slots.push(attemptOf(each))
      dry.push(ranDry)
      slots.fill()
    },
    responded: () => {},
    failed: () => {},
  }
  const claimer = new Claimer(host as unknown as ClaimerHost)
  return { clock, claimer, slots, asks, dry }
}

let ids = 0
const job = (bytes: number): JobRecord => record({ id: `${++ids}`, data: 'x'.repeat(bytes) })

/** Lets the claimer measure that a thousand jobs end every 100 ms. */
async function measureFastJobs({ claimer, clock }: ReturnType<typeof open>): Promise<void> {
  for (let n = 0; n < 1_000; n++) claimer.prefetch.ended()
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

// Eight processes on one file: the limits of a queue, a name and groups, and a rate, are never exceeded, not by one.
import { expect, test } from 'vitest'
import { Queue } from '../../src/index.js'
import { sqlite } from '../../src/sqlite.js'
import { cellKey } from '../../src/store/settings.js'
import type { LimitCell } from '../../src/job/limits.js'
import { Driver } from '../../src/conformance/driver.js'
import { put } from '../../src/conformance/changes.js'
import { closing } from '../setup.js'
import { linesOf, soundAccountOf, states } from './account.js'
import { scene, start } from './processes.js'
import type { Chore, WorkerInput, WorkerMessage } from './programs/worker.js'

const path = scene()

const JOBS = 200
/** Jobs of the name with a rate, which go first: all at once, but for the rate. */
const RARE = 25
const RATE = { max: 10, per: 2_000 }
const LIMITS: LimitCell = {
  concurrency: 12,
  names: { slow: { concurrency: 5 }, rare: { rate: RATE } },
  group: { concurrency: 4 },
  groups: { g0: { concurrency: 1 }, g1: { weight: 3 } },
  by: 'queue',
}

const nameOf = (n: number): string => (n < RARE ? 'rare' : n % 2 === 0 ? 'slow' : 'quick')
const groupOf = (n: number): string | undefined => (n < RARE || n % 7 === 0 ? undefined : `g${n % 5}`)

/** The highest number of jobs that ran at a time, of those that count. */
function most(ledger: readonly (readonly string[])[], counts: (id: string) => boolean): number {
  let now = 0
  let highest = 0
  for (const [verb, id] of ledger) {
    if ((verb !== 'began' && verb !== 'ended') || !counts(id!)) continue
    now += verb === 'began' ? 1 : -1
    highest = Math.max(highest, now)
  }
  return highest
}

test('eight processes never exceed a limit of queue, name or group, nor a rate', { timeout: 120_000 }, async () => {
  const store = closing(sqlite(path('jobs.db'), { synchronous: 'off' }))
  const queue = closing(new Queue('work', { store, logger: false }))
  await new Driver(store, 'test').land(put(cellKey.limit('work'), LIMITS, 0))
  const jobs = await queue.addBulk(
    Array.from({ length: JOBS }, (_, n) => {
      const group = groupOf(n)
      const data: Chore = { takes: n < RARE ? 0 : n % 6 }
      const options = { priority: n < RARE ? -1 : 0, ...(group !== undefined && { group }) }
      return { name: nameOf(n), data, options }
    }),
  )
  const workers = Array.from({ length: 8 }, () =>
    start<WorkerMessage>('worker', {
      path: path('jobs.db'),
      ledger: path('ledger'),
      store: { synchronous: 'off' }, // no power is cut here, and it is quicker
      worker: { concurrency: 5, pollEvery: 200 },
      reportsEvery: 1,
    } satisfies WorkerInput),
  )
  let done = 0
  await new Promise<void>((resolve) => {
    for (const worker of workers) {
      worker.onEach((message) => {
        if (message.kind === 'done' && ++done === JOBS) resolve()
      })
    }
  })
  await Promise.all(workers.map((worker) => worker.finish()))

  const account = await soundAccountOf(store)
  expect(states(account.jobs)).toEqual({ completed: JOBS })
  const ledger = linesOf(path('ledger'))
  const number = new Map(jobs.map(({ id }, n) => [id, n]))
  const running = (counts: (n: number) => boolean): number => most(ledger, (id) => counts(number.get(id)!))
  expect(running(() => true)).toBeLessThanOrEqual(12)
  expect(running((n) => nameOf(n) === 'slow')).toBeLessThanOrEqual(5)
  expect(running((n) => groupOf(n) === 'g0')).toBe(1)
  for (const group of ['g1', 'g2', 'g3', 'g4']) expect(running((n) => groupOf(n) === group)).toBeLessThanOrEqual(4)

  // By the store's own clock, one more than the rate allows comes a whole stretch later.
  const began = account.jobs.filter(({ name }) => name === 'rare').map(({ startedAt }) => startedAt!)
  began.sort((a, b) => a - b)
  const stretches = began.slice(RATE.max).map((at, n) => at - began[n]!)
  expect(stretches.length).toBeGreaterThan(0)
  expect(Math.min(...stretches)).toBeGreaterThanOrEqual(RATE.per)
})

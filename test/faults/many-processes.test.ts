// A crowd of processes on one file: each gets its share, and the log beside the file stays small.
import { statSync } from 'node:fs'
import { expect, test } from 'vitest'
import { sqlite } from '../../src/sqlite.js'
import { closing } from '../setup.js'
import { checkFile, linesOf, repeated, soundAccountOf, states } from './account.js'
import type { FeederInput, FeederMessage } from './programs/bulk-producer.js'
import { scene, start } from './processes.js'
import type { Chore, WorkerInput, WorkerMessage } from './programs/worker.js'

const path = scene()
const db = (): string => path('jobs.db')

const WORKERS = 3
const FEEDERS = 2
/** Of each feeder. */
const JOBS = 3000
/** That each job carries, so that far more goes through the log than it may hold. */
const BYTES = 16_000

/**
 * The size that the write-ahead log may reach: a checkpoint truncates it from 16 MiB on, once no other process uses it.
 */
const LOG_BOUND = 48 * 1024 * 1024

test(
  'three workers share what two producers add, and the log stays within its bound',
  { timeout: 120_000 },
  async () => {
    const store = closing(sqlite(db()))
    await store.open()
    const feeders = Array.from({ length: FEEDERS }, () => {
      const chore: Chore = { takes: 1, text: 'x'.repeat(BYTES) }
      return start<FeederMessage>('bulk-producer', { path: db(), jobs: JOBS, chore } satisfies FeederInput)
    })
    const workers = Array.from({ length: WORKERS }, () =>
      start<WorkerMessage>('worker', {
        path: db(),
        ledger: path('ledger'),
        worker: { concurrency: 10 },
        reportsEvery: 1,
      } satisfies WorkerInput),
    )
    const ids = await Promise.all(workers.map((worker) => worker.received('running').then((message) => message.worker)))
    await Promise.all(feeders.map((feeder) => feeder.received('loaded')))

    let done = 0
    let largest = 0
    const all = new Promise<void>((resolve) => {
      for (const worker of workers) {
        worker.onEach((message) => {
          if (message.kind !== 'done') return
          if (++done % 10 === 0) largest = Math.max(largest, statSync(`${db()}-wal`).size)
          if (done === FEEDERS * JOBS) resolve()
        })
      }
    })
    for (const feeder of feeders) feeder.send({ kind: 'go' })
    await Promise.all(feeders.map((feeder) => feeder.received('fed')))
    await all
    expect(statSync(db()).size).toBeGreaterThan(LOG_BOUND) // all of which went through the log
    expect(largest).toBeLessThan(LOG_BOUND)
    await Promise.all(workers.map((worker) => worker.finish()))

    const { jobs } = await soundAccountOf(store)
    expect(states(jobs)).toEqual({ completed: FEEDERS * JOBS })
    const ran = linesOf(path('ledger')).filter(([verb]) => verb === 'ended')
    expect(repeated(ran.map(([, id]) => id!))).toEqual([])
    const shares = ids.map((id) => ran.filter(([, , , worker]) => worker === id).length)
    expect(shares.filter((share) => share < (FEEDERS * JOBS) / 10)).toEqual([])
    await store.close()
    expect(await checkFile(db())).toEqual(['ok'])
  },
)

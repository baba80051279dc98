// A power cut at every moment: the log of a small run is cut at each of its frames, and what was acknowledged is there.
import { copyFileSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { Queue, Worker } from '../../src/index.js'
import type { JobState } from '../../src/job/job.js'
import { sqlite } from '../../src/sqlite.js'
import { Driver } from '../../src/conformance/driver.js'
import { decideDue, MINUTE, resolve } from '../../src/conformance/resolve.js'
import { randomWalk, walkQueues } from '../../src/conformance/walk.js'
import type { WalkStep } from '../../src/conformance/walk.js'
import { connect, loadDriver } from '../../src/stores/sqlite/file/driver.js'
import { stoppedClock } from '../conformance/clock.js'
import { closing } from '../setup.js'
import { freshFolder } from '../stores/sqlite/folder.js'
import { accountOf, soundAccountOf } from './account.js'
import type { Account } from './account.js'

const path = freshFolder()
const db = (): string => path('jobs.db')

/** The log begins with a header, then comes a frame for each page written. */
const HEADER = 32
const FRAME = 24 + 4096

/** How much of the log there is now: at FULL, all of it is on the disk when a commit is acknowledged. */
const logSize = (): number => statSync(`${db()}-wal`).size

/** What the disk may hold after a power cut: the log as far as it came, or with blocks that were never written. */
interface Remains {
  readonly what: string
  /** The log is good up to here. */
  readonly good: number
  readonly log: Buffer
}

/** Every way in which the log is cut: at each frame, in some frames, and with holes in it. */
function* powerCuts(log: Buffer): Generator<Remains> {
  expect((log.length - HEADER) % FRAME).toBe(0)
  yield { what: 'no log', good: 0, log: log.subarray(0, 0) }
  yield { what: 'half a header', good: 0, log: log.subarray(0, HEADER / 2) }
  for (let at = HEADER, n = 0; at <= log.length; at += FRAME, n++) {
    yield { what: `the log up to frame ${n}`, good: at, log: log.subarray(0, at) }
    if (at === log.length) return
    const torn = 1 + ((n * 997) % (FRAME - 1))
    if (n % 9 === 0) yield { what: `${torn} bytes of frame ${n}`, good: at, log: log.subarray(0, at + torn) }
    if (n % 9 === 3) yield { what: `junk for frame ${n}, and all after it`, good: at, log: holed(log, at, at + FRAME) }
    if (n % 9 === 6)
      yield { what: `junk for half of frame ${n}`, good: at, log: holed(log, at + FRAME / 2, at + FRAME) }
  }
}

/** The log with blocks that still hold what was on the disk before. */
function holed(log: Buffer, from: number, to: number): Buffer {
  const copy = Buffer.from(log)
  copy.fill(0xa5, from, to)
  return copy
}

/** Opens what a power cut left of the database, and checks it by SQLite's own means and by ours. */
async function afterPowerCut(
  { log }: Remains,
  runtime: ReturnType<typeof stoppedClock>['runtime'] | undefined,
): Promise<Account> {
  mkdirSync(path('cut'))
  const copy = path('cut/jobs.db')
  copyFileSync(db(), copy)
  writeFileSync(`${copy}-wal`, log)
  const store = sqlite(copy, { synchronous: 'off', ...(runtime && { runtime }) })
  try {
    const account = await soundAccountOf(store)
    const look = connect(await loadDriver(), copy)
    expect(look.prepare('PRAGMA integrity_check').all()).toEqual([['ok']])
    look.close()
    return account
  } finally {
    await store.close()
    rmSync(path('cut'), { recursive: true })
  }
}

const nothing: Account = { jobs: [], details: [], tallies: [], cells: [] }

describe('at synchronous FULL, after a power cut', { timeout: 120_000 }, () => {
  test('the store is as it was after the last commit acknowledged, to the letter', async () => {
    const { runtime, advance } = stoppedClock()
    const store = closing(sqlite(db(), { runtime }))
    const writers = [new Driver(store, 'walker-0'), new Driver(store, 'walker-1')] as const
    const began = runtime.now()

    const take = async (step: WalkStep): Promise<unknown> => {
      switch (step.step) {
        case 'advance':
          return advance(step.minutes * MINUTE)
        case 'replay':
          return writers[step.writer].replay()
        case 'upkeep': {
          const { now, jobs: due } = await store.due({ queues: walkQueues, except: [], limit: 10 })
          const jobs = (await store.get(due.map(({ id }) => id))).filter((job) => job !== undefined)
          const { jobs: details } = await store.details({ jobs: jobs.map(({ id }) => id) })
          const edges = details.map((each) => each.edges)
          return writers[0].commit({ groups: decideDue(jobs, now, edges) })
        }
        case 'batch': {
          const { jobs, cells } = await accountOf(store)
          return writers[step.writer].commit(resolve(step, { jobs, cells, began }))
        }
      }
    }

    await writers[0].commit({})
    await writers[1].commit({})
    const acknowledged = [{ size: 0, account: nothing }]
    for (const step of randomWalk(11, 26)) {
      await take(step)
      acknowledged.push({ size: logSize(), account: await accountOf(store) })
    }
    const log = readFileSync(`${db()}-wal`)
    expect(log.length).toBe(acknowledged.at(-1)?.size) // never brought into the file meanwhile
    expect(acknowledged.at(-1)?.account.jobs.length).toBeGreaterThan(15)

    for (const remains of powerCuts(log)) {
      const account = await afterPowerCut(remains, runtime)
      const last = acknowledged.findLast(({ size }) => size <= remains.good)!
      expect(account, remains.what).toEqual(last.account)
    }
  })

  test('every job that `add` or a worker has acknowledged is in the store', async () => {
    const store = closing(sqlite(db()))
    const queue = closing(new Queue('work', { store, logger: false }))
    const reported: { readonly size: number; readonly id: string; readonly state: JobState }[] = []
    const report = (state: JobState) => (job: { readonly id: string }) =>
      void reported.push({ size: logSize(), id: job.id, state })
    for (let n = 0; n < 5; n++) await queue.add('one', { n }).then(report('waiting'))
    await Promise.all(Array.from({ length: 10 }, (_, n) => queue.add('flight', { n }).then(report('waiting'))))
    const bulk = await queue.addBulk(Array.from({ length: 30 }, (_, n) => ({ name: 'bulk', data: { n } })))
    bulk.forEach(report('waiting'))
    const worker = closing(new Worker(queue, (job) => job.data, { logger: false, concurrency: 4 }))
    const all = new Promise<void>((resolve) => {
      let left = 45
      worker.on('completed', (job) => {
        report('completed')(job)
        if (--left === 0) resolve()
      })
    })
    worker.on('active', report('active'))
    await all
    const log = readFileSync(`${db()}-wal`)

    for (const remains of powerCuts(log)) {
      const { jobs } = await afterPowerCut(remains, undefined)
      const found = new Map(jobs.map(({ id, state }) => [id, state]))
      const missing = reported.filter(({ size, id, state }) => size <= remains.good && !reached(found.get(id), state))
      expect(missing, remains.what).toEqual([])
    }
  })
})

const course: readonly (JobState | undefined)[] = ['waiting', 'active', 'completed']

function reached(state: JobState | undefined, acknowledged: JobState): boolean {
  return course.indexOf(state) >= course.indexOf(acknowledged)
}

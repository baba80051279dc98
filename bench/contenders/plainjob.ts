// plainjob, the fastest SQLite queue of Node we know of, in the configuration that suits it best.
//
// It sets `synchronous = NORMAL` itself, so a power cut may lose jobs that it has acknowledged. It expects better-sqlite3;
// here it gets an object of the same shape on the driver that all contenders share, which is as fast for it.
import { openDatabase } from './sqlite-driver.js'
import { BULK, CALLERS, Countdown, Ledger, NAME, account, payload } from '../measure/load.js'
import { rate } from '../measure/measure.js'
import { peer } from './peers.js'
import type { Subject } from './contender.js'

/** How often its worker polls for jobs, in milliseconds. */
const POLL = 10
const DAY = 86_400_000

/** The parts of plainjob that are used. The package may be absent when types are checked. */
interface Plainjob {
  defineQueue(options: { connection: unknown; logger: Logger }): PlainQueue
  defineWorker(name: string, run: (job: { id: number; data: string }) => void, options: unknown): PlainWorker
}

interface PlainQueue {
  add(name: string, data: unknown): { id: number }
  addMany(name: string, data: readonly unknown[], options?: { delay?: number }): { ids: number[] }
  countJobs(filter: { status: number }): number
  markJobAsDone(id: number): void
  close(): void
}

interface PlainWorker {
  start(): Promise<void>
  stop(): Promise<void>
}

type Logger = Record<'error' | 'warn' | 'info' | 'debug', (message: string) => void>

const PENDING = 0
const DONE = 2

const logger: Logger = { error: (message) => console.error(message), warn() {}, info() {}, debug() {} }

/** The part of a better-sqlite3 handle that plainjob uses. */
function connect(filename: string): unknown {
  const db = openDatabase(filename)
  const [commit, rollback] = [db.prepare('COMMIT'), db.prepare('ROLLBACK')]
  const deferred = db.prepare('BEGIN')
  const immediate = db.prepare('BEGIN IMMEDIATE')
  type Work = (...args: unknown[]) => unknown
  const within =
    (begin: typeof deferred, work: Work): Work =>
    (...args) => {
      begin.run()
      try {
        const answer = work(...args)
        commit.run()
        return answer
      } catch (error) {
        rollback.run()
        throw error
      }
    }
  return {
    driver: 'better-sqlite3',
    filename,
    pragma: (text: string) => db.exec(`PRAGMA ${text}`),
    exec: (sql: string) => db.exec(sql),
    prepare: (sql: string) => db.prepare(sql),
    transaction: (work: Work) => Object.assign(within(deferred, work), { immediate: within(immediate, work) }),
    close: () => db.close(),
  }
}

/** Loads plainjob, which must have been installed. */
export async function plainjob(): Promise<Subject> {
  const { defineQueue, defineWorker } = await peer<Plainjob>('plainjob/dist/plainjob.js')
  const open = (path: string): PlainQueue => defineQueue({ connection: connect(path), logger })
  const work = (queue: PlainQueue, run: (id: number) => void, ended?: () => void): PlainWorker =>
    defineWorker(NAME, (job) => run(job.id), { queue, pollIntervall: POLL, logger, onCompleted: ended })

  return {
    name: 'plainjob',
    durability: () => 'normal',

    async add(path, way, { weight, count }) {
      const queue = open(path)
      const start = performance.now()
      if (way === 'awaited') {
        for (let n = 0; n < count; n++) queue.add(NAME, payload(n, weight))
      } else if (way === 'flight') {
        for (let n = 0; n < count; n += CALLERS) {
          await Promise.all(Array.from({ length: CALLERS }, async (_, at) => queue.add(NAME, payload(n + at, weight))))
        }
      } else {
        for (let n = 0; n < count; n += BULK) {
          queue.addMany(
            NAME,
            Array.from({ length: BULK }, (_, at) => payload(n + at, weight)),
          )
        }
      }
      const took = performance.now() - start
      const found = queue.countJobs({ status: PENDING })
      queue.close()
      return {
        figures: { rate: rate(count, took) },
        lost: Math.max(0, count - found),
        doubled: Math.max(0, found - count),
      }
    },

    async fill(path, { weight, waiting, finished = 0, delayed = 0 }) {
      const queue = open(path)
      const insertAll = (count: number, take: (data: readonly unknown[]) => void): void => {
        for (let n = 0; n < count; n += BULK)
          take(Array.from({ length: Math.min(BULK, count - n) }, (_, at) => payload(n + at, weight)))
      }
      insertAll(waiting, (data) => void queue.addMany(NAME, data))
      insertAll(finished, (data) => {
        for (const id of queue.addMany(NAME, data).ids) queue.markJobAsDone(id)
      })
      insertAll(delayed, (data) => void queue.addMany(NAME, data, { delay: DAY }))
      queue.close()
    },

    async drain(path, { count }, { waiting, finished = 0 }) {
      const queue = open(path)
      const ledger = new Ledger(waiting)
      const countdown = new Countdown(count)
      const worker = work(
        queue,
        (id) => ledger.ran(id),
        () => countdown.tick(),
      )
      const start = performance.now()
      const ended = worker.start()
      await countdown.done
      const took = performance.now() - start
      await worker.stop()
      await ended
      const done = queue.countJobs({ status: DONE }) - finished
      queue.close()
      return { figures: { rate: rate(count, took) }, ...account(ledger, count, done) }
    },

    async open(path) {
      const queue = open(path)
      let worker: PlainWorker | undefined
      let ended: Promise<void> | undefined
      return {
        async add(n) {
          queue.add(NAME, payload(n, 'light'))
        },
        async work(started) {
          worker = work(queue, (id) => started(id - 1))
          ended = worker.start()
        },
        async close() {
          await worker?.stop()
          await ended
          queue.close()
        },
      }
    },
  }
}

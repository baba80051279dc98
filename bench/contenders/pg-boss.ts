// pg-boss, in the configuration that suits it best: a partition for the queue, large batches, no
// supervision; wake-ups by LISTEN/NOTIFY where latency is measured. It keeps finished jobs.
import { BULK, CALLERS, Countdown, Ledger, QUEUE, account, payload } from '../measure/load.js'
import type { Payload, Weight } from '../measure/load.js'
import { rate } from '../measure/measure.js'
import { peer } from './peers.js'
import type { Subject } from './contender.js'
import { BULKS, CONNECTIONS, settled } from './peer-settings.js'

/** The parts of pg-boss that are used. */
interface Boss {
  on(event: 'error', listener: (error: Error) => void): void
  start(): Promise<unknown>
  stop(options: { readonly graceful: boolean; readonly close: boolean }): Promise<void>
  createQueue(name: string, options: { readonly partition: boolean; readonly notify: boolean }): Promise<void>
  getQueue(name: string): Promise<unknown>
  send(name: string, data: object): Promise<string | null>
  insert(name: string, jobs: readonly { readonly data: object; readonly startAfter?: number }[]): Promise<unknown>
  work(name: string, options: object, handler: (jobs: readonly Job[]) => Promise<void>): Promise<string>
  offWork(name: string): Promise<void>
  getDb(): { executeSql(text: string, values?: unknown[]): Promise<{ rows: { n: number }[] }> }
}

interface Job {
  readonly data: Payload
}

const DAY = 86_400
const DRAIN = { batchSize: 2000, localConcurrency: 4, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 }

/** Loads pg-boss, which must have been installed. */
export async function pgBoss(): Promise<Subject> {
  const { PgBoss } = await peer<{ PgBoss: new (options: object) => Boss }>('pg-boss/dist/index.js')

  async function open(connectionString: string, notify = false): Promise<Boss> {
    const options = { connectionString, max: CONNECTIONS, supervise: false, schedule: false, useListenNotify: notify }
    const boss = new PgBoss(options)
    boss.on('error', (error) => console.error(error))
    await boss.start()
    if ((await boss.getQueue(QUEUE)) === null) await boss.createQueue(QUEUE, { partition: true, notify })
    return boss
  }
  const close = (boss: Boss): Promise<void> => boss.stop({ graceful: false, close: true })

  async function insertAll(boss: Boss, count: number, weight: Weight, startAfter?: number): Promise<void> {
    let next = 0
    const caller = async (): Promise<void> => {
      for (let n = next; n < count; n = next) {
        next += BULK
        const item = (at: number): { data: Payload } => ({
          data: payload(n + at, weight),
          ...(startAfter !== undefined && { startAfter }),
        })
        await boss.insert(
          QUEUE,
          Array.from({ length: Math.min(BULK, count - n) }, (_, at) => item(at)),
        )
      }
    }
    await Promise.all(Array.from({ length: BULKS }, caller))
  }

  const count = async (boss: Boss, where: string): Promise<number> => {
    const { rows } = await boss.getDb().executeSql(`select count(*)::int as n from pgboss.job where ${where}`)
    return rows[0]!.n
  }

  return {
    name: 'pg-boss',
    durability: () => 'fsync',

    async add(url, way, { weight, count: jobs }) {
      const boss = await open(url)
      const start = performance.now()
      if (way === 'bulk') {
        await insertAll(boss, jobs, weight)
      } else {
        let next = 0
        const caller = async (): Promise<void> => {
          while (next < jobs) await boss.send(QUEUE, payload(next++, weight))
        }
        await Promise.all(Array.from({ length: way === 'awaited' ? 1 : CALLERS }, caller))
      }
      const took = performance.now() - start
      const found = await count(boss, `state = 'created'`)
      await close(boss)
      return {
        figures: { rate: rate(jobs, took) },
        lost: Math.max(0, jobs - found),
        doubled: Math.max(0, found - jobs),
      }
    },

    async fill(url, { weight, waiting, delayed = 0 }) {
      const boss = await open(url)
      await insertAll(boss, delayed, weight, DAY)
      await insertAll(boss, waiting, weight)
      await boss.getDb().executeSql('analyze')
      await close(boss)
    },

    async drain(url, { count: jobs }, { waiting }) {
      const boss = await open(url)
      const ledger = new Ledger(waiting)
      const countdown = new Countdown(jobs)
      const start = performance.now()
      await boss.work(QUEUE, DRAIN, async (batch) => {
        for (const { data } of batch) {
          ledger.ran(data.n)
          countdown.tick()
        }
      })
      await countdown.done
      await settled(() => count(boss, `state < 'completed'`))
      const took = performance.now() - start
      await boss.offWork(QUEUE)
      const done = await count(boss, `state = 'completed'`)
      await close(boss)
      return { figures: { rate: rate(jobs, took) }, ...account(ledger, jobs, done) }
    },

    async open(url) {
      const boss = await open(url, true)
      return {
        async add(n) {
          await boss.send(QUEUE, payload(n, 'light'))
        },
        async work(started) {
          await boss.work(QUEUE, {}, async (batch) => {
            for (const { data } of batch) started(data.n)
          })
        },
        close: () => close(boss),
      }
    },
  }
}

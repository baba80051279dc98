// graphile-worker, in the configuration that suits it best: a local queue of 2000, and completions in batches. It deletes
// a job when it has finished, which is less work than keeping it.
import { BULK, CALLERS, CONCURRENCY, Countdown, Ledger, NAME, account, payload } from '../measure/load.js'
import type { Payload, Weight } from '../measure/load.js'
import { rate } from '../measure/measure.js'
import { peer } from './peers.js'
import type { Subject } from './contender.js'
import { BULKS, CONNECTIONS, settled } from './peer-settings.js'

/** The parts of graphile-worker that are used. */
interface Graphile {
  readonly Logger: new (make: () => () => void) => object
  makeWorkerUtils(options: object): Promise<Utils>
  run(options: object): Promise<{ stop(): Promise<void>; readonly promise: Promise<void> }>
}

interface Utils {
  migrate(): Promise<void>
  addJob(name: string, data: object): Promise<unknown>
  addJobs(
    jobs: readonly { readonly identifier: string; readonly payload: object; readonly runAt?: Date }[],
  ): Promise<unknown>
  withPgClient<T>(work: (client: Client) => Promise<T>): Promise<T>
  release(): Promise<void>
}

interface Client {
  query(text: string): Promise<{ rows: { n: number }[] }>
}

const DAY = 86_400_000

/** Loads graphile-worker, which must have been installed. */
export async function graphileWorker(): Promise<Subject> {
  const { Logger, makeWorkerUtils, run } = await peer<Graphile>('graphile-worker/dist/index.js')
  const logger = new Logger(() => () => {})

  async function open(connectionString: string): Promise<Utils> {
    const utils = await makeWorkerUtils({
      preset: { worker: { connectionString, maxPoolSize: CONNECTIONS } },
      logger,
    })
    await utils.migrate()
    return utils
  }

  const work = (
    connectionString: string,
    concurrentJobs: number,
    ran: (n: number) => void,
  ): ReturnType<Graphile['run']> =>
    run({
      preset: {
        worker: {
          connectionString,
          concurrentJobs,
          maxPoolSize: 10,
          ...(concurrentJobs > 1 && { localQueue: { size: 2000 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 }),
        },
      },
      logger,
      noHandleSignals: true,
      crontab: '',
      taskList: { [NAME]: (data: Payload) => ran(data.n) },
    })

  async function insertAll(utils: Utils, count: number, weight: Weight, runAt?: Date): Promise<void> {
    let next = 0
    const caller = async (): Promise<void> => {
      for (let n = next; n < count; n = next) {
        next += BULK
        const item = (at: number): { identifier: string; payload: Payload; runAt?: Date } => ({
          identifier: NAME,
          payload: payload(n + at, weight),
          ...(runAt !== undefined && { runAt }),
        })
        await utils.addJobs(Array.from({ length: Math.min(BULK, count - n) }, (_, at) => item(at)))
      }
    }
    await Promise.all(Array.from({ length: BULKS }, caller))
  }

  const left = (utils: Utils): Promise<number> =>
    utils.withPgClient(async (client) => {
      const { rows } = await client.query('select count(*)::int as n from graphile_worker._private_jobs')
      return rows[0]!.n
    })

  return {
    name: 'graphile-worker',
    durability: () => 'fsync',

    async add(url, way, { weight, count }) {
      const utils = await open(url)
      const start = performance.now()
      if (way === 'bulk') {
        await insertAll(utils, count, weight)
      } else {
        let next = 0
        const caller = async (): Promise<void> => {
          while (next < count) await utils.addJob(NAME, payload(next++, weight))
        }
        await Promise.all(Array.from({ length: way === 'awaited' ? 1 : CALLERS }, caller))
      }
      const took = performance.now() - start
      const found = await left(utils)
      await utils.release()
      return {
        figures: { rate: rate(count, took) },
        lost: Math.max(0, count - found),
        doubled: Math.max(0, found - count),
      }
    },

    async fill(url, { weight, waiting, delayed = 0 }) {
      const utils = await open(url)
      await insertAll(utils, delayed, weight, new Date(Date.now() + DAY))
      await insertAll(utils, waiting, weight)
      await utils.withPgClient((client) => client.query('analyze'))
      await utils.release()
    },

    async drain(url, { count }, { waiting }) {
      const utils = await open(url)
      const ledger = new Ledger(waiting)
      const countdown = new Countdown(count)
      const start = performance.now()
      const runner = await work(url, CONCURRENCY, (n) => {
        ledger.ran(n)
        countdown.tick()
      })
      await countdown.done
      await settled(() => left(utils))
      const took = performance.now() - start
      await runner.stop()
      const gone = waiting - (await left(utils))
      await utils.release()
      return { figures: { rate: rate(count, took) }, ...account(ledger, count, gone) }
    },

    async open(url) {
      const utils = await open(url)
      let runner: Awaited<ReturnType<Graphile['run']>> | undefined
      return {
        async add(n) {
          await utils.addJob(NAME, payload(n, 'light'))
        },
        async work(started) {
          runner = await work(url, 1, started)
        },
        async close() {
          await runner?.stop()
          await utils.release()
        },
      }
    },
  }
}

// BullMQ on a Redis in memory, in the configuration that suits it best. It keeps finished jobs while Redis runs.
import { BULK, CALLERS, Countdown, Ledger, NAME, QUEUE, account, payload } from '../measure/load.js'
import type { Payload, Weight } from '../measure/load.js'
import { rate } from '../measure/measure.js'
import { peer } from './peers.js'
import type { Subject } from './contender.js'

/** The parts of BullMQ that are used. */
interface BullMQ {
  readonly Queue: new (name: string, options: object) => BullQueue
  readonly Worker: new (name: string, run: (job: { data: Payload }) => Promise<void>, options: object) => BullWorker
}

interface BullQueue {
  waitUntilReady(): Promise<unknown>
  add(name: string, data: object): Promise<unknown>
  addBulk(
    jobs: readonly { readonly name: string; readonly data: object; readonly opts?: { readonly delay: number } }[],
  ): Promise<unknown>
  getJobCounts(...states: readonly string[]): Promise<Record<string, number>>
  close(): Promise<void>
}

interface BullWorker {
  on(event: string, listener: (error: Error) => void): void
  waitUntilReady(): Promise<unknown>
  run(): Promise<void>
  close(): Promise<void>
}

const CONCURRENCY = 50
const DAY = 86_400_000

/** Loads BullMQ, which must have been installed. */
export async function bullmq(): Promise<Subject> {
  const { Queue, Worker } = await peer<BullMQ>('bullmq/dist/cjs/index.js')
  const connection = (url: string): object => {
    const { hostname, port } = new URL(url)
    return { host: hostname, port: Number(port), maxRetriesPerRequest: null }
  }

  async function open(url: string): Promise<BullQueue> {
    const queue = new Queue(QUEUE, { connection: connection(url) })
    await queue.waitUntilReady()
    return queue
  }

  async function createWorker(url: string, concurrency: number, ran: (n: number) => void): Promise<BullWorker> {
    const run = async ({ data }: { data: Payload }): Promise<void> => ran(data.n)
    const worker = new Worker(QUEUE, run, { connection: connection(url), concurrency, autorun: false })
    worker.on('error', (error) => console.error(error))
    await worker.waitUntilReady()
    return worker
  }

  async function insertAll(queue: BullQueue, count: number, weight: Weight, delay?: number): Promise<void> {
    for (let n = 0; n < count; n += BULK) {
      const item = (at: number): { name: string; data: Payload; opts?: { delay: number } } => ({
        name: NAME,
        data: payload(n + at, weight),
        ...(delay !== undefined && { opts: { delay } }),
      })
      await queue.addBulk(Array.from({ length: Math.min(BULK, count - n) }, (_, at) => item(at)))
    }
  }

  const count = async (queue: BullQueue, state: string): Promise<number> =>
    (await queue.getJobCounts(state))[state] ?? 0

  return {
    name: 'BullMQ',
    durability: () => 'memory',

    async add(url, way, { weight, count: jobs }) {
      const queue = await open(url)
      const start = performance.now()
      if (way === 'bulk') {
        await insertAll(queue, jobs, weight)
      } else {
        let next = 0
        const caller = async (): Promise<void> => {
          while (next < jobs) await queue.add(NAME, payload(next++, weight))
        }
        await Promise.all(Array.from({ length: way === 'awaited' ? 1 : CALLERS }, caller))
      }
      const took = performance.now() - start
      const found = await count(queue, 'waiting')
      await queue.close()
      return {
        figures: { rate: rate(jobs, took) },
        lost: Math.max(0, jobs - found),
        doubled: Math.max(0, found - jobs),
      }
    },

    async fill(url, { weight, waiting, delayed = 0 }) {
      const queue = await open(url)
      await insertAll(queue, delayed, weight, DAY)
      await insertAll(queue, waiting, weight)
      await queue.close()
    },

    async drain(url, { count: jobs }, { waiting }) {
      const queue = await open(url)
      const ledger = new Ledger(waiting)
      const countdown = new Countdown(jobs)
      const worker = await createWorker(url, CONCURRENCY, (n) => ledger.ran(n))
      worker.on('completed', () => countdown.tick())
      const start = performance.now()
      const ended = worker.run()
      await countdown.done
      const took = performance.now() - start
      await worker.close()
      await ended
      const done = await count(queue, 'completed')
      await queue.close()
      return { figures: { rate: rate(jobs, took) }, ...account(ledger, jobs, done) }
    },

    async open(url) {
      const queue = await open(url)
      let worker: BullWorker | undefined
      let ended: Promise<void> | undefined
      return {
        async add(n) {
          await queue.add(NAME, payload(n, 'light'))
        },
        async work(started) {
          worker = await createWorker(url, 1, started)
          ended = worker.run()
        },
        async close() {
          await worker?.close()
          await ended
          await queue.close()
        },
      }
    },
  }
}

// Millrace on any of its stores, through queues and workers as a user has them.
import { Queue, Worker, shutdown } from 'millrace'
import type { Store } from 'millrace'
import {
  BULK,
  CALLERS,
  CONCURRENCY,
  Countdown,
  Ledger,
  NAME,
  PAUSED,
  QUEUE,
  Tenths,
  account,
  keyOf,
  payload,
} from '../measure/load.js'
import type { Mode, Payload, Weight } from '../measure/load.js'
import { rate } from '../measure/measure.js'
import type { Subject } from './contender.js'

/** A worker that has not started yet. */
export interface BenchWorker {
  run(): Promise<void>
  /** Finishes the jobs that run. */
  stop(): Promise<void>
  /** Jobs by state, as the store counts them. */
  counts(): Promise<Counts>
  close(): Promise<void>
}

type Counts = Awaited<ReturnType<Queue['counts']>>

/** Millrace, as a contender. */
export interface Millrace extends Subject {
  /** Opens the store and creates a worker. */
  createWorker(path: string, mode: Mode, callbacks: WorkerCallbacks): Promise<BenchWorker>
}

/** Callbacks of a worker. */
export interface WorkerCallbacks {
  /** Called by its handler. */
  ran(id: string): void
  /** Called when a settlement is durable. */
  ended(): void
  /** Whether the worker also handles the paused name. */
  readonly paused?: boolean
}

/** How a store is used. */
export interface Use {
  /** The durability of each mode. */
  readonly durability: (mode: Mode) => string
  /** How many calls of `addBulk` are in flight. */
  readonly bulks: number
}

const items = (
  from: number,
  count: number,
  weight: Weight,
  name: string,
  delay?: string,
): { name: string; data: Payload }[] =>
  Array.from({ length: count }, (_, at) => ({
    name,
    data: payload(from + at, weight),
    ...(delay !== undefined && { options: { delay } }),
  }))

/** Adds jobs by 100 concurrent callers, each of which awaits its own adds. */
export async function addInFlight(queue: Queue, weight: Weight, more: () => number | undefined): Promise<void> {
  const caller = async (): Promise<void> => {
    for (let n = more(); n !== undefined; n = more()) await queue.add(NAME, payload(n, weight))
  }
  await Promise.all(Array.from({ length: CALLERS }, caller))
}

/** The contender on the stores that `openStore` opens. */
export function millraceOn(openStore: (path: string, mode: Mode) => Store, { durability, bulks }: Use): Millrace {
  async function createWorker(
    path: string,
    mode: Mode,
    { ran, ended, paused = false }: WorkerCallbacks,
  ): Promise<BenchWorker> {
    const store = openStore(path, mode)
    const queue = new Queue(QUEUE, { store })
    const run = (job: { readonly id: string }): void => ran(job.id)
    const runPaused = (): void => {
      throw new Error('It ran, although its name is paused.') // its retry makes it delayed, which the account finds
    }
    const handlers = { [NAME]: run, ...(paused && { [PAUSED]: runPaused }) }
    const worker = new Worker(queue, handlers, { concurrency: CONCURRENCY, autorun: false })
    worker.on('completed', ended)
    await store.open()
    return {
      run: () => worker.run(),
      stop: () => worker.close(),
      counts: () => queue.counts(),
      close: () => shutdown([worker, queue, store]),
    }
  }

  async function add(queue: Queue, way: 'awaited' | 'flight' | 'bulk', weight: Weight, count: number): Promise<void> {
    if (way === 'awaited') {
      for (let n = 0; n < count; n++) await queue.add(NAME, payload(n, weight))
    } else if (way === 'flight') {
      let next = 0
      await addInFlight(queue, weight, () => (next < count ? next++ : undefined))
    } else {
      await insertAll(queue, count, weight, NAME)
    }
  }

  async function insertAll(queue: Queue, count: number, weight: Weight, name: string, delay?: string): Promise<void> {
    let next = 0
    const caller = async (): Promise<void> => {
      for (let n = next; n < count; n = next) {
        next += BULK
        await queue.addBulk(items(n, Math.min(BULK, count - n), weight, name, delay))
      }
    }
    await Promise.all(Array.from({ length: bulks }, caller))
  }

  return {
    name: 'millrace',
    durability,
    createWorker,

    async add(path, way, { mode, weight, count }) {
      const store = openStore(path, mode)
      const queue = new Queue(QUEUE, { store })
      await store.open()
      const start = performance.now()
      await add(queue, way, weight, count)
      const took = performance.now() - start
      const { waiting } = await queue.counts()
      await shutdown([queue, store])
      return {
        figures: { rate: rate(count, took) },
        lost: Math.max(0, count - waiting),
        doubled: Math.max(0, waiting - count),
      }
    },

    async fill(path, backlog) {
      const { weight, waiting, finished = 0, delayed = 0, paused = 0 } = backlog
      const store = openStore(path, 'normal')
      const queue = new Queue(QUEUE, { store })
      await store.open()
      if (finished > 0) {
        await insertAll(queue, finished, weight, NAME)
        const countdown = new Countdown(finished)
        const worker = new Worker(queue, { [NAME]: () => {} }, { concurrency: CONCURRENCY })
        worker.on('completed', () => countdown.tick())
        await countdown.done
        await worker.close()
      }
      await insertAll(queue, delayed, weight, NAME, '1d')
      if (paused > 0) {
        await insertAll(queue, paused, weight, PAUSED)
        await queue.pause(PAUSED)
      }
      await insertAll(queue, waiting, weight, NAME)
      await shutdown([queue, store])
    },

    async drain(path, { mode, count }, { waiting, finished = 0, delayed = 0, paused = 0 }) {
      const ledger = new Ledger(waiting)
      const countdown = new Countdown(count)
      const tenths = new Tenths(count)
      const worker = await createWorker(path, mode, {
        ran: (id) => ledger.ran(keyOf(id)),
        ended() {
          tenths.ended(1)
          countdown.tick()
        },
        paused: paused > 0,
      })
      const start = performance.now()
      await Promise.all([worker.run(), countdown.done])
      const took = performance.now() - start
      await worker.stop()
      const counts = await worker.counts()
      await worker.close()
      const all = Object.values(counts).reduce((sum, each) => sum + each, 0)
      const before = waiting + finished + delayed + paused
      const { lost, doubled } = account(ledger, count, counts.completed - finished)
      return {
        figures: { rate: rate(count, took), tail: tenths.tail() },
        lost: lost + Math.max(0, before - all),
        doubled: doubled + Math.max(0, all - before) + Math.max(0, counts.delayed - delayed),
      }
    },

    async open(path, mode) {
      const store = openStore(path, mode)
      const queue = new Queue(QUEUE, { store })
      await store.open()
      let worker: Worker | undefined
      return {
        async add(n) {
          await queue.add(NAME, payload(n, 'light'))
        },
        async work(started) {
          worker = new Worker(queue, { [NAME]: (job) => started((job.data as Payload).n) }, { autorun: false })
          await worker.run()
        },
        close: () => shutdown(worker === undefined ? [queue, store] : [worker, queue, store]),
      }
    },
  }
}

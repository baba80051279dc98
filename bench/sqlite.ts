// Millrace on its SQLite store, through queues and workers as a user has them.
import { Queue, Worker, shutdown } from 'millrace'
import type { Store } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import { BULK, CALLERS, CONCURRENCY, Countdown, Ledger, NAME, QUEUE, account, keyOf, payload } from './load.js'
import type { Mode, Payload, Weight } from './load.js'
import { rate } from './measure.js'
import type { Subject } from './subject.js'

/** The store as it is measured everywhere here. */
export const openStore = (path: string, mode: Mode): Store => sqlite(path, { synchronous: mode })

const items = (from: number, count: number, weight: Weight, delay?: string): { name: string; data: Payload }[] =>
  Array.from({ length: count }, (_, at) => ({
    name: NAME,
    data: payload(from + at, weight),
    ...(delay !== undefined && { options: { delay } }),
  }))

/** Adds jobs by 100 callers at once, each of which awaits its own. */
export async function addInFlight(queue: Queue, weight: Weight, more: () => number | undefined): Promise<void> {
  const caller = async (): Promise<void> => {
    for (let n = more(); n !== undefined; n = more()) await queue.add(NAME, payload(n, weight))
  }
  await Promise.all(Array.from({ length: CALLERS }, caller))
}

/** Millrace. */
export const millrace: Subject = {
  name: 'millrace',
  durability: (mode) => mode,

  async add(path, way, { mode, weight, count }) {
    const store = openStore(path, mode)
    const queue = new Queue(QUEUE, { store })
    await store.open()
    const start = performance.now()
    if (way === 'awaited') {
      for (let n = 0; n < count; n++) await queue.add(NAME, payload(n, weight))
    } else if (way === 'flight') {
      let next = 0
      await addInFlight(queue, weight, () => (next < count ? next++ : undefined))
    } else {
      for (let n = 0; n < count; n += BULK) await queue.addBulk(items(n, BULK, weight))
    }
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
    const { weight, waiting, finished = 0, delayed = 0 } = backlog
    const store = openStore(path, 'normal')
    const queue = new Queue(QUEUE, { store })
    const pour = async (count: number, delay?: string): Promise<void> => {
      for (let n = 0; n < count; n += BULK) await queue.addBulk(items(n, Math.min(BULK, count - n), weight, delay))
    }
    if (finished > 0) {
      await pour(finished)
      const countdown = new Countdown(finished)
      const worker = new Worker(queue, { [NAME]: () => {} }, { concurrency: CONCURRENCY })
      worker.on('completed', () => countdown.tick())
      await countdown.done
      await worker.close()
    }
    await pour(delayed, '1d')
    await pour(waiting)
    await shutdown([queue, store])
  },

  async drain(path, { mode, count }, { waiting, finished = 0, delayed = 0 }) {
    const store = openStore(path, mode)
    const queue = new Queue(QUEUE, { store })
    const ledger = new Ledger(waiting)
    const countdown = new Countdown(count)
    const handlers = { [NAME]: (job: { readonly id: string }) => ledger.ran(keyOf(job.id)) }
    const worker = new Worker(queue, handlers, { concurrency: CONCURRENCY, autorun: false })
    worker.on('completed', () => countdown.tick())
    await store.open()
    const start = performance.now()
    await Promise.all([worker.run(), countdown.done])
    const took = performance.now() - start
    await worker.close()
    const counts = await queue.counts()
    await shutdown([queue, store])
    const all = Object.values(counts).reduce((sum, each) => sum + each, 0)
    const { lost, doubled } = account(ledger, count, counts.completed - finished)
    return {
      figures: { rate: rate(count, took) },
      lost: lost + Math.max(0, waiting + finished + delayed - all),
      doubled: doubled + Math.max(0, all - waiting - finished - delayed),
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

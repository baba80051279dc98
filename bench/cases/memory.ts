// The rows of the memory store, compared with bare commits to it.
import { Queue, Worker, shutdown } from 'millrace'
import { memory } from 'millrace/memory'
import { bareAdds, bareDrain } from '../contenders/memory-commits.js'
import { BULK, CONCURRENCY, Countdown, Ledger, NAME, QUEUE, account, keyOf, payload } from '../measure/load.js'
import type { Payload } from '../measure/load.js'
import { percentile, rate } from '../measure/measure.js'
import type { Case, Contender, Sample, Section } from '../measure/measure.js'
import { addInFlight } from '../contenders/millrace.js'
import { tableBench } from './memory-table.js'

const JOBS = 300_000
const AWAITED = 30_000
const PROBES = 2_000
/** The share of bare commits that the store must reach through queues and workers. */
const LEAST = 300_000

const ours = (run: () => Promise<Sample>): Contender => ({ name: 'millrace', durability: 'none', run })
const bare = (run: () => Promise<number>): Contender => ({
  name: 'bare commits',
  durability: 'none',
  run: async () => ({ figures: { rate: await run() } }),
})

const data = payload(0, 'light')

async function adds(add: (queue: Queue) => Promise<void>, count: number): Promise<Sample> {
  const store = memory()
  const queue = new Queue(QUEUE, { store })
  const start = performance.now()
  await add(queue)
  const took = performance.now() - start
  const { waiting } = await queue.counts()
  await shutdown([queue, store])
  return {
    figures: { rate: rate(count, took) },
    lost: Math.max(0, count - waiting),
    doubled: Math.max(0, waiting - count),
  }
}

async function awaited(queue: Queue): Promise<void> {
  for (let n = 0; n < AWAITED; n++) await queue.add(NAME, data)
}

async function flight(queue: Queue): Promise<void> {
  let next = 0
  await addInFlight(queue, 'light', () => (next < JOBS ? next++ : undefined))
}

async function bulk(queue: Queue): Promise<void> {
  const items = (from: number): { name: string; data: Payload }[] =>
    Array.from({ length: BULK }, (_, at) => ({ name: NAME, data: payload(from + at, 'light') }))
  for (let n = 0; n < JOBS; n += BULK) await queue.addBulk(items(n))
}

async function drain(): Promise<Sample> {
  const store = memory()
  const queue = new Queue(QUEUE, { store })
  await bulk(queue)
  const ledger = new Ledger(JOBS)
  const countdown = new Countdown(JOBS)
  const handlers = { [NAME]: (job: { readonly id: string }) => ledger.ran(keyOf(job.id)) }
  const worker = new Worker(queue, handlers, { concurrency: CONCURRENCY, autorun: false })
  worker.on('completed', () => countdown.tick())
  globalThis.gc?.()
  const start = performance.now()
  await Promise.all([worker.run(), countdown.done])
  const took = performance.now() - start
  const { completed } = await queue.counts()
  await shutdown([worker, queue, store])
  return { figures: { rate: rate(JOBS, took) }, ...account(ledger, JOBS, completed) }
}

async function latency(): Promise<Sample> {
  const store = memory()
  const queue = new Queue(QUEUE, { store })
  let started = (): void => {}
  const worker = new Worker(queue, { [NAME]: () => started() }, { autorun: false })
  await worker.run()
  const times: number[] = []
  for (let n = 0; n < PROBES; n++) {
    const begun = performance.now()
    const start = new Promise<void>((resolve) => (started = resolve))
    const added = queue.add(NAME, data)
    await start
    times.push(performance.now() - begun)
    await added
  }
  await shutdown([worker, queue, store])
  return { figures: { p50: percentile(times, 0.5), p99: percentile(times, 0.99) } }
}

async function table(log: (line: string) => void): Promise<Sample> {
  const rows = await tableBench(log)
  const cell = (name: string, n: number): number => rows.find((row) => row.name === name && row.n === n)?.value ?? NaN
  const growth = cell('claim by 100', 1_000_000) / cell('claim by 100', 1_000)
  return { figures: { growth, heap: cell('heap, waiting', 1_000_000) } }
}

/** The sections of the memory store. The table comes last, because a million jobs on the heap slow down what follows. */
export function memorySections(log: (line: string) => void): readonly Section[] {
  const row = (name: string, contenders: readonly Contender[], judged = false): Case => ({
    figures: [{ key: 'rate', name, unit: 'jobs/s', targets: judged ? [{ kind: 'least', value: LEAST }] : [] }],
    contenders,
  })
  const rates = [
    row('add, awaited one by one', [ours(() => adds(awaited, AWAITED))]),
    row('add, 100 calls in flight', [ours(() => adds(flight, JOBS)), bare(() => bareAdds(JOBS, 100, data))], true),
    row('addBulk of 1000', [ours(() => adds(bulk, JOBS)), bare(() => bareAdds(JOBS, 1000, data))]),
    row('drain, concurrency 100', [ours(drain), bare(() => bareDrain(JOBS, 500, data))], true),
  ]
  const idle: Case = {
    figures: [
      { key: 'p50', name: 'idle queue, add → handler start, p50', unit: 'ms' },
      { key: 'p99', name: 'idle queue, add → handler start, p99', unit: 'ms' },
    ],
    contenders: [ours(latency)],
  }
  const growth = 'claim at 1M waiting, to that at 1k'
  const heap = 'heap for a waiting job beyond its payload'
  const alone: Case = {
    figures: [
      { key: 'growth', name: growth, unit: 'ratio', targets: [{ kind: 'below', value: 2 }] },
      { key: 'heap', name: heap, unit: 'bytes', targets: [{ kind: 'below', value: 1000 }] },
    ],
    contenders: [ours(() => table(log))],
    rounds: 1,
  }
  return [
    { name: 'memory store', cases: [...rates, idle] },
    { name: 'memory store, its table alone', cases: [alone] },
  ]
}

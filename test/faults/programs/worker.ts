// A program that works on the queue of a database file, and writes down what it does in a ledger outside of it.
import { setTimeout } from 'node:timers/promises'
import { Queue, Worker, shutdown } from '../../../src/index.js'
import type { Job, WorkerOptions } from '../../../src/index.js'
import { sqlite } from '../../../src/sqlite.js'
import type { SqliteOptions } from '../../../src/sqlite.js'
import { loadDriver } from '../../../src/stores/sqlite/file/driver.js'
import { becomeNobody, breakWatching, input, ledger, on, send, errorToSend, untilFinished } from './messages.js'
import type { SentError } from './messages.js'
import { observed } from '../../observed-store.js'

/** What the program is to do. */
export interface WorkerInput {
  readonly path: string
  readonly store?: Omit<SqliteOptions, 'runtime'>
  readonly worker?: Pick<
    WorkerOptions,
    'concurrency' | 'lease' | 'renewEvery' | 'maxGlobalConcurrency' | 'pollEvery' | 'upkeepEvery' | 'reconnect'
  >
  /** Runs jobs in batches of this many. */
  readonly batch?: number
  /** The file in which claims, runs and settlements are written down. */
  readonly ledger: string
  /** Gives up the rights of root first. */
  readonly asNobody?: boolean
  /** How watching files fails here: it is refused, or no change is ever reported. */
  readonly watching?: 'refused' | 'silent'
  /** Reports every so many jobs done; otherwise each job that starts and ends. */
  readonly reportsEvery?: number
}

/** What a job asks of its handler. */
export interface Chore {
  /** So many milliseconds of work. */
  readonly takes?: number
  /** Ends on command of the test. */
  readonly held?: boolean
  /** Carried along for its weight. */
  readonly text?: string
  /** The length of what it returns. */
  readonly returns?: number
}

/** What the program sends. */
export type WorkerMessage =
  | { readonly kind: 'running'; readonly worker: string }
  | { readonly kind: 'started'; readonly id: string; readonly attempt: number }
  | { readonly kind: 'completed'; readonly id: string; readonly attempt: number }
  | { readonly kind: 'lease-lost'; readonly id: string }
  | { readonly kind: 'done'; readonly count: number }
  | { readonly kind: 'error'; readonly error: SentError }

const given = input() as WorkerInput
const { path, store: settings = {}, worker: options = {}, reportsEvery } = given

await loadDriver() // while it may still be read
const { write } = ledger(given.ledger)
if (given.asNobody) becomeNobody()
if (given.watching) breakWatching(given.watching)

const own = sqlite(path, settings)
const store = observed(own, (batch, receipt) => {
  for (const [at, verdict] of receipt.groups.entries()) {
    for (const change of verdict.ok ? batch.groups[at]! : []) {
      if (change.kind === 'move' && change.to === 'completed') write('settled', change.id, change.fence)
    }
  }
  for (const job of receipt.asks.flat()) write('claimed', job.id, job.fence)
})
const queue = new Queue('work', { store, logger: false })
const held = new Map<string, () => void>()
const released = new Set<string>()
let done = 0

async function run(job: Job): Promise<{ by: number; text?: string }> {
  const chore = (job.data ?? {}) as Chore
  write('began', job.id, job.attempt, worker.id)
  if (reportsEvery === undefined) send({ kind: 'started', id: job.id, attempt: job.attempt } satisfies WorkerMessage)
  if (chore.takes !== undefined) await setTimeout(chore.takes)
  if (chore.held && !released.has(job.id)) await new Promise<void>((resolve) => held.set(job.id, resolve))
  write('ended', job.id, job.attempt, worker.id)
  return { by: process.pid, ...(chore.returns !== undefined && { text: 'x'.repeat(chore.returns) }) }
}

const settled = { logger: false, autorun: false, ...options } as const
const worker =
  given.batch === undefined
    ? new Worker(queue, run, settled)
    : new Worker(queue, (jobs) => Promise.all(jobs.map(run)), { ...settled, batch: { size: given.batch, wait: 5 } })
on('let go', ({ id = '' }) => {
  released.add(id)
  held.get(id)?.()
})
worker.on('completed', ({ id, attempt }) => {
  done++
  if (reportsEvery === undefined) send({ kind: 'completed', id, attempt } satisfies WorkerMessage)
  else if (done % reportsEvery === 0) send({ kind: 'done', count: done } satisfies WorkerMessage)
})
worker.on('lease-lost', ({ id }) => send({ kind: 'lease-lost', id } satisfies WorkerMessage))
worker.on('error', ({ error }) => send({ kind: 'error', error: errorToSend(error) } satisfies WorkerMessage))
untilFinished(() => shutdown([worker, queue, store]))
await worker.run()
send({ kind: 'running', worker: worker.id } satisfies WorkerMessage)

// A program that works on the queue of a database file, and writes down what it does in a ledger outside of it.
import { setTimeout } from 'node:timers/promises'
import { Queue, Worker, shutdown } from '../../../src/index.js'
import type { Job, WorkerOptions } from '../../../src/index.js'
import { sqlite } from '../../../src/sqlite.js'
import type { SqliteOptions } from '../../../src/sqlite.js'
import { loadDriver } from '../../../src/stores/sqlite/file/driver.js'
import { becomeNobody, breakWatching, input, ledger, on, tell, toldError, untilFinished } from './messages.js'
import type { ToldError } from './messages.js'
import { hearing } from '../../observed-store.js'

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
  /** How watching files fails here: it is refused, or nothing is ever told. */
  readonly watching?: 'refused' | 'silent'
  /** Tells of every so many jobs done; otherwise of each job that starts and ends. */
  readonly tellsEvery?: number
}

/** What a job asks of its handler. */
export interface Chore {
  /** So many milliseconds of work. */
  readonly takes?: number
  /** Ends when the test says so. */
  readonly held?: boolean
  /** Carried along for its weight. */
  readonly text?: string
  /** The length of what it returns. */
  readonly returns?: number
}

/** What the program tells. */
export type WorkerTold =
  | { readonly kind: 'running'; readonly worker: string }
  | { readonly kind: 'started'; readonly id: string; readonly attempt: number }
  | { readonly kind: 'completed'; readonly id: string; readonly attempt: number }
  | { readonly kind: 'lease-lost'; readonly id: string }
  | { readonly kind: 'done'; readonly count: number }
  | { readonly kind: 'error'; readonly error: ToldError }

const given = input() as WorkerInput
const { path, store: settings = {}, worker: options = {}, tellsEvery } = given

await loadDriver() // while it may still be read
const { write } = ledger(given.ledger)
if (given.asNobody) becomeNobody()
if (given.watching) breakWatching(given.watching)

const own = sqlite(path, settings)
const store = hearing(own, (batch, receipt) => {
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
  if (tellsEvery === undefined) tell({ kind: 'started', id: job.id, attempt: job.attempt } satisfies WorkerTold)
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
  if (tellsEvery === undefined) tell({ kind: 'completed', id, attempt } satisfies WorkerTold)
  else if (done % tellsEvery === 0) tell({ kind: 'done', count: done } satisfies WorkerTold)
})
worker.on('lease-lost', ({ id }) => tell({ kind: 'lease-lost', id } satisfies WorkerTold))
worker.on('error', ({ error }) => tell({ kind: 'error', error: toldError(error) } satisfies WorkerTold))
untilFinished(() => shutdown([worker, queue, store]))
await worker.run()
tell({ kind: 'running', worker: worker.id } satisfies WorkerTold)

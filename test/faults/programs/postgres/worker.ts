// A program that works on the queue of a PostgreSQL database, and writes down what it does in a ledger outside of it. A
// chore is settled by the batcher; an effect writes a row of the user's own in the transaction of its settlement.
import { Queue, Worker, shutdown } from '../../../../src/index.js'
import type { WorkerOptions } from '../../../../src/index.js'
import { postgres } from '../../../../src/postgres.js'
import type { PostgresOptions } from '../../../../src/postgres.js'
import { input, ledger, send, errorToSend, untilFinished } from '../messages.js'
import type { SentError } from '../messages.js'
import { observed } from '../../../observed-store.js'

/** What the program is to do. */
export interface WorkerInput {
  readonly url: string
  readonly store?: Omit<PostgresOptions, 'runtime'>
  readonly worker?: Pick<WorkerOptions, 'concurrency' | 'lease' | 'pollEvery' | 'upkeepEvery' | 'reconnect'>
  /** The file in which claims, runs and settlements are written down. */
  readonly ledger: string
}

/** What the program sends. */
export type WorkerMessage =
  | { readonly kind: 'running'; readonly worker: string }
  | { readonly kind: 'completed'; readonly id: string; readonly attempt: number }
  | { readonly kind: 'error'; readonly error: SentError }

const given = input() as WorkerInput
const { write } = ledger(given.ledger)
const own = postgres(given.url, given.store)
const store = observed(own, (batch, receipt) => {
  for (const [at, verdict] of receipt.groups.entries()) {
    for (const change of verdict.ok ? batch.groups[at]! : []) {
      if (change.kind === 'move' && change.to === 'completed') write('settled', change.id, change.fence)
    }
  }
  for (const job of receipt.asks.flat()) write('claimed', job.id, job.fence)
})
const queue = new Queue('work', { store, logger: false })
const worker = new Worker(
  queue,
  {
    chore: (job) => {
      write('ended', job.id, job.attempt, worker.id)
      return process.pid
    },
    effect: (job, ctx) =>
      ctx.complete(async ({ tx }) => {
        await tx.query('insert into effect (job, attempt) values ($1, $2)', [job.id, job.attempt])
        write('ended', job.id, job.attempt, worker.id)
        return process.pid
      }),
  },
  { logger: false, autorun: false, reconnect: 50, ...given.worker },
)
worker.on('completed', ({ id, attempt }) => send({ kind: 'completed', id, attempt } satisfies WorkerMessage))
worker.on('error', ({ error }) => send({ kind: 'error', error: errorToSend(error) } satisfies WorkerMessage))
untilFinished(() => shutdown([worker, queue, store]))
await worker.run()
send({ kind: 'running', worker: worker.id } satisfies WorkerMessage)

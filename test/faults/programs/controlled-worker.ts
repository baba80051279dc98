// A program that works on a queue of any database: on command it adds jobs, and ends those that wait for a command.
import { Queue, Worker, shutdown } from '../../../src/index.js'
import type { WorkerOptions } from '../../../src/index.js'
import { postgres } from '../../../src/postgres.js'
import { sqlite } from '../../../src/sqlite.js'
import { input, on, send, errorToSend, untilFinished } from './messages.js'
import type { SentError } from './messages.js'

/** Where the jobs are. */
export type Database = { readonly path: string } | { readonly url: string; readonly schema: string }

/** What the program is to do. */
export interface ControlledInput {
  readonly database: Database
  readonly worker?: Pick<WorkerOptions, 'concurrency' | 'lease' | 'recovery' | 'maxGlobalConcurrency' | 'pollEvery'>
}

/** What the program sends. */
export type ControlledMessage =
  | { readonly kind: 'running'; readonly worker: string }
  | { readonly kind: 'started'; readonly id: string; readonly attempt: number }
  | { readonly kind: 'completed'; readonly id: string; readonly attempt: number }
  | { readonly kind: 'error'; readonly error: SentError }

const { database, worker: options = {} } = input() as ControlledInput
const store = 'path' in database ? sqlite(database.path) : postgres(database.url, { schema: database.schema })
const queue = new Queue('work', { store, logger: false })
const held = new Map<string, () => void>()
const worker = new Worker(
  queue,
  async (job) => {
    const released =
      (job.data as { held?: boolean } | undefined)?.held === true
        ? new Promise<void>((resolve) => held.set(job.id, resolve))
        : undefined
    send({ kind: 'started', id: job.id, attempt: job.attempt } satisfies ControlledMessage)
    await released
    return process.pid
  },
  { logger: false, autorun: false, ...options },
)
on('add', ({ id = '', data = {} }) => void queue.add('chore', data, { id }))
on('let go', ({ id = '' }) => held.get(id)?.())
worker.on('completed', ({ id, attempt }) => send({ kind: 'completed', id, attempt } satisfies ControlledMessage))
worker.on('error', ({ error }) => send({ kind: 'error', error: errorToSend(error) } satisfies ControlledMessage))
untilFinished(() => shutdown([worker, queue, store]))
await worker.run()
send({ kind: 'running', worker: worker.id } satisfies ControlledMessage)

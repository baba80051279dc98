// A program whose worker runs no job of the test, but works on the bulk operations of its queue; or that cancels all jobs
// by one call.
import { Queue, Worker, shutdown } from '../../../src/index.js'
import { postgres } from '../../../src/postgres.js'
import { sqlite } from '../../../src/sqlite.js'
import { input, send, untilFinished } from './messages.js'

/** Where the queue is, and what the program does. */
export interface OperationInput {
  readonly path?: string
  readonly url?: string
  readonly schema?: string
  /** Cancels all jobs by a filter, instead of working on operations. */
  readonly cancels?: true
}

/** What the program sends. */
export type OperationMessage = { readonly kind: 'running' }

const { path, url, schema, cancels } = input() as OperationInput
const store = path === undefined ? postgres(url!, { schema: schema! }) : sqlite(path)
const queue = new Queue('work', { store, logger: false })
if (cancels === true) {
  untilFinished(() => shutdown([queue, store]))
  await store.open()
  send({ kind: 'running' } satisfies OperationMessage)
  await queue.cancel({ all: true }, { cascade: true }) // which takes longer
} else {
  const worker = new Worker(queue, { other: () => {} }, { logger: false, lease: 400, upkeepEvery: 100 })
  untilFinished(() => shutdown([worker, queue, store]))
  await worker.run()
  send({ kind: 'running' } satisfies OperationMessage)
}

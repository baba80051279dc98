// A process that carries out the retention of a queue, with callbacks or without.
import { Queue, Worker, shutdown } from '../../../src/index.js'
import { sqlite } from '../../../src/sqlite.js'
import { input, send, untilFinished } from './messages.js'

/** The arguments of the process. */
export interface RetentionInput {
  readonly path: string
  readonly callbacks: boolean
}

/** The messages of the process. */
export type RetentionMessage = { readonly kind: 'ready' } | { readonly kind: 'deleted'; readonly id: string }

const { path, callbacks } = input() as RetentionInput
const store = sqlite(path)
const queue = new Queue('work', {
  store,
  retention: {
    deleteAfter: 1,
    ...(callbacks && {
      onDelete: ({ id }: { id: string }) => send({ kind: 'deleted', id } satisfies RetentionMessage),
    }),
  },
})
const worker = new Worker(queue, () => 'done', { autorun: false, concurrency: 5 })
untilFinished(() => shutdown([worker, queue, store]))
await worker.run()
send({ kind: 'ready' } satisfies RetentionMessage)

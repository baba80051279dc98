// A program whose jobs write to a table of the user's in the transaction in which they settle, and add a job each.
import { Queue, Worker, shutdown } from '../../../src/index.js'
import { sqlite } from '../../../src/sqlite.js'
import { input, once, send, errorToSend, untilFinished } from './messages.js'
import type { SentError } from './messages.js'

/** What the program is to do. */
export interface CompleterInput {
  readonly path: string
  readonly concurrency?: number
}

/** Where a job stops until the test continues it: in its callback, or after it. */
export interface Held {
  readonly held?: 'inside' | 'after'
}

/** What the program sends. */
export type CompleterMessage =
  | { readonly kind: 'running' }
  | { readonly kind: 'held'; readonly id: string }
  | { readonly kind: 'done'; readonly count: number }
  | { readonly kind: 'error'; readonly error: SentError }

const { path, concurrency = 1 } = input() as CompleterInput
const store = sqlite(path)
const queue = new Queue('work', { store, logger: false })
const goOn = once('go on')
let done = 0

const worker = new Worker(
  queue,
  {
    write: async (job, ctx) => {
      const { held } = (job.data ?? {}) as Held
      const stand = async (where: Held['held']): Promise<void> => {
        if (held !== where || job.attempt > 1) return
        send({ kind: 'held', id: job.id } satisfies CompleterMessage)
        await goOn
      }
      await ctx.complete(async ({ tx, add }) => {
        tx.prepare('INSERT INTO effects (job, attempt) VALUES (?, ?)').run(job.id, job.attempt)
        await add('child', job.id)
        await ctx.progress('written')
        await stand('inside')
      })
      await stand('after')
    },
  },
  { logger: false, autorun: false, concurrency, lease: 1000, upkeepEvery: 200 },
)
worker.on('completed', () => send({ kind: 'done', count: ++done } satisfies CompleterMessage))
worker.on('error', ({ error }) => send({ kind: 'error', error: errorToSend(error) } satisfies CompleterMessage))
untilFinished(() => shutdown([worker, queue, store]))
await worker.run()
send({ kind: 'running' } satisfies CompleterMessage)

// A program that works on the queue of a database file, and delivers webhooks of its jobs, or only settles them.
import { Queue, Worker, shutdown, webhooks } from '../../../src/index.js'
import { sqlite } from '../../../src/sqlite.js'
import { input, send, untilFinished } from './messages.js'

/** What the program is to do. */
export interface WebhookInput {
  readonly path: string
  /** What to sign deliveries with; absent: it sends none. */
  readonly secret?: string
  readonly lease?: number
}

/** What the program sends. */
export type WebhookMessage = { readonly kind: 'running' } | { readonly kind: 'completed'; readonly id: string }

const { path, secret, lease = 30_000 } = input() as WebhookInput
const store = sqlite(path)
const webhook = secret === undefined ? undefined : webhooks({ secret, allowPrivate: true })
const queue = new Queue('work', { store, logger: false, ...(webhook !== undefined && { webhook }) })
const worker = new Worker(queue, () => 'done', { logger: false, lease, upkeepEvery: Math.min(lease, 30_000) })
worker.on('completed', ({ id }) => send({ kind: 'completed', id } satisfies WebhookMessage))
untilFinished(() => shutdown([worker, queue, store]))
await worker.run()
send({ kind: 'running' } satisfies WebhookMessage)

// A program that shares queues with others like it: it works on one for as long as its command lasts, adds what the others
// add as well, and writes down what it does in a ledger.
import { setTimeout } from 'node:timers/promises'
import { Queue, Worker, shutdown } from '../../../../src/index.js'
import { postgres } from '../../../../src/postgres.js'
import { input, ledger, on, send, errorToSend, untilFinished } from '../messages.js'
import type { SentError } from '../messages.js'
import { observed } from '../../../observed-store.js'

/** What the program is to do. */
export interface SharerInput {
  readonly url: string
}

/** Which queue to share, and where to write down what is done. */
export interface Shared {
  readonly queue: string
  readonly ledger: string
  /** How often to poll whatever notices arrive, in milliseconds. Default: as workers do. */
  readonly pollEvery?: number
}

/** What the program sends. */
export type SharerMessage =
  | { readonly kind: 'ready' }
  | { readonly kind: 'running' }
  | { readonly kind: 'stopped' }
  | { readonly kind: 'added'; readonly ids: readonly string[]; readonly fresh: readonly string[] }
  | { readonly kind: 'error'; readonly error: SentError }

let write: (...words: readonly (string | number)[]) => void = () => {}
const { url } = input() as SharerInput
const store = observed(postgres(url, { connections: 3 }), (_batch, receipt) => {
  for (const job of receipt.asks.flat()) write('claimed', job.id, job.fence)
})
const fail = (error: unknown): void => send({ kind: 'error', error: errorToSend(error) } satisfies SharerMessage)
let stop = async (): Promise<void> => {}

async function work(shared: Shared): Promise<void> {
  ;({ write } = ledger(shared.ledger))
  const queue = new Queue(shared.queue, { store, logger: false })
  const worker = new Worker(
    queue,
    async (job) => {
      write('began', job.name, job.id)
      await setTimeout(job.name === 'slow' ? 40 : 1)
      write('ended', job.name, job.id)
    },
    {
      concurrency: 4,
      autorun: false,
      logger: false,
      ...(shared.pollEvery !== undefined && { pollEvery: shared.pollEvery }),
    },
  )
  worker.on('error', ({ error }) => fail(error))
  stop = () => shutdown([worker, queue])
  await worker.run()
}

async function add({ queue: name }: Shared, keys: readonly string[]): Promise<void> {
  const queue = new Queue(name, { store, logger: false })
  const jobs = await Promise.all(keys.map((key) => queue.add('keyed', key, { dedup: { key } })))
  const fresh = jobs.filter(({ duplicate }) => !duplicate).map(({ id }) => id)
  send({ kind: 'added', ids: jobs.map(({ id }) => id), fresh } satisfies SharerMessage)
}

on('work', ({ data }) => {
  work(data as Shared).then(() => send({ kind: 'running' } satisfies SharerMessage), fail)
})
on('add', ({ data, keys = [] }) => void add(data as Shared, keys).catch(fail))
on('stop', () => {
  stop().then(() => send({ kind: 'stopped' } satisfies SharerMessage), fail)
})
untilFinished(() => shutdown([store]))
await store.open()
send({ kind: 'ready' } satisfies SharerMessage)

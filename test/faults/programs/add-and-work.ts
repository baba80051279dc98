// A program that has a database file open, adds jobs or begins to work on them on command, and reports errors.
import { Queue, Worker, shutdown } from '../../../src/index.js'
import { sqlite } from '../../../src/sqlite.js'
import { input, ledger, on, send, errorToSend, untilFinished } from './messages.js'
import type { SentError } from './messages.js'

/** What the program is to do. */
export interface AdderInput {
  readonly path: string
  /** The file in which acknowledged jobs are written down. */
  readonly ledger: string
}

/** What the program sends. */
export type AdderMessage =
  | { readonly kind: 'ready' }
  | { readonly kind: 'answer'; readonly id: string; readonly error?: SentError }
  | { readonly kind: 'completed'; readonly id: string }
  | { readonly kind: 'raced'; readonly ends: readonly Raced[] }
  | { readonly kind: 'error'; readonly error: SentError }

/** The result of an add for a key or an id that others want as well. */
interface Raced {
  readonly id: string
  readonly duplicate: boolean
}

const { path, ledger: file } = input() as AdderInput
const { write } = ledger(file)
const store = sqlite(path, { patience: 1000 })
const queue = new Queue('work', { store, logger: false })
const worker = new Worker(queue, () => 'done', { logger: false, autorun: false, reconnect: 50, lease: 1500 })
worker.pause()
worker.on('error', ({ error }) => send({ kind: 'error', error: errorToSend(error) } satisfies AdderMessage))
worker.on('completed', ({ id }) => send({ kind: 'completed', id } satisfies AdderMessage))
on('work', () => worker.resume())
on('add', ({ id = '', data = {} }) => {
  queue.add('chore', data, { id }).then(
    () => {
      write('added', id)
      send({ kind: 'answer', id } satisfies AdderMessage)
    },
    (error: unknown) => send({ kind: 'answer', id, error: errorToSend(error) } satisfies AdderMessage),
  )
})
on('race', ({ keys = [], ids = [] }) => {
  const byKey = keys.map((key) => queue.add('race', {}, { dedup: { key } }))
  const byId = ids.map((id) => queue.add('race', {}, { id }))
  void Promise.all([...byKey, ...byId]).then((jobs) => {
    const ends = jobs.map(({ id, duplicate }) => ({ id, duplicate }))
    send({ kind: 'raced', ends } satisfies AdderMessage)
  })
})
untilFinished(() => shutdown([worker, queue, store]))
await worker.run()
send({ kind: 'ready' } satisfies AdderMessage)

// A program that has a database file open, and adds jobs or begins to work on them when told; it tells what goes wrong.
import { Queue, Worker, shutdown } from '../../../src/index.js'
import { sqlite } from '../../../src/sqlite.js'
import { input, ledger, on, tell, toldError, untilFinished } from './messages.js'
import type { ToldError } from './messages.js'

/** What the program is to do. */
export interface AdderInput {
  readonly path: string
  /** The file in which acknowledged jobs are written down. */
  readonly ledger: string
}

/** What the program tells. */
export type AdderTold =
  | { readonly kind: 'ready' }
  | { readonly kind: 'answer'; readonly id: string; readonly error?: ToldError }
  | { readonly kind: 'completed'; readonly id: string }
  | { readonly kind: 'raced'; readonly ends: readonly Raced[] }
  | { readonly kind: 'error'; readonly error: ToldError }

/** What an add for a key or an id came to that others want as well. */
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
worker.on('error', ({ error }) => tell({ kind: 'error', error: toldError(error) } satisfies AdderTold))
worker.on('completed', ({ id }) => tell({ kind: 'completed', id } satisfies AdderTold))
on('work', () => worker.resume())
on('add', ({ id = '', data = {} }) => {
  queue.add('chore', data, { id }).then(
    () => {
      write('added', id)
      tell({ kind: 'answer', id } satisfies AdderTold)
    },
    (error: unknown) => tell({ kind: 'answer', id, error: toldError(error) } satisfies AdderTold),
  )
})
on('race', ({ keys = [], ids = [] }) => {
  const byKey = keys.map((key) => queue.add('race', {}, { dedup: { key } }))
  const byId = ids.map((id) => queue.add('race', {}, { id }))
  void Promise.all([...byKey, ...byId]).then((jobs) => {
    const ends = jobs.map(({ id, duplicate }) => ({ id, duplicate }))
    tell({ kind: 'raced', ends } satisfies AdderTold)
  })
})
untilFinished(() => shutdown([worker, queue, store]))
await worker.run()
tell({ kind: 'ready' } satisfies AdderTold)

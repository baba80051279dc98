// A program that works on the children of a large flow, and on their parent, and writes down what it does in a ledger.
import { Queue, Worker, shutdown } from '../../../src/index.js'
import { postgres } from '../../../src/postgres.js'
import { sqlite } from '../../../src/sqlite.js'
import type { Store } from '../../../src/store/store.js'
import { input, ledger, send, untilFinished } from './messages.js'
import { observed } from '../../observed-store.js'

/** What the program is to do. */
export interface FamilyInput {
  /** The file of a database, or the URL of one. */
  readonly database: string
  /** The file in which runs and settlements are written down. */
  readonly ledger: string
}

/** What the program sends. */
export type FamilyMessage =
  | { readonly kind: 'running' }
  /** So many more children are done. */
  | { readonly kind: 'done'; readonly count: number }

const PORTION = 50

const { database, ledger: file } = input() as FamilyInput
const { write } = ledger(file)
const own: Store = database.startsWith('postgres') ? postgres(database) : sqlite(database, { synchronous: 'off' })
const store = observed(own, (batch, receipt) => {
  for (const [at, verdict] of receipt.groups.entries()) {
    for (const change of verdict.ok ? batch.groups[at]! : []) {
      if (change.kind === 'move' && change.to === 'completed') write('settled', change.id, change.fence)
    }
  }
})
const queue = new Queue('work', { store, logger: false })
const worker = new Worker(
  queue,
  {
    child: (job) => {
      write('child', job.id, job.attempt)
      return job.id
    },
    parent: async (job, ctx) => {
      const ended = await ctx.dependencies()
      const own = ended.filter((each) => each.status === 'completed' && each.result === each.id)
      write('parent', job.id, job.attempt, new Set(own.map(({ id }) => id)).size, ended.length)
      return own.length
    },
  },
  { logger: false, autorun: false, concurrency: 25, lease: 4000, upkeepEvery: 500, pollEvery: 500 },
)
worker.on('error', ({ error }) => write('error', (error as { code?: string }).code ?? error.name))
let done = 0
worker.on('completed', () => {
  if (++done % PORTION === 0) send({ kind: 'done', count: PORTION } satisfies FamilyMessage)
})
untilFinished(() => shutdown([worker, queue, store]))
await worker.run()
send({ kind: 'running' } satisfies FamilyMessage)

// A program that runs jobs in phases, records each run in a ledger, and stays in the phase of its argument.
import { Queue, Worker, phases, shutdown } from '../../../src/index.js'
import { postgres } from '../../../src/postgres.js'
import { sqlite } from '../../../src/sqlite.js'
import { input, ledger, send, untilFinished } from './messages.js'

/** What the program is to do. */
export interface PhasedInput {
  /** The file of a database, or the URL of one. */
  readonly database: string
  /** The file in which runs of phases are written down. */
  readonly ledger: string
  /** The phase that does not end; none: all do. */
  readonly stays?: string
}

/** What the program sends. */
export type PhasedMessage = { readonly kind: 'running' } | { readonly kind: 'stays' }

const { database, ledger: file, stays } = input() as PhasedInput
const { write } = ledger(file)
const store = database.startsWith('postgres') ? postgres(database) : sqlite(database)
const queue = new Queue('work', { store, logger: false })

async function run(job: { readonly name: string }, phase: string, results: object): Promise<string> {
  write(job.name, phase, JSON.stringify(results))
  if (phase === stays) {
    send({ kind: 'stays' } satisfies PhasedMessage)
    await new Promise(() => {})
  }
  return `${phase} done`
}

const worker = new Worker(
  queue,
  {
    video: phases({
      download: (job, ctx) => run(job, 'download', ctx.phaseResults()),
      process: (job, ctx) => run(job, 'process', ctx.phaseResults()),
      upload: (job, ctx) => run(job, 'upload', ctx.phaseResults()),
    }),
    order: phases({
      reserve: (job, ctx) => run(job, 'reserve', ctx.phaseResults()),
      charge: { run: (job, ctx) => run(job, 'charge', ctx.phaseResults()), attempts: 1 },
    }),
  },
  { logger: false, autorun: false, lease: '10m' },
)
untilFinished(() => shutdown([worker, queue, store]))
await worker.run()
send({ kind: 'running' } satisfies PhasedMessage)

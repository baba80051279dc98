// A program whose handlers take durable steps.
import { Queue, Worker, shutdown } from '../../../src/index.js'
import { postgres } from '../../../src/postgres.js'
import { sqlite } from '../../../src/sqlite.js'
import { input, ledger, send, untilFinished } from './messages.js'

/** What the program is to do. */
export interface StepInput {
  /** Where the jobs are: a file, or a server. */
  readonly path?: string
  readonly url?: string
  /** Every step that is taken is written down here. */
  readonly ledger: string
  /** Its handlers do not go on after their first step. */
  readonly hangs?: true
}

/** What the program sends. */
export type StepMessage = { readonly kind: 'running' } | { readonly kind: 'remembered'; readonly id: string }

const given = input() as StepInput
const { write } = ledger(given.ledger)
const store = given.url === undefined ? sqlite(given.path!) : postgres(given.url)
const queue = new Queue('work', { store, logger: false })
const worker = new Worker(
  queue,
  {
    steps: async ({ id, attempt }, ctx) => {
      const one = await ctx.step('one', () => {
        write('one', id)
        return attempt
      })
      send({ kind: 'remembered', id } satisfies StepMessage)
      if (given.hangs) await new Promise(() => {})
      const two = await ctx.step('two', () => {
        write('two', id)
        return attempt
      })
      return [one, two]
    },
    sleeps: async ({ id, data }, ctx) => {
      await ctx.step('before', () => write('before', id))
      await ctx.sleep('nap', data as number)
      await ctx.step('after', () => write('after', id))
      return 'awake'
    },
    waits: async ({ id }, ctx) => {
      await ctx.step('before', () => write('before', id))
      return ctx.waitForSignal('go')
    },
  },
  { concurrency: 5, lease: 1500, upkeepEvery: 200, logger: false, autorun: false },
)
untilFinished(() => shutdown([worker, queue, store]))
await worker.run()
send({ kind: 'running' } satisfies StepMessage)

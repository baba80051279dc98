// A program that adds a given number of jobs in bulks.
import { Queue, shutdown } from '../../../src/index.js'
import { sqlite } from '../../../src/sqlite.js'
import { input, once, send } from './messages.js'
import type { Chore } from './worker.js'

/** What the program is to do. */
export interface FeederInput {
  readonly path: string
  readonly jobs: number
  readonly chore: Chore
}

/** What the program sends. */
export type FeederMessage = { readonly kind: 'loaded' } | { readonly kind: 'fed' }

const { path, jobs, chore } = input() as FeederInput
const store = sqlite(path)
const queue = new Queue('work', { store, logger: false })
await store.open()
send({ kind: 'loaded' } satisfies FeederMessage)
await once('go')
for (let left = jobs; left > 0; left -= 50) {
  await queue.addBulk(Array.from({ length: Math.min(50, left) }, () => ({ name: 'chore', data: chore })))
}
await shutdown([queue, store])
send({ kind: 'fed' } satisfies FeederMessage)
process.disconnect()

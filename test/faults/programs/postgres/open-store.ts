// A program that opens a store on command, adds a job, and reports how that went.
import { Queue, shutdown } from '../../../../src/index.js'
import { postgres } from '../../../../src/postgres.js'
import { input, once, send, errorToSend, untilFinished } from '../messages.js'
import type { SentError } from '../messages.js'

/** What the program is to do. */
export interface OpenerInput {
  readonly url: string
  readonly schema: string
}

/** What the program sends. */
export type OpenerMessage =
  | { readonly kind: 'ready' }
  | { readonly kind: 'added'; readonly id: string }
  | { readonly kind: 'error'; readonly error: SentError }

const { url, schema } = input() as OpenerInput
const store = postgres(url, { schema })
const queue = new Queue('work', { store, logger: false })
untilFinished(() => shutdown([queue, store]))
send({ kind: 'ready' } satisfies OpenerMessage)
await once('go')
try {
  const { id } = await queue.add('chore')
  send({ kind: 'added', id } satisfies OpenerMessage)
} catch (error) {
  send({ kind: 'error', error: errorToSend(error) } satisfies OpenerMessage)
}

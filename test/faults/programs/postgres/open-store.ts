// A program that opens a store when it is told to, adds a job, and tells how that went.
import { Queue, shutdown } from '../../../../src/index.js'
import { postgres } from '../../../../src/postgres.js'
import { input, once, tell, toldError, untilFinished } from '../messages.js'
import type { ToldError } from '../messages.js'

/** What the program is to do. */
export interface OpenerInput {
  readonly url: string
  readonly schema: string
}

/** What the program tells. */
export type OpenerTold =
  | { readonly kind: 'ready' }
  | { readonly kind: 'added'; readonly id: string }
  | { readonly kind: 'error'; readonly error: ToldError }

const { url, schema } = input() as OpenerInput
const store = postgres(url, { schema })
const queue = new Queue('work', { store, logger: false })
untilFinished(() => shutdown([queue, store]))
tell({ kind: 'ready' } satisfies OpenerTold)
await once('go')
try {
  const { id } = await queue.add('chore')
  tell({ kind: 'added', id } satisfies OpenerTold)
} catch (error) {
  tell({ kind: 'error', error: toldError(error) } satisfies OpenerTold)
}

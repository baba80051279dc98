// A program that serves a SQLite file on a port.
import { serve } from '../../../src/server.js'
import { sqlite } from '../../../src/sqlite.js'
import { input, send, untilFinished } from './messages.js'

/** What the program is to do. */
export interface StoreServerInput {
  readonly path: string
  /** 0: one that is free. */
  readonly port: number
}

/** What the program sends: it listens. */
export type StoreServerMessage = { readonly kind: 'listening'; readonly url: string; readonly port: number }

const { path, port: wanted } = input() as StoreServerInput
const store = sqlite(path)
const server = serve({ store, logger: false })
const { url, port } = await server.listen({ port: wanted })
send({ kind: 'listening', url, port } satisfies StoreServerMessage)
untilFinished(async () => {
  await server.close()
  await store.close()
})

// Millrace on a remote store: a server in a process of its own, over a SQLite file.
import { fork } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Store } from 'millrace'
import { http } from 'millrace/http'
import type { Mode } from '../measure/load.js'
import type { Subject } from './contender.js'
import { millraceOn } from './millrace.js'
import { millrace } from './millrace-sqlite.js'

/** The address that clients are given before that of the server is known. */
const PLACEHOLDER = 'http://127.0.0.1:1'

/** A server of a file. */
export interface StoreServer {
  /** A client of it. */
  client(): Store
  close(): Promise<void>
}

/** Starts a server. */
export function startServer(path: string, mode: Mode): StoreServer {
  const program = fileURLToPath(new URL('store-server.ts', import.meta.url))
  const process: ChildProcess = fork(program, [JSON.stringify({ path, mode })])
  const url = once(process, 'message').then(([sent]) => sent as string)
  const request = async (to: string, init: RequestInit): Promise<Response> =>
    fetch((await url) + to.slice(PLACEHOLDER.length), init)
  return {
    client: () => http(PLACEHOLDER, { fetch: request }),
    async close() {
      const gone = once(process, 'exit')
      if (process.exitCode !== null) return
      process.disconnect()
      await gone
    },
  }
}

/** A client with a server of its own, which ends with it. */
function openRemote(path: string, mode: Mode): Store {
  const server = startServer(path, mode)
  const store = server.client() as Store & { close: () => Promise<void> }
  const close = store.close.bind(store)
  store.close = async () => {
    await close()
    await server.close()
  }
  return store
}

/** Millrace over HTTP. Databases are filled without it. */
export const millraceHttp: Subject = {
  ...millraceOn(openRemote, { durability: (mode) => mode, bulks: 1 }),
  name: 'over http',
  fill: millrace.fill,
}

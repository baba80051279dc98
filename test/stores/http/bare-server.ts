// A server of the store protocol alone, for tests of stores: nothing is due, claimed or removed by the server itself.
import { createApp } from '../../../src/server/app.js'
import type { Auth } from '../../../src/server/auth.js'
import { Listener, nodeHandler } from '../../../src/server/listen.js'
import { parseServe } from '../../../src/server/options.js'
import type { LimitOptions } from '../../../src/server/options.js'
import type { ServerParts } from '../../../src/server/parts.js'
import { ServedQueues } from '../../../src/server/queues.js'
import { OpenStreams } from '../../../src/server/live/open-streams.js'
import { storeRoutes } from '../../../src/server/routes/store.js'
import { connect } from '../../../src/store/connection.js'
import type { Store } from '../../../src/store/store.js'

/** A server that listens. */
export interface BareServer {
  readonly url: string
  /** Answers a request without a connection. */
  readonly fetch: (request: Request) => Promise<Response>
  close(): Promise<void>
}

interface BareOptions {
  readonly auth?: Auth
  readonly limits?: LimitOptions
  readonly port?: number
  readonly readOnly?: boolean
}

/** Serves the store protocol. */
export async function serveStore(store: Store, { port = 0, ...options }: BareOptions = {}): Promise<BareServer> {
  const settings = parseServe({ store, logger: false, ...options })
  const closing = new AbortController()
  const queues = new ServedQueues(store, undefined, settings.logger, undefined)
  const { limits, logger, readOnly, auth, redactor } = settings
  // The store protocol uses no other parts.
  const working = { upkeep: { expect: () => {}, keepLast: { ended: () => {} } } }
  const connection = connect(store)
  const streams = new OpenStreams(settings.limits.streams, connection.runtime)
  const used = {
    store,
    connection,
    queues,
    limits,
    logger,
    readOnly,
    redactor,
    closing: closing.signal,
    working,
    streams,
  }
  const parts: unknown = used
  const { fetch, plain } = createApp({ parts: parts as ServerParts, settings, auth, routes: storeRoutes })
  const listener = new Listener(nodeHandler(plain), settings)
  const { url } = await listener.listen({ port })
  return {
    url,
    fetch,
    async close() {
      closing.abort()
      await listener.close()
      await queues.close()
    },
  }
}

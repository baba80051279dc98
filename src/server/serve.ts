// server/serve.ts: a server for a store: one handler for every framework, or one that listens by itself.
import type { IncomingMessage, ServerResponse } from 'node:http'
import { connect } from '../store/connection.js'
import { KeepLast } from '../upkeep/retention/keep-last.js'
import { createApp } from './app.js'
import type { App } from './app.js'
import { Listener, nodeHandler } from './listen.js'
import type { ListenOptions, Listening } from './listen.js'
import { parseServe } from './options.js'
import type { ServeOptions } from './options.js'
import type { ServerParts } from './parts.js'
import { ServedQueues } from './queues.js'
import { routes } from './routes.js'

/** A function of `node:http`, as Express, Fastify's raw request and Nest take it. */
export type NodeHandler = (incoming: IncomingMessage, outgoing: ServerResponse) => void

/** The handlers that a route of Next exports. */
export type NextHandlers = Readonly<Record<'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE', App>>

/** A server of jobs over HTTP. */
export interface Server extends AsyncDisposable {
  /** Answers a request: for Hono, Bun, Deno, and everything else that has the requests of the web. */
  readonly fetch: App
  /** Answers a request of `node:http`: for Express, Fastify and Nest, also after `express.json()`. */
  readonly node: NodeHandler
  /** The handlers of a route of Next: `export const { GET, POST, PUT, PATCH, DELETE } = server.next()`. */
  next(): NextHandlers
  /** Listens by itself. Default: port 7070 of 127.0.0.1. Another address needs `auth`. */
  listen(options?: ListenOptions): Promise<Listening>
  /** Answers waiting claims, ends streams, lets requests in work finish, and stops. The store stays open. */
  close(): Promise<void>
}

/** Serves a store over HTTP. */
export function serve(options: ServeOptions): Server {
  const settings = parseServe(options)
  const closing = new AbortController()
  const connection = connect(settings.store)
  const queues = new ServedQueues(settings.store, settings.queues, settings.logger)
  const keepLast = new KeepLast(connection, (error) => {
    settings.logger.error({ error }, 'The retention of the server failed; it tries again.')
  })
  const parts: ServerParts = {
    store: settings.store,
    connection,
    queues,
    keepLast,
    limits: settings.limits,
    logger: settings.logger,
    readOnly: settings.readOnly,
    closing: closing.signal,
  }
  const fetch = createApp({ parts, settings, auth: settings.auth, routes })
  const node = nodeHandler(fetch)
  const listener = new Listener(node, settings)
  let ending: Promise<void> | undefined
  const close = async (): Promise<void> => {
    closing.abort()
    await listener.close()
    await keepLast.stop()
    await queues.close()
  }
  const closeOnce = (): Promise<void> => (ending ??= close())
  return {
    fetch,
    node,
    next: () => ({ GET: fetch, POST: fetch, PUT: fetch, PATCH: fetch, DELETE: fetch }),
    listen: (given) => listener.listen(given),
    close: closeOnce,
    [Symbol.asyncDispose]: closeOnce,
  }
}

// server/serve.ts: a server for a store: one handler for every framework, or one that listens by itself.
import { setMaxListeners } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { connect } from '../store/connection.js'
import { createApp } from './app.js'
import type { App } from './app.js'
import { Audit } from './audit.js'
import { Listener, nodeHandler } from './listen.js'
import type { ListenOptions, Listening } from './listen.js'
import { JobSampler } from './live/job-sampler.js'
import { LiveSampler } from './live/sampler.js'
import { Logins } from './sessions/login.js'
import { parseServe } from './options.js'
import type { ServeOptions } from './options.js'
import type { ServerParts } from './parts.js'
import { ServedQueues } from './queues.js'
import { routes } from './routes.js'
import { Working } from './working/working.js'
import { OpenStreams } from './live/open-streams.js'

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
  /** Answers waiting claims, ends streams, lets requests in work finish, ends upkeep and deliveries. The store stays open. */
  close(): Promise<void>
}

/** Serves a store over HTTP. From now on, and until it is closed, it also does the upkeep of its queues. */
export function serve(options: ServeOptions): Server {
  const settings = parseServe(options)
  const closing = new AbortController()
  setMaxListeners(0, closing.signal) // each claim that waits is one
  const connection = connect(settings.store)
  const queues = new ServedQueues(settings.store, settings.queues, settings.logger, settings.telemetry)
  const working = new Working({ ...settings, connection, queues, closing: closing.signal })
  working.upkeep.start()
  const parts: ServerParts = {
    store: settings.store,
    connection,
    queues,
    working,
    limits: settings.limits,
    logger: settings.logger,
    readOnly: settings.readOnly,
    redactor: settings.redactor,
    audit: new Audit(connection, settings.logger, settings.redactor),
    logins: new Logins(settings, connection.runtime),
    streams: new OpenStreams(settings.limits.streams, connection.runtime),
    live: new LiveSampler(connection, queues, settings.logger),
    jobs: new JobSampler(connection, settings.logger),
    closing: closing.signal,
  }
  const { fetch, plain } = createApp({ parts, settings, auth: settings.auth, routes })
  const node = nodeHandler(plain)
  const listener = new Listener(node, settings)
  let ending: Promise<void> | undefined
  const close = async (): Promise<void> => {
    closing.abort()
    await listener.close()
    await working.close()
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

// server/listen.ts: the server on node:http: as a handler of a framework, and listening by itself.
import { createServer } from 'node:http'
import type { IncomingMessage, Server as HttpServer, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { getRequestListener } from '@hono/node-server'
import { refuseUnknown } from '../job/values/names.js'
import { mustBe, whole } from '../job/values/options.js'
import type { App } from './app.js'
import { isLoopback } from './guard.js'
import { authNeeded } from './options.js'
import type { ServeSettings } from './options.js'

/** Where a server listens. */
export interface ListenOptions {
  /** The port; 0: one that is free. Default 7070. */
  readonly port?: number
  /** The address. Default 127.0.0.1. Another one needs `auth`. */
  readonly host?: string
}

/** Where a server can be reached. */
export interface Listening {
  /** With the port that was taken, as `http://127.0.0.1:7070`. */
  readonly url: string
  /** The address, as it was given. */
  readonly host: string
  /** The port that was taken. */
  readonly port: number
}

/** Longer than the proxies that are common keep a connection, so that they close it first. */
const KEEP_ALIVE = 65_000
/** How long the headers of a request may take. */
const HEADERS_TIMEOUT = 10_000
const MAX_HEADERS = 16_384
const MAX_HEADER_COUNT = 100

type Handler = (incoming: IncomingMessage, outgoing: ServerResponse) => void

/** Tells the adapter that the answer has been sent. */
const SENT = new Response(null, { headers: { 'x-hono-already-sent': 'true' } })

/** Answers requests of `node:http`. */
export function nodeHandler({ plain }: Pick<App, 'plain'>): Handler {
  const answer = async (request: Request, outgoing: ServerResponse): Promise<Response> => {
    const answered = await plain(request)
    if (answered instanceof Response) return answered
    const { status, headers, text } = answered
    const length = text === undefined ? {} : { 'content-length': Buffer.byteLength(text) }
    outgoing.writeHead(status, { ...headers, ...length })
    outgoing.end(text)
    return SENT
  }
  const listener = getRequestListener((request, { outgoing }) => answer(request, outgoing as ServerResponse), {
    overrideGlobalObjects: false,
  })
  return (incoming, outgoing) => {
    useParsedBody(incoming)
    void listener(incoming, outgoing)
  }
}

/** After `express.json()` the body has been read: its text is made again of what was parsed. */
function useParsedBody(incoming: IncomingMessage): void {
  const request = incoming as IncomingMessage & { body?: unknown; rawBody?: unknown }
  if (request.body === undefined || request.rawBody !== undefined || !incoming.readableEnded) return
  const text = typeof request.body === 'string' ? request.body : JSON.stringify(request.body)
  request.rawBody = Buffer.isBuffer(request.body) ? request.body : Buffer.from(text)
  delete incoming.headers['content-encoding'] // it was inflated as well
}

/** Listens for requests. */
export class Listener {
  readonly #handler: Handler
  readonly #settings: Pick<ServeSettings, 'auth' | 'limits'>
  #server: HttpServer | undefined
  /** Connections end with the request that is in work on them. */
  #closing = false

  constructor(handler: Handler, settings: Pick<ServeSettings, 'auth' | 'limits'>) {
    this.#handler = handler
    this.#settings = settings
  }

  async listen(options: ListenOptions = {}): Promise<Listening> {
    refuseUnknown(options, ['port', 'host'], 'server.listen')
    const port = whole(options.port ?? 7070, 'server.listen: port', 0, 65_535)
    const host = options.host ?? '127.0.0.1'
    if (typeof host !== 'string' || host === '') throw mustBe('server.listen: host', 'an address', host)
    if (this.#settings.auth === undefined && !isLoopback(host)) throw authNeeded(host)
    if (this.#server !== undefined) throw mustBe('server.listen', 'called once', 'a second time')
    const server = createServer(
      {
        maxHeaderSize: MAX_HEADERS,
        headersTimeout: HEADERS_TIMEOUT,
        requestTimeout: this.#settings.limits.bodyTimeout,
      },
      (incoming, outgoing) => {
        outgoing.once('close', () => this.#closing && setImmediate(() => server.closeIdleConnections()))
        this.#handler(incoming, outgoing)
      },
    )
    server.keepAliveTimeout = KEEP_ALIVE
    server.maxHeadersCount = MAX_HEADER_COUNT
    server.maxConnections = this.#settings.limits.connections
    this.#server = server
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject)
      server.listen(port, host, () => {
        server.off('error', reject)
        resolve()
      })
    })
    const at = (server.address() as AddressInfo).port
    return { url: `http://${host.includes(':') ? `[${host}]` : host}:${at}`, host, port: at }
  }

  /** Takes no new connections; resolves when the requests in work have been answered. */
  async close(): Promise<void> {
    const server = this.#server
    if (server === undefined) return
    this.#closing = true
    await new Promise<void>((resolve) => {
      server.close(() => resolve())
      server.closeIdleConnections()
    })
  }
}

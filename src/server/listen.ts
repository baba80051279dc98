// server/listen.ts: the server on node:http: as a handler of a framework, and listening by itself.
import { randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import type { IncomingMessage, Server as HttpServer, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { getRequestListener } from '@hono/node-server'
import { MillraceError } from '../job/errors/errors.js'
import { refuseUnknown } from '../job/values/names.js'
import { mustBe, whole } from '../job/values/options.js'
import type { PlainApp } from './app.js'
import { isLoopback } from './guard.js'
import { authNeeded } from './options.js'
import type { ServeSettings } from './options.js'
import { problemOf } from './problem.js'

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
/** How often connections are looked at for headers and bodies that are late. */
const CHECK_EVERY = 5_000
const MAX_HEADERS = 16_384
const MAX_HEADER_COUNT = 100

type Handler = (incoming: IncomingMessage, outgoing: ServerResponse) => void

/** What the adapter gives beside a request. */
interface NodeBindings {
  readonly incoming?: IncomingMessage
  readonly outgoing: ServerResponse
}

/** Tells the adapter that the answer has been sent. */
const SENT = new Response(null, { headers: { 'x-hono-already-sent': 'true' } })

/** Answers requests of `node:http`. */
export function nodeHandler(plain: PlainApp): Handler {
  const answer = async (request: Request, { incoming, outgoing }: NodeBindings): Promise<Response> => {
    const answered = await plain(request, incoming?.socket?.remoteAddress)
    if (answered instanceof Response) return answered
    const { status, headers, text } = answered
    const length = text === undefined ? {} : { 'content-length': Buffer.byteLength(text) }
    outgoing.writeHead(status, { ...headers, ...length })
    outgoing.end(text)
    return SENT
  }
  const listener = getRequestListener((request, given) => answer(request, given as NodeBindings), {
    overrideGlobalObjects: false,
  })
  return (incoming, outgoing) => {
    if (hasTwoHosts(incoming)) return refuseHosts(outgoing)
    useParsedBody(incoming)
    void listener(incoming, outgoing)
  }
}

/** Whether a request names two hosts, of which a proxy may have judged the other one. */
function hasTwoHosts({ rawHeaders }: IncomingMessage): boolean {
  let hosts = 0
  for (let at = 0; at < rawHeaders.length; at += 2) if (rawHeaders[at]!.toLowerCase() === 'host') hosts++
  return hosts > 1
}

function refuseHosts(outgoing: ServerResponse): void {
  const id = randomUUID()
  const error = new MillraceError('INVALID_REQUEST', 'The request has two Host headers.', { details: { at: 'host' } })
  outgoing.writeHead(400, { 'content-type': 'application/problem+json', 'x-request-id': id, connection: 'close' })
  outgoing.end(JSON.stringify(problemOf(error, id)))
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
  /** Requests without an answer. */
  #inWork = 0
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
    const { bodyTimeout } = this.#settings.limits
    const server = createServer(
      {
        maxHeaderSize: MAX_HEADERS,
        headersTimeout: Math.min(HEADERS_TIMEOUT, bodyTimeout),
        requestTimeout: bodyTimeout,
        connectionsCheckingInterval: Math.min(CHECK_EVERY, Math.ceil(bodyTimeout / 2)),
      },
      (incoming, outgoing) => {
        this.#inWork++
        outgoing.once('close', () => {
          this.#inWork--
          this.#endConnections()
        })
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
      this.#endConnections()
    })
  }

  /** Once all is answered, what is left are connections that are kept alive, or that were opened and never used. */
  #endConnections(): void {
    if (this.#closing && this.#inWork === 0) setImmediate(() => this.#server?.closeAllConnections())
  }
}

// features/webhooks/post.ts: posts to URLs of third parties: only to public addresses, and within limits.
import { lookup as systemLookup } from 'node:dns/promises'
import * as http from 'node:http'
import * as https from 'node:https'
import { isIP } from 'node:net'
import type { LookupFunction, Socket } from 'node:net'
import { MillraceError } from '../../job/errors/errors.js'
import type { Millis } from '../../job/job.js'
import type { Runtime } from '../../store/runtime.js'
import { isPublic } from './addresses.js'

/** An address of a host. */
export interface Address {
  /** The IP address. */
  readonly address: string
  /** 4 or 6. */
  readonly family: number
}

/** Resolves the addresses of a host. */
export type Lookup = (hostname: string) => Promise<readonly Address[]>

/** Limits of a post. */
export interface PostingSettings {
  readonly allowPrivate: boolean
  readonly maxResponseBytes: number
  readonly lookup: Lookup | undefined
}

/** One post. */
export interface Post {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: Buffer
  /** For the whole post, redirects included. */
  readonly timeout: Millis
  readonly signal: AbortSignal
}

/** The used part of the response. */
export interface PostResponse {
  readonly status: number
  readonly retryAfter: string | undefined
  readonly location: string | undefined
}

const MAX_REDIRECTS = 3
/** Redirects that repeat the same request elsewhere. */
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 307, 308])
/** Timeout of a connection, within the timeout of the post. */
const CONNECT_TIMEOUT: Millis = 5_000

/** Posts over keep-alive connections. */
export class Poster {
  readonly #runtime: Runtime
  readonly #settings: PostingSettings
  readonly #http = new http.Agent({ keepAlive: true, maxFreeSockets: 32 })
  readonly #https = new https.Agent({ keepAlive: true, maxFreeSockets: 32 })

  constructor(runtime: Runtime, settings: PostingSettings) {
    this.#runtime = runtime
    this.#settings = settings
  }

  /** Posts and returns the response; follows redirects, each with the same checks. */
  async post({ url, headers, body, timeout, signal }: Post): Promise<PostResponse> {
    const controller = new AbortController()
    const onTimeout = (): void => controller.abort(failed(`there was no answer within ${timeout} ms`))
    const stop = this.#runtime.timer(timeout, onTimeout)
    const abort = (): void => controller.abort(signal.reason)
    signal.addEventListener('abort', abort)
    if (signal.aborted) abort()
    try {
      let target = new URL(url)
      for (let hops = 0; ; hops++) {
        const received = await this.#once(target, headers, body, controller.signal)
        if (!REDIRECTS.has(received.status) || received.location === undefined) return received
        if (hops === MAX_REDIRECTS) throw failed(`it was redirected more than ${MAX_REDIRECTS} times`)
        target = redirected(target, received.location)
      }
    } finally {
      stop()
      signal.removeEventListener('abort', abort)
    }
  }

  /** Closes all connections. */
  close(): void {
    this.#http.destroy()
    this.#https.destroy()
  }

  async #once(
    url: URL,
    headers: Readonly<Record<string, string>>,
    body: Buffer,
    signal: AbortSignal,
    newConnection = false,
  ): Promise<PostResponse> {
    refuseUrl(url)
    const host = url.hostname.replace(/^\[|\]$/g, '')
    if (isIP(host) !== 0) this.#check(host, [host]) // Node does not look up IP addresses
    const secure = url.protocol === 'https:'
    const options: https.RequestOptions = {
      method: 'POST',
      headers: { ...headers, 'content-length': String(body.length), ...(newConnection && { connection: 'close' }) },
      agent: newConnection ? false : secure ? this.#https : this.#http,
      lookup: this.#lookup,
    }
    const request = secure ? https.request(url, options) : http.request(url, options)
    try {
      return await this.#receive(request, body, secure, signal)
    } catch (error) {
      // The receiver may have closed a kept-alive connection while the request was being sent.
      const closed = request.reusedSocket && (error as { code?: unknown }).code === 'ECONNRESET'
      if (closed && !signal.aborted) return this.#once(url, headers, body, signal, true)
      throw error
    }
  }

  #receive(request: http.ClientRequest, body: Buffer, secure: boolean, signal: AbortSignal): Promise<PostResponse> {
    return new Promise((resolve, reject) => {
      let received: PostResponse | undefined
      let bytes = 0
      const abort = (): void => void request.destroy(signal.reason as Error)
      const end = (error?: unknown): void => {
        signal.removeEventListener('abort', abort)
        // The status is enough; the body is only read to keep the connection.
        if (received !== undefined) resolve(received)
        else reject(error)
      }
      signal.addEventListener('abort', abort)
      if (signal.aborted) abort()
      request.on('socket', (socket) => this.#limitConnectTime(request, socket, secure))
      request.on('error', end)
      request.on('close', () => end(failed('the connection was closed without an answer')))
      request.on('response', (response) => {
        const { 'retry-after': retryAfter, location } = response.headers
        received = { status: response.statusCode ?? 0, retryAfter, location }
        response.on('data', (chunk: Buffer) => {
          bytes += chunk.length
          if (bytes > this.#settings.maxResponseBytes) response.destroy()
        })
        response.on('end', end)
        response.on('error', end)
        response.on('close', end)
      })
      request.end(body)
    })
  }

  /** Limits the time for a connection. */
  #limitConnectTime(request: http.ClientRequest, socket: Socket, secure: boolean): void {
    if (!socket.connecting) return
    const onTimeout = (): void => void request.destroy(failed(`there was no connection within ${CONNECT_TIMEOUT} ms`))
    const stop = this.#runtime.timer(CONNECT_TIMEOUT, onTimeout)
    socket.once(secure ? 'secureConnect' : 'connect', stop)
    socket.once('close', stop)
  }

  /**
   * Resolves the address to connect to. The checked address is the one that is connected to: the name is not resolved
   * again, so a DNS change in between has no effect.
   */
  readonly #lookup: LookupFunction = (hostname, options, callback) => {
    const find = this.#settings.lookup ?? resolveAll
    const wanted = options.family === 'IPv4' ? 4 : options.family === 'IPv6' ? 6 : (options.family ?? 0)
    Promise.resolve(hostname)
      .then(find) // so that a throwing lookup does not throw into the socket
      .then((found) => {
        const allowed = this.#check(
          hostname,
          found.map(({ address }) => address),
        )
        const addresses = found.filter(({ address, family }) => {
          return allowed.includes(address) && (wanted === 0 || family === wanted)
        })
        if (addresses.length === 0) throw failed(`${hostname} has no address that can be used`)
        if (options.all === true) callback(null, [...addresses])
        else callback(null, addresses[0]!.address, addresses[0]!.family)
      })
      .catch((error: unknown) => callback(error as NodeJS.ErrnoException, [], 0))
  }

  /** The addresses that may be called; throws if all are refused. */
  #check(host: string, addresses: readonly string[]): readonly string[] {
    if (this.#settings.allowPrivate) return addresses
    const allowed = addresses.filter(isPublic)
    if (allowed.length > 0 || addresses.length === 0) return allowed
    throw refused(
      `${host} is, or leads to, ${addresses[0]}, which is not a public address. ` +
        'In development, webhooks({ allowPrivate: true }) lets it be called',
      host,
    )
  }
}

async function resolveAll(hostname: string): Promise<readonly Address[]> {
  return systemLookup(hostname, { all: true })
}

function refuseUrl(url: URL): void {
  if (url.protocol !== 'https:' && url.protocol !== 'http:') throw refused(`it leads to a URL with ${url.protocol}`)
  if (url.username !== '' || url.password !== '') throw refused('it leads to a URL with a user name or a password')
}

/** The target of a redirect. */
export function redirected(from: URL, location: string): URL {
  if (!URL.canParse(location, from.href)) throw failed('it was redirected to what is no URL')
  const to = new URL(location, from.href)
  if (from.protocol === 'https:' && to.protocol === 'http:') throw refused('it was redirected from https to http')
  return to
}

/** An error that is not retried. `host`: the host whose address is not public. */
function refused(why: string, host?: string): MillraceError {
  const details = host === undefined ? {} : { host }
  return new MillraceError('WEBHOOK_REFUSED', `The webhook was not called: ${why}.`, { details })
}

function failed(why: string): MillraceError {
  return new MillraceError('WEBHOOK_FAILED', `The webhook was not delivered: ${why}.`)
}

// features/webhooks/post.ts: posts to a URL that a stranger may have named: to public addresses alone, and within bounds.
import { lookup as systemLookup } from 'node:dns/promises'
import * as http from 'node:http'
import * as https from 'node:https'
import { isIP } from 'node:net'
import type { LookupFunction, Socket } from 'node:net'
import { MillraceError } from '../../job/errors.js'
import type { Millis } from '../../job/job.js'
import type { Runtime } from '../../store/runtime.js'
import { isPublic } from './addresses.js'

/** An address of a host. */
export interface Address {
  /** In digits. */
  readonly address: string
  /** 4 or 6. */
  readonly family: number
}

/** Finds the addresses of a host. */
export type Lookup = (hostname: string) => Promise<readonly Address[]>

/** What bounds a post. */
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
  /** For all of it, redirects included. */
  readonly timeout: Millis
  readonly signal: AbortSignal
}

/** What was answered. */
export interface Answer {
  readonly status: number
  readonly retryAfter: string | undefined
  readonly location: string | undefined
}

const MOST_REDIRECTS = 3
/** Those that ask for the same request elsewhere. */
const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 307, 308])
/** For a connection, within the time for all. */
const CONNECT: Millis = 5_000

/** Posts, over connections that are kept. */
export class Poster {
  readonly #runtime: Runtime
  readonly #settings: PostingSettings
  readonly #http = new http.Agent({ keepAlive: true, maxFreeSockets: 32 })
  readonly #https = new https.Agent({ keepAlive: true, maxFreeSockets: 32 })

  constructor(runtime: Runtime, settings: PostingSettings) {
    this.#runtime = runtime
    this.#settings = settings
  }

  /** Posts, and answers with what was answered; follows redirects, each by the same rules. */
  async post({ url, headers, body, timeout, signal }: Post): Promise<Answer> {
    const ending = new AbortController()
    const late = (): void => ending.abort(failed(`there was no answer within ${timeout} ms`))
    const stop = this.#runtime.timer(timeout, late)
    const abort = (): void => ending.abort(signal.reason)
    signal.addEventListener('abort', abort)
    if (signal.aborted) abort()
    try {
      let target = new URL(url)
      for (let hops = 0; ; hops++) {
        const answer = await this.#once(target, headers, body, ending.signal)
        if (!REDIRECTS.has(answer.status) || answer.location === undefined) return answer
        if (hops === MOST_REDIRECTS) throw failed(`it was redirected more than ${MOST_REDIRECTS} times`)
        target = redirected(target, answer.location)
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
    fresh = false,
  ): Promise<Answer> {
    refuseUrl(url)
    const host = url.hostname.replace(/^\[|\]$/g, '')
    if (isIP(host) !== 0) this.#check(host, [host]) // no lookup is asked about those
    const secure = url.protocol === 'https:'
    const options: https.RequestOptions = {
      method: 'POST',
      headers: { ...headers, 'content-length': String(body.length), ...(fresh && { connection: 'close' }) },
      agent: fresh ? false : secure ? this.#https : this.#http,
      lookup: this.#lookup,
    }
    const sent = secure ? https.request(url, options) : http.request(url, options)
    try {
      return await this.#answer(sent, body, secure, signal)
    } catch (error) {
      // A connection that was kept may have been closed by the other side while this was on its way.
      const closed = sent.reusedSocket && (error as { code?: unknown }).code === 'ECONNRESET'
      if (closed && !signal.aborted) return this.#once(url, headers, body, signal, true)
      throw error
    }
  }

  #answer(sent: http.ClientRequest, body: Buffer, secure: boolean, signal: AbortSignal): Promise<Answer> {
    return new Promise((resolve, reject) => {
      let answer: Answer | undefined
      let bytes = 0
      const abort = (): void => void sent.destroy(signal.reason as Error)
      const end = (error?: unknown): void => {
        signal.removeEventListener('abort', abort)
        // The status is the answer; what comes after it is only read to keep the connection.
        if (answer !== undefined) resolve(answer)
        else reject(error)
      }
      signal.addEventListener('abort', abort)
      if (signal.aborted) abort()
      sent.on('socket', (socket) => this.#bound(sent, socket, secure))
      sent.on('error', end)
      sent.on('close', () => end(failed('the connection was closed without an answer')))
      sent.on('response', (response) => {
        const { 'retry-after': retryAfter, location } = response.headers
        answer = { status: response.statusCode ?? 0, retryAfter, location }
        response.on('data', (chunk: Buffer) => {
          bytes += chunk.length
          if (bytes > this.#settings.maxResponseBytes) response.destroy()
        })
        response.on('end', end)
        response.on('error', end)
        response.on('close', end)
      })
      sent.end(body)
    })
  }

  /** Bounds the time for a connection. */
  #bound(sent: http.ClientRequest, socket: Socket, secure: boolean): void {
    if (!socket.connecting) return
    const late = (): void => void sent.destroy(failed(`there was no connection within ${CONNECT} ms`))
    const stop = this.#runtime.timer(CONNECT, late)
    socket.once(secure ? 'secureConnect' : 'connect', stop)
    socket.once('close', stop)
  }

  /**
   * Finds the address to connect to. What it answers was checked and is what is connected to: whatever the name leads to
   * a moment later, nobody asks again.
   */
  readonly #lookup: LookupFunction = (hostname, options, callback) => {
    const find = this.#settings.lookup ?? findAll
    const wanted = options.family === 'IPv4' ? 4 : options.family === 'IPv6' ? 6 : (options.family ?? 0)
    Promise.resolve(hostname)
      .then(find) // one that throws must not throw into the socket
      .then((found) => {
        const open = this.#check(
          hostname,
          found.map(({ address }) => address),
        )
        const addresses = found.filter(({ address, family }) => {
          return open.includes(address) && (wanted === 0 || family === wanted)
        })
        if (addresses.length === 0) throw failed(`${hostname} has no address that can be used`)
        if (options.all === true) callback(null, [...addresses])
        else callback(null, addresses[0]!.address, addresses[0]!.family)
      })
      .catch((error: unknown) => callback(error as NodeJS.ErrnoException, [], 0))
  }

  /** Those addresses that may be called; refused if there are none. */
  #check(host: string, addresses: readonly string[]): readonly string[] {
    if (this.#settings.allowPrivate) return addresses
    const open = addresses.filter(isPublic)
    if (open.length > 0 || addresses.length === 0) return open
    throw refused(
      `${host} is, or leads to, ${addresses[0]}, which is not a public address. ` +
        'In development, webhooks({ allowPrivate: true }) lets it be called',
      host,
    )
  }
}

async function findAll(hostname: string): Promise<readonly Address[]> {
  return systemLookup(hostname, { all: true })
}

function refuseUrl(url: URL): void {
  if (url.protocol !== 'https:' && url.protocol !== 'http:') throw refused(`it leads to a URL with ${url.protocol}`)
  if (url.username !== '' || url.password !== '') throw refused('it leads to a URL with a user name or a password')
}

/** Where a redirect leads. */
export function redirected(from: URL, location: string): URL {
  if (!URL.canParse(location, from.href)) throw failed('it was redirected to what is no URL')
  const to = new URL(location, from.href)
  if (from.protocol === 'https:' && to.protocol === 'http:') throw refused('it was redirected from https to http')
  return to
}

/** Never to be tried again. `host`: one that is not called because its address is not public. */
function refused(why: string, host?: string): MillraceError {
  const details = host === undefined ? {} : { host }
  return new MillraceError('WEBHOOK_REFUSED', `The webhook was not called: ${why}.`, { details })
}

function failed(why: string): MillraceError {
  return new MillraceError('WEBHOOK_FAILED', `The webhook was not delivered: ${why}.`)
}

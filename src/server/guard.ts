// server/guard.ts: what stands before every route: which hosts are answered, and how often a caller may ask.
import { MillraceError } from '../job/errors/errors.js'
import type { Millis } from '../job/job.js'
import type { Runtime } from '../store/runtime.js'
import { bearerOf } from './auth.js'

/** The names of this machine that a page cannot take over. */
const LOOPBACK = new Set(['localhost', '127.0.0.1', '[::1]', '::1'])

/** Whether a host, without its port, is this machine. */
export function isLoopback(host: string): boolean {
  return LOOPBACK.has(host.toLowerCase())
}

/**
 * Throws unless the request names this machine. A server without `auth` answers no other name: a page could otherwise
 * point a name of its own to 127.0.0.1 and read the answers.
 */
export function checkHost(request: Request, url: URL): void {
  const host = (request.headers.get('host') ?? url.host).replace(/:\d{1,5}$/, '')
  if (isLoopback(host) && isLoopback(url.hostname)) return
  throw new MillraceError(
    'HOST_NOT_ALLOWED',
    `The server has no auth and answers only localhost, 127.0.0.1 and [::1], not ${JSON.stringify(host.slice(0, 100))}.`,
  )
}

/**
 * Throws for a request that changes something and that a page of another origin may have sent: by the cookies of its
 * user, or to a server on the user's machine. A page cannot send a token that it does not know.
 */
export function checkOrigin(request: Request, url: URL, own: string | undefined): void {
  if (bearerOf(request) !== undefined) return
  const [site, origin] = [request.headers.get('sec-fetch-site'), request.headers.get('origin')]
  if (site === 'same-origin') return
  if (site === null && origin === null && !request.headers.has('cookie')) return // not a browser
  if (site === null && origin !== null && isOrigin(origin, own, request.headers.get('host') ?? url.host)) return
  throw new MillraceError('FORBIDDEN', 'The request was sent by a page of another origin, or does not say by which.')
}

/** Whether an origin is that of the server. Behind a proxy that ends TLS, its scheme is known only by `own`. */
function isOrigin(origin: string, own: string | undefined, host: string): boolean {
  if (own !== undefined) return origin === own
  return origin === `http://${host}` || origin === `https://${host}`
}

/** The longest path with its query. */
const MAX_URL = 8_192

/** Throws for a URL that is too long. */
export function checkUrl(url: URL): void {
  if (url.pathname.length + url.search.length <= MAX_URL) return
  throw new MillraceError('INVALID_REQUEST', `The URL is longer than ${MAX_URL} characters.`, {
    details: { at: 'url' },
  })
}

interface Bucket {
  tokens: number
  at: Millis
}

/** The most callers whose use is remembered; the one that was silent for longest is forgotten first. */
const MAX_CALLERS = 10_000

/** Counts the requests of each caller: a bucket that holds `max` and fills up within `per`. */
export class RateLimiter {
  readonly #max: number
  readonly #per: Millis
  readonly #runtime: Pick<Runtime, 'elapsed'>
  readonly #buckets = new Map<string, Bucket>()

  constructor(rate: { readonly max: number; readonly per: Millis }, runtime: Pick<Runtime, 'elapsed'>) {
    this.#max = rate.max
    this.#per = rate.per
    this.#runtime = runtime
  }

  /** Throws RATE_LIMITED where there were too many; counts nothing. */
  refuse(caller: string): void {
    const bucket = this.#buckets.get(caller)
    if (bucket === undefined) return
    const filled = ((this.#runtime.elapsed() - bucket.at) / this.#per) * this.#max
    if (bucket.tokens + filled < 1) throw this.#tooMany(caller, bucket.tokens + filled)
  }

  /** Counts a request; throws RATE_LIMITED with the time to wait where there were too many. */
  count(caller: string): void {
    const now = this.#runtime.elapsed()
    const bucket = this.#buckets.get(caller) ?? { tokens: this.#max, at: now }
    bucket.tokens = Math.min(this.#max, bucket.tokens + ((now - bucket.at) / this.#per) * this.#max)
    bucket.at = now
    this.#buckets.delete(caller)
    this.#buckets.set(caller, bucket)
    if (this.#buckets.size > MAX_CALLERS) this.#buckets.delete(this.#buckets.keys().next().value!)
    if (bucket.tokens >= 1) {
      bucket.tokens -= 1
      return
    }
    throw this.#tooMany(caller, bucket.tokens)
  }

  #tooMany(caller: string, tokens: number): MillraceError {
    const retryAfter = Math.ceil(((1 - tokens) / this.#max) * this.#per)
    return new MillraceError('RATE_LIMITED', `'${caller}' may send ${this.#max} requests in ${this.#per} ms.`, {
      details: { retryAfter },
    })
  }
}

// stores/http/calls.ts: one call of a server: its request, its answer or error, and that it is sent again while the server
// does not answer.
import { gzip } from 'node:zlib'
import { errorCatalogue } from '../../job/errors/catalogue.js'
import { MillraceError, isMillraceError } from '../../job/errors/errors.js'
import type { ErrorCode } from '../../job/errors/errors.js'
import { describeError } from '../../job/errors/failure.js'
import type { Millis } from '../../job/job.js'
import { COMPRESS_FROM, PROTOCOL, PROTOCOL_HEADER } from '../../store/wire/protocol.js'
import type { Stop } from '../../store/runtime.js'
import type { Settings } from './options.js'

/** A request to the server. */
export interface Request {
  readonly method: 'GET' | 'POST'
  /** Below the address of the server. */
  readonly path: string
  readonly body?: string
}

/** The shortest time that a try gets; else as long as `patience`. */
const SHORTEST_TRY: Millis = 10_000
/** The pause before the second try, and the longest between two. */
const FIRST_PAUSE: Millis = 50
const LONGEST_PAUSE: Millis = 1_000
/** A body that shrinks further than this is sent as it is: a server takes it for an attack. */
const MAX_RATIO = 50

/** A try that got no answer, or one that another try may better. */
class Failed extends Error {
  /** Whether the request may have reached the server. */
  readonly sent: boolean
  /** How long the server asks to wait. */
  readonly retryAfter: Millis | undefined

  constructor(cause: unknown, sent: boolean, retryAfter?: Millis) {
    super(describeError(cause).message, { cause })
    this.sent = sent
    this.retryAfter = retryAfter
  }
}

/** Calls a server. */
export class Calls {
  readonly #settings: Settings
  /** Aborts when calls are not sent again any more, and when those in work are given up. */
  readonly #ending = new AbortController()
  readonly #closing = new AbortController()

  constructor(settings: Settings) {
    this.#settings = settings
  }

  /** The headers of every request. */
  get headers(): Record<string, string> {
    const { token, compression } = this.#settings
    return {
      [PROTOCOL_HEADER]: String(PROTOCOL),
      'accept-encoding': compression ? 'gzip' : 'identity',
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
    }
  }

  /** The text of the answer. Rejects with the error that the server answers, or that it does not. */
  async send(request: Request): Promise<string> {
    const { runtime, patience } = this.#settings
    const body = await this.#bodyOf(request)
    let sent = false
    let since: Millis | undefined
    for (let tries = 0; ; tries++) {
      try {
        return await this.#try(request, body)
      } catch (error) {
        if (!(error instanceof Failed)) throw error
        sent ||= error.sent
        const now = runtime.elapsed()
        since ??= now
        const pause = Math.max(this.#pause(tries), error.retryAfter ?? 0)
        if (this.#ending.signal.aborted || now - since + pause > patience) throw this.#unanswered(error, sent)
        await this.#sleep(pause)
        if (this.#ending.signal.aborted) throw this.#unanswered(error, sent)
      }
    }
  }

  /** Calls without an answer are not sent again. */
  end(): void {
    this.#ending.abort()
  }

  /** Calls in work fail. */
  close(): void {
    this.#closing.abort()
  }

  async #bodyOf({
    body,
  }: Request): Promise<{ readonly data: string | Uint8Array; readonly gzip: boolean } | undefined> {
    if (body === undefined) return undefined
    if (!this.#settings.compression || body.length < COMPRESS_FROM) return { data: body, gzip: false }
    const packed = await new Promise<Uint8Array>((resolve, reject) => {
      gzip(body, { level: 1 }, (error, result) => (error === null ? resolve(result) : reject(error)))
    })
    return packed.length * MAX_RATIO < body.length ? { data: body, gzip: false } : { data: packed, gzip: true }
  }

  async #try(
    { method, path }: Request,
    body: { readonly data: string | Uint8Array; readonly gzip: boolean } | undefined,
  ): Promise<string> {
    const { url, runtime, patience, fetch } = this.#settings
    const headers = this.headers
    if (body !== undefined) headers['content-type'] = 'application/json'
    if (body?.gzip === true) headers['content-encoding'] = 'gzip'
    const late = new AbortController()
    const stop = runtime.timer(Math.max(patience, SHORTEST_TRY), () => late.abort(new Error('it took too long')))
    const end = (): void => late.abort(closedError())
    this.#closing.signal.addEventListener('abort', end, { once: true })
    try {
      const asked = fetch(`${url}${path}`, {
        method,
        headers,
        signal: late.signal,
        redirect: 'error',
        ...(body !== undefined && { body: body.data as RequestInit['body'] & {} }),
      })
      const response = await unlessAborted(asked, late.signal)
      const text = await unlessAborted(response.text(), late.signal)
      if (response.ok) return text
      throw errorOf(response, text)
    } catch (error) {
      if (this.#closing.signal.aborted) throw closedError()
      if (error instanceof Failed || isMillraceError(error)) throw error
      throw new Failed(error, !isUnreached(error))
    } finally {
      stop()
      this.#closing.signal.removeEventListener('abort', end)
    }
  }

  #pause(tries: number): Millis {
    return Math.min(FIRST_PAUSE * 2 ** tries, LONGEST_PAUSE) * (0.5 + this.#settings.runtime.random() / 2)
  }

  #sleep(pause: Millis): Promise<void> {
    const { signal } = this.#ending
    return new Promise((resolve) => {
      let stop: Stop = () => {}
      const end = (): void => {
        stop()
        signal.removeEventListener('abort', end)
        resolve()
      }
      stop = this.#settings.runtime.timer(pause, end)
      signal.addEventListener('abort', end, { once: true })
    })
  }

  #unanswered({ message, cause }: Failed, sent: boolean): MillraceError {
    const { url } = this.#settings
    return sent
      ? new MillraceError(
          'STORE_UNAVAILABLE',
          `The server at ${url} did not answer (${message}); the write may or may not have been applied.`,
          { cause },
        )
      : new MillraceError(
          'SERVER_UNREACHABLE',
          `The server at ${url} could not be reached (${message}). Nothing was sent.`,
          { cause },
        )
  }
}

/** Errors of the server that another try may better; whether the request may have been applied. */
const passing: Readonly<Partial<Record<ErrorCode, boolean>>> = {
  SERVER_BUSY: false,
  RATE_LIMITED: false,
  REQUEST_TIMEOUT: false,
  DATABASE_UNREACHABLE: false,
  POOL_EXHAUSTED: false,
  STORE_UNAVAILABLE: true,
  STORE_CLOSED: true, // of the server, which is about to end
  THREAD_ENDED: true,
}

/** What a response that is none of success means. */
export function errorOf(response: Response, text: string): Error {
  const problem = problemIn(text)
  const { status } = response
  const after = Number(response.headers.get('retry-after') ?? 0)
  const retryAfter = Number.isFinite(after) && after > 0 ? Math.min(after * 1000, LONGEST_PAUSE * 5) : undefined
  if (problem === undefined) {
    const what = new Error(`it answered ${status} without a problem of Millrace`)
    // A proxy answers so while its server is away.
    if (status >= 500 || status === 429) return new Failed(what, true, retryAfter)
    return new MillraceError(
      'INVALID_REQUEST',
      `${response.url}: ${what.message}. Is it the address of a Millrace server?`,
    )
  }
  const { code, detail, details } = problem
  const error = new MillraceError(code, detail, details === undefined ? {} : { details })
  const applied = passing[code]
  if (applied !== undefined) return new Failed(error, applied, retryAfter)
  // Less at once may fit.
  if (code === 'BODY_TOO_LARGE') return new MillraceError('DATA_TOO_LARGE', detail, { cause: error })
  return error
}

interface Problem {
  readonly code: ErrorCode
  readonly detail: string
  readonly details?: Readonly<Record<string, unknown>>
}

function problemIn(text: string): Problem | undefined {
  try {
    const { code, detail, details } = JSON.parse(text) as Partial<Record<keyof Problem, unknown>>
    if (typeof code !== 'string' || !Object.hasOwn(errorCatalogue, code) || typeof detail !== 'string') return undefined
    return {
      code: code as ErrorCode,
      detail,
      ...(typeof details === 'object' && details !== null && { details: details as Readonly<Record<string, unknown>> }),
    }
  } catch {
    return undefined
  }
}

/** Errors of connections that were never made. */
const UNREACHED = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
])

function isUnreached(error: unknown): boolean {
  for (let at: unknown = error; at instanceof Error; at = at.cause) {
    if (UNREACHED.has(String((at as NodeJS.ErrnoException).code))) return true
  }
  return false
}

/** The same, or rejects when the signal aborts: the fetch of Node now and then misses it. */
export function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const end = (): void => reject(signal.reason as Error)
    if (signal.aborted) end()
    signal.addEventListener('abort', end, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', end))
  })
}

/** The error of a call of a store that was closed. */
export function closedError(): MillraceError {
  return new MillraceError(
    'STORE_CLOSED',
    'The remote store was used after it was closed. Close workers and queues first; shutdown([...]) does.',
  )
}

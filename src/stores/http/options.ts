// stores/http/options.ts: the settings of a remote store.
import { MillraceError } from '../../job/errors/errors.js'
import type { Millis } from '../../job/job.js'
import { parseDuration } from '../../job/values/duration.js'
import type { Duration } from '../../job/values/duration.js'
import { refuseUnknown } from '../../job/values/names.js'
import { mustBe } from '../../job/values/options.js'
import { systemRuntime } from '../../store/runtime.js'
import type { Runtime } from '../../store/runtime.js'

/** Settings of a remote store. */
export interface HttpOptions {
  /** A token of the server. Default: none, for a server on this machine without `auth`. */
  readonly token?: string
  /**
   * How long a call waits for a server that does not answer, as while it restarts, before it fails; from the first try
   * that failed. Default 15 s.
   */
  readonly patience?: Duration
  /** Whether requests and answers of more than 8 KB are compressed. Default: unless the server is on this machine. */
  readonly compression?: boolean
  /** Sends the requests. Default: the global `fetch`. */
  readonly fetch?: (request: string, init: RequestInit) => Promise<Response>
  /** Time, timers, randomness and ids. Default: the system's. */
  readonly runtime?: Runtime
}

/** The settings with their defaults. */
export interface Settings {
  /** The address of the server with its base, without a slash at the end. */
  readonly url: string
  readonly token: string | undefined
  readonly patience: Millis
  readonly compression: boolean
  readonly fetch: (request: string, init: RequestInit) => Promise<Response>
  readonly runtime: Runtime
}

const optionNames = [
  'token',
  'patience',
  'compression',
  'fetch',
  'runtime',
] as const satisfies readonly (keyof HttpOptions)[]

const LOOPBACK = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/i

/** Checks the settings and fills in the defaults. */
export function parseOptions(url: string, options: HttpOptions): Settings {
  refuseUnknown(options, optionNames, 'http options')
  const { token, patience = 15_000, runtime = systemRuntime() } = options
  const at = parseUrl(url)
  if (token !== undefined && (typeof token !== 'string' || !/^[\x21-\x7e]{1,512}$/.test(token))) {
    throw new MillraceError('INVALID_OPTION', 'http: token must be 1 to 512 printable characters without spaces.')
  }
  const { compression = !LOOPBACK.test(at.hostname) } = options
  if (typeof compression !== 'boolean') throw mustBe('http: compression', 'true or false', compression)
  if (options.fetch !== undefined && typeof options.fetch !== 'function') {
    throw mustBe('http: fetch', 'a function such as the global fetch', options.fetch)
  }
  return {
    url: `${at.origin}${at.pathname.replace(/\/+$/, '')}`,
    token,
    patience: parseDuration(patience, 'http: patience'),
    compression,
    fetch: options.fetch ?? ((request, init) => fetch(request, init)),
    runtime,
  }
}

function parseUrl(url: string): URL {
  const at = typeof url === 'string' && URL.canParse(url) ? new URL(url) : undefined
  if (at === undefined || !/^https?:$/.test(at.protocol)) {
    throw mustBe('http', "the address of a server, as 'https://jobs.example.com'", url)
  }
  if (at.username !== '' || at.password !== '') {
    throw new MillraceError('INVALID_OPTION', 'http: the address holds a user or a password; use the option token.')
  }
  if (at.search !== '' || at.hash !== '') throw mustBe('http', 'an address without a query and a fragment', at.origin)
  return at
}

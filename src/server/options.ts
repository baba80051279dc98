// server/options.ts: the options of `serve`: their types, checks and defaults.
import type { Duration, Millis } from '../job/values/duration.js'
import { MillraceError } from '../job/errors/errors.js'
import { refuseUnknown } from '../job/values/names.js'
import { flag, invalid, isObject, mustBe, positive, whole } from '../job/values/options.js'
import type { Logger } from '../queue/events/events.js'
import { safeLogger } from '../queue/events/events.js'
import { checkStore, checkTelemetry } from '../queue/queue-types.js'
import type { Queue } from '../queue/queue.js'
import type { Telemetry } from '../queue/instrumentation.js'
import type { Store } from '../store/store.js'
import type { Auth } from './auth.js'
import { parseRedact } from './redact.js'
import type { RedactOptions, Redactor } from './redact.js'
import { parseSession } from './sessions/session.js'
import type { SessionOptions, SessionSettings } from './sessions/session.js'

/** The bounds of a server. */
export interface LimitOptions {
  /** The most bytes of a body, as sent and once decompressed. Default 8 MiB. */
  readonly body?: number
  /** The most bytes of the bodies of all requests that are being answered. Default 64 MiB. */
  readonly inFlight?: number
  /** How long a body may take to arrive. Default 30 s. */
  readonly bodyTimeout?: Duration
  /** The most requests that wait: for a job to claim, or for the end of one. Default 10,000. */
  readonly waiting?: number
  /** The most of them of one token. Default 1,000. */
  readonly waitingPerToken?: number
  /** The most streams of events that one token may have open. Default 100. */
  readonly streams?: number
  /** The most connections, when the server listens by itself. Default 12,000. */
  readonly connections?: number
}

/** `LimitOptions`, with their defaults. */
export type Limits = { readonly [Key in keyof Required<LimitOptions>]: number }

/** How many requests a token may send. */
export interface RateLimit {
  /** At most this many requests… */
  readonly max: number
  /** …in a stretch of time this long. A token that was silent may send as many at once. */
  readonly per: Duration
}

/** Options of `serve`. */
export interface ServeOptions {
  /** The store that it serves. */
  readonly store: Store
  /**
   * The queues that it serves: queue objects on that store, whose schemas, defaults, retention and webhooks hold for
   * remote callers as well, and names. Default: any queue.
   */
  readonly queues?: readonly (Queue | string)[]
  /** Who may do what: `tokens('tokens.json')`, or a function of the request. Default: everybody on this machine may do everything. */
  readonly auth?: Auth
  /** The path that the server is mounted under, as in '/admin/jobs'. Default: none. */
  readonly base?: string
  /** Refuses everything but reads. Default false. */
  readonly readOnly?: boolean
  /** How many requests each token may send; `false`: as many as it wants. Default: as many as it wants. */
  readonly rate?: RateLimit | false
  /** The bounds of the server. Default: those of each field. */
  readonly limits?: LimitOptions
  /**
   * What read routes hide of jobs: values under telling keys, and secrets in lines of text; `false`: nothing. Claims are
   * never changed. Default: passwords, tokens, keys, cookies, cards and the like.
   */
  readonly redact?: RedactOptions | false
  /** The sessions of browsers, which log in with a token. Default: 12 h, signed by a secret of this process. */
  readonly session?: SessionOptions
  /** The origin by which browsers reach the server, as in `https://jobs.example.com`. Default: that of each request. */
  readonly origin?: string
  /** Takes the address of a client from the last entry of `X-Forwarded-For`, which a proxy wrote. Default false. */
  readonly trustProxy?: boolean
  /** Measures the adds to the queues that the server was given by name, or serves without a list. Default: none. */
  readonly telemetry?: Telemetry
  /** Logs what no caller learns of; `false` for nothing. Default: the console. */
  readonly logger?: Logger | false
}

/** `ServeOptions`, checked. */
export interface ServeSettings {
  readonly store: Store
  readonly queues: readonly (Queue | string)[] | undefined
  readonly auth: Auth | undefined
  readonly base: string
  readonly readOnly: boolean
  readonly rate: { readonly max: number; readonly per: Millis } | undefined
  readonly limits: Limits
  readonly redactor: Redactor
  readonly session: SessionSettings
  readonly origin: string | undefined
  readonly trustProxy: boolean
  readonly telemetry: Telemetry | undefined
  readonly logger: Logger
}

const optionNames = [
  'store',
  'queues',
  'auth',
  'base',
  'readOnly',
  'rate',
  'limits',
  'redact',
  'session',
  'origin',
  'trustProxy',
  'telemetry',
  'logger',
] as const satisfies readonly (keyof ServeOptions)[]

const MIB = 1_048_576

const defaultLimits: Limits = {
  body: 8 * MIB,
  inFlight: 64 * MIB,
  bodyTimeout: 30_000,
  waiting: 10_000,
  waitingPerToken: 1_000,
  streams: 100,
  connections: 12_000,
}

/** Checks the options and fills in the defaults. */
export function parseServe(options: ServeOptions): ServeSettings {
  checkStore(options, 'serve')
  checkTelemetry(options.telemetry, 'serve')
  refuseUnknown(options, optionNames, 'serve')
  const { store, auth } = options
  if (auth !== undefined && typeof auth !== 'function') {
    throw mustBe('serve: auth', "tokens('tokens.json') or a function of the request", auth)
  }
  return {
    store,
    queues: options.queues === undefined ? undefined : parseQueues(options.queues, store),
    auth,
    base: parseBase(options.base),
    readOnly: flag(options.readOnly, 'serve: readOnly'),
    rate: parseRate(options.rate),
    limits: parseLimits(options.limits),
    redactor: parseRedact(options.redact),
    session: parseSession(options.session),
    origin: parseOrigin(options.origin),
    trustProxy: flag(options.trustProxy, 'serve: trustProxy'),
    telemetry: options.telemetry,
    logger: safeLogger(options.logger),
  }
}

function parseQueues(queues: readonly (Queue | string)[], store: Store): readonly (Queue | string)[] {
  if (!Array.isArray(queues) || queues.length === 0) {
    throw mustBe('serve: queues', 'a list of at least one queue', queues)
  }
  for (const queue of queues as readonly (Queue | string)[]) {
    if (typeof queue === 'string') continue
    if (!isObject(queue) || typeof queue.name !== 'string' || typeof queue.add !== 'function') {
      throw mustBe('serve: queues', 'a list of queues or their names', queue)
    }
    if (queue.store !== store) throw invalid(`serve: queue '${queue.name}' is on another store than the server.`)
  }
  return queues
}

function parseBase(base = ''): string {
  if (base === '' || base === '/') return ''
  if (typeof base !== 'string' || !/^(\/[\w.~-]+)+$/.test(base)) {
    throw mustBe('serve: base', "a path such as '/admin/jobs'", base)
  }
  return base
}

function parseOrigin(origin: string | undefined): string | undefined {
  if (origin === undefined) return undefined
  const url = typeof origin === 'string' && URL.canParse(origin) ? new URL(origin) : undefined
  if (url !== undefined && /^https?:$/.test(url.protocol) && url.origin === origin) return origin
  throw mustBe('serve: origin', "an origin such as 'https://jobs.example.com'", origin)
}

function parseRate(rate: ServeOptions['rate']): ServeSettings['rate'] {
  if (rate === undefined || rate === false) return undefined
  refuseUnknown(rate, ['max', 'per'], 'serve: rate')
  return { max: whole(rate.max, 'serve: rate.max', 1), per: positive(rate.per, 'serve: rate.per') }
}

function parseLimits(given: LimitOptions = {}): Limits {
  refuseUnknown(given, Object.keys(defaultLimits), 'serve: limits')
  const limits: Record<string, number> = { ...defaultLimits }
  for (const [key, value] of Object.entries(given)) {
    if (value === undefined) continue
    const field = `serve: limits.${key}`
    limits[key] = key === 'bodyTimeout' ? positive(value as Duration, field) : whole(value as number, field, 1)
  }
  return limits as Limits
}

/** The error of a server that would listen where others can reach it, without knowing them. */
export function authNeeded(host: string): MillraceError {
  return new MillraceError(
    'AUTH_NEEDED',
    `serve: without auth the server listens on this machine alone, and '${host}' can be reached from others. Give it auth: tokens('tokens.json'), or listen on 127.0.0.1.`,
  )
}

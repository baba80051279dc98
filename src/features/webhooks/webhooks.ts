// features/webhooks/webhooks.ts: what a queue is given to tell a URL of the ends of its jobs.
import { parseDuration } from '../../job/duration.js'
import type { Duration } from '../../job/duration.js'
import { MillraceError } from '../../job/errors.js'
import type { FinishedState } from '../../job/job.js'
import { refuseUnknown } from '../../job/names.js'
import { parseBackoff } from '../../job/retry.js'
import type { BackoffOptions } from '../../job/retry.js'
import { quote } from '../../job/quote.js'
import { checkEnds, checkUrl, defaultStamp } from '../../queue/settings/webhook.js'
import type { Webhooks, WebhookStamp } from '../../queue/settings/webhook.js'
import type { BreakerSettings } from './breaker.js'
import { startDeliveries } from './deliver.js'
import type { Lookup } from './post.js'
import { readSecrets } from './sign.js'

/** How the ends of jobs are told. */
export interface WebhookOptions {
  /** Where to: http or https, without a password in it. Default: only jobs that name a URL are told of. */
  readonly url?: string
  /** What deliveries are signed with: `whsec_` and base64, or other text of 16 bytes or more. It is stored nowhere. Default: none. */
  readonly secret?: string
  /** Several, to change from one to another: a delivery is signed with each. Default: none. */
  readonly secrets?: readonly string[]
  /** Send without a signature, where there is no secret. Default false. */
  readonly unsigned?: boolean
  /** The ends that are told. Default: `completed`, `failed` and `cancelled`. */
  readonly on?: readonly FinishedState[]
  /** Attempts to deliver, the first included, from 1 to 100. Default 10. */
  readonly attempts?: number
  /** The wait between them. Default: exponential from 10 s to 1 h, half jitter. */
  readonly backoff?: BackoffOptions | Duration
  /** For one attempt, redirects included. Default 10 s. */
  readonly timeout?: Duration
  /** Call private and loopback addresses as well: for development. Default false. */
  readonly allowPrivate?: boolean
  /** Bytes of an answer's body that are read at most; what is left is cut off. Default 65536. */
  readonly maxResponseBytes?: number
  /** Deliveries at a time in one worker. Default 10. */
  readonly concurrency?: number
  /** When a host is left alone for a while; `false`: never. Default: as `BreakerOptions` say. */
  readonly breaker?: BreakerOptions | false
  /** Finds the addresses of a host; they are checked before they are called. Default: as the system does. */
  readonly lookup?: Lookup
}

/** When a host is left alone that fails. */
export interface BreakerOptions {
  /** After so many failures in a row. Default 5. */
  readonly failures?: number
  /** For how long at first; it doubles with each try that fails. Default 30 s. */
  readonly coolDown?: Duration
  /** For how long at most. Default 10 minutes. */
  readonly max?: Duration
}

const optionNames = [
  'url',
  'secret',
  'secrets',
  'unsigned',
  'on',
  'attempts',
  'backoff',
  'timeout',
  'allowPrivate',
  'maxResponseBytes',
  'concurrency',
  'breaker',
  'lookup',
] as const satisfies readonly (keyof WebhookOptions)[]

/**
 * Has the ends of a queue's jobs told to a URL. They are stamped on jobs as they are added, and sent by workers that were
 * made with the queue.
 *
 * ```ts
 * const queue = new Queue('emails', { store, webhook: webhooks({ url: 'https://example.com/hook', secret }) })
 * ```
 */
export function webhooks(options: WebhookOptions): Webhooks {
  refuseUnknown(options, optionNames, WHERE)
  const { allowPrivate = false, unsigned = false, maxResponseBytes = 65_536, concurrency = 10, lookup } = options
  flag(allowPrivate, 'allowPrivate')
  flag(unsigned, 'unsigned')
  whole(maxResponseBytes, 0, Number.MAX_SAFE_INTEGER, 'maxResponseBytes')
  whole(concurrency, 1, 1000, 'concurrency')
  if (lookup !== undefined && typeof lookup !== 'function') throw bad('lookup must be a function')
  const settings = {
    keys: keysIn(options),
    allowPrivate,
    maxResponseBytes,
    concurrency,
    lookup,
    breaker: breakerIn(options.breaker),
  }
  return Object.freeze<Webhooks>({
    stamp: stampIn(options),
    deliver: (place) => startDeliveries(settings, place),
  })
}

const WHERE = 'webhooks()'

function keysIn({ secret, secrets = [], unsigned = false }: WebhookOptions): readonly Buffer[] {
  if (!Array.isArray(secrets)) throw bad('secrets must be a list of them')
  if (secret !== undefined && secrets.length > 0) throw bad('give either secret or secrets, not both')
  const given = secret === undefined ? secrets : [secret]
  if (given.length === 0 && !unsigned) {
    throw bad('give a secret, or say { unsigned: true }: without a signature, receivers cannot know who sends')
  }
  if (given.length > 0 && unsigned) throw bad('give secrets or unsigned, not both')
  return readSecrets(given, WHERE)
}

function stampIn(options: WebhookOptions): WebhookStamp {
  const { url, on, attempts = defaultStamp.attempts, backoff, timeout } = options
  whole(attempts, 1, 100, 'attempts')
  const waits = backoff === undefined ? defaultStamp.backoff : parseBackoff(backoff, `${WHERE}: backoff`)
  if (waits?.type === 'custom') throw bad('backoff cannot be custom: whoever sends a delivery must know its formula')
  const millis = timeout === undefined ? defaultStamp.timeout : parseDuration(timeout, `${WHERE}: timeout`)
  if (millis === 0) throw bad('timeout must be longer than 0')
  return {
    url: url === undefined ? undefined : checkUrl(url, `${WHERE}: url`),
    on: on === undefined ? defaultStamp.on : checkEnds(on, `${WHERE}: on`),
    attempts,
    backoff: waits,
    timeout: millis,
  }
}

function breakerIn(breaker: BreakerOptions | false = {}): BreakerSettings | undefined {
  if (breaker === false) return undefined
  refuseUnknown(breaker, ['failures', 'coolDown', 'max'], `${WHERE}: breaker`)
  const { failures = 5, coolDown = 30_000, max = 600_000 } = breaker
  whole(failures, 1, Number.MAX_SAFE_INTEGER, 'breaker.failures')
  return {
    failures,
    coolDown: Math.max(1, parseDuration(coolDown, `${WHERE}: breaker.coolDown`)),
    max: parseDuration(max, `${WHERE}: breaker.max`),
  }
}

function flag(value: unknown, field: string): void {
  if (typeof value !== 'boolean') throw bad(`${field} must be true or false, not ${quote(value)}`)
}

function whole(value: number, least: number, most: number, field: string): void {
  if (Number.isSafeInteger(value) && value >= least && value <= most) return
  const range = most === Number.MAX_SAFE_INTEGER ? `from ${least} up` : `from ${least} to ${most}`
  throw bad(`${field} must be a whole number ${range}, not ${quote(value)}`)
}

function bad(what: string): MillraceError {
  return new MillraceError('INVALID_OPTION', `${WHERE}: ${what}.`)
}

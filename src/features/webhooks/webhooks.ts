// features/webhooks/webhooks.ts: `webhooks()`, which makes the `webhook` option of a queue.
import { parseDuration } from '../../job/values/duration.js'
import type { Duration } from '../../job/values/duration.js'
import type { MillraceError } from '../../job/errors/errors.js'
import type { FinishedState } from '../../job/job.js'
import { refuseUnknown } from '../../job/values/names.js'
import { flag, invalid as invalidOption, whole } from '../../job/values/options.js'
import { parseBackoff } from '../../job/retry.js'
import type { BackoffOptions } from '../../job/retry.js'
import { checkEnds, checkUrl, defaultStamp } from '../../queue/settings/webhook.js'
import type { Webhooks, WebhookStamp } from '../../queue/settings/webhook.js'
import type { BreakerSettings } from './breaker.js'
import { startDeliveries } from './deliver.js'
import type { Lookup } from './post.js'
import { readSecrets } from './sign.js'

/** Options of `webhooks()`. */
export interface WebhookOptions {
  /**
   * The URL to call: http or https, without credentials. Default: only jobs that have a URL of their own are delivered.
   */
  readonly url?: string
  /** Signs deliveries: `whsec_` and base64, or other text of 16 bytes or more. It is not stored. Default: none. */
  readonly secret?: string
  /** Several secrets, for rotation: each signs every delivery. Default: none. */
  readonly secrets?: readonly string[]
  /** Send without a signature, if there is no secret. Default false. */
  readonly unsigned?: boolean
  /** The end states that are delivered. Default: `completed`, `failed` and `cancelled`. */
  readonly on?: readonly FinishedState[]
  /** Maximum number of delivery attempts, the first included, from 1 to 100. Default 10. */
  readonly attempts?: number
  /** The wait between attempts. Default: exponential from 10 s to 1 h, half jitter. */
  readonly backoff?: BackoffOptions | Duration
  /** Timeout of one attempt, redirects included. Default 10 s. */
  readonly timeout?: Duration
  /** Also call private and loopback addresses: for development. Default false. */
  readonly allowPrivate?: boolean
  /** Maximum number of bytes that are read of a response's body; the rest is cut off. Default 65536. */
  readonly maxResponseBytes?: number
  /** Maximum number of deliveries at the same time in one worker. Default 10. */
  readonly concurrency?: number
  /** When calls to a failing host pause; `false`: never. Default: the defaults of `BreakerOptions`. */
  readonly breaker?: BreakerOptions | false
  /** Resolves the addresses of a host; they are checked before use. Default: the system's resolver. */
  readonly lookup?: Lookup
}

/** When calls to a failing host pause. */
export interface BreakerOptions {
  /** After this many consecutive failures. Default 5. */
  readonly failures?: number
  /** For how long at first; doubles with each failed probe. Default 30 s. */
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
 * Delivers the ends of a queue's jobs to a URL. The settings are stamped on jobs when they are added, and workers made
 * with the queue send the deliveries.
 *
 * ```ts
 * const queue = new Queue('emails', { store, webhook: webhooks({ url: 'https://example.com/hook', secret }) })
 * ```
 */
export function webhooks(options: WebhookOptions): Webhooks {
  refuseUnknown(options, optionNames, WHERE)
  const { maxResponseBytes = 65_536, concurrency = 10, lookup } = options
  const allowPrivate = flag(options.allowPrivate, `${WHERE}: allowPrivate`)
  flag(options.unsigned, `${WHERE}: unsigned`)
  whole(maxResponseBytes, `${WHERE}: maxResponseBytes`, 0)
  whole(concurrency, `${WHERE}: concurrency`, 1, 1000)
  if (lookup !== undefined && typeof lookup !== 'function') throw invalid('lookup must be a function')
  const settings = {
    keys: parseKeys(options),
    allowPrivate,
    maxResponseBytes,
    concurrency,
    lookup,
    breaker: parseBreaker(options.breaker),
  }
  return Object.freeze<Webhooks>({
    stamp: parseStamp(options),
    deliver: (owner) => startDeliveries(settings, owner),
  })
}

const WHERE = 'webhooks()'

function parseKeys({ secret, secrets = [], unsigned = false }: WebhookOptions): readonly Buffer[] {
  if (!Array.isArray(secrets)) throw invalid('secrets must be a list of them')
  if (secret !== undefined && secrets.length > 0) throw invalid('give either secret or secrets, not both')
  const given = secret === undefined ? secrets : [secret]
  if (given.length === 0 && !unsigned) {
    throw invalid('give a secret, or say { unsigned: true }: without a signature, receivers cannot know who sends')
  }
  if (given.length > 0 && unsigned) throw invalid('give secrets or unsigned, not both')
  return readSecrets(given, WHERE)
}

function parseStamp(options: WebhookOptions): WebhookStamp {
  const { url, on, attempts = defaultStamp.attempts, backoff, timeout } = options
  whole(attempts, `${WHERE}: attempts`, 1, 100)
  const waits = backoff === undefined ? defaultStamp.backoff : parseBackoff(backoff, `${WHERE}: backoff`)
  if (waits?.type === 'custom')
    throw invalid('backoff cannot be custom: every worker that sends a delivery must know its formula')
  const millis = timeout === undefined ? defaultStamp.timeout : parseDuration(timeout, `${WHERE}: timeout`)
  if (millis === 0) throw invalid('timeout must be longer than 0')
  return {
    url: url === undefined ? undefined : checkUrl(url, `${WHERE}: url`),
    on: on === undefined ? defaultStamp.on : checkEnds(on, `${WHERE}: on`),
    attempts,
    backoff: waits,
    timeout: millis,
  }
}

function parseBreaker(breaker: BreakerOptions | false = {}): BreakerSettings | undefined {
  if (breaker === false) return undefined
  refuseUnknown(breaker, ['failures', 'coolDown', 'max'], `${WHERE}: breaker`)
  const { failures = 5, coolDown = 30_000, max = 600_000 } = breaker
  whole(failures, `${WHERE}: breaker.failures`, 1)
  return {
    failures,
    coolDown: Math.max(1, parseDuration(coolDown, `${WHERE}: breaker.coolDown`)),
    max: parseDuration(max, `${WHERE}: breaker.max`),
  }
}

function invalid(what: string): MillraceError {
  return invalidOption(`${WHERE}: ${what}.`)
}

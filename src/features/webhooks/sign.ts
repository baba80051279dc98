// features/webhooks/sign.ts: signatures by the Standard Webhooks scheme: made by the sender, verified by the receiver.
import { createHmac, timingSafeEqual } from 'node:crypto'
import { parseDuration } from '../../job/duration.js'
import type { Duration } from '../../job/duration.js'
import { MillraceError } from '../../job/errors.js'
import type { ErrorInfo, FinishedState, Time } from '../../job/job.js'
import { refuseUnknown } from '../../job/names.js'

/** What a receiver is sent, as JSON. */
export interface WebhookMessage<Result = unknown> {
  /** What happened: `job.completed`, `job.failed` or `job.cancelled`. */
  readonly type: `job.${FinishedState}`
  /** When the job ended, in ISO 8601. */
  readonly timestamp: string
  /** The job that has ended. */
  readonly data: {
    /** Its id. */
    readonly id: string
    /** The queue it is in. */
    readonly queue: string
    /** Its name. */
    readonly name: string
    /** The attempt that it ended in; 0 if it was never begun. */
    readonly attempt: number
    /** The id of the first job of its chain. */
    readonly chainId: string
    /** The job that added it as a child, or the schedule that made it. */
    readonly parentId?: string
    /** Whose job it is, where it has a group. */
    readonly group?: string
    /** What it returned, if it completed and returned something. */
    readonly result?: Result
    /** What it failed with and what caused that, without stacks. */
    readonly error?: Omit<ErrorInfo, 'stack'>
  }
}

/** How strict to be. */
export interface VerifyOptions {
  /** How old, or how far ahead, a signature may be. Default 5 minutes. */
  readonly tolerance?: Duration
  /** The time by which that is judged, in milliseconds since 1970. Default: now. */
  readonly now?: Time
}

/** Headers as `fetch` has them, or as `node:http` has them. */
export type ReceivedHeaders =
  | {
      /** The value of a header; null where there is none. */
      get(name: string): string | null
    }
  | Readonly<Record<string, string | readonly string[] | undefined>>

const PREFIX = 'whsec_'
const LEAST_BYTES = 16

/** Reads secrets: `whsec_` and base64, as the scheme writes them, or any text of 16 bytes or more. */
export function readSecrets(secrets: readonly string[], where: string): readonly Buffer[] {
  return secrets.map((secret) => {
    const bytes = typeof secret === 'string' ? keyOf(secret) : undefined
    if (bytes !== undefined && bytes.length >= LEAST_BYTES) return bytes
    // The message does not say what it is: it may end up in a log.
    throw new MillraceError(
      'INVALID_OPTION',
      `${where}: a secret is '${PREFIX}' and base64, or other text, of ${LEAST_BYTES} bytes or more.`,
    )
  })
}

function keyOf(secret: string): Buffer | undefined {
  if (!secret.startsWith(PREFIX)) return Buffer.from(secret)
  const text = secret.slice(PREFIX.length)
  return /^[\w+/-]+=*$/.test(text) ? Buffer.from(text, 'base64') : undefined
}

/** The header `webhook-signature`: one signature by each secret, so that a receiver may know either. */
export function sign(keys: readonly Buffer[], id: string, seconds: string, body: Uint8Array): string {
  return keys.map((key) => `v1,${digest(key, id, seconds, body).toString('base64')}`).join(' ')
}

function digest(key: Buffer, id: string, seconds: string, body: Uint8Array): Buffer {
  return createHmac('sha256', key).update(`${id}.${seconds}.`).update(body).digest()
}

/**
 * For receivers: answers the message if it was signed with one of the secrets, not long ago, and throws
 * `WEBHOOK_UNVERIFIED` otherwise. `body` is what was received, byte for byte, before it was parsed.
 */
export function verifyWebhook<Result = unknown>(
  secrets: string | readonly string[],
  headers: ReceivedHeaders,
  body: string | Uint8Array,
  options: VerifyOptions = {},
): WebhookMessage<Result> {
  refuseUnknown(options, ['tolerance', 'now'], 'verifyWebhook')
  const { now = Date.now() } = options
  const tolerance = parseDuration(options.tolerance ?? 300_000, 'verifyWebhook: tolerance')
  if (typeof secrets !== 'string' && !Array.isArray(secrets)) {
    throw new MillraceError('INVALID_OPTION', 'verifyWebhook: give the secret, or an array of them.')
  }
  if (typeof body !== 'string' && !(body instanceof Uint8Array)) {
    throw new MillraceError('INVALID_OPTION', 'verifyWebhook: give the body as it was received, before it was parsed.')
  }
  const keys = readSecrets(typeof secrets === 'string' ? [secrets] : secrets, 'verifyWebhook')
  const [id, seconds, signatures] = ['id', 'timestamp', 'signature'].map((name) => header(headers, `webhook-${name}`))
  if (id === undefined || seconds === undefined || signatures === undefined) {
    throw unverified('one of its headers webhook-id, webhook-timestamp and webhook-signature is missing')
  }
  if (!/^\d{1,12}$/.test(seconds)) throw unverified('its webhook-timestamp is no number of seconds')
  const bytes = typeof body === 'string' ? Buffer.from(body) : body
  const given = signatures.split(' ').flatMap((each) => (each.startsWith('v1,') ? [Buffer.from(each.slice(3))] : []))
  let known = false
  for (const key of keys) {
    const own = Buffer.from(digest(key, id, seconds, bytes).toString('base64'))
    for (const each of given) if (each.length === own.length && timingSafeEqual(each, own)) known = true
  }
  if (!known) throw unverified('no signature of it is by any of the secrets given')
  if (Math.abs(now - Number(seconds) * 1000) > tolerance) {
    throw unverified(`it was signed more than ${tolerance} ms ago, or as long in the future`)
  }
  return JSON.parse(Buffer.from(bytes).toString()) as WebhookMessage<Result>
}

function header(headers: ReceivedHeaders, name: string): string | undefined {
  if (typeof headers.get === 'function') return (headers as { get(name: string): string | null }).get(name) ?? undefined
  const all = headers as Readonly<Record<string, string | readonly string[] | undefined>>
  const found = all[name] ?? Object.entries(all).find(([key]) => key.toLowerCase() === name)?.[1]
  return typeof found === 'string' ? found : found?.[0]
}

function unverified(why: string): MillraceError {
  return new MillraceError('WEBHOOK_UNVERIFIED', `What was received is not to be trusted: ${why}.`)
}

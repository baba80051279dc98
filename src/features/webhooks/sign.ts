// features/webhooks/sign.ts: signs webhooks by the Standard Webhooks scheme, and verifies them for receivers.
import { createHmac, timingSafeEqual } from 'node:crypto'
import { parseDuration } from '../../job/values/duration.js'
import type { Duration } from '../../job/values/duration.js'
import { MillraceError } from '../../job/errors/errors.js'
import type { ErrorInfo, FinishedState, Time } from '../../job/job.js'
import { refuseUnknown } from '../../job/values/names.js'
import { invalid } from '../../job/values/options.js'

/** The JSON body of a webhook. */
export interface WebhookMessage<Result = unknown> {
  /** What happened: `job.completed`, `job.failed` or `job.cancelled`. */
  readonly type: `job.${FinishedState}`
  /** When the job ended, in ISO 8601. */
  readonly timestamp: string
  /** The job that ended. */
  readonly data: {
    /** Its id. */
    readonly id: string
    /** The queue it is in. */
    readonly queue: string
    /** Its name. */
    readonly name: string
    /** The attempt that it ended in; 0 if it never started. */
    readonly attempt: number
    /** The id of the first job of its chain. */
    readonly chainId: string
    /** The job that added it as a child, or the schedule that created it. */
    readonly parentId?: string
    /** Its group, if it has one. */
    readonly group?: string
    /** What it returned, if it completed and returned something. */
    readonly result?: Result
    /** The error it failed with and its causes, without stacks. */
    readonly error?: Omit<ErrorInfo, 'stack'>
  }
}

/** Options of `verifyWebhook`. */
export interface VerifyOptions {
  /** Maximum age of a signature, or how far it may be in the future. Default 5 minutes. */
  readonly tolerance?: Duration
  /** The time to compare with, in milliseconds since 1970. Default: now. */
  readonly now?: Time
}

/** Headers of `fetch` or `node:http`. */
export type ReceivedHeaders =
  | {
      /** The value of a header; null if absent. */
      get(name: string): string | null
    }
  | Readonly<Record<string, string | readonly string[] | undefined>>

const PREFIX = 'whsec_'
const MIN_SECRET_BYTES = 16

/** Parses secrets: `whsec_` and base64, as the scheme writes them, or any text of 16 bytes or more. */
export function readSecrets(secrets: readonly string[], where: string): readonly Buffer[] {
  return secrets.map((secret) => {
    const bytes = typeof secret === 'string' ? keyOf(secret) : undefined
    if (bytes !== undefined && bytes.length >= MIN_SECRET_BYTES) return bytes
    // The message does not contain the secret, because it may be logged.
    throw invalid(`${where}: a secret is '${PREFIX}' and base64, or other text, of ${MIN_SECRET_BYTES} bytes or more.`)
  })
}

function keyOf(secret: string): Buffer | undefined {
  if (!secret.startsWith(PREFIX)) return Buffer.from(secret)
  const text = secret.slice(PREFIX.length)
  return /^[\w+/-]+=*$/.test(text) ? Buffer.from(text, 'base64') : undefined
}

/** The header `webhook-signature`: one signature per secret, so that a receiver may know any of them. */
export function sign(keys: readonly Buffer[], id: string, seconds: string, body: Uint8Array): string {
  return keys.map((key) => `v1,${digest(key, id, seconds, body).toString('base64')}`).join(' ')
}

function digest(key: Buffer, id: string, seconds: string, body: Uint8Array): Buffer {
  return createHmac('sha256', key).update(`${id}.${seconds}.`).update(body).digest()
}

/**
 * For receivers: returns the message if it was signed with one of the secrets, within the tolerance; throws
 * `WEBHOOK_UNVERIFIED` otherwise. `body` is what was received, byte for byte, before parsing.
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
    throw invalid('verifyWebhook: give the secret, or an array of them.')
  }
  if (typeof body !== 'string' && !(body instanceof Uint8Array)) {
    throw invalid('verifyWebhook: give the body as it was received, before it was parsed.')
  }
  const keys = readSecrets(typeof secrets === 'string' ? [secrets] : secrets, 'verifyWebhook')
  const [id, seconds, signatures] = ['id', 'timestamp', 'signature'].map((name) => header(headers, `webhook-${name}`))
  if (id === undefined || seconds === undefined || signatures === undefined) {
    throw unverified('one of its headers webhook-id, webhook-timestamp and webhook-signature is missing')
  }
  if (!/^\d{1,12}$/.test(seconds)) throw unverified('its webhook-timestamp is no number of seconds')
  const bytes = typeof body === 'string' ? Buffer.from(body) : body
  const given = signatures.split(' ').flatMap((each) => (each.startsWith('v1,') ? [Buffer.from(each.slice(3))] : []))
  let verified = false
  for (const key of keys) {
    const own = Buffer.from(digest(key, id, seconds, bytes).toString('base64'))
    for (const each of given) if (each.length === own.length && timingSafeEqual(each, own)) verified = true
  }
  if (!verified) throw unverified('no signature of it is by any of the secrets given')
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

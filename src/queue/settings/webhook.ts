// queue/settings/webhook.ts: where the end of a job is told: what is stamped on it, what its handle shows, and replay by hand.
import { createHash } from 'node:crypto'
import type { Duration } from '../../job/duration.js'
import { MillraceError } from '../../job/errors.js'
import type { Backoff } from '../../job/retry.js'
import type { FinishedState, JobRecord, Millis, Webhook } from '../../job/job.js'
import { memoOf } from '../../job/memo.js'
import type { DeliveryEntry } from '../../job/memo.js'
import { refuseUnknown } from '../../job/names.js'
import { quote } from '../../job/quote.js'
import type { Decision } from '../../job/lifecycle.js'
import { deliveryPending, isSent, redeliver } from '../../job/webhooks.js'
import type { Connection } from '../../store/connection.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Store } from '../../store/store.js'
import type { Logger } from '../events/events.js'
import { oneOf } from '../add-options.js'
import type { JobWebhookOptions } from '../add-options.js'
import type { Session } from '../../store/session.js'

/** Where a worker has the deliveries of its queue sent. */
export interface DeliveryPlace {
  readonly queue: string
  readonly store: Store
  readonly logger: Logger | false | undefined
  /** How the worker was told to hold and to look after jobs. */
  readonly lease: Millis
  readonly upkeepEvery: Millis
  readonly pollEvery: Millis
  readonly reconnect: Backoff
  /** Something went wrong that no call rejects for. */
  failed(error: unknown): void
}

/** Deliveries under way. */
export interface Deliveries {
  /** Takes no further ones and waits for those under way; those that are not done in time are left to whoever comes next. */
  close(options: { readonly timeout: Duration; readonly grace: Duration }): Promise<void>
}

/** Tells webhooks of the ends of jobs. Made by `webhooks()`, for the `webhook` of a queue. */
export interface Webhooks {
  /** What is stamped on jobs that do not say otherwise; it holds no secret. */
  readonly stamp: WebhookStamp
  /** Sends the deliveries of a queue until that is closed; called by its workers. */
  deliver(place: DeliveryPlace): Deliveries
}

/** What is stamped on jobs; without a URL, only on those that name one. */
export type WebhookStamp = Omit<Webhook, 'url'> & { readonly url: string | undefined }

/** What the handle on a job shows of its webhook. */
export interface JobWebhook {
  /** Where its end is told. */
  readonly url: string
  /** The ends that are told. */
  readonly on: readonly FinishedState[]
  /** Its end has been told: the receiver answered with a status from 200 to 299. */
  readonly sent: boolean
  /** Its end is still to be told, for the first time or because somebody asked for it again. */
  readonly pending: boolean
  /** Attempts to tell it, oldest first, the last 20 of them. */
  readonly deliveries: readonly DeliveryEntry[]
}

/** All that can be told. */
const ends: readonly FinishedState[] = ['completed', 'failed', 'cancelled']

const LONGEST_URL = 2048

/** What jobs are stamped with where neither they nor their queue say more: ten attempts in about seven hours. */
export const defaultStamp: WebhookStamp = {
  url: undefined,
  on: ends,
  attempts: 10,
  backoff: { type: 'exponential', delay: 10_000, factor: 2, max: 3_600_000, jitter: 0.5 },
  timeout: 10_000,
}

/** What a job is stamped with, by its own `webhook` and by that of its queue. */
export function stampOf(
  own: string | JobWebhookOptions | false | undefined,
  webhooks: Webhooks | undefined,
  where: string,
): Webhook | undefined {
  const stamp = webhooks?.stamp ?? defaultStamp
  if (own === undefined) return stamp.url === undefined ? undefined : (stamp as Webhook)
  if (own === false) return undefined
  if (typeof own === 'string') return { ...stamp, url: checkUrl(own, `${where}: webhook`) }
  refuseUnknown(own, ['url', 'on'], `${where}: webhook`)
  const url = own.url === undefined ? stamp.url : checkUrl(own.url, `${where}: webhook.url`)
  if (url === undefined) {
    throw new MillraceError('INVALID_OPTION', `${where}: webhook needs a url, or a queue with one.`)
  }
  return { ...stamp, url, on: own.on === undefined ? stamp.on : checkEnds(own.on, `${where}: webhook.on`) }
}

/** Reads which ends are told. */
export function checkEnds(on: readonly FinishedState[], field: string): readonly FinishedState[] {
  if (Array.isArray(on) && on.length > 0) return [...new Set(on.map((each) => oneOf(each, ends, field)))]
  throw new MillraceError('INVALID_OPTION', `${field} must name at least one of ${ends.join(', ')}.`)
}

/** Reads a URL that can be told anything at all: http or https, and nobody's password in it. */
export function checkUrl(value: string, field: string): string {
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : undefined
  const wrong =
    url === undefined
      ? `must be a URL, not ${quote(value)}`
      : url.protocol !== 'https:' && url.protocol !== 'http:'
        ? `must begin with https:// or http://, not ${url.protocol}`
        : url.username !== '' || url.password !== ''
          ? 'must not hold a user name or a password: it is stored with the job. The signature says who sends'
          : value.length > LONGEST_URL
            ? `must not be longer than ${LONGEST_URL} characters`
            : undefined
  if (wrong === undefined) return url!.href
  throw new MillraceError('INVALID_OPTION', `${field} ${wrong}.`, { details: { field } })
}

/** A URL without its query and credentials. */
export function bareUrl(value: string): string {
  const url = URL.canParse(value) ? new URL(value) : undefined
  return url === undefined ? '' : `${url.origin}${url.pathname}`
}

/** Refuses what cannot send deliveries. */
export function checkWebhooks(webhook: Webhooks | undefined): Webhooks | undefined {
  if (webhook === undefined) return undefined
  if (typeof webhook?.deliver === 'function') return webhook
  throw new MillraceError(
    'INVALID_OPTION',
    'new Queue: webhook takes what webhooks() makes, as in { webhook: webhooks({ url, secret }) }.',
  )
}

/** What the handle on a job shows. */
export function shownWebhook(record: JobRecord): JobWebhook | undefined {
  const { webhook } = record.extras ?? {}
  if (webhook === undefined) return undefined
  const { deliveries = [] } = memoOf(record)
  return { url: webhook.url, on: webhook.on, sent: isSent(record), pending: deliveryPending(record), deliveries }
}

/** What a delivery is known by outside: `webhook-id`, the same in all its attempts. */
export function webhookId(delivery: string): string {
  return `msg_${createHash('sha256').update(delivery).digest('base64url').slice(0, 27)}`
}

/** What judges wishes by the rules; see `Desk`. */
interface Acting {
  readonly connection: Connection
  acting(id: string, decide: (job: JobRecord) => Decision, way: Session, known?: JobRecord): Steps<unknown>
}

/** Has the end of a finished job told once more; answers the `webhook-id` of that delivery. */
export function* redelivering(id: string, desk: Acting, way: Session, known?: JobRecord): Steps<string> {
  const { runtime } = desk.connection
  const delivery = `millrace:webhook:${runtime.id()}`
  const asked = { id: webhookId(delivery), at: runtime.now() }
  yield* desk.acting(id, (job) => redeliver(job, delivery, asked), way, known)
  return asked.id
}

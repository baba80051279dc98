// queue/settings/webhook.ts: webhook settings as stamped on jobs, what a handle shows of them, and redelivery.
import { createHash } from 'node:crypto'
import type { Duration } from '../../job/values/duration.js'
import type { Backoff } from '../../job/retry.js'
import { finishedStates } from '../../job/job.js'
import type { FinishedState, JobRecord, Millis, Webhook } from '../../job/job.js'
import { memoOf } from '../../job/memo.js'
import type { DeliveryEntry } from '../../job/memo.js'
import { refuseUnknown } from '../../job/values/names.js'
import { invalid, oneOf } from '../../job/values/options.js'
import { quote } from '../../job/errors/errors.js'
import { deliveryPending, isSent } from '../../job/webhooks.js'
import type { Store } from '../../store/store.js'
import type { Logger } from '../events/events.js'
import type { JobWebhookOptions } from '../add-options.js'

/** What a delivery worker uses of the worker that starts it. */
export interface DeliveryOwner {
  readonly queue: string
  readonly store: Store
  readonly logger: Logger | false | undefined
  /** The worker's settings for leases, upkeep and polling. */
  readonly lease: Millis
  readonly upkeepEvery: Millis
  readonly pollEvery: Millis
  readonly reconnect: Backoff
  /** Reports an error that no call rejects with. */
  failed(error: unknown): void
}

/** A running delivery worker. */
export interface Deliveries {
  /**
   * Stops claiming deliveries and waits for running ones; those unfinished at the timeout are left to other workers.
   */
  close(options: { readonly timeout: Duration; readonly grace: Duration }): Promise<void>
  /** Sends everything that can be sent now, within the timeout, and closes. */
  drain(options: { readonly timeout: Duration; readonly grace: Duration }): Promise<void>
}

/** Delivers the ends of jobs to webhooks. Made by `webhooks()`, for the `webhook` option of a queue. */
export interface Webhooks {
  /** Stamped on jobs that have no webhook options of their own; contains no secret. */
  readonly stamp: WebhookStamp
  /** Sends the deliveries of a queue until closed; called by its workers. */
  deliver(owner: DeliveryOwner): Deliveries
}

/** What is stamped on jobs; without a URL, only on those that have one themselves. */
export type WebhookStamp = Omit<Webhook, 'url'> & { readonly url: string | undefined }

/** What a job handle shows of its webhook. */
export interface JobWebhook {
  /** The URL that is called. */
  readonly url: string
  /** The end states that are delivered. */
  readonly on: readonly FinishedState[]
  /** Whether it was delivered: the receiver responded with a status from 200 to 299. */
  readonly sent: boolean
  /** Whether a delivery is pending, the first one or a redelivery. */
  readonly pending: boolean
  /** Delivery attempts, oldest first, the last 20 of them. */
  readonly deliveries: readonly DeliveryEntry[]
}

const MAX_URL_LENGTH = 2048

/** The stamp where neither the job nor its queue specifies more: ten attempts in about seven hours. */
export const defaultStamp: WebhookStamp = {
  url: undefined,
  on: finishedStates,
  attempts: 10,
  backoff: { type: 'exponential', delay: 10_000, factor: 2, max: 3_600_000, jitter: 0.5 },
  timeout: 10_000,
}

/** The stamp for a job, from its own `webhook` option and its queue's. */
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
  if (url === undefined) throw invalid(`${where}: webhook needs a url, or a queue with one.`)
  return { ...stamp, url, on: own.on === undefined ? stamp.on : checkEnds(own.on, `${where}: webhook.on`) }
}

/** Checks the end states that are delivered. */
export function checkEnds(on: readonly FinishedState[], field: string): readonly FinishedState[] {
  if (Array.isArray(on) && on.length > 0) return [...new Set(on.map((each) => oneOf(each, finishedStates, field)))]
  throw invalid(`${field} must name at least one of ${finishedStates.join(', ')}.`)
}

/** Checks the URL of a webhook: http or https, without credentials. */
export function checkUrl(value: string, field: string): string {
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : undefined
  const problem =
    url === undefined
      ? `must be a URL, not ${quote(value)}`
      : url.protocol !== 'https:' && url.protocol !== 'http:'
        ? `must begin with https:// or http://, not ${url.protocol}`
        : url.username !== '' || url.password !== ''
          ? 'must not hold a user name or a password: it is stored with the job. The signature says who sends'
          : value.length > MAX_URL_LENGTH
            ? `must not be longer than ${MAX_URL_LENGTH} characters`
            : undefined
  if (problem === undefined) return url!.href
  throw invalid(`${field} ${problem}.`, { field })
}

/** A URL without its query and credentials. */
export function bareUrl(value: string): string {
  const url = URL.canParse(value) ? new URL(value) : undefined
  return url === undefined ? '' : `${url.origin}${url.pathname}`
}

/** Throws unless the value is made by `webhooks()`. */
export function checkWebhooks(webhook: Webhooks | undefined): Webhooks | undefined {
  if (webhook === undefined) return undefined
  if (typeof webhook?.deliver === 'function') return webhook
  throw invalid('new Queue: webhook takes what webhooks() makes, as in { webhook: webhooks({ url, secret }) }.')
}

/** What a job handle shows of its webhook. */
export function publicWebhook(record: JobRecord): JobWebhook | undefined {
  const { webhook } = record.extras ?? {}
  if (webhook === undefined) return undefined
  const { deliveries = [] } = memoOf(record)
  return { url: webhook.url, on: webhook.on, sent: isSent(record), pending: deliveryPending(record), deliveries }
}

/** The public id of a delivery, the header `webhook-id`, the same in all its attempts. */
export function webhookId(delivery: string): string {
  return `msg_${createHash('sha256').update(delivery).digest('base64url').slice(0, 27)}`
}

// The types of webhooks.
import { describe, expectTypeOf, it } from 'vitest'
import { Queue } from 'millrace'
import { verifyWebhook, webhooks } from 'millrace/webhooks'
import type { DeliveryEntry, FinishedState, Job, JobWebhook, Store, WebhookMessage, Webhooks } from 'millrace'

declare const store: Store
declare const job: Job
const secret = 'a secret of this test'

describe('webhooks', () => {
  it('are made by webhooks(), and given to a queue', () => {
    const made = webhooks({ url: 'https://example.com', secret, on: ['failed'], backoff: '10s', breaker: false })
    expectTypeOf(made).toEqualTypeOf<Webhooks>()
    const queue = new Queue('work', { store, webhook: made })
    expectTypeOf(queue.redeliver('id')).toEqualTypeOf<Promise<string>>()
    // @ts-expect-error: not the options themselves, for those hold the secret
    void new Queue('work', { store, webhook: { url: 'https://example.com', secret } })
    // @ts-expect-error: only ends are delivered
    webhooks({ secret, on: ['waiting'] })
    // @ts-expect-error: an option that is not known
    webhooks({ secret, retries: 3 })
  })

  it('can be overridden by a job', () => {
    const queue = new Queue('work', { store })
    void queue.add('a', 1, { webhook: 'https://example.com' })
    void queue.add('a', 1, { webhook: { url: 'https://example.com', on: ['completed'] } })
    void queue.add('a', 1, { webhook: false })
    // @ts-expect-error: a job has no secret of its own
    void queue.add('a', 1, { webhook: { url: 'https://example.com', secret } })
    // @ts-expect-error: true has no meaning
    void queue.add('a', 1, { webhook: true })
  })

  it('are shown by the handle', () => {
    expectTypeOf(job.webhook).toEqualTypeOf<JobWebhook | undefined>()
    expectTypeOf<JobWebhook['deliveries']>().toEqualTypeOf<readonly DeliveryEntry[]>()
    expectTypeOf(job.redeliver()).toEqualTypeOf<Promise<string>>()
  })

  it('report their outcome by events', () => {
    const queue = new Queue('work', { store })
    queue.on('webhook-delivered', ({ url, event, attempts, webhookSent }) => {
      expectTypeOf(url).toEqualTypeOf<string>()
      expectTypeOf(event).toEqualTypeOf<FinishedState>()
      expectTypeOf(attempts).toEqualTypeOf<number>()
      expectTypeOf(webhookSent).toEqualTypeOf<true>()
    })
    queue.on('webhook-failed', ({ error }) => expectTypeOf(error.message).toEqualTypeOf<string>())
  })

  it('are verified by their receivers', () => {
    expectTypeOf(verifyWebhook(secret, new Headers(), '')).toEqualTypeOf<WebhookMessage>()
    const message = verifyWebhook<{ total: number }>([secret], { 'webhook-id': 'a' }, new Uint8Array(), {
      tolerance: '1m',
    })
    expectTypeOf(message.data.result).toEqualTypeOf<{ total: number } | undefined>()
    expectTypeOf(message.type).toEqualTypeOf<'job.completed' | 'job.failed' | 'job.cancelled'>()
  })
})

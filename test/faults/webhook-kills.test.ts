// Processes are killed before or during the delivery of a job's end: it is delivered after a restart.
import { expect, test } from 'vitest'
import { Queue, Worker } from 'millrace'
import { verifyWebhook, webhooks } from 'millrace/webhooks'
import { sqlite } from 'millrace/sqlite'
import { scene, start } from './processes.js'
import type { WebhookInput, WebhookMessage } from './programs/webhook-worker.js'
import { closing, event } from '../setup.js'
import { receiver, silence } from '../features/webhooks/receiver.js'

const path = scene()
const secret = 'a secret of this test'

function delivering(input: Omit<WebhookInput, 'path'>) {
  return start<WebhookMessage>('webhook-worker', { path: path('jobs.db'), ...input } satisfies WebhookInput)
}

/** A queue beside the programs; jobs are stamped by it. */
function beside(attempts: number): Queue {
  const store = closing(sqlite(path('jobs.db')))
  const webhook = webhooks({ secret, allowPrivate: true, attempts, backoff: 1 })
  return closing(new Queue('work', { store, logger: false, webhook }))
}

test('a process killed between the settlement and the delivery: it is delivered after a restart', async () => {
  const hook = await receiver()
  const queue = beside(10)
  const settling = delivering({})
  await settling.received('running')
  const job = await queue.add('a', undefined, { webhook: hook.url })
  await settling.received('completed')
  await settling.kill()
  expect(hook.all).toEqual([])
  const delivered = event(queue, 'webhook-delivered')
  // A subscriber that listens and then reads receives all that comes after what was read.
  expect((await queue.get(job.id))!.webhook).toMatchObject({ pending: true, sent: false })
  const worker = delivering({ secret })
  expect(await delivered).toMatchObject({ id: job.id, attempts: 1 })
  expect(verifyWebhook(secret, hook.all[0]!.headers, hook.all[0]!.body).data.id).toBe(job.id)
  expect((await queue.get(job.id))!.webhook).toMatchObject({ pending: false, sent: true })
  expect(await worker.finish()).toMatchObject({ code: 0 })
})

test('a process killed in mid-delivery: it is delivered again, under the same webhook-id', async () => {
  const hook = await receiver()
  const queue = beside(10)
  hook.answers(silence)
  const worker = delivering({ secret, lease: 500 })
  const job = await queue.add('a', undefined, { webhook: hook.url })
  const first = await hook.next()
  await worker.kill()

  const delivered = event(queue, 'webhook-delivered')
  closing(new Worker(queue, { other: () => {} }, { logger: false, upkeepEvery: 100 }))
  expect(await delivered).toMatchObject({ id: job.id, attempts: 2 })
  const second = await hook.next()
  expect(second.headers['webhook-id']).toBe(first.headers['webhook-id'])
  expect(second.body).toBe(first.body)
})

test('a process is killed in the last attempt to deliver: another one reports that it was the last', async () => {
  const hook = await receiver()
  const queue = beside(1)
  hook.answers(silence)
  const worker = delivering({ secret, lease: 500 })
  const job = await queue.add('a', undefined, { webhook: hook.url })
  await hook.next()
  await worker.kill()

  const failed = event(queue, 'webhook-failed')
  closing(new Worker(queue, { other: () => {} }, { logger: false, upkeepEvery: 100 }))
  expect(await failed).toMatchObject({ id: job.id, attempts: 1, error: { code: 'WEBHOOK_FAILED' } })
  expect((await queue.get(job.id))!.webhook).toMatchObject({ pending: false, sent: false })
  expect(hook.all).toHaveLength(1)
})

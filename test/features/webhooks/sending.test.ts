// How deliveries are sent: signatures, bounds, what receivers can ask for, and what is never written down.
import { createHmac } from 'node:crypto'
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { FlowProducer, Queue, Worker } from 'millrace'
import { verifyWebhook, webhooks } from 'millrace/webhooks'
import type { Store, WebhookOptions } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import { DELIVERIES, noteDelivery } from '../../../src/job/webhooks.js'
import { Breaker } from '../../../src/features/webhooks/breaker.js'
import { connect } from '../../../src/store/connection.js'
import { systemRuntime } from '../../../src/store/runtime.js'
import { closing, event, gate, newStore } from '../../setup.js'
import { freshFolder } from '../../stores/sqlite/folder.js'
import { thrown } from '../../thrown.js'
import { ofDelivery } from './deliveries.js'
import { receiver, silence } from './receiver.js'
import type { Answering } from './receiver.js'

const KEY = Buffer.from('the key of this receiver')
const SECRET = `whsec_${KEY.toString('base64')}`
const near = { secret: SECRET, allowPrivate: true, backoff: { type: 'fixed', delay: 1 } } as const

function scene(options: WebhookOptions, store: Store = newStore()): { store: Store; queue: Queue; worker: Worker } {
  const queue = closing(new Queue('work', { store, logger: false, webhook: webhooks(options) }))
  return { store, queue, worker: closing(new Worker(queue, () => 'done', { logger: false })) }
}

describe('signatures', () => {
  it('are those of the Standard Webhooks scheme', () => {
    // The vector that implementations of the scheme are tested with.
    const headers = {
      'webhook-id': 'msg_p5jXN8AQM9LWM0D4loKWxJek',
      'webhook-timestamp': '1614265330',
      'webhook-signature': 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
    }
    const secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'
    expect(verifyWebhook(secret, headers, '{"test": 2432232314}', { now: 1_614_265_330_000 })).toEqual({
      test: 2432232314,
    })
  })

  it('are over id, timestamp and body, one by each secret, so that secrets can be changed', async () => {
    const hook = await receiver()
    const [older, newer] = [SECRET, 'another secret, as plain text']
    const { queue } = scene({ allowPrivate: true, url: hook.url, secrets: [newer, older] })
    await queue.add('a')
    const { headers, body } = await hook.next()
    const signed = `${String(headers['webhook-id'])}.${String(headers['webhook-timestamp'])}.${body}`
    const by = (key: Buffer | string): string => `v1,${createHmac('sha256', key).update(signed).digest('base64')}`
    expect(headers['webhook-signature']).toBe(`${by(newer)} ${by(KEY)}`)
    for (const secrets of [older, newer, ['one that is not known', older]]) {
      expect(verifyWebhook(secrets, headers, body)).toMatchObject({ type: 'job.completed' })
      expect(verifyWebhook(secrets, new Headers(headers as Record<string, string>), Buffer.from(body))).toBeDefined()
    }
    const wrong = [
      () => verifyWebhook('a secret of somebody else', headers, body),
      () => verifyWebhook(SECRET, headers, `${body} `),
      () => verifyWebhook(SECRET, { ...headers, 'webhook-id': 'msg_1' }, body),
      () => verifyWebhook(SECRET, { ...headers, 'webhook-signature': 'v1,' }, body),
      () => verifyWebhook(SECRET, { ...headers, 'webhook-signature': undefined }, body),
      () => verifyWebhook(SECRET, { ...headers, 'webhook-timestamp': 'now' }, body),
      () => verifyWebhook(SECRET, headers, body, { now: Date.now() + 301_000 }),
      () => verifyWebhook(SECRET, headers, body, { now: Date.now() - 20_000, tolerance: '10s' }),
    ]
    for (const each of wrong) expect(thrown(each)).toMatchObject({ code: 'WEBHOOK_UNVERIFIED' })
  })

  it('are left out only where the options exclude them', async () => {
    const hook = await receiver()
    expect(thrown(() => webhooks({ url: hook.url }))).toMatchObject({ code: 'INVALID_OPTION' })
    const { queue } = scene({ allowPrivate: true, url: hook.url, unsigned: true })
    await queue.add('a')
    const { headers } = await hook.next()
    expect(headers['webhook-id']).toBeDefined()
    expect(headers['webhook-signature']).toBeUndefined()
  })
})

describe('secrets', () => {
  const path = freshFolder()

  it('are stored nowhere: neither in the database, nor in events, logs or handles', async () => {
    const hook = await receiver()
    hook.answers(500)
    const published: unknown[] = []
    const logger = {
      warn: (...all: unknown[]) => published.push(all),
      error: (...all: unknown[]) => published.push(all),
    }
    const store = closing(sqlite(path('jobs.db')))
    const secrets = [SECRET, 'another secret, as plain text']
    const webhook = webhooks({ secrets, url: hook.url, allowPrivate: true, backoff: 1 })
    const queue = closing(new Queue('work', { store, logger, webhook }))
    const worker = closing(new Worker(queue, () => 'done', { logger }))
    for (const type of ['completed', 'webhook-delivered', 'webhook-failed'] as const) {
      queue.on(type, (each) => published.push(each))
    }
    const delivered = event(queue, 'webhook-delivered')
    const job = await queue.add('a')
    await delivered
    published.push(await queue.get(job.id), webhook, { ...webhook })
    await queue.schedule('often', { every: '1h', name: 'a' }) // keeps what is stamped on its runs
    await worker.close()
    await queue.close()
    const written = Buffer.concat(readdirSync(path()).map((name) => readFileSync(join(path(), name))))
    await store.close()
    const texts = [written, Buffer.from(JSON.stringify(published))]
    expect(written.includes(hook.url)).toBe(true)
    for (const secret of [SECRET, KEY, KEY.toString('base64'), KEY.toString('hex'), secrets[1]!]) {
      for (const text of texts) expect(text.includes(secret)).toBe(false)
    }
  })
})

describe('receivers', () => {
  it('are called over connections that are kept', async () => {
    const hook = await receiver()
    const { queue } = scene({ ...near, url: hook.url })
    for (let sent = 0; sent < 3; sent++) {
      const delivered = event(queue, 'webhook-delivered')
      await queue.add('a')
      await delivered
    }
    expect(new Set(hook.all.map(({ port }) => port)).size).toBe(1)
  })

  it('can ask for time by Retry-After, within bounds', async () => {
    const hook = await receiver()
    const after =
      (value: string): Answering =>
      (response) =>
        void response.writeHead(503, { 'retry-after': value }).end()
    hook.answers(after('120'), after('Fri, 01 Jan 2100 00:00:00 GMT'), after('soon'))
    const { queue, store } = scene({ ...near, url: hook.url })
    for (const wait of [120_000, 3_600_000, 1]) {
      const delayed = ofDelivery(store, 'delayed')
      await queue.add('a')
      const { runAt, at } = await delayed
      expect(runAt! - at).toBe(wait)
    }
  })

  it('are not sent again if they are recorded as accepted, after the process that sent them died', async () => {
    const hook = await receiver()
    const { queue, store } = scene({ ...near, url: hook.url })
    hook.answers((response, { headers, body }) => {
      const { data } = verifyWebhook(SECRET, headers, body)
      void store.get([data.id]).then(async ([record]) => {
        const entry = {
          id: String(headers['webhook-id']),
          at: 1,
          event: 'completed',
          url: hook.url,
          attempt: 1,
        } as const
        const note = noteDelivery(record!, { entry, made: record!.finishedAt!, came: 'sent' })!
        await connect(store).main.commit(note)
        response.writeHead(500).end() // as if the answer had been lost
      })
    })
    const over = ofDelivery(store, 'removed')
    const job = await queue.add('a')
    await over
    expect(hook.all).toHaveLength(1)
    expect((await queue.get(job.id))!.webhook).toMatchObject({ sent: true, pending: false })
  })

  it('end it by 410 Gone', async () => {
    const hook = await receiver()
    hook.answers(410)
    const { queue } = scene({ ...near, url: hook.url })
    const failed = event(queue, 'webhook-failed')
    await queue.add('a')
    expect(await failed).toMatchObject({ attempts: 1 })
  })

  it('that do not answer in time are tried again', async () => {
    const hook = await receiver()
    hook.answers(silence, (response) => response.socket?.destroy())
    const { queue } = scene({ ...near, url: hook.url, timeout: 2_000 })
    const delivered = event(queue, 'webhook-delivered')
    const job = await queue.add('a')
    expect(await delivered).toMatchObject({ attempts: 3 })
    const [first, second, third] = (await queue.get(job.id))!.webhook!.deliveries
    expect(first).toMatchObject({
      attempt: 1,
      error: 'The webhook was not delivered: there was no answer within 2000 ms.',
    })
    expect(second).toMatchObject({ attempt: 2, error: expect.stringContaining('The webhook was not delivered: ') })
    expect(third).toMatchObject({ attempt: 3, status: 204 })
  })

  it('that cannot be reached are tried again, and the log has the reason', async () => {
    const lookup = async () => [
      { address: '127.0.0.1', family: 4 },
      { address: '127.0.0.2', family: 4 },
    ]
    const { queue } = scene({ ...near, url: 'http://nobody.example:1', lookup, attempts: 2 })
    const failed = event(queue, 'webhook-failed')
    const job = await queue.add('a')
    expect(await failed).toMatchObject({ attempts: 2 })
    const { deliveries } = (await queue.get(job.id))!.webhook!
    expect(deliveries.map(({ error }) => error)).toEqual([
      expect.stringContaining('ECONNREFUSED'),
      expect.stringContaining('ECONNREFUSED'),
    ])
  })

  it('whose name is never resolved do not hold up a delivery', async () => {
    const { queue } = scene({
      ...near,
      url: 'http://nobody.example',
      lookup: () => new Promise(() => {}),
      attempts: 1,
      timeout: 30,
    })
    const failed = event(queue, 'webhook-failed')
    await queue.add('a')
    expect(await failed).toMatchObject({ error: { message: expect.stringContaining('no answer within 30 ms') } })
  })

  it('that answer without end are cut off, and count as delivered', async () => {
    const hook = await receiver()
    const cut = gate()
    let written = 0
    hook.answers((response) => {
      response.writeHead(200)
      const more = (): void => {
        written += 65_536
        response.write(Buffer.alloc(65_536), (error) => (error ? undefined : setImmediate(more)))
      }
      response.on('close', cut.open)
      more()
    })
    const { queue } = scene({ ...near, url: hook.url, maxResponseBytes: 100_000 })
    const delivered = event(queue, 'webhook-delivered')
    await queue.add('a')
    expect(await delivered).toMatchObject({ attempts: 1 })
    await cut.promise
    expect(written).toBeLessThan(50_000_000)
  })

  it('that fail again and again are left alone for a while, at no cost of attempts', async () => {
    const hook = await receiver()
    hook.answers(500, 500)
    const { queue, store } = scene({
      ...near,
      url: hook.url,
      attempts: 1,
      breaker: { failures: 2, coolDown: '1h', max: '1h' },
    })
    for (let sent = 0; sent < 2; sent++) {
      const failed = event(queue, 'webhook-failed')
      await queue.add('a')
      await failed
    }
    const delayed = ofDelivery(store, 'delayed')
    await queue.add('a')
    const { id, runAt, at } = await delayed
    expect(runAt! - at).toBeGreaterThan(3_500_000)
    const [row] = await store.get([id])
    expect(row).toMatchObject({ state: 'delayed', attempt: 0 })
    expect(hook.all).toHaveLength(2)
  })

  it('that were left alone are called again after a while', async () => {
    const hook = await receiver()
    hook.answers(500, 500, 500)
    const { queue } = scene({ ...near, url: hook.url, breaker: { failures: 2, coolDown: 5 } })
    const delivered = event(queue, 'webhook-delivered')
    await queue.add('a')
    expect(await delivered).toMatchObject({ attempts: 4 })
  })
})

describe('the breaker', () => {
  it('lets one probe through when the cool-down is over, and doubles it when that fails', () => {
    let time = 0
    const runtime = { ...systemRuntime(), elapsed: () => time }
    const breaker = new Breaker(runtime, { failures: 3, coolDown: 100, max: 250 })
    const call = (well: boolean): void => breaker.leave('host', breaker.enter('host'), well)
    call(false)
    call(false)
    call(true)
    call(false)
    const [first, second, third] = [breaker.enter('host'), breaker.enter('host'), breaker.enter('host')]
    breaker.leave('host', first, false)
    breaker.leave('host', second, false)
    breaker.leave('host', third, false) // under way when it was given up: no failure of its own
    expect(breaker.enter('host')).toEqual({ wait: 100 })
    expect(breaker.enter('other')).toEqual({ probe: false })
    for (const coolDown of [200, 250, 250]) {
      time += 250
      const probe = breaker.enter('host')
      expect(probe).toEqual({ probe: true })
      expect(breaker.enter('host')).toEqual({ wait: 100 })
      breaker.leave('host', probe, false)
      expect(breaker.enter('host')).toEqual({ wait: coolDown })
    }
    time += 250
    breaker.leave('host', breaker.enter('host'), undefined) // broken off: the next one is the probe
    const probe = breaker.enter('host')
    expect(probe).toEqual({ probe: true })
    breaker.leave('host', probe, true)
    expect(breaker.enter('host')).toEqual({ probe: false })
  })
})

describe('what is refused', () => {
  const queue = (webhook: unknown) => () => new Queue('work', { store: newStore(), webhook: webhook as never })
  const url = 'https://example.com/hook'

  it.each<[string, () => unknown]>([
    ['options that are not made by webhooks()', queue({ url, secret: SECRET })],
    ['no secret', () => webhooks({ url })],
    ['a short secret', () => webhooks({ url, secret: 'short' })],
    ['a secret that is no base64', () => webhooks({ url, secret: 'whsec_?????????????????????????' })],
    ['a secret and secrets', () => webhooks({ url, secret: SECRET, secrets: [SECRET] })],
    ['secrets and unsigned', () => webhooks({ url, secret: SECRET, unsigned: true })],
    ['a password in the URL', () => webhooks({ url: 'https://ann:pass@example.com', secret: SECRET })],
    ['another protocol', () => webhooks({ url: 'ftp://example.com', secret: SECRET })],
    ['no URL', () => webhooks({ url: 'example.com', secret: SECRET })],
    ['an end that is none', () => webhooks({ url, secret: SECRET, on: ['waiting' as never] })],
    ['no ends', () => webhooks({ url, secret: SECRET, on: [] })],
    ['attempts for ever', () => webhooks({ url, secret: SECRET, attempts: Infinity })],
    ['a custom backoff', () => webhooks({ url, secret: SECRET, backoff: { type: 'custom', name: 'own' } })],
    ['a concurrency of nothing', () => webhooks({ url, secret: SECRET, concurrency: 0 })],
    ['a flag that is none', () => webhooks({ url, secret: SECRET, allowPrivate: 'yes' as never })],
  ])('%s', (_what, call) => {
    const error = thrown(call)
    expect(error).toMatchObject({ code: 'INVALID_OPTION' })
    expect(String(error)).not.toContain(SECRET)
  })

  it('unknown options, with the nearest', () => {
    expect(thrown(() => webhooks({ url, secret: SECRET, timout: 1 } as never))).toMatchObject({
      code: 'UNKNOWN_OPTION',
      message: expect.stringContaining("did you mean 'timeout'?"),
    })
  })

  it('a job with a webhook that leads nowhere', async () => {
    const plain = closing(new Queue('work', { store: newStore(), logger: false }))
    await expect(plain.add('a', 1, { webhook: { on: ['failed'] } })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    await expect(plain.add('a', 1, { webhook: 'nowhere' })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    expect((await plain.counts()).waiting).toBe(0)
  })

  it("names and ids of Millrace's own", async () => {
    const store = newStore()
    const plain = closing(new Queue('work', { store, logger: false }))
    const flow = new FlowProducer({ store })
    const reserved = { code: 'RESERVED_NAME' }
    expect(thrown(() => new Queue(DELIVERIES, { store }))).toMatchObject(reserved)
    expect(thrown(() => new Worker([DELIVERIES], () => {}, { store }))).toMatchObject(reserved)
    await expect(plain.add('a', 1, { id: 'millrace:webhook:1' })).rejects.toMatchObject(reserved)
    await expect(flow.add({ name: 'a', queueName: DELIVERIES })).rejects.toMatchObject(reserved)
  })
})

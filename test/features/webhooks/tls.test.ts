// Receivers behind TLS: the name is the one that was asked for, whatever address it leads to, and has to be proved.
import { readFileSync } from 'node:fs'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { TLSSocket } from 'node:tls'
import { afterEach, expect, it, vi } from 'vitest'
import { Queue, Worker } from 'millrace'
import { verifyWebhook, webhooks } from 'millrace/webhooks'
import { closing, event, mailbox, newStore } from '../../setup.js'
import { receiver } from './receiver.js'

// A certificate made for this test, with its key beside it.
const pem = readFileSync(new URL('../../fixtures/hook.example.pem', import.meta.url))
const secret = 'a secret of this test'

afterEach(() => vi.unstubAllEnvs())

interface Received {
  readonly servername: string | false | null | undefined
  readonly id: string
}

async function scene(location?: string): Promise<{ queue: Queue; received: () => Promise<Received> }> {
  const { put, next } = mailbox<Received>()
  const server = createServer({ key: pem, cert: pem }, (request, response) => {
    let body = ''
    request.on('data', (chunk) => (body += String(chunk)))
    request.on('end', () => {
      const { servername } = request.socket as TLSSocket
      put({ servername, id: verifyWebhook(secret, request.headers, body).data.id })
      response.writeHead(location === undefined ? 200 : 308, location === undefined ? {} : { location }).end()
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  closing({
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  })
  const webhook = webhooks({
    url: `https://hook.example:${(server.address() as AddressInfo).port}`,
    secret,
    attempts: 1,
    allowPrivate: true,
    lookup: async () => [{ address: '127.0.0.1', family: 4 }],
  })
  const queue = closing(new Queue('work', { store: newStore(), logger: false, webhook }))
  closing(new Worker(queue, () => {}, { logger: false }))
  return { queue, received: next }
}

it('a receiver is asked for by its name, though its address was found before', async () => {
  vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0')
  const { queue, received } = await scene()
  const delivered = event(queue, 'webhook-delivered')
  const job = await queue.add('a')
  expect(await received()).toEqual({ servername: 'hook.example', id: job.id })
  await delivered
})

it('a receiver that cannot prove its name receives nothing', async () => {
  const { queue } = await scene()
  const failed = event(queue, 'webhook-failed')
  await queue.add('a')
  expect(await failed).toMatchObject({ error: { message: expect.stringContaining('self-signed certificate') } })
})

it('a redirect from https to http is refused', async () => {
  vi.stubEnv('NODE_TLS_REJECT_UNAUTHORIZED', '0')
  const plain = await receiver()
  const { queue } = await scene(plain.url)
  const failed = event(queue, 'webhook-failed')
  await queue.add('a')
  expect(await failed).toMatchObject({ error: { code: 'WEBHOOK_REFUSED' } })
  expect(plain.all).toEqual([])
})

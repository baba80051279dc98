// Sends a signed request to a URL when jobs end. The receiver is in this program as well, so that you see both sides.
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { IncomingHttpHeaders } from 'node:http'
import { Queue, Worker, shutdown } from 'millrace'
import { verifyWebhook, webhooks } from 'millrace/webhooks'
import { memory } from 'millrace/memory'

const secret = 'whsec_bm90IGEgc2VjcmV0OiBhbiBleGFtcGxl' // make your own: openssl rand -base64 32

// The receiver verifies the sender by the secret. It is busy at first.
let busy = true
function receive(headers: IncomingHttpHeaders, body: Buffer): number {
  try {
    const { type, data } = verifyWebhook(secret, headers, body)
    console.log(busy ? 'busy at' : 'received', type, 'of', data.name, data.result ?? data.error?.message)
  } catch {
    return 400
  }
  const status = busy ? 503 : 204
  busy = false
  return status
}
const receiver = createServer((request, response) => {
  const chunks: Buffer[] = []
  request.on('data', (chunk: Buffer) => chunks.push(chunk))
  request.on('end', () => response.writeHead(receive(request.headers, Buffer.concat(chunks))).end())
}).listen(0, '127.0.0.1')
await once(receiver, 'listening')
const { port } = receiver.address() as { port: number }

const store = memory()
const webhook = webhooks({
  url: `http://127.0.0.1:${port}/hook`,
  secret,
  on: ['completed', 'failed'],
  backoff: { type: 'fixed', delay: 50 },
  allowPrivate: true, // for this example: by default, only public addresses are called
})
const queue = new Queue('orders', { store, webhook })
const worker = new Worker(queue, {
  ship: () => ({ parcel: 7 }),
  refund: () => {
    throw new Error('no such order')
  },
})

const reported = (): Promise<{ id: string; attempts: number }> =>
  new Promise((resolve) => {
    const stop = queue.on('webhook-delivered', (event) => {
      stop()
      resolve(event)
    })
  })

let delivered = reported()
const order = await queue.add('ship')
console.log('delivered in attempt', (await delivered).attempts)
await order.refresh()
console.log('sent:', order.webhook?.sent, order.webhook?.deliveries.map(({ status }) => status).join(' then '))

delivered = reported()
await queue.add('refund', undefined, { attempts: 1 })
await delivered

// Send it once more, by hand: a delivery of its own.
delivered = reported()
await order.redeliver()
await delivered

// A request with a wrong signature is rejected.
const forged = await fetch(`http://127.0.0.1:${port}/hook`, { method: 'POST', body: '{"type":"job.completed"}' })
console.log('forged:', forged.status)

await shutdown([worker, queue, store])
receiver.close()
receiver.closeAllConnections()

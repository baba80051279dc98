// Telemetry: the life of jobs in a log, and counts for Prometheus. Traces need an SDK of OpenTelemetry; see docs/telemetry.md.
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Queue, Worker, shutdown } from 'millrace'
import { prometheus } from 'millrace/telemetry'
import type { Logger } from 'millrace'
import { memory } from 'millrace/memory'

/** Pino needs no adapter: `logger: pino()`. */
const write = (details: object, message: string): void =>
  console.log(message, (details as { name?: string }).name ?? '')
const logger: Logger = { debug: write, info: write, warn: write, error: write }

const store = memory()
const queue = new Queue('emails', { store, logger, defaults: { attempts: 1 } })
const worker = new Worker(
  queue,
  {
    welcome: () => 'sent',
    invoice: () => {
      throw new Error('no printer')
    },
  },
  { logger },
)
await Promise.allSettled([
  (await queue.add('welcome', { to: 'ann' })).result(),
  (await queue.add('invoice', { to: 'ann' })).result(),
])

const metrics = prometheus(store)
const server = createServer((_, response) => {
  void metrics().then((text) => response.setHeader('content-type', metrics.contentType).end(text))
})
await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
const answer = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/metrics`)
console.log(
  (await answer.text())
    .split('\n')
    .filter((line) => !line.startsWith('#') && !line.endsWith(' 0'))
    .join('\n'),
)
server.close()

await shutdown([worker, queue, store])

// Monitoring: the health of a queue, its counts over time, and its metrics for Prometheus, served by a process without
// workers. Run: npx tsx examples/monitoring.ts
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Queue, Worker } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import { prometheus } from 'millrace/telemetry'

const store = sqlite(':memory:')
const queue = new Queue('emails', { store, series: { keep: '90d' } })

await queue.mark('deploy 4f2')
await queue.add('welcome', { to: 'ann@example.com' })
const late = await queue.health()
console.log(
  `${late.counts.waiting} waits, ${late.workers} workers, oldest waiting known: ${late.oldestWaiting !== undefined}`,
)

const worker = new Worker(queue, { welcome: async () => 'sent' }, { concurrency: 10, workerName: 'mail' })
await worker.run({ until: 'drained' })
const { lastMinute, names } = await queue.health()
console.log(`last minute: ${lastMinute?.completed} completed, failure rate ${lastMinute?.failureRate}`)
console.log(`welcome: ${names['welcome']?.counts.completed} completed`)

const { rows, marks } = await queue.series({ by: 'name' })
for (const { name, added, completed } of rows) console.log(`${name}: ${added} added, ${completed} completed`)
console.log(marks.map(({ text }) => text).join(', '))

const metrics = prometheus(store)
const server = createServer((_, response) => {
  metrics().then(
    (text) => response.setHeader('content-type', metrics.contentType).end(text),
    () => response.writeHead(503).end(),
  )
})
await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
const { port } = server.address() as AddressInfo
const scraped = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text()
console.log(
  scraped
    .split('\n')
    .filter((line) => line.startsWith('millrace_job_run_seconds_count'))
    .join('\n'),
)

server.close()
await worker.close()
await queue.close()
await store.close()

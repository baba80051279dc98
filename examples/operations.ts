// Bulk operations: plan, start, watch, pause and resume one action on many jobs. It survives any crash.
import { Queue, Worker, isMillraceError, shutdown } from 'millrace'
import { memory } from 'millrace/memory'

const store = memory()
const queue = new Queue('imports', { store })

// An outage of somebody else's service has left failed jobs behind.
await queue.addBulk(Array.from({ length: 1200 }, (_, page) => ({ name: 'fetch', data: { page } })))
await queue.addBulk(Array.from({ length: 3 }, () => ({ name: 'report' })))
await queue.cancel({ name: 'fetch' }, { reason: 'the service is down' })

// First a plan: it counts, shows samples, says what would be refused, and writes nothing.
const request = { do: 'retry', where: { name: 'fetch', state: 'cancelled' } } as const
const plan = await queue.plan(request)
console.log(`would retry ${plan.count} jobs:`, plan.names)

// Without a condition nothing begins.
await queue.operate({ do: 'retry', where: {} }).catch((error: unknown) => {
  console.log('without a filter:', isMillraceError(error, 'NO_FILTER'))
})

// Then the operation: durable at once, and worked on by the workers of the queue, at most 500 jobs in 50 ms.
const operation = await queue.operate({
  ...request,
  rate: { max: 500, per: '50ms' },
  reason: 'the service is back',
  by: 'ann',
})
await operation.pause()
console.log(operation.state, operation.done, 'of', operation.matched)

const worker = new Worker(queue, { fetch: () => {}, report: () => {} }, { concurrency: 50 })
await operation.resume()
await operation.result({ timeout: '30s' })
console.log(`${operation.state}: ${operation.done} retried, asked for by ${operation.by}: ${operation.reason}`)

// The record stays for 30 days.
const { operations } = await queue.operations({ limit: 10 })
console.log(operations.map((each) => `${each.do} ${each.done}`).join(', '))

await shutdown([worker, queue, store])

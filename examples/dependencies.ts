// Jobs that wait for others: `after`, and what a failure means for the job that waits.
import { Queue, UnrecoverableError, Worker, shutdown } from 'millrace'
import { memory } from 'millrace/memory'

const store = memory()
const queue = new Queue('etl', { store })
const worker = new Worker(
  queue,
  {
    fetch: async (job) => {
      if (job.data === 'broken') throw new UnrecoverableError('source is gone')
      return `rows of ${String(job.data)}`
    },
    load: async () => 'loaded',
  },
  { concurrency: 4 },
)

const good = await queue.add('fetch', 'orders')
const bad = await queue.add('fetch', 'broken')

// `fail` is the default: a load that needs both fails when one of them does.
const strict = await queue.add('load', null, { after: [good, bad] })
await strict.result().catch((error: Error) => console.log('strict:', error.message.replace(bad.id, 'broken')))

// With `ignore`, the failed job counts as ended.
const lenient = await queue.add('load', null, { after: [good, { job: bad, onFailure: 'ignore' }] })
console.log('lenient:', await lenient.result())

await shutdown([worker, queue, store])

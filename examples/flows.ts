// A flow: a report that waits for its sources, across queues; and a job that splits itself while it runs.
import { FlowProducer, Queue, Worker, shutdown } from 'millrace'
import { memory } from 'millrace/memory'

const store = memory()
const flows = new FlowProducer({ store })
const reports = new Queue('reports', { store })
const etl = new Queue('etl', { store })

const fetcher = new Worker(
  etl,
  {
    fetch: async (job) => {
      const { source } = job.data as { source: string }
      if (source === 'ledger') throw new Error('the ledger is closed')
      return `rows of ${source}`
    },
  },
  { concurrency: 3 },
)
const reporter = new Worker(reports, {
  'send-report': async (_job, ctx) => {
    const parts = await ctx.dependencies()
    return parts.map((part) => (part.status === 'completed' ? String(part.result) : `no rows: ${part.status}`))
  },
  sum: async (job, ctx) => {
    const parts = await ctx.dependencies()
    if (parts.length > 0)
      return parts.reduce((sum, part) => sum + (part.status === 'completed' ? Number(part.result) : 0), 0)
    // The first run adds its children and gives its slot back. The job runs again when they have ended.
    const children = (job.data as number[]).map((n) => ctx.add('square', n))
    return ctx.waitFor(await Promise.all(children))
  },
  square: async (job) => Number(job.data) ** 2,
})

const { job } = await flows.add({
  name: 'send-report',
  queueName: 'reports',
  data: { reportId: 42 },
  children: [
    { name: 'fetch', queueName: 'etl', data: { source: 'orders' } },
    { name: 'fetch', queueName: 'etl', data: { source: 'ledger' }, options: { attempts: 1 }, onFailure: 'ignore' },
  ],
})
console.log('report:', await job.result())

const sum = await reports.add('sum', [1, 2, 3])
console.log('sum:', await sum.result())

await shutdown([fetcher, reporter, flows, reports, etl, store])

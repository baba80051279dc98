// The 20-line example of the README: typed jobs, a queue, a worker, a result.
import { Queue, Worker, defineJobs, job, shutdown } from 'millrace'
import { sqlite } from 'millrace/sqlite'

const jobs = defineJobs({
  'send-email': job<{ to: string }, { messageId: string }>({ attempts: 5, backoff: '1s' }),
})
const store = sqlite('jobs.db')
const queue = new Queue('emails', { store, jobs })
const worker = new Worker(
  queue,
  {
    'send-email': async (job, ctx) => {
      await ctx.progress(50)
      return { messageId: `<1.${job.data.to}>` }
    },
  },
  { concurrency: 20 },
)
const sent = await queue.add('send-email', { to: 'ann@example.com' })
console.log(await sent.result({ timeout: '1m' }))
await shutdown([worker, queue, store], { timeout: '30s' })

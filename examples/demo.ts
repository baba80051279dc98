// What `npm run demo` shows: jobs flow, one fails and is retried, one waits for others, one is cancelled in mid-run.
import { Queue, UnrecoverableError, Worker, defineJobs, job, shutdown } from 'millrace'
import { memory } from 'millrace/memory'

const jobs = defineJobs({
  resize: job<{ image: string }, { bytes: number }>(),
  upload: job<{ image: string }, string>({ attempts: 4, backoff: { type: 'exponential', delay: '20ms' } }),
  report: job<{ title: string }, string>(),
  refuse: job<{ why: string }, void>(),
  watch: job<undefined, void>(),
})

const store = memory()
const queue = new Queue('pictures', { store, jobs })
for (const type of ['active', 'completed', 'retrying', 'failed', 'cancelled'] as const) {
  queue.on(type, (event) => console.log(`${event.type.padEnd(10)} ${event.name} ${event.id.slice(-6)}`))
}

const worker = new Worker(
  queue,
  {
    resize: async (job) => ({ bytes: job.data.image.length * 1000 }),
    upload: async (job) => {
      if (job.attempt < 3) throw new Error('connection reset')
      return `https://cdn.example/${job.data.image}`
    },
    report: async (job) => `report ${job.data.title} written`,
    refuse: async (job) => {
      throw new UnrecoverableError(job.data.why)
    },
    watch: (_job, ctx) =>
      new Promise((_resolve, reject) => ctx.signal.addEventListener('abort', () => reject(ctx.signal.reason))),
  },
  { concurrency: 3 },
)

const resized = await queue.addBulk(['a.png', 'b.png', 'c.png'].map((image) => ({ name: 'resize', data: { image } })))
const upload = await queue.add('upload', { image: 'a.png' }, { after: resized })
const report = await queue.add('report', { title: 'Monday' }, { after: upload })
const refused = await queue.add('refuse', { why: 'not a picture' })
const watching = await queue.add('watch', undefined, { priority: -1 })

console.log('result    ', await report.result({ timeout: '10s' }))
await refused.result().catch((error: Error) => console.log('error     ', error.message))
await watching.cancel()
await shutdown([worker], { timeout: '5s' })

console.log('\nevery job is accounted for:')
console.table(
  (await queue.list()).jobs.map(({ name, state, attempt, attempts }) => ({ name, state, attempt, attempts })),
)
await shutdown([queue, store])

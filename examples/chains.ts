// A chain: a text is drafted, reviewed until it passes, and published. Each step is a job of its own.
import { Queue, Worker, defineJobs, job, shutdown, typed } from 'millrace'
import { memory } from 'millrace/memory'

const jobs = defineJobs({
  draft: job({ input: typed<{ text: string }>(), next: ['review'] }),
  review: job({ input: typed<{ text: string; round: number }>(), next: ['review', 'publish'] }),
  publish: job({ input: typed<{ text: string }>(), output: typed<{ url: string }>(), next: [] }),
})

const store = memory()
const queue = new Queue('texts', { store, jobs })
const worker = new Worker(queue, {
  draft: (job, ctx) =>
    ctx.complete(async ({ continueWith }) => void (await continueWith('review', { text: job.data.text, round: 1 }))),
  review: (job, ctx) =>
    ctx.complete(async ({ continueWith }) => {
      const { text, round } = job.data
      // `continueWith('draft', …)` would not compile: `next` of this job does not list it.
      if (round < 3) await continueWith('review', { text, round: round + 1 })
      else await continueWith('publish', { text })
    }),
  publish: async (job) => ({ url: `/texts/${job.data.text}` }),
})

const first = await queue.add('draft', { text: 'hello' })
const chain = queue.chain(first)
const { url } = await chain.result({ timeout: '1m' }) // typed by the jobs that the chain can end with
console.log('published:', url)
console.log('steps:', (await chain.jobs()).map(({ name }) => name).join(' → '))

await shutdown([worker, queue, store])

// A worker with a name, a job that fails and is retried, and two ways to follow one job until its end.
import { Queue, Worker, defineJobs, job, shutdown } from 'millrace'
import { memory } from 'millrace/memory'

const jobs = defineJobs({
  film: job<{ title: string; card: string }, { file: string }>({ attempts: 2, backoff: 1 }),
})
const store = memory()
const queue = new Queue('films', { store, jobs })
const worker = new Worker(
  queue,
  {
    film: async ({ data, attempt }, ctx) => {
      await ctx.progress(50)
      if (attempt === 1 || data.title === 'Lost') throw new Error(`the encoder of '${data.title}' is busy`)
      return { file: `${data.title}.mp4` }
    },
  },
  { workerName: 'encoder', autorun: false },
)
// Without a logger, the worker also prints the failures below to the console.
worker.on('failed', (event) => {
  console.log(`${event.job.data.title} failed for good after ${event.job.attempt} attempts:`, event.error.message)
})

const film = await queue.add('film', { title: 'Safety Last', card: '4111 …' })
// A stream of one job, as a browser would read it. It contains these fields only, and ends with the job.
const stream = queue.eventStream({ jobId: film.id, fields: ['state', 'progress', 'returned'], retry: '1s' })
const reading = new Response(stream).text()
await worker.run()
for await (const { state, progress } of film.observe({ fields: ['state', 'progress'] })) console.log(state, progress)
console.log(`${film.name} ran on`, (await film.refresh()).worker?.split(':')[0])
const lines = (await reading).split('\n')
console.log(
  'streamed',
  lines
    .filter((line) => line.startsWith('event: '))
    .join(', ')
    .replaceAll('event: ', ''),
)
console.log(
  'shows the card:',
  lines.some((line) => line.includes('4111')),
)

const lost = await queue.add('film', { title: 'Lost', card: '' })
await lost.result().catch(() => {})
await shutdown([worker, queue, store])

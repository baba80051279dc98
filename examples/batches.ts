// Many jobs in one call: documents are indexed by the hundred, and a document that is refused does not affect the others.
import { Queue, UnrecoverableError, Worker, defineJobs, job, shutdown } from 'millrace'
import { memory } from 'millrace/memory'

const jobs = defineJobs({
  index: job<{ title: string }, { place: number }>({ attempts: 5 }),
})
const store = memory()
const queue = new Queue('search', { store, jobs })

/** A stand-in for a search engine that takes many documents in one request, and answers for each. */
async function bulkIndex(titles: readonly string[], _signal: AbortSignal): Promise<readonly (number | undefined)[]> {
  return titles.map((title, place) => (title === '' ? undefined : place))
}

const worker = new Worker(
  queue,
  {
    index: async (batch, ctx) => {
      const places = await bulkIndex(
        batch.map(({ data }) => data.title),
        ctx.signal,
      )
      console.log(`indexed ${batch.length} documents in one request`)
      return places.map((place) => (place === undefined ? new UnrecoverableError('it has no title') : { place }))
    },
  },
  { batch: { size: 100, wait: '50ms' } },
)

const titles = ['Mill', 'Race', '', 'Sluice']
const added = await queue.addBulk(titles.map((title) => ({ name: 'index' as const, data: { title } })))
const results = await Promise.allSettled(added.map((each) => each.result()))
for (const [at, result] of results.entries()) console.log(`'${titles[at]}' ${result.status}`)
console.log(await queue.counts({ by: 'name' }))

await shutdown([worker, queue, store])

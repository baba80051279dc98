// Retention: finished jobs are marked stale, then removed, each by its state; callbacks receive both.
import { Queue, Worker, shutdown } from 'millrace'
import type { Job } from 'millrace'
import { memory } from 'millrace/memory'

const store = memory()
const lines: string[] = []
let finished = (): void => {}
const all = new Promise<void>((resolve) => (finished = resolve))

const report = (what: string, job: Job): void => {
  console.log(`${what}: ${job.name} (${job.state})`)
  if (lines.push(what) === 3) finished()
}

const queue = new Queue('reports', {
  store,
  defaults: { attempts: 1 },
  retention: {
    staleAfter: 100, // milliseconds, for this example; use days
    deleteAfter: 200,
    failed: { deleteAfter: '30d' },
    onStale: (job) => report('stale', job),
    onDelete: (job) => report('deleted', job),
  },
})
const worker = new Worker(queue, {
  render: () => 'report.pdf',
  upload: () => {
    throw new Error('no route to the bucket')
  },
})

await queue.addBulk([{ name: 'render' }, { name: 'upload' }])
await all
console.log('kept:', (await queue.list()).jobs.map(({ name, state }) => `${name} (${state})`).join(', '))

await shutdown([worker, queue, store])

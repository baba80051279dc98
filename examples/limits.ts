// Limits on running jobs, on starts in a period, and on waiting jobs; by queue, by name and by group.
import { Queue, Worker, isMillraceError, shutdown } from 'millrace'
import { memory } from 'millrace/memory'

const store = memory()
const queue = new Queue('work', { store })

await queue.limit({
  concurrency: 3,
  names: { 'call-api': { rate: { max: 4, per: '200ms' } } },
  group: { concurrency: 1, maxBacklog: 2, onFull: 'drop-oldest' },
})

// Two jobs of each group may wait: a third drops the oldest, in the same commit.
const oldest = await queue.add('import', 'a', { group: 'tenant-7' })
await queue.add('import', 'b', { group: 'tenant-7' })
await queue.add('import', 'c', { group: 'tenant-7' })
await oldest.result().catch((error: unknown) => {
  console.log('dropped:', isMillraceError(error, 'JOB_CANCELLED'))
})

let running = 0
let most = 0
const worker = new Worker(
  queue,
  {
    import: async () => {
      most = Math.max(most, ++running)
      await new Promise((done) => setTimeout(done, 20))
      running--
    },
    'call-api': () => {},
  },
  { concurrency: 20 },
)

const imports = await queue.addBulk(Array.from({ length: 6 }, () => ({ name: 'import' })))
const calls = await queue.addBulk(Array.from({ length: 8 }, () => ({ name: 'call-api' })))
await Promise.all([...imports, ...calls].map((job) => job.result()))
console.log('at a time, never more than three:', most <= 3)
const [first, , , , fifth] = await Promise.all(calls.map((call) => call.refresh()))
console.log('the fifth call came a period after the first:', fifth!.startedAt! - first!.startedAt! >= 200)

console.log(await queue.limit({ concurrency: null }))
await shutdown([worker, queue, store])

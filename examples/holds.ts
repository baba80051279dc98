// Holds: a service answers 429, and no worker calls it again until it may.
import { Queue, Worker, shutdown } from 'millrace'
import type { Job, JobContext } from 'millrace'
import { memory } from 'millrace/memory'

const store = memory()
const queue = new Queue('calls', { store })

const began = Date.now()
let refuses = true
const calls: number[] = []
const worker = new Worker(
  queue,
  {
    call: (_job: Job, ctx: JobContext) => {
      if (refuses) {
        refuses = false
        ctx.hold('300ms') // of this name; or { of: 'group' }, { of: 'queue' }
      }
      calls.push(Date.now() - began)
    },
    other: () => console.log('other jobs go on'),
  },
  { concurrency: 1 },
)

const held = queue.addBulk([1, 2, 3].map((data) => ({ name: 'call', data })))
const other = await queue.add('other')
await other.result()

const [hold] = await queue.holds()
console.log('held:', hold?.name, 'by this worker:', hold?.by === worker.id)
const [first] = await held
console.log('why it waits:', (await queue.explain(first!.id)).reasons[0]?.why)

await Promise.all((await held).map((job) => job.result()))
console.log('all three ran, none before the hold was over:', calls.length, Math.min(...calls) >= 290)
console.log('and the run that was held did not count:', (await first!.refresh()).attempt)

// An operator holds one tenant, and lets it go again.
await queue.hold('1h', { group: 'tenant-7', by: 'ann' })
console.log(await queue.unhold({ group: 'tenant-7' }))
await shutdown([worker, queue, store])

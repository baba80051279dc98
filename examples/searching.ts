// Finds jobs by tags, times, errors and values in their data, and retries those that failed for one cause.
import { Queue, Worker, shutdown } from 'millrace'
import { sqlite } from 'millrace/sqlite'

const store = sqlite(':memory:')
const queue = new Queue('imports', { store, defaults: { attempts: 1 } })

for (let user = 1; user <= 6; user++) {
  await queue.add('fetch', { user: { id: user } }, { tags: [`user:${user}`, user % 2 === 0 ? 'paid' : 'free'] })
}

let hostIsUp = false

const worker = new Worker(
  queue,
  {
    fetch: ({ data }) => {
      const { user } = data as { user: { id: number } }
      if (user.id > 3 && !hostIsUp) throw Object.assign(new Error(`no answer for ${user.id}`), { code: 'ETIMEDOUT' })
    },
  },
  { logger: false },
)
await worker.run({ until: 'drained' })

// By tags: one of them, all of a list, or any.
console.log('paid and failed:', await queue.count({ tags: 'paid', state: 'failed' }))
const some = await queue.list({ tags: { any: ['user:1', 'user:2'] } })
console.log('tags:', some.jobs.map((job) => job.tags.join(' ')).join(', '))

// By cause: what fails, how often, and where.
const { errors } = await queue.errors()
for (const { count, code, place, sample } of errors) {
  console.log(`${count} jobs: ${code} at ${place?.split('/').at(-1)}, such as '${sample.message}'`)
}

// By time: what failed in the last hour, the last one first.
const recent = await queue.list({ finished: { from: '1h' }, order: 'finished' })
console.log('failed in the last hour:', recent.jobs.length)

// By a value in the data.
const found = await queue.list({ search: { 'data.user.id': 5 } })
console.log('found:', found.jobs.length, 'of', found.searched)

// What matches can be changed: here, all jobs that failed for this cause run again.
hostIsUp = true
console.log('retried:', await queue.retry({ error: { fingerprint: errors[0]!.fingerprint } }))
await worker.run({ until: 'drained' })
console.log('still failing:', (await queue.errors()).errors.length)

await shutdown([worker, queue, store])

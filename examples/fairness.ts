// Fair groups: a tenant with many jobs does not keep another tenant waiting.
import { Queue, Worker, shutdown } from 'millrace'
import { memory } from 'millrace/memory'

const store = memory()
const queue = new Queue('imports', { store })

await queue.addBulk(Array.from({ length: 1000 }, () => ({ name: 'import', options: { group: 'big' } })))
await queue.addBulk(Array.from({ length: 1000 }, () => ({ name: 'import', options: { group: 'double' } })))
await queue.limit({ groups: { double: { weight: 2 } } }) // for jobs that begin to wait from now on

const begun: string[] = []
const worker = new Worker(queue, (job) => void begun.push(job.group ?? 'none'), { autorun: false })

const single = await queue.add('import', undefined, { group: 'small' })
await worker.run()
await single.result()
console.log(`small was number ${begun.indexOf('small') + 1}, with 2000 jobs before it in the queue`)

await shutdown([worker, queue, store])

// What a job did and when: its attempts, its timeline, a graph of the jobs around it, and a job that expires.
import { Queue, Worker, isMillraceError, shutdown } from 'millrace'
import { memory } from 'millrace/memory'

const store = memory()
const queue = new Queue('orders', { store })
const charge = await queue.add('charge', { order: 7 }, { attempts: 2, backoff: 1 })
const mail = await queue.add('mail', { order: 7 }, { after: charge })
const worker = new Worker(
  queue,
  {
    charge: async (job, ctx) => {
      const token = await ctx.step('token', () => 't-7')
      if (job.attempt === 1) throw new Error('the bank is busy')
      await ctx.sleep('for the bank', 10)
      return token
    },
    mail: async (_job, ctx) => ctx.log('sent'),
  },
  { logger: false },
)
await mail.result()

for (const { attempt, outcome, startedAt, endedAt } of await charge.history()) {
  console.log(attempt, outcome, startedAt <= endedAt! ? 'has its times' : '?')
}
const { entries, totals } = await charge.timeline()
const kinds = entries.map(({ kind }) => kind).filter((kind) => kind !== 'queued')
console.log([...new Set(kinds)].join(', '))
console.log('waited and ran:', totals.waited + totals.ran >= 10)

const graph = await queue.graph(mail.id)
console.log(graph.nodes.map(({ name, layer }) => `${name} in layer ${layer}`).join(', '))
console.log('critical path:', graph.critical.length, 'jobs')

await queue.pause()
const late = await queue.add('mail', { order: 8 }, { expires: 20 })
const error: unknown = await late.result().catch((reason: unknown) => reason)
console.log('expired:', isMillraceError(error, 'JOB_EXPIRED'), (await late.refresh()).state)
await shutdown([worker, queue, store])

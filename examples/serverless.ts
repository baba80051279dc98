// Runs that end by themselves, and jobs that are claimed by hand: for serverless functions, cron, CI, and your own loops.
import { Queue, UnrecoverableError, Worker, defineJobs, isMillraceError, job, shutdown } from 'millrace'
import { memory } from 'millrace/memory'

const jobs = defineJobs({
  'send-email': job<{ to: string }, { messageId: string }>({ attempts: 2, backoff: '10ms' }),
})
const store = memory()
const queue = new Queue('emails', { store, jobs })

// Run until the queue is drained: at most 3 jobs first, then the rest.
await queue.addBulk(['ann', 'bob', 'cleo', 'dan'].map((to) => ({ name: 'send-email', data: { to } })))
const worker = new Worker(queue, { 'send-email': ({ data }) => ({ messageId: `<${data.to}>` }) }, { autorun: false })
const some = await worker.run({ until: 'drained', maxJobs: 3 })
console.log(`${some.ended}: ${some.completed} completed`)
const rest = await worker.run({ until: 'drained' })
console.log(`${rest.ended}: ${rest.completed} completed`)
await worker.close()

// The same queue with a loop of your own: every call is bound to the claim.
const added = await queue.add('send-email', { to: 'eve' })
const [first] = await queue.claim({ worker: 'loop-1', lease: '30s' })
console.log('heartbeat:', await first!.heartbeat())
console.log('failed once:', await first!.fail(new Error('the server is busy')))
const [again] = await queue.claim({ worker: 'loop-1', wait: '10s' })
await again!.complete({ messageId: `<${again!.data.to}>` })
console.log(`attempt ${again!.attempt}:`, await added.result())

// A caller that has lost its job gets the reason.
const cancelled = await queue.add('send-email', { to: 'frank' })
const [lost] = await queue.claim()
await cancelled.cancel({ reason: 'unsubscribed' })
await lost!.complete({ messageId: '<frank>' }).catch((error: unknown) => {
  if (isMillraceError(error, 'LEASE_LOST')) console.log('lost:', error.details['reason'], error.details['cancelReason'])
})

// Fail a job that cannot succeed, from outside.
const doomed = await queue.add('send-email', { to: 'invalid' }, { delay: '1h' })
await doomed.fail(new UnrecoverableError('no such address'))
console.log('doomed:', doomed.state, doomed.error?.message)

await shutdown([queue, store])

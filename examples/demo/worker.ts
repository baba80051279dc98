// examples/demo/worker.ts: a worker process. Its argument is the path of the database; start as many as you like.
import { setTimeout as pause } from 'node:timers/promises'
import { Queue, Worker, shutdown } from 'millrace'
import { sqlite } from 'millrace/sqlite'
import { QUEUE, jobs } from './jobs.js'
import { send } from './processes.js'

const store = sqlite(process.argv[2] ?? 'jobs.db')
const queue = new Queue(QUEUE, { store, jobs })

const worker = new Worker(
  queue,
  {
    thumbnail: async (job, { signal }) => {
      await pause(300, undefined, { signal })
      return { file: `${job.data.photo}.webp` }
    },
    film: async (job, ctx) => {
      // Progress is durable: the worker that takes this job over continues from the last progress.
      for (let percent = Number(job.progress ?? 0); percent < 100;) {
        await pause(140, undefined, { signal: ctx.signal })
        await ctx.progress((percent += 5))
      }
      return { file: `${job.data.customer}.mp4` }
    },
    email: async (job, { signal }) => {
      await pause(200, undefined, { signal })
      if (job.data.to === 'bob' && job.attempt === 1) throw new Error('421 mailbox busy')
      return { messageId: `<1.${job.data.to}@example.com>` }
    },
  },
  // The lease: after this time, others take over the jobs of a dead worker. The default, 30 s, suits real work. The board
  // shows failures, so they are not printed.
  { lease: '2s', logger: false },
)
worker.on('worker-started', () => send({ worker: worker.id }))
worker.on('error', ({ error }) => send({ error: error.message }))

let stopping = false
for (const reason of ['SIGTERM', 'SIGINT', 'disconnect']) {
  process.on(reason, () => {
    if (stopping) return
    stopping = true
    // A service gives its handlers some seconds. Here their signals abort at once, and their jobs are handed back.
    void shutdown([worker, queue, store], { timeout: 0, grace: '1s' })
      .catch(() => {})
      .finally(() => process.connected && process.disconnect())
  })
}

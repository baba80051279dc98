// A job in phases: the result of each phase is kept, and a retry starts at the phase that failed.
import { Queue, Worker, defineJobs, job, phases, shutdown } from 'millrace'
import { sqlite } from 'millrace/sqlite'

interface Results {
  readonly download: { readonly path: string }
  readonly process: { readonly frames: number }
  readonly upload: string
}

const jobs = defineJobs({
  video: job<{ id: number }, string, string, readonly string[], Results>({
    phases: ['download', 'process', 'upload'],
    attempts: 5,
    backoff: '10ms',
  }),
})

const store = sqlite('jobs.db')
const queue = new Queue('videos', { store, jobs })
let downloads = 0

const worker = new Worker(queue, {
  video: phases({
    download: async (each, ctx) => {
      downloads++
      await ctx.progress(50)
      return { path: `/videos/${each.data.id}` }
    },
    process: {
      run: async (each, ctx) => {
        await ctx.progress(25)
        if (each.attempt === 1) throw new Error('the encoder is busy')
        return { frames: 120 }
      },
      attempts: 3,
      backoff: { type: 'linear', delay: '20ms' },
      timeout: '1m',
    },
    upload: async (each, ctx) => {
      await ctx.progress(80)
      const { download, process } = ctx.phaseResults()
      return `video ${each.data.id}: ${process?.frames} frames at ${download?.path}`
    },
  }),
})

const overall: number[] = []
queue.on('progress', ({ progress }) => overall.push(progress))
queue.on('phase', ({ phase, status, error }) => {
  console.log(status === 'failed' ? `${phase} failed: ${error?.message}` : `${phase} ${status}`)
})
const completed = new Promise((resolve) => queue.on('completed', resolve))

const added = await queue.add('video', { id: 7 })
console.log(Object.keys(added.phases).join(' → '))
console.log(await added.result({ timeout: '1m' }))
await completed // its events have been received by now
console.log(`overall ${overall.join(', ')}`)
console.log(downloads === 1 ? 'download ran once' : `download ran ${downloads} times`)
console.log(Object.entries((await added.refresh()).phases).map(([name, { status }]) => `${name}: ${status}`))
await shutdown([worker, queue, store], { timeout: '30s' })

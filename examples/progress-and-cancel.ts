// A long job that reports its progress, and stops when it is cancelled.
import { Queue, Worker, shutdown } from 'millrace'
import { memory } from 'millrace/memory'

const store = memory()
const queue = new Queue('videos', { store })
const worker = new Worker(queue, {
  encode: async (_job, ctx) => {
    for (let percent = 0; percent <= 100; percent += 10) {
      if (ctx.signal.aborted) throw ctx.signal.reason
      await ctx.progress(percent)
      await new Promise((resolve) => setTimeout(resolve, 5))
    }
  },
})

const encode = await queue.add('encode', { file: 'holiday.mov' })
for await (const seen of encode.observe()) {
  if (Number(seen.progress) >= 30) await encode.cancel()
}
console.log('ended', (await encode.refresh()).state)

await shutdown([worker, queue, store])

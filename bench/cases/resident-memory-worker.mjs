// The process whose memory is measured: what a user's worker is, with as little around it as possible.
import { readFileSync } from 'node:fs'
import { Queue, Worker, shutdown } from 'millrace'
import { postgres } from 'millrace/postgres'

const [url = '', count = '0'] = process.argv.slice(2)
const jobs = Number(count)
const MB = 1024 * 1024

const store = postgres(url)
const queue = new Queue('bench', { store })
await store.open()
const idle = process.memoryUsage.rss()

let runs = 0
let left = jobs
let end = () => {}
const worker = new Worker(queue, { noop: () => void runs++ }, { concurrency: 100, autorun: false })
worker.on('completed', () => {
  if (--left === 0) end()
})
const done = new Promise((resolve, reject) => {
  let before = left
  const guard = setInterval(() => {
    if (left === before) reject(new Error(`Nothing has ended for 30 s, with ${left} jobs to go.`))
    before = left
  }, 30_000)
  end = () => {
    clearInterval(guard)
    resolve(undefined)
  }
})

const start = performance.now()
await Promise.all([worker.run(), done])
const rate = (jobs / (performance.now() - start)) * 1000
const rss = peak()
await worker.close()
const { completed } = await queue.counts()
await shutdown([queue, store])
const figures = { rss: rss / MB, idle: idle / MB, rate }
console.log(JSON.stringify({ figures, lost: Math.max(0, jobs - completed), doubled: Math.max(0, runs - jobs) }))

/** The peak of resident memory. */
function peak() {
  if (process.platform !== 'linux') return process.resourceUsage().maxRSS * 1024
  return Number(/^VmHWM:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]) * 1024
}

// Jobs that are added again and again: by a cron expression in a time zone, or every so often.
import { Queue, Worker, defineJobs, job, shutdown } from 'millrace'
import { memory } from 'millrace/memory'

const jobs = defineJobs({
  report: job<{ for: string }>(),
  sweep: job<{ deep: boolean }>({ attempts: 5 }),
})
const store = memory()
const queue = new Queue('housekeeping', { store, jobs })

// Every weekday at nine, by the clock in Berlin. Safe to call whenever the program starts: the same schedule changes nothing.
const daily = await queue.schedule('daily-report', {
  cron: '0 9 * * 1-5',
  tz: 'Europe/Berlin',
  name: 'report',
  data: { for: 'everybody' },
})
console.log('daily-report is', daily.state, 'and shows', daily.next.length, 'times')

// Every 100 ms, three times in all; each run is a job of its own, with an id made of its time.
await queue.schedule('sweep', { every: 100, limit: 3, name: 'sweep', data: { deep: false } })

const worker = new Worker(queue, {
  report: async () => {},
  sweep: async (job) => console.log('sweeping', job.data.deep ? 'deeply' : 'lightly', job.scheduledAt !== undefined),
})
let swept = 0
await new Promise<void>((done) => queue.on('completed', ({ name }) => name === 'sweep' && ++swept === 3 && done()))

// One that is wrong is refused before anything is written, with the field that is.
await queue
  .schedule('wrong', { cron: '0 25 * * *', name: 'report', data: { for: 'nobody' } })
  .catch((error: Error) => console.log(error.message.slice(0, 90)))

for (const { key, state, count } of await queue.schedules()) console.log(key, state, count)
const { jobs: runs } = await queue.list({ schedule: 'sweep' })
console.log('runs of sweep:', runs.length)
await queue.unschedule('daily-report')
await shutdown([worker, queue, store])

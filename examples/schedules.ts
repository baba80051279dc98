// Jobs that are added repeatedly: by a cron expression in a time zone, or at an interval.
import { Queue, Worker, defineJobs, job, shutdown } from 'millrace'
import { memory } from 'millrace/memory'

const jobs = defineJobs({
  report: job<{ for: string }>(),
  sweep: job<{ deep: boolean }>({ attempts: 5 }),
})
const store = memory()
const queue = new Queue('housekeeping', { store, jobs })

// Every weekday at nine, Berlin time. Call it whenever the program starts: the same schedule changes nothing.
const daily = await queue.schedule('daily-report', {
  cron: '0 9 * * 1-5',
  tz: 'Europe/Berlin',
  name: 'report',
  data: { for: 'everybody' },
})
console.log('daily-report is', daily.state, 'and shows', daily.next.length, 'times')

// Every 100 ms, three times in all. Each run is a job of its own, with an id made of its time.
await queue.schedule('sweep', { every: 100, limit: 3, name: 'sweep', data: { deep: false } })

const worker = new Worker(queue, {
  report: async () => {},
  sweep: async (job) => console.log('sweeping', job.data.deep ? 'deeply' : 'lightly', job.scheduledAt !== undefined),
})
let swept = 0
await new Promise<void>((done) => queue.on('completed', ({ name }) => name === 'sweep' && ++swept === 3 && done()))

// An invalid schedule is refused before anything is written, and the error names the field.
await queue
  .schedule('wrong', { cron: '0 25 * * *', name: 'report', data: { for: 'report@example.com' } })
  .catch((error: Error) => console.log(error.message.slice(0, 90)))

for (const { key, state, count } of await queue.schedules()) console.log(key, state, count)
const { jobs: runs } = await queue.list({ schedule: 'sweep' })
console.log('runs of sweep:', runs.length)

// One schedule: paused, run now, and run for the last three days.
const report = queue.schedule('daily-report')
await report.pause()
const now = await report.trigger()
await (await queue.get(now))?.result()
const days = 86_400_000
const { added } = await report.backfill({ from: Date.now() - 8 * days })
console.log('a week has five working days at least:', added >= 5)
console.log('the last run that was added is listed first:', (await report.runs()).length > 0)

// All schedules of an owner: those that are missing are added, those that are not in the list removed.
const plan = await queue.syncSchedules([{ key: 'sweep', every: '1h', name: 'sweep', data: { deep: true } }])
console.log(plan)
await queue.unschedule('daily-report')
await shutdown([worker, queue, store])

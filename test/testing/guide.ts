// The example of docs/simulator.md, run by own-jobs.test.ts.
import { describeFailure, simulateSeeds } from 'millrace/testing'

/** Welcomes each user once, whatever goes wrong. */
export async function welcomeOnce(): Promise<void> {
  const welcomed = new Map<string, number>()

  const report = await simulateSeeds({
    count: 20,
    handlers: (process) => ({
      welcome: async (job, ctx) => {
        const { user } = job.data as { user: string }
        if (job.progress !== 'sent') {
          await process.sleep(300) // the mail server takes its time
          welcomed.set(user, (welcomed.get(user) ?? 0) + 1)
          await ctx.progress('sent')
        }
      },
    }),
    produce: async (queue, process) => {
      welcomed.clear()
      for (const user of ['ada', 'grace', 'edsger']) {
        await queue.add('welcome', { user }, { attempts: 10 })
        await process.sleep(1000)
      }
    },
    expect: (jobs) => {
      if (jobs.some((job) => job.state !== 'completed')) throw new Error('a user was not welcomed')
      if (welcomed.size !== 3) throw new Error('a user was forgotten')
    },
    lasts: '15s',
  })

  for (const failure of report.failures) throw new Error(describeFailure(failure))
}

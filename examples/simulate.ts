// Your own handlers under faults: answers get lost, workers freeze and die, in virtual time.
import { describeFailure, simulateSeeds } from 'millrace/testing'

const charged = new Map<string, number>()

const report = await simulateSeeds({
  count: 10,
  handlers: (process) => ({
    charge: async (job) => {
      const { order } = job.data as { order: string }
      await process.sleep(200) // the bank is slow
      charged.set(order, (charged.get(order) ?? 0) + 1)
    },
  }),
  produce: async (queue, process) => {
    charged.clear()
    for (const order of ['a', 'b', 'c']) {
      await queue.add('charge', { order }, { attempts: 10, dedup: { key: order } })
      await process.sleep(500)
    }
  },
  expect: (jobs) => {
    if (jobs.some((job) => job.state !== 'completed')) throw new Error('an order was not charged')
    for (const order of ['a', 'b', 'c']) if (!charged.has(order)) throw new Error(`order ${order} was forgotten`)
  },
  lasts: '15s',
})

for (const failure of report.failures) console.log(describeFailure(failure))
console.log(report.failures.length === 0 ? 'ten simulations, no violations' : 'there were violations')

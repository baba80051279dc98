// A run of a schedule is over when its chain is, on every store.
import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { Queue, Worker } from 'millrace'
import { scheduleId } from '../../src/job/schedules/schedule.js'
import { fireDueSchedule } from '../../src/queue/settings/schedule-firing.js'
import { connect } from '../../src/store/connection.js'
import { runSteps } from '../../src/store/maybe-sync.js'
import { closing, event, gate } from '../setup.js'
import { kinds, stores } from '../stores.js'

const make = stores()

test.each(kinds)('on %s, no run comes while the one before goes on by its chain', async (kind) => {
  const queue = closing(new Queue('rounds', { store: await make(kind), logger: false }))
  const end = gate()
  let runs = 0
  closing(
    new Worker(
      queue,
      {
        run: (_, ctx) => {
          runs++
          return ctx.complete(async ({ continueWith }) => void (await continueWith('goes-on')))
        },
        'goes-on': () => end.promise,
      },
      { logger: false, concurrency: 4 },
    ),
  )
  const active = event(queue, 'active', ({ name }) => name === 'goes-on')
  await queue.schedule('k', { every: '20ms', name: 'run' })
  await active
  const again = event(queue, 'active', ({ name }) => name === 'run')
  const skipped = async (): Promise<number> => (await queue.schedules())[0]!.skipped?.at ?? 0
  const first = await skipped()
  while ((await skipped()) === first) await nextTurn() // another time passes while it goes on
  expect([runs, (await queue.schedules())[0]!.count]).toEqual([1, 1])
  end.open()
  await again
  await queue.unschedule('k')
})

test.each(kinds)('on %s, a time is not lost, and does not overlap, because of a trigger just before', async (kind) => {
  const store = await make(kind)
  const queue = closing(new Queue('rounds', { store, logger: false }))
  await queue.schedule('k', { every: '1h', name: 'run', overlap: 'queue' })
  const [read] = await store.get([scheduleId('rounds', 'k')])
  const triggered = await queue.schedule('k').trigger()
  const fired = await runSteps(
    fireDueSchedule(read!, read!.runAt!, {
      commit: (group) => connect(store).main.tryCommit(group),
      details: (query) => store.details(query),
      find: (query) => store.find(query),
      get: async (id) => (await store.get([id]))[0],
    }),
  )
  expect(fired).toEqual({ landed: true, next: read!.runAt! + 3_600_000 })
  const [run, first] = await queue.schedule('k').runs()
  expect([run!.state, run!.scheduledAt, first!.id]).toEqual(['waiting-children', read!.runAt, triggered])
})

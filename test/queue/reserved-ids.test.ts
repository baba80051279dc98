// Ids that Millrace derives belong to it: a job of a user's cannot take the place of a run, a schedule, a signal or a delivery.
import { describe, expect, test } from 'vitest'
import { FlowProducer } from 'millrace'
import { runId, scheduleId } from '../../src/job/schedules/schedule.js'
import { SIGNAL_IDS } from '../../src/job/signals.js'
import { newQueue, newStore, newWorker } from '../setup.js'

const NOON = Date.UTC(2026, 10, 17, 12)

const derived: readonly (readonly [of: string, id: string])[] = [
  ['a run', runId('work', 'nightly', NOON)],
  ['a schedule', scheduleId('work', 'nightly')],
  ['a signal', `${SIGNAL_IDS}1`],
  ['a delivery', 'millrace:webhook:1'],
]

describe.each(derived)('the id of %s cannot be given to a job', (_of, id) => {
  const reserved = { code: 'RESERVED_NAME', details: { value: id } }

  test('by a queue or a flow', async () => {
    const queue = newQueue()
    await expect(queue.add('a', 1, { id })).rejects.toMatchObject(reserved)
    await expect(queue.addBulk([{ name: 'a' }, { name: 'a', options: { id } }])).rejects.toMatchObject(reserved)
    const flows = new FlowProducer({ store: queue.store })
    const child = { name: 'a', queueName: 'work', options: { id } }
    await expect(flows.add({ name: 'a', queueName: 'work', children: [child] })).rejects.toMatchObject(reserved)
    expect((await queue.counts()).waiting).toBe(0)
  })

  test('by a handler', async () => {
    const queue = newQueue()
    newWorker(queue, {
      adds: async (_job, ctx) => void (await ctx.add('a', 1, { id })),
      continues: (_job, ctx) => ctx.complete(({ continueWith }) => continueWith('a', 1, { id })),
    })
    for (const name of ['adds', 'continues']) {
      const added = await queue.add(name, 1, { attempts: 1 })
      await expect(added.result()).rejects.toMatchObject({ code: 'JOB_FAILED' })
      expect((await added.refresh()).error).toMatchObject({ code: 'RESERVED_NAME' })
    }
  })
})

test('a queue, a job or a schedule may be called like the beginning of a derived id', async () => {
  const queue = newQueue({ store: newStore(), name: 'run:work' })
  expect((await queue.add('schedule:a', 1, { id: 'running:1' })).id).toBe('running:1')
  expect((await queue.schedule('run:a', { name: 'run:b', every: '1h' })).key).toBe('run:a')
})

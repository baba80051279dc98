// Processes with callbacks and without, one of them killed: jobs stay until a process with callbacks removes them.
import { expect, test } from 'vitest'
import { Queue } from '../../src/index.js'
import { sqlite } from '../../src/sqlite.js'
import { closing, event } from '../setup.js'
import type { RetentionInput, RetentionMessage } from './programs/retention-worker.js'
import { scene, start } from './processes.js'
import type { Process } from './processes.js'

const path = scene()

async function keeper(callbacks: boolean): Promise<Process<RetentionMessage>> {
  const started = start<RetentionMessage>('retention-worker', {
    path: path('jobs.db'),
    callbacks,
  } satisfies RetentionInput)
  await started.received('ready')
  return started
}

test('where a queue has callbacks, only processes that gave them carry out its retention, though they are killed', async () => {
  const store = closing(sqlite(path('jobs.db')))
  const queue = closing(new Queue('work', { store, logger: false, retention: { deleteAfter: 1 } }))
  const [first, without] = [await keeper(true), await keeper(false)]
  await queue.add('n', 1, { id: 'deleted by the first' })
  expect((await first.received('deleted')).id).toBe('deleted by the first')
  await first.kill()

  const ids = ['a', 'b', 'c']
  const completed = ids.map((id) => event(queue, 'completed', (each) => each.id === id))
  for (const id of ids) await queue.add('n', 1, { id })
  await Promise.all(completed)
  // The one without callbacks sees to what is due, and leaves what is old to others.
  const delayed = await queue.add('n', 1, { id: 'd', delay: 300 })
  await delayed.result()
  expect((await queue.counts()).completed).toBe(4)

  const next = await keeper(true)
  const reported: string[] = []
  while (reported.length < 4) reported.push((await next.received('deleted')).id)
  expect(reported.toSorted()).toEqual([...ids, 'd'])
  expect((await queue.counts()).completed).toBe(0)
  await Promise.all([next.finish(), without.finish()])
})

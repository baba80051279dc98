// What a worker does when an answer or a wake-up comes at a bad moment, on a virtual clock.
import { expect, test } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Handler, Store, WorkerOptions } from 'millrace'
import { memory } from 'millrace/memory'
import { virtualClock } from '../../src/testing/world/clock.js'
import { gate } from '../setup.js'

/** A worker that neither polls nor loses a lease within an hour, on a store whose commits go through `wrap`. */
function scene(handler: Handler, wrap: (commit: Store['commit']) => Store['commit'] = (commit) => commit) {
  const clock = virtualClock()
  const inner = memory({ runtime: clock.runtime })
  const commit = wrap((batch) => inner.commit(batch))
  const store: Store = Object.assign(Object.create(inner) as Store, { commit })
  const queue = new Queue('work', { store, logger: false })
  const options: WorkerOptions = { pollEvery: '1h', lease: '1h', logger: false }
  return { clock, inner, queue, work: () => new Worker(queue, handler, options) }
}

test('work that comes while the worker asks is asked for again at once', async () => {
  const [asked, answer] = [gate(), gate()]
  let first = true
  const { clock, inner, work } = scene(
    () => 'ran',
    (commit) => async (batch) => {
      const receipt = await commit(batch)
      if (batch.asks.length > 0 && first) {
        first = false
        asked.open()
        await answer.promise
      }
      return receipt
    },
  )
  const worker = work()
  await clock.until(asked.promise) // and the store had nothing
  // Through a connection of its own: what shares the worker's would leave after the answer.
  const added = await new Queue('work', { store: inner, logger: false }).add('job')
  await clock.advance(1)
  answer.open()
  await clock.advance('10s')
  expect((await added.refresh()).state).toBe('completed')
  await clock.until(worker.close())
})

test('a settlement that was applied without an answer is known to be its own when it is refused later', async () => {
  let lost = 0 // as often as the batcher sends a batch before it rejects those who wait for it
  const { clock, queue, work } = scene(
    () => 'ran',
    (commit) => async (batch) => {
      const receipt = await commit(batch)
      const settles = batch.groups.flat().some((change) => change.kind === 'move' && change.to === 'completed')
      if (settles && lost < 6) throw new Error(`answer ${++lost} was lost`)
      return receipt
    },
  )
  const worker = work()
  const reported: string[] = []
  worker.on('completed', ({ id }) => void reported.push(`completed ${id}`))
  worker.on('lease-lost', ({ id }) => void reported.push(`lost ${id}`))
  worker.on('error', () => {})
  const { id } = await queue.add('job')
  await clock.advance('5m')
  expect(lost).toBe(6)
  expect(reported).toEqual([`completed ${id}`])
  await clock.until(worker.close())
})

test('a cancelled job stops counting against limits when its handler has ended, and not when its lease is over', async () => {
  const { clock, queue, work } = scene((job, ctx) => {
    if (job.data === 'second') return 'ran'
    return new Promise((_, reject) => ctx.signal.addEventListener('abort', () => reject(new Error('stopped'))))
  })
  await queue.limit({ concurrency: 1 })
  const worker = work()
  const first = await queue.add('job', 'first')
  const second = await queue.add('job', 'second')
  await clock.advance('1s')
  expect([(await first.refresh()).state, (await second.refresh()).state]).toEqual(['active', 'waiting'])
  await first.cancel()
  await clock.advance('10s')
  expect((await second.refresh()).state).toBe('completed')
  await clock.until(worker.close())
})

// The virtual clock: time moves only when advanced, and everything due on the way happens in its order.
import { afterEach, beforeEach, expect, test } from 'vitest'
import { Queue, Worker } from 'millrace'
import { memory } from 'millrace/memory'
import { virtualClock } from 'millrace/testing'
import type { VirtualClock } from 'millrace/testing'

let clock: VirtualClock
let queue: Queue
let worker: Worker
let ran: string[]

beforeEach(async () => {
  clock = virtualClock()
  ran = []
  queue = new Queue('clock', { store: memory({ runtime: clock.runtime }), logger: false })
  worker = new Worker(queue, (job) => void ran.push(`${job.name} ${clock.runtime.now() - 1_700_000_000_000}`), {
    logger: false,
  })
  await worker.run()
})

afterEach(async () => {
  await clock.until(worker.close())
  await queue.close()
})

test('a delayed job runs when its time has come, and not before', async () => {
  await queue.add('later', {}, { delay: '1h' })
  await clock.advance('59m')
  expect(ran).toEqual([])
  await clock.advance('1m')
  expect(ran).toEqual(['later 3600000'])
})

test('timers on the way fire in order, each at its own time', async () => {
  await queue.add('second', {}, { delay: '20s' })
  await queue.add('first', {}, { delay: '10s' })
  await clock.advance('1m')
  expect(ran.map((each) => each.split(' ')[0])).toEqual(['first', 'second'])
})

test('until moves time on as far as a promise needs', async () => {
  const job = await queue.add('slow', {}, { delay: '3h' })
  await clock.until(job.result())
  expect(clock.runtime.now()).toBe(1_700_000_000_000 + 3 * 3_600_000)
})

test('until gives up after its limit', async () => {
  await expect(clock.until(new Promise(() => {}), '1h')).rejects.toThrow('clock.until')
})

test('two clocks of one seed give the same ids and the same chance', () => {
  const [a, b, c] = [virtualClock({ seed: 7 }), virtualClock({ seed: 7 }), virtualClock({ seed: 8 })]
  const ids = ({ runtime }: VirtualClock): string[] => [runtime.id(), runtime.id(), String(runtime.random())]
  expect(ids(a)).toEqual(ids(b))
  expect(ids(virtualClock({ seed: 7 }))).not.toEqual(ids(c))
})

test('until waits for code that advances the clock itself', async () => {
  const times: number[] = []
  const work = async (): Promise<void> => {
    for (let at = 0; at < 50; at++) {
      await clock.advance('1s')
      times.push(clock.runtime.now() - 1_700_000_000_000)
    }
  }
  await clock.until(work())
  expect(times).toEqual(Array.from({ length: 50 }, (_, at) => (at + 1) * 1000))
})

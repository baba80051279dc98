// Idle polls in virtual time: skipped, and nothing that happens by time is late for it.
import { afterEach, beforeEach, expect, test } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Job, Runtime } from 'millrace'
import { memory } from 'millrace/memory'
import { virtualClock } from 'millrace/testing'
import type { VirtualClock } from 'millrace/testing'

const START = 1_700_000_000_000
const HOUR = 3_600_000

let clock: VirtualClock
let queue: Queue
let workers: Worker[]
let errors: unknown[]
let fired: number
let ran: string[]

/** A runtime that counts how often a timer or a poll fires. */
function counting(runtime: Runtime): Runtime {
  return {
    ...runtime,
    timer: (delay, work) =>
      runtime.timer(delay, () => {
        fired++
        work()
      }),
    poll: (delay, work, slack) =>
      runtime.poll!(
        delay,
        (late) => {
          fired++
          work(late)
        },
        slack,
      ),
  }
}

beforeEach(async () => {
  clock = virtualClock()
  fired = 0
  ran = []
  errors = []
  queue = new Queue('idle', { store: memory({ runtime: counting(clock.runtime) }), logger: false })
  workers = []
  await startWorker()
})

async function startWorker(): Promise<void> {
  const run = (job: Job): void => void ran.push(`${job.name} ${clock.runtime.now() - START}`)
  const worker = new Worker(queue, run, { logger: false })
  workers.push(worker)
  worker.on('error', (event) => errors.push(event.error))
  await worker.run()
}

afterEach(async () => {
  for (const worker of workers) await clock.until(worker.close())
  await queue.close()
})

test('a virtual day with two idle workers costs a few steps', async () => {
  await startWorker()
  await clock.advance('1d')
  expect(fired).toBeLessThan(50)
  expect(clock.runtime.now()).toBe(START + 24 * HOUR)
})

test('a virtual year costs no more than a few steps for each sweep of old jobs', async () => {
  await clock.advance('365d')
  expect(fired).toBeLessThan(500)
})

test('workers that were idle for a day are known to be alive, and report nothing', async () => {
  await startWorker()
  await clock.advance('1d')
  await queue.pause()
  const job = await queue.add('held')
  const { reasons } = await queue.explain(job.id)
  expect(reasons).toEqual([{ why: 'paused', queue: 'idle' }])
  expect(errors).toEqual([])
})

test('a delayed job runs at its time, to the millisecond, in the middle of an idle day', async () => {
  await queue.add('noon', {}, { delay: 12 * HOUR + 1234 })
  await clock.advance('1d')
  expect(ran).toEqual([`noon ${12 * HOUR + 1234}`])
  expect(fired).toBeLessThan(100)
})

test('a job that a timer adds runs at once, and its own delay ends on time', async () => {
  clock.runtime.timer(HOUR, () => {
    void queue.add('first')
    void queue.add('second', {}, { delay: '90s' })
  })
  await clock.advance('1d')
  expect(ran).toEqual([`first ${HOUR}`, `second ${HOUR + 90_000}`])
})

test('a schedule keeps its times', async () => {
  await queue.schedule('hourly', { every: '1h', name: 'tick' })
  await clock.advance('3h')
  expect(ran.length).toBeGreaterThanOrEqual(3)
  expect(ran.every((each) => Number(each.split(' ')[1]) % 1000 === 0)).toBe(true)
})

test('leases of a handler that runs for an hour are renewed meanwhile', async () => {
  let lost = 0
  const slow = new Queue('slow', { store: queue.store, logger: false })
  const worker = new Worker(
    slow,
    async () => {
      await new Promise<void>((resolve) => void clock.runtime.timer(HOUR, resolve))
      return 'done'
    },
    { logger: false, lease: '30s' },
  )
  worker.on('lease-lost', () => void lost++)
  const job = await slow.add('long')
  expect(await clock.until(job.result())).toBe('done')
  expect(lost).toBe(0)
  await clock.until(worker.close())
  await slow.close()
})

test('a wait for a result that never comes costs a few steps, too', async () => {
  await queue.pause()
  const job = await queue.add('never')
  const result = job.result({ timeout: '2d' })
  await expect(clock.until(result, '3d')).rejects.toMatchObject({ code: 'RESULT_TIMEOUT' })
  expect(fired).toBeLessThan(100)
})

test('a poll fires after something else has happened, even if its owner expects nothing', async () => {
  const polled: number[] = []
  const arm = (): void =>
    void clock.runtime.poll!(
      1000,
      () => {
        polled.push(clock.runtime.elapsed())
        arm()
      },
      () => Infinity,
    )
  arm()
  clock.runtime.timer(10_500, () => {})
  await clock.advance('20s')
  // Once after the start, the last one before the timer, once after that, and the last one before the end.
  expect(polled).toEqual([1000, 10_000, 11_000, 20_000])
})

test('a timer at the time of a skipped poll does not make it late', async () => {
  const { runtime } = clock
  const late: number[] = []
  const arm = (): unknown =>
    runtime.poll!(
      1_000,
      (by) => void (late.push(by), arm()),
      () => Infinity,
    )
  arm()
  runtime.timer(60_000, () => {})
  await clock.advance('2m')
  expect(late.length).toBeGreaterThan(0)
  expect(Math.max(...late)).toBe(0)
})

test('a poll that is needed is not skipped', async () => {
  let polled = 0
  const arm = (): void =>
    void clock.runtime.poll!(
      1000,
      () => {
        polled++
        arm()
      },
      () => 0,
    )
  arm()
  await clock.advance('10s')
  expect(polled).toBe(10)
})

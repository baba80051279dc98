// Run by jest itself, on the built package: the matchers of test queues, and jobs under the fake timers of jest.
import { afterEach, describe, expect, jest, test } from '@jest/globals'
import { Queue, Worker, defineJobs, job } from 'millrace'
import { memory } from 'millrace/memory'
import { millraceMatchers, testQueue } from 'millrace/testing'

expect.extend(millraceMatchers)

const jobs = defineJobs({ mail: job() })

afterEach(() => {
  jest.useRealTimers()
})

test('matchers pass for what was added, and fail with a message that shows it', async () => {
  const queue = testQueue(jobs, { handlers: { mail: () => 'sent' } })
  await queue.add('mail', { to: 'ann' }, { priority: 2 })
  expect(queue).toHaveAdded('mail')
  expect(queue).toHaveAdded('mail', { to: 'ann' }, { priority: 2 })
  expect(queue).toHaveAdded('mail', { to: expect.stringMatching(/^a/) })
  expect(queue).toHaveAddedTimes(1, 'mail')
  expect(queue).not.toHaveAdded('mail', { to: 'bob' })
  expect(() => expect(queue).toHaveAdded('mail', { to: 'bob' })).toThrow(/ann/)
  expect(() => expect(queue).not.toHaveAdded('mail')).toThrow()
  expect(() => expect(queue).toHaveAddedTimes(2, 'mail')).toThrow()
  expect(() => expect(1).toHaveAdded('mail')).toThrow(/testQueue/)
  expect(await queue.drain()).toMatchObject({ completed: 1 })
  await queue.close()
})

describe('under the fake timers of jest', () => {
  test('jobs run, are retried and become due', async () => {
    jest.useFakeTimers({ now: 0 })
    const queue = new Queue('q', { store: memory(), logger: false })
    const handler = ({ attempt }) => {
      if (attempt === 1) throw new Error('once')
      return 'done'
    }
    const worker = new Worker(queue, handler, { logger: false })
    const flaky = await queue.add('mail', {}, { attempts: 2, backoff: '1ms', delay: '1ms' })
    expect(await flaky.result()).toBe('done')
    await worker.close()
    await queue.close()
  })

  test('a test queue drains over virtual hours', async () => {
    jest.useFakeTimers()
    const queue = testQueue(jobs, { handlers: { mail: () => 'sent' } })
    await queue.add('mail', {}, { delay: '2h' })
    expect(await queue.drain({ advance: '3h' })).toMatchObject({ completed: 1 })
    await queue.close()
  })
})

// Matchers for test queues, in vitest, and by the contract that jest has, too.
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { millraceMatchers, testQueue } from 'millrace/testing'
import type { MillraceMatchers, TestQueue } from 'millrace/testing'
import { jobs } from './jobs.js'

declare module 'vitest' {
  // oxlint-disable-next-line typescript/no-empty-object-type, typescript/no-explicit-any -- as the guide shows it
  interface Matchers<T = any> extends MillraceMatchers<T> {}
}

expect.extend(millraceMatchers)

let queue: TestQueue<typeof jobs>

beforeEach(async () => {
  queue = testQueue(jobs)
  await queue.add('send-email', { to: 'ann' }, { delay: '1h' })
  await queue.add('send-email', { to: 'bob' })
})

afterEach(() => queue.close())

describe('toHaveAdded', () => {
  it('passes if a job matches, by data and by options', () => {
    expect(queue).toHaveAdded('send-email')
    expect(queue).toHaveAdded('send-email', { to: 'ann' })
    expect(queue).toHaveAdded('send-email', { to: 'ann' }, { delay: '1h' })
    expect(queue).not.toHaveAdded('sweep')
    expect(queue).not.toHaveAdded('send-email', { to: 'bob' }, { delay: '1h' })
  })

  it('shows what was added instead', () => {
    expect(() => expect(queue).toHaveAdded('send-email', { to: 'eve' })).toThrow(
      /to have added a job like .*eve.*Added were:\s.*ann/s,
    )
    expect(() => expect(queue).toHaveAdded('sweep')).toThrow("No 'sweep' was added.")
    expect(() => expect(queue).not.toHaveAdded('send-email', { to: 'ann' })).toThrow('not to have added')
  })

  it('is for test queues alone', () => {
    expect(() => expect({}).toHaveAdded('sweep')).toThrow('made by testQueue')
  })
})

describe('toHaveAddedTimes', () => {
  it('counts', () => {
    expect(queue).toHaveAddedTimes(2, 'send-email')
    expect(queue).toHaveAddedTimes(1, 'send-email', { to: 'ann' })
    expect(queue).toHaveAddedTimes(0, 'sweep')
    expect(() => expect(queue).toHaveAddedTimes(1, 'send-email')).toThrow('1 jobs, and not 2,')
  })
})

it('a matcher returns what jest and vitest take: whether it passes, and a message', () => {
  const { pass, message } = millraceMatchers.toHaveAdded(queue, 'send-email', { to: 'ann' })
  expect(pass).toBe(true)
  expect(message()).toContain('not to have added')
})

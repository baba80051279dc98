// Fake timers of a test framework: queues and workers run on, on the real clock.
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'

const LONG_AGO = new Date('2001-01-01T00:00:00Z')

afterEach(() => {
  vi.useRealTimers()
  vi.resetModules()
})

/** Everything that a test framework can replace. */
function replaceTimers(): void {
  vi.useFakeTimers({
    now: LONG_AGO,
    toFake: [
      'setTimeout',
      'clearTimeout',
      'setInterval',
      'setImmediate',
      'clearImmediate',
      'queueMicrotask',
      'Date',
      'performance',
    ],
  })
}

/** Runs a job that fails once, and so waits for its backoff, and one that is delayed. */
async function runJobs(): Promise<readonly unknown[]> {
  const [{ Queue, Worker }, { memory }] = await Promise.all([import('millrace'), import('millrace/memory')])
  const queue = new Queue('q', { store: memory(), logger: false })
  const worker = new Worker(
    queue,
    (job) => {
      if (job.name === 'flaky' && job.attempt === 1) throw new Error('once')
      return job.name
    },
    { logger: false },
  )
  const flaky = await queue.add('flaky', {}, { attempts: 2, backoff: '1ms' })
  const later = await queue.add('later', {}, { delay: '1ms' })
  const results = await Promise.all([flaky.result(), later.result()])
  const year = new Date(flaky.createdAt).getUTCFullYear()
  await worker.close()
  await queue.close()
  return [...results, year > 2001]
}

describe('under fake timers', () => {
  it('that were installed after the package was loaded, jobs run, are retried and become due', async () => {
    await import('millrace')
    replaceTimers()
    expect(await runJobs()).toEqual(['flaky', 'later', true])
  })

  describe('that were installed before', () => {
    beforeEach(() => {
      vi.resetModules()
      replaceTimers()
    })

    it('jobs run, are retried and become due', async () => {
      expect(await runJobs()).toEqual(['flaky', 'later', true])
    })

    it('the virtual clock works', async () => {
      const { virtualClock } = await import('millrace/testing')
      const clock = virtualClock()
      let fired = 0
      clock.runtime.timer(1000, () => void fired++)
      await clock.advance('1s')
      expect(fired).toBe(1)
    })
  })

  it('a worker that was started before goes on, and so it does after real timers are back', async () => {
    const [{ Queue, Worker }, { memory }] = await Promise.all([import('millrace'), import('millrace/memory')])
    const queue = new Queue('q', { store: memory(), logger: false })
    const worker = new Worker(queue, (job) => job.name, { logger: false })
    await worker.run()
    replaceTimers()
    const during = await queue.add('during', {}, { delay: '1ms' })
    expect(await during.result()).toBe('during')
    vi.useRealTimers()
    const after = await queue.add('after', {}, { delay: '1ms' })
    expect(await after.result()).toBe('after')
    await worker.close()
    await queue.close()
  })
})

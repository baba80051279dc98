// Fake timers of a test framework on PostgreSQL, by either driver: queues and workers run on, on the real clock.
import postgresJs from 'postgres'
import { afterEach, expect, test, vi } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Job } from 'millrace'
import { postgres } from 'millrace/postgres'
import { closing } from '../../setup.js'
import { newSchema, sharedServer } from './server/shared.js'

afterEach(() => {
  vi.useRealTimers()
})

function replaceTimers(): void {
  vi.useFakeTimers({
    now: new Date('2001-01-01T00:00:00Z'),
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

test('by pg, jobs run, are retried and become due', { timeout: 30_000 }, async () => {
  const url = await sharedServer()
  replaceTimers()
  const store = closing(postgres(url, { schema: newSchema() }))
  const queue = closing(new Queue('q', { store, logger: false }))
  const handler = ({ name, attempt }: Job): string => {
    if (name === 'flaky' && attempt === 1) throw new Error('once')
    return name
  }
  closing(new Worker(queue, handler, { logger: false }))
  const flaky = await queue.add('flaky', {}, { attempts: 2, backoff: '1ms' })
  const later = await queue.add('later', {}, { delay: '1ms' })
  expect(await Promise.all([flaky.result(), later.result()])).toEqual(['flaky', 'later'])
})

test('postgres.js waits for fake timers for ever, and the error says so', { timeout: 30_000 }, async () => {
  const url = await sharedServer()
  replaceTimers()
  const sql = postgresJs(url, { onnotice: () => {}, fetch_types: false })
  const store = postgres(sql, { schema: newSchema(), patience: '100ms' })
  await expect(store.open()).rejects.toThrow(
    "timers that are fake here: fake only what the test needs, as in toFake: ['Date']",
  )
  vi.useRealTimers()
  await store.close()
  await sql.end({ timeout: 0 })
})

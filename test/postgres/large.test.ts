// What is much, in bytes: PostgreSQL takes 256 MiB of JSON at once and no more, and answers late long before that.
import { beforeEach, describe, expect, test } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Store } from 'millrace'
import { postgres } from 'millrace/postgres'
import { Driver } from '../../src/store/conformance/driver.js'
import { hearing } from '../faults/hearing.js'
import { closing } from '../setup.js'
import { newSchema, sharedServer } from './shared.js'

/** How many groups there were in each batch. */
let batches: number[]
let queue: Queue

beforeEach(async () => {
  batches = []
  const store: Store = closing(postgres(await sharedServer(), { schema: newSchema() }))
  const counting: Store = {
    ...hearing(store, () => {}),
    commit: (batch, tx) => {
      batches.push(batch.groups.length)
      return store.commit(batch, tx)
    },
  }
  queue = closing(new Queue('work', { store: counting, logger: false, maxDataBytes: 2 ** 23 }))
})

const jobs = (count: number, bytes: number): { name: string; data: string }[] =>
  Array.from({ length: count }, () => ({ name: 'large', data: 'x'.repeat(bytes) }))

describe('addBulk', () => {
  test('of 300 jobs of a megabyte each adds them all', { timeout: 120_000 }, async () => {
    const added = await queue.addBulk(jobs(300, 1_000_000))
    expect(new Set(added.map(({ id }) => id)).size).toBe(300)
    expect((await queue.counts()).waiting).toBe(300)
    expect(await queue.get(added.at(-1)!.id)).toMatchObject({ data: 'x'.repeat(1_000_000) })
    expect(Math.max(...batches)).toBe(8)
  })

  test('sends no more at once within a transaction, and a rollback leaves nothing', async () => {
    await queue.add('first') // the store is open
    batches = []
    const rolledBack = queue.transaction(async () => {
      await queue.addBulk(jobs(5, 3_000_000))
      expect((await queue.counts()).waiting).toBe(6)
      throw new Error('no')
    })
    await expect(rolledBack).rejects.toThrow('no')
    expect(batches).toEqual([2, 2, 1])
    expect((await queue.counts()).waiting).toBe(1)
  })
})

describe('a worker with many slots', () => {
  test.each(['a queue without limits', 'a queue with a limit'] as const)(
    'takes no more at once than an answer can hold, and all of it in the end: %s',
    { timeout: 60_000 },
    async (kind) => {
      if (kind === 'a queue with a limit') await new Driver(queue.store, 'setting').limit({ concurrency: 100 }, 'work')
      await queue.addBulk(jobs(40, 1_000_000))
      const lengths: number[] = []
      const claims: number[] = []
      const store = hearing(queue.store, (_, { asks }) => {
        claims.push(...asks.map(({ length }) => length))
      })
      const worker = closing(
        new Worker(
          new Queue('work', { store, logger: false }),
          { large: ({ data }) => void lengths.push((data as string).length) },
          { concurrency: 40, pollEvery: '1h' },
        ),
      )
      await new Promise<void>((done) => {
        let completed = 0
        worker.on('completed', () => ++completed === 40 && done())
      })
      expect(lengths).toEqual(Array(40).fill(1_000_000))
      expect(Math.max(...claims)).toBe(9)
    },
  )
})

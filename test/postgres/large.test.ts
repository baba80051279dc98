// What is much, in bytes: PostgreSQL takes 256 MiB of JSON at once and no more, and answers late long before that.
import { beforeEach, describe, expect, test } from 'vitest'
import { Queue } from 'millrace'
import type { Store } from 'millrace'
import { postgres } from 'millrace/postgres'
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

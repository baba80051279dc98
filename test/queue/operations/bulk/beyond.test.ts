// Calls by filter with more jobs than they change by themselves: they begin a bulk operation, and resolve as before.
import { describe, expect, test } from 'vitest'
import type { Queue } from 'millrace'
import { newQueue, newWorker } from '../../../setup.js'
import { kinds, stores } from '../../../stores.js'

const make = stores()

const MANY = 1150

async function addMany(queue: Queue, options: object = {}): Promise<void> {
  await queue.addBulk(
    Array.from({ length: MANY }, (_, n) => ({ name: n % 2 === 0 ? 'even' : 'odd', data: { n }, options })),
  )
}

describe.each(kinds)('on %s', (kind) => {
  test('without any worker, calls by filter change all jobs and resolve to how many', async () => {
    const queue = newQueue({ store: await make(kind) })
    await addMany(queue, { delay: '1h' })
    expect(await queue.update({ all: true }, { priority: 4 })).toBe(MANY)
    expect(await queue.promote({ all: true })).toBe(MANY)
    expect((await queue.list({ limit: 1, order: 'newest' })).jobs[0]).toMatchObject({ state: 'waiting', priority: 4 })
    expect(await queue.cancel({ all: true }, { reason: 'enough' })).toBe(MANY)
    expect(await queue.retry({ all: true }, { dryRun: true })).toBe(MANY)
    expect(await queue.retry({ all: true }, { rate: 1000 })).toBe(MANY)
    const { waiting, delayed } = await queue.counts()
    expect(waiting + delayed).toBe(MANY)
    const [last] = (await queue.list({ limit: 1, order: 'newest' })).jobs
    // The first is due at once, and the others are spread over the next seconds, a thousand in each.
    expect(last!.runAt! - last!.createdAt).toBeGreaterThanOrEqual(1000)
    expect(await queue.remove({ all: true })).toBe(MANY)
    expect((await queue.list()).jobs).toEqual([])
    const { operations } = await queue.operations()
    expect(operations.map((each) => [each.do, each.state, each.done])).toEqual(
      ['remove', 'retry', 'cancel', 'promote', 'update'].map((action) => [action, 'completed', MANY]),
    )
  })

  test('fewer jobs are changed by the call itself, which leaves no operation behind', async () => {
    const queue = newQueue({ store: await make(kind) })
    await queue.addBulk(Array.from({ length: 600 }, () => ({ name: 'job' })))
    expect(await queue.cancel({ all: true })).toBe(600)
    expect((await queue.operations()).operations).toEqual([])
  })

  test('an operator can pause what a call began; the call resolves when it was resumed and has ended', async () => {
    const store = await make(kind)
    const queue = newQueue({ store })
    await addMany(queue)
    const cancelled = queue.cancel({ all: true })
    await expect.poll(async () => (await queue.operations()).operations.length).toBe(1)
    const [operation] = (await queue.operations()).operations
    const paused = await operation!.pause().catch(() => false) // it may have ended already
    const beside = newWorker(queue, { other: () => {} })
    if (paused) await operation!.resume()
    expect(await cancelled).toBe(MANY)
    await beside.close()
    expect((await queue.counts()).cancelled).toBe(MANY)
  })
})

describe.each(['SQLite', 'PostgreSQL'] as const)('in a transaction on %s', (kind) => {
  test('a call by filter changes all jobs in that transaction', async () => {
    const queue = newQueue({ store: await make(kind) })
    await addMany(queue)
    const inside = queue.transaction(async () => {
      expect(await queue.cancel({ all: true })).toBe(MANY)
      throw new Error('roll back')
    })
    await expect(inside).rejects.toThrow('roll back')
    expect((await queue.counts()).waiting).toBe(MANY)
    expect(await queue.transaction(() => queue.cancel({ all: true }))).toBe(MANY)
    expect((await queue.operations()).operations).toEqual([])
  })

  test('an operation begins with the commit of the transaction that it was asked for in, and never without it', async () => {
    const queue = newQueue({ store: await make(kind) })
    newWorker(queue, { other: () => {} }, { upkeepEvery: 100 })
    await queue.add('job')
    const lost = queue.transaction(async () => {
      await queue.operate({ do: 'cancel', all: true })
      throw new Error('roll back')
    })
    await expect(lost).rejects.toThrow('roll back')
    expect((await queue.operations()).operations).toEqual([])
    const operation = await queue.transaction(() => queue.operate({ do: 'cancel', all: true }))
    expect(await operation.result()).toMatchObject({ done: 1, state: 'completed' })
  })
})

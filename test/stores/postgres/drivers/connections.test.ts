// Transactions of handlers and users hold connections; batches, asks and renewals are never left without one.
import { beforeEach, describe, expect, test } from 'vitest'
import { Queue, Worker } from 'millrace'
import { postgres } from 'millrace/postgres'
import { closing, event, gate } from '../../../setup.js'
import { newSchema, sharedServer } from '../server/shared.js'

let url = ''
let schema = ''

beforeEach(async () => {
  url = await sharedServer()
  schema = newSchema()
})

const opened = (connections: number): Queue =>
  closing(new Queue('work', { store: closing(postgres(url, { schema, connections })), logger: false }))

describe('with a pool of a few connections', () => {
  test.each([
    [8, 5],
    [5, 2],
    [2, 1],
  ])('of %i, at most %i have a transaction, and the others wait for their turn', async (connections, most) => {
    const queue = opened(connections)
    await queue.add('first')
    let open = 0
    let highest = 0
    const full = gate()
    const go = gate()
    const all = Array.from({ length: connections + 2 }, (_, n) =>
      queue.transaction(async () => {
        highest = Math.max(highest, ++open)
        if (open === most) full.open()
        await queue.add('inside', n)
        await go.promise
        open--
      }),
    )
    await full.promise
    // Meanwhile the rest works: writes, reads, and what they wake.
    const added = await queue.add('beside')
    expect(await queue.get(added.id)).toMatchObject({ state: 'waiting' })
    expect((await queue.counts()).waiting).toBe(2)
    go.open()
    await Promise.all(all)
    expect(highest).toBe(most)
    expect((await queue.counts()).waiting).toBe(2 + connections + 2)
  })

  test('one that fails gives its turn on, whatever became of it', async () => {
    const queue = opened(4)
    const ends = await Promise.allSettled(
      Array.from({ length: 6 }, (_, n) =>
        queue.transaction(async () => {
          if (n % 2 === 0) throw new Error('no')
          await queue.add('inside', n)
        }),
      ),
    )
    expect(ends.map(({ status }) => status)).toEqual(
      Array.from({ length: 6 }, (_, n) => (n % 2 === 0 ? 'rejected' : 'fulfilled')),
    )
    expect((await queue.counts()).waiting).toBe(3)
  })

  test('handlers inside ctx.complete do not keep others from being claimed, renewed and settled', async () => {
    const queue = opened(5)
    const go = gate()
    const inside: string[] = []
    const both = gate()
    const worker = closing(
      new Worker(
        queue,
        {
          long: async (job, ctx) =>
            ctx.complete(async () => {
              inside.push(job.id)
              if (inside.length === 2) both.open()
              await go.promise
            }),
          short: (job) => job.data,
        },
        { concurrency: 8, logger: false },
      ),
    )
    const long = await queue.addBulk(Array.from({ length: 6 }, () => ({ name: 'long' })))
    await both.promise
    const short = event(worker, 'completed')
    await queue.add('short', 7)
    expect(await short).toMatchObject({ name: 'short', result: 7 })
    expect(inside).toHaveLength(2)
    go.open()
    await Promise.all(long.map((job) => job.result()))
  })
})

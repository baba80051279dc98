// Schedules on every store that has transactions: they are there if, and only if, their transaction is committed.
import { describe, expect, it } from 'vitest'
import { Queue, Worker } from 'millrace'
import { closing, event } from '../../setup.js'
import { stores, transacting } from '../../stores.js'

const make = stores()

describe.each(transacting)('on %s', (kind) => {
  it('a schedule is made, changed and taken away with its transaction', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const hourly = { every: '1h', name: 'n', data: { a: 1 } } as const
    await expect(
      queue.transaction(async (tx) => {
        await queue.schedule('k', { ...hourly, tx })
        expect(await queue.schedules({ tx })).toHaveLength(1)
        throw new Error('rolled back')
      }),
    ).rejects.toThrow('rolled back')
    expect(await queue.schedules()).toEqual([])
    await queue.transaction(async () => {
      await queue.schedule('k', hourly)
      await queue.schedule('k', { ...hourly, data: { a: 2 } })
      await queue.add('n', { a: 3 }, { id: 'added', repeat: { cron: '@daily' } })
    })
    expect(await queue.schedules()).toMatchObject([
      { key: 'k', data: { a: 2 } },
      { key: 'added', data: { a: 3 } },
    ])
    await expect(
      queue.transaction(async (tx) => {
        expect(await queue.unschedule('k', { tx })).toBe(true)
        throw new Error('rolled back')
      }),
    ).rejects.toThrow('rolled back')
    expect(await queue.schedules()).toHaveLength(2)
    expect(await queue.transaction((tx) => queue.unschedule('k', { tx }))).toBe(true)
    expect(await queue.schedules()).toMatchObject([{ key: 'added' }])
  })

  it('runs are made, skipped, caught up with and listed as in memory', async () => {
    const store = await make(kind)
    const queue = closing(new Queue('work', { store, logger: false }))
    const every = { every: 100, start: 0, name: 'n' } as const
    await queue.schedule('ended', { ...every, limit: 3, catchUp: 'all' })
    const before = (await queue.schedules())[0]!
    expect(await queue.schedule('ended', { ...every, limit: 3, catchUp: 'all' })).toEqual(before)
    let completed = 0
    const ended = event(queue, 'completed', ({ name }) => name === 'n' && ++completed === 3)
    const done = event(queue, 'completed', ({ id }) => id.includes(':busy'))
    await queue.schedule('busy', { every: 50, name: 'busy' })
    let release = (): void => {}
    const held = new Promise<void>((resolve) => (release = resolve))
    closing(new Worker(queue, { n: () => 1, busy: () => held }, { logger: false, concurrency: 3 }))
    await ended
    const runs = (await queue.list({ schedule: 'ended' })).jobs
    expect(runs.map(({ scheduledAt }) => scheduledAt! - before.next[0]!)).toEqual([0, 100, 200])
    expect((await queue.list({ schedule: 'busy' })).jobs).toHaveLength(1)
    release()
    await done
    expect(await queue.schedules()).toMatchObject([
      { key: 'ended', state: 'ended', count: 3, next: [] },
      { key: 'busy', state: 'scheduled', skipped: { why: 'overlap' } },
    ])
  })

  it('adds of a handler repeat with its settlement', async () => {
    const queue = closing(new Queue('work', { store: await make(kind), logger: false }))
    const worker = closing(
      new Worker(
        queue,
        (_, ctx) => ctx.complete(async ({ add }) => void (await add('later', 1, { repeat: { cron: '@daily' } }))),
        { logger: false },
      ),
    )
    const added = await queue.add('first')
    await added.result()
    expect(await queue.schedules()).toMatchObject([{ key: 'later', name: 'later', data: 1 }])
    await worker.close()
  })
})

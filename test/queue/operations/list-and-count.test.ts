// Lists and counts, on every store: by state, name, chain and parent, page by page; in all, by name, and of all queues.
import { describe, expect, test } from 'vitest'
import { Queue, Worker, defineJobs, job, storeCounts } from 'millrace'
import type { JobFilter, Store } from 'millrace'
import { memory } from 'millrace/memory'
import { postgres } from 'millrace/postgres'
import { sqlite } from 'millrace/sqlite'
import { newSchema, sharedServer } from '../../stores/postgres/server/shared.js'
import { closing, event } from '../../setup.js'

const stores: readonly (readonly [string, () => Promise<Store>])[] = [
  ['memory', async () => memory()],
  ['SQLite', async () => sqlite(':memory:')],
  ['PostgreSQL', async () => postgres(await sharedServer(), { schema: newSchema() })],
]

const jobs = defineJobs({ mail: job(), index: job(), sweep: job() })

const none = { waiting: 0, delayed: 0, 'waiting-children': 0, active: 0, completed: 0, failed: 0, cancelled: 0 }

describe.each(stores)('on %s', (_name, make) => {
  const scene = async () => {
    const store = closing(await make())
    return { store, queue: closing(new Queue('work', { store, jobs, logger: false })) }
  }

  /** Forty of each of two names, in turn: every fourth delayed, every fifth cancelled. */
  const fill = async (queue: Queue<typeof jobs>): Promise<readonly string[]> => {
    const items = Array.from({ length: 80 }, (_, n) => ({
      name: n % 2 === 0 ? ('mail' as const) : ('index' as const),
      data: n,
      options: n % 4 === 0 ? { delay: '1h' } : {},
    }))
    const added = await queue.addBulk(items)
    for (const each of added) if ((each.data as number) % 5 === 0) await each.cancel()
    return added.map(({ id }) => id)
  }

  const all = async (
    queue: Queue<typeof jobs>,
    filter: JobFilter<'mail' | 'index' | 'sweep'>,
    order?: 'newest',
    limit = 7,
  ) => {
    const found: string[] = []
    let cursor: string | undefined
    do {
      const page = await queue.list({
        ...filter,
        limit,
        ...(order && { order }),
        ...(cursor !== undefined && { cursor }),
      })
      expect(page.jobs.length).toBeLessThanOrEqual(limit)
      found.push(...page.jobs.map(({ id }) => id))
      cursor = page.cursor
    } while (cursor !== undefined)
    return found
  }

  test('pages of every filter hold all that match, once, in order, both ways', async () => {
    const { queue } = await scene()
    const ids = await fill(queue)
    const at = (fits: (n: number) => boolean) => ids.filter((_, n) => fits(n))
    const filters: readonly (readonly [JobFilter<'mail' | 'index' | 'sweep'>, (n: number) => boolean])[] = [
      [{}, () => true],
      [{ state: 'cancelled' }, (n) => n % 5 === 0],
      [{ name: 'mail' }, (n) => n % 2 === 0],
      [{ name: ['mail', 'index'] }, () => true],
      [{ name: 'index', state: 'waiting' }, (n) => n % 2 === 1 && n % 5 !== 0],
      [{ name: 'mail', state: ['delayed', 'cancelled'] }, (n) => n % 2 === 0 && (n % 4 === 0 || n % 5 === 0)],
      [{ name: 'sweep' }, () => false],
      [{ name: 'index', state: 'delayed' }, () => false],
    ]
    for (const [filter, fits] of filters) {
      expect(await all(queue, filter)).toEqual(at(fits))
      expect(await all(queue, filter, 'newest')).toEqual(at(fits).toReversed())
      expect(await all(queue, filter, undefined, 1000)).toEqual(at(fits))
    }
  })

  test('jobs are found by chain and by parent, and operations on many take the same filters', async () => {
    const { store, queue } = await scene()
    const worker = new Worker(
      queue,
      { mail: (_job, ctx) => ctx.complete(async ({ continueWith }) => void (await continueWith('index', 1))) },
      { logger: false },
    )
    closing(worker)
    const ended = event(queue, 'completed')
    const begun = await queue.add('mail', 1)
    await ended
    const chain = (await queue.list({ chain: begun.id })).jobs
    expect(chain.map(({ name, state }) => `${name} ${state}`)).toEqual(['mail completed', 'index waiting'])
    expect((await queue.list({ chain: begun.id, name: 'index', state: 'completed' })).jobs).toEqual([])
    const lone = await queue.add('index', 2)
    expect((await queue.list({ chain: lone.id })).jobs.map(({ id }) => id)).toEqual([lone.id])
    expect((await queue.list({ parent: begun.id })).jobs).toEqual([])
    expect(await queue.cancel({ chain: begun.id, name: 'index' })).toBe(1)
    expect(await queue.remove({ chain: begun.id })).toBe(2)
    expect(await queue.counts()).toEqual({ ...none, waiting: 1 })
    expect(store.name).toBeTypeOf('string')
  })

  test('counts are by state; by name, in all and of each declared name; and of every queue of a store', async () => {
    const { store, queue } = await scene()
    await fill(queue)
    const total = { ...none, waiting: 48, delayed: 16, cancelled: 16 }
    expect(await queue.counts()).toEqual(total)
    expect(await queue.counts({ by: 'name' })).toEqual({
      total,
      names: {
        mail: { ...none, waiting: 16, delayed: 16, cancelled: 8 },
        index: { ...none, waiting: 32, cancelled: 8 },
        sweep: none,
      },
    })
    const other = closing(new Queue('other', { store, logger: false }))
    await other.add('x')
    const every = await storeCounts(store)
    expect(Object.keys(every).toSorted()).toEqual(['other', 'work'])
    expect(every['work']!.total).toEqual(total)
    expect(every['other']).toEqual({ total: { ...none, waiting: 1 }, names: { x: { ...none, waiting: 1 } } })
  })

  test('many names and versions are merged into one order', async () => {
    const { store } = await scene()
    const queue = closing(new Queue('wide', { store, logger: false }))
    const items = Array.from({ length: 300 }, (_, n) => ({ name: `name ${(n * 7) % 60}`, data: n }))
    const ids = (await queue.addBulk(items)).map(({ id }) => id)
    const bulk = await queue.addBulk(Array.from({ length: 150 }, () => ({ name: 'bulk' })))
    const rest = await queue.addBulk(items)
    const every = [...ids, ...[...bulk, ...rest].map(({ id }) => id)]
    expect(await all(queue as never, {}, undefined, 90)).toEqual(every)
    expect(await all(queue as never, {}, 'newest', 90)).toEqual(every.toReversed())
    expect(await all(queue as never, { state: 'waiting' }, undefined, 1000)).toEqual(every)
  })
})

test('what is malformed is refused', async () => {
  const queue = closing(new Queue('work', { store: closing(memory()), logger: false }))
  await expect(queue.counts({ by: 'names' } as never)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
  await expect(queue.counts({ per: 'name' } as never)).rejects.toMatchObject({ code: 'UNKNOWN_OPTION' })
  await expect(storeCounts({} as never)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
})

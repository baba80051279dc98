// What is much, in bytes: PostgreSQL takes 256 MiB of JSON at once and no more, and answers late long before that.
import { Pool } from 'pg'
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { Queue, Worker } from 'millrace'
import type { Store } from 'millrace'
import { postgres } from 'millrace/postgres'
import { due } from '../../../src/job/lifecycle.js'
import type { PlainJob } from '../../../src/job/retention.js'
import { Driver } from '../../../src/conformance/driver.js'
import type { Due } from '../../../src/store/store.js'
import { observed } from '../../observed-store.js'
import { closing } from '../../setup.js'
import { newSchema, sharedServer } from './server/shared.js'

/** How many groups there were in each batch. */
let batches: number[]
let queue: Queue

beforeEach(async () => {
  batches = []
  const store: Store = closing(postgres(await sharedServer(), { schema: newSchema() }))
  const counting: Store = {
    ...observed(store, () => {}),
    commit: (batch, tx) => {
      batches.push(batch.groups.length)
      return store.commit(batch, tx)
    },
  }
  queue = closing(new Queue('work', { store: counting, logger: false, maxDataBytes: 2 ** 23 }))
})

const jobs = (count: number, bytes: number): { name: string; data: string }[] =>
  Array.from({ length: count }, () => ({ name: 'large', data: 'x'.repeat(bytes) }))

/** What is due in the queue, once so many jobs are. */
async function untilDue(store: Store, count: number): Promise<Due> {
  for (;;) {
    const seen = await store.due({ queues: ['work'], except: [], limit: 500 })
    if (seen.jobs.length >= count) return seen
  }
}

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
      const store = observed(queue.store, (_, { asks }) => {
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

describe('reads of what is large', () => {
  /** The longest answer of the database to one statement. */
  let longest = 0
  let many: Queue

  beforeEach(async () => {
    longest = 0
    const pool = new Pool({ connectionString: await sharedServer(), max: 5 })
    onTestFinished(() => pool.end())
    pool.on('connect', (client) => {
      const query = client.query.bind(client) as (...asked: unknown[]) => unknown
      client.query = ((...asked: unknown[]) => {
        const answer = query(...asked)
        if (answer instanceof Promise) void answer.then(measure, () => {})
        return answer
      }) as typeof client.query
    })
    many = closing(new Queue('work', { store: closing(postgres(pool, { schema: newSchema() })), logger: false }))
  })

  const measure = (answer: { rows?: readonly (readonly unknown[])[] } | undefined): void => {
    const text = answer?.rows?.[0]?.[0]
    if (typeof text === 'string') longest = Math.max(longest, text.length)
  }

  /** What an answer may hold: a page, the job that filled it, and the escapes of JSON. */
  const A_PAGE = 12_000_000 // 8 MiB, the job that reaches it, and what is written around them

  test('large jobs that are due together all run, and a small one beside them', { timeout: 120_000 }, async () => {
    await many.addBulk(jobs(30, 1_000_000).map((each) => ({ ...each, options: { delay: 10 } })))
    await many.add('small', 'beside', { delay: 20 })
    longest = 0
    const ran: string[] = []
    const worker = closing(new Worker(many, ({ name }) => void ran.push(name), { logger: false, concurrency: 4 }))
    await new Promise<void>((done) => worker.on('completed', () => ran.length === 31 && done()))
    expect(ran.filter((name) => name === 'small')).toHaveLength(1)
    expect(longest).toBeLessThan(2 * A_PAGE) // a claim may read two portions; what is due held all 30
  })

  test('lists, reads by id and operations by filter go page by page', { timeout: 120_000 }, async () => {
    const added = await many.addBulk(jobs(30, 1_000_000).map((each) => ({ ...each, options: { delay: '1h' } })))
    longest = 0
    const seen: string[] = []
    let cursor: string | undefined
    do {
      const page = await many.list({ limit: 30, cursor })
      expect(page.jobs.length).toBeGreaterThan(0)
      seen.push(...page.jobs.map(({ id }) => id))
      cursor = page.cursor
    } while (cursor !== undefined)
    expect(seen).toEqual(added.map(({ id }) => id))
    expect(await many.store.get(seen)).toHaveLength(30)
    expect(await many.promote({ state: 'delayed' })).toBe(30)
    expect(await many.remove({ state: 'waiting' })).toBe(30)
    expect(longest).toBeLessThan(A_PAGE)
  })

  test('a handler is given all results of its dependencies', { timeout: 120_000 }, async () => {
    const parts = await many.addBulk(Array.from({ length: 20 }, () => ({ name: 'part' })))
    const whole = await many.add('whole', undefined, { after: parts })
    const worker = closing(
      new Worker(
        many,
        {
          part: () => 'x'.repeat(1_000_000),
          whole: async (_, ctx) => {
            const ended = await ctx.dependencies()
            return ended.map((each) => (each.status === 'completed' ? (each.result as string).length : 0))
          },
        },
        { logger: false, concurrency: 4 },
      ),
    )
    const completed = new Promise((done) => worker.on('completed', ({ id, result }) => id === whole.id && done(result)))
    expect(await completed).toEqual(Array(20).fill(1_000_000))
    expect(longest).toBeLessThan(A_PAGE)
  })

  test('subscribers that are late receive moved jobs without their payloads', { timeout: 120_000 }, async () => {
    const { store } = many
    await many.addBulk(jobs(30, 1_000_000).map((each) => ({ ...each, options: { delay: 1 } })))
    const seen = await untilDue(store, 30)
    const groups = seen.jobs.map((job) => due(job as PlainJob, seen.now))
    const batch = { seq: 1, groups, renewals: [], asks: [] }
    longest = 0
    const first = await store.commit({ ...batch, writer: 'first' })
    const second = await store.commit({ ...batch, writer: 'second' })
    expect(first.groups.every(({ ok }) => ok)).toBe(true)
    expect(second.groups.every((verdict) => !verdict.ok && verdict.why === 'fence')).toBe(true)
    const renewals = seen.jobs.map(({ id, fence }) => ({ id, fence, lease: 1_000, started: true }))
    const late = await store.commit({ writer: 'third', seq: 1, groups: [], renewals, asks: [] })
    expect(late.renewals.every((verdict) => !verdict.ok && verdict.job?.state === 'waiting')).toBe(true)
    expect(longest).toBeLessThan(100_000)
  })

  test.each([{ dedup: { key: 'one' } }, { id: 'one' }])(
    'many adds that meet one large job are answered with it in portions: %o',
    { timeout: 120_000 },
    async (options) => {
      const [first] = await many.addBulk([{ name: 'large', data: 'x'.repeat(1_000_000), options }])
      longest = 0
      const met = await Promise.all(Array.from({ length: 40 }, () => many.add('large', 'small', options)))
      expect(met.every(({ id, data }) => id === first!.id && (data as string).length === 1_000_000)).toBe(true)
      expect(longest).toBeLessThan(A_PAGE)
    },
  )

  test('retention does not read what lies beside the jobs that it removes', { timeout: 120_000 }, async () => {
    const { store } = many
    const kept = closing(new Queue('kept', { store, logger: false, retention: { deleteAfter: 500 } }))
    const worker = closing(
      new Worker(
        kept,
        async (_, ctx) => void (await Promise.all(Array.from({ length: 50 }, () => ctx.log('x'.repeat(10_000))))),
        { logger: false, concurrency: 20 },
      ),
    )
    const removed = new Promise<void>((done) => {
      let count = 0
      kept.on('removed', () => ++count === 40 && done())
    })
    await kept.addBulk(Array.from({ length: 40 }, () => ({ name: 'kept' })))
    await removed
    expect(longest).toBeLessThan(1_000_000)
    await worker.close()
  })
})

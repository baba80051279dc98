// Tags, filters, counts, causes of failures and searches, on every store, as users call them.
import { describe, expect, test } from 'vitest'
import { Queue, Worker, defineJobs, job } from 'millrace'
import type { JobFilter, ListOptions } from 'millrace'
import { memory } from 'millrace/memory'
import { closing, event } from '../../setup.js'
import { kinds, stores } from '../../stores.js'

const make = stores()
const jobs = defineJobs({ mail: job(), index: job() })

class Timeout extends Error {
  readonly code = 'ETIMEDOUT'
}

/** Fails jobs of odd numbers, in two ways, at one place each. */
async function work({ data }: { readonly data: unknown }): Promise<number> {
  const { n } = data as { n: number }
  if (n % 4 === 1) throw new Timeout(`no answer for ${n}`)
  if (n % 4 === 3) throw new TypeError(`bad ${n}`)
  return n
}

describe.each(kinds)('on %s', (kind) => {
  const scene = async (): Promise<Queue<typeof jobs>> => {
    const store = await make(kind)
    return closing(new Queue('work', { store, jobs, logger: false }))
  }

  /** Twelve jobs with tags, of which every second one fails when they are run. */
  const fill = async (queue: Queue<typeof jobs>): Promise<readonly string[]> => {
    const added = await queue.addBulk(
      Array.from({ length: 12 }, (_, n) => ({
        name: n % 3 === 0 ? ('index' as const) : ('mail' as const),
        data: { n, user: { id: n % 4, name: `user "${n % 2}"` }, list: [n, null] },
        options: { attempts: 1, tags: [`user:${n % 4}`, ...(n % 2 === 0 ? ['even'] : [])] },
      })),
    )
    return added.map(({ id }) => id)
  }

  const run = async (queue: Queue<typeof jobs>): Promise<void> => {
    const worker = closing(new Worker(queue, { mail: work, index: work }, { logger: false, workerName: 'filter-test' }))
    await worker.run({ until: 'drained' })
  }

  const all = async (queue: Queue<typeof jobs>, options: ListOptions<'mail' | 'index'>): Promise<readonly string[]> => {
    const found: string[] = []
    let cursor: string | undefined
    do {
      const page = await queue.list({ ...options, limit: 2, cursor })
      found.push(...page.jobs.map(({ id }) => id))
      cursor = page.cursor
    } while (cursor !== undefined)
    return found
  }

  test('a job has the tags that it was added with, wherever it is read', async () => {
    const queue = await scene()
    const added = await queue.add('mail', 1, { tags: ['user:7', 'import'] })
    expect(added.tags).toEqual(['user:7', 'import'])
    expect((await queue.get(added.id))!.tags).toEqual(['user:7', 'import'])
    expect((await queue.list({ tags: 'import' })).jobs[0]!.tags).toEqual(['user:7', 'import'])
    expect((await queue.add('mail', 2)).tags).toEqual([])
    expect((await queue.add('mail', 3, { tags: [] })).tags).toEqual([])
  })

  test('the runs of a schedule have the tags of the schedule', async () => {
    const queue = await scene()
    const ran = event(queue, 'completed')
    const runs: (readonly string[])[] = []
    await queue.schedule('tick', { name: 'mail', every: '1s', data: 1, options: { tags: ['nightly'] } })
    closing(new Worker(queue, { mail: (run) => void runs.push(run.tags), index: work }, { logger: false }))
    await ran
    expect(runs[0]).toEqual(['nightly'])
    expect((await queue.list({ tags: 'nightly' })).jobs.map(({ parentId }) => parentId)).toContain('schedule:work:tick')
  })

  test('jobs are listed, counted and changed by tags: one, all of a list, or any', async () => {
    const queue = await scene()
    const ids = await fill(queue)
    const at = (fits: (n: number) => boolean) => ids.filter((_, n) => fits(n))
    expect(await all(queue, { tags: 'user:1' })).toEqual(at((n) => n % 4 === 1))
    expect(await all(queue, { tags: ['user:2', 'even'] })).toEqual(at((n) => n % 4 === 2))
    expect(await all(queue, { tags: ['user:1', 'even'] })).toEqual([])
    expect(await all(queue, { tags: { any: ['user:1', 'user:2'] } })).toEqual(at((n) => n % 4 === 1 || n % 4 === 2))
    expect(await all(queue, { tags: { any: ['user:1', 'user:2'], all: ['even'] }, name: 'mail' })).toEqual(
      at((n) => n % 4 === 2 && n % 3 !== 0),
    )
    expect(await queue.count({ tags: 'even' })).toEqual({ count: 6, exact: true })
    expect(await queue.cancel({ tags: ['user:0', 'even'] })).toBe(3)
    expect(await queue.remove({ tags: 'user:0' })).toBe(3)
    expect(await queue.count({ tags: 'even' })).toEqual({ count: 3, exact: true })
    expect(await queue.count({ tags: 'user:0' })).toEqual({ count: 0, exact: true })
  })

  test('jobs are found by worker, times, errors and the beginning of their ids', async () => {
    const queue = await scene()
    const ids = await fill(queue)
    await queue.add('mail', { n: 0 }, { id: 'order-7', delay: '1h' })
    await run(queue)
    const at = (fits: (n: number) => boolean) => ids.filter((_, n) => fits(n))
    expect(await all(queue, { worker: 'filter-test' })).toEqual(ids)
    expect(await all(queue, { worker: 'filter' })).toEqual([])
    expect(await all(queue, { idPrefix: 'order-' })).toEqual(['order-7'])
    expect(await all(queue, { error: { code: 'ETIMEDOUT' } })).toEqual(at((n) => n % 4 === 1))
    expect(await all(queue, { error: { code: 'ETIMEDOUT' }, tags: 'even' })).toEqual([])
    expect(await all(queue, { created: { from: '1h' } })).toEqual([...ids, 'order-7'])
    expect(await all(queue, { created: { to: '1h' } })).toEqual([])
    expect(await all(queue, { started: { from: '1h' }, state: 'completed' })).toEqual(at((n) => n % 2 === 0))
    expect(await all(queue, { finished: { from: new Date(0), to: Date.now() + 60_000 } })).toEqual(ids)
    expect(await queue.retry({ error: { code: 'ETIMEDOUT' }, finished: { from: '1h' } })).toBe(3)
    expect(await queue.count({ error: { code: 'ETIMEDOUT' } })).toEqual({ count: 0, exact: true })
  })

  test('jobs that failed or were cancelled are listed by their end, the last one first', async () => {
    const queue = await scene()
    const ids = await fill(queue)
    await run(queue)
    const late = await queue.add('mail', { n: 0 }, { delay: '1h' })
    await late.cancel()
    const listed = await all(queue, { order: 'finished' })
    expect(listed[0]).toBe(late.id)
    expect(listed.slice(1).toSorted()).toEqual(ids.filter((_, n) => n % 2 === 1).toSorted())
    const ends = await Promise.all(listed.map(async (id) => (await queue.get(id))!.finishedAt!))
    expect(ends).toEqual(ends.toSorted((a, b) => b - a))
  })

  test('failing jobs are counted by cause, and each cause finds its jobs', async () => {
    const queue = await scene()
    const ids = await fill(queue)
    expect(await queue.errors()).toEqual({ errors: [] })
    await run(queue)
    const { errors, cursor } = await queue.errors()
    expect(cursor).toBeUndefined()
    const timeout = errors.find(({ code }) => code === 'ETIMEDOUT')!
    const bad = errors.find(({ errorName }) => errorName === 'TypeError')!
    expect(errors.length).toBe(2)
    for (const each of [timeout, bad]) {
      expect(each).toMatchObject({ count: 3, exact: true, place: expect.stringMatching(/filters\.test\.ts:\d+:\d+$/) })
      expect(each.first).toBeLessThanOrEqual(each.last)
      expect(each.last).toBeLessThanOrEqual(Date.now() + 1_000)
    }
    expect(timeout.sample).toEqual({ id: ids[9], name: 'index', message: 'no answer for 9' })
    const { fingerprint } = timeout
    expect((await queue.get(ids[1]!))!.error!.fingerprint).toBe(fingerprint)
    expect(await all(queue, { error: { fingerprint } })).toEqual(ids.filter((_, n) => n % 4 === 1))
    const first = await queue.errors({ limit: 1 })
    const second = await queue.errors({ limit: 1, cursor: first.cursor })
    expect([...first.errors, ...second.errors].map((each) => each.fingerprint).toSorted()).toEqual(
      errors.map((each) => each.fingerprint).toSorted(),
    )
    expect(second.cursor).toBeUndefined()
    const { cursor: ofList } = await queue.list({ limit: 1 })
    for (const foreign of ['junk', fingerprint, ofList]) {
      await expect(queue.errors({ cursor: foreign })).rejects.toMatchObject({ code: 'INVALID_CURSOR' })
    }
    expect(await queue.retry({ error: { fingerprint } })).toBe(3)
    expect((await queue.errors()).errors.map(({ errorName }) => errorName)).toEqual(['TypeError'])
  })

  test('a search finds jobs by values in their data and results, the newest first, and says how many it has read', async () => {
    const queue = await scene()
    const ids = await fill(queue)
    await run(queue)
    const at = (fits: (n: number) => boolean) => ids.filter((_, n) => fits(n)).toReversed()
    const found = await queue.list({ search: { 'data.user.id': 1 } })
    expect(found.jobs.map(({ id }) => id)).toEqual(at((n) => n % 4 === 1))
    expect(found).toMatchObject({ searched: 12 })
    expect(found.cursor ?? found.stoppedAt).toBeUndefined()
    expect(await all(queue, { search: { 'data.user.name': 'user "1"' } })).toEqual(at((n) => n % 2 === 1))
    expect(await all(queue, { search: { 'data.list.0': 4, 'data.list.1': null } })).toEqual([ids[4]])
    expect(await all(queue, { search: { result: 6 } })).toEqual([ids[6]])
    expect(await all(queue, { search: { 'data.user.id': '1' } })).toEqual([])
    expect(await all(queue, { search: { 'data.user.id': 1 }, name: 'index' })).toEqual([ids[9]])
    expect(await all(queue, { search: { 'data.user.id': 1 }, order: 'finished' })).toHaveLength(3)
  })

  test('a search finds keys with dots, backslashes and numbers, and takes the length of a list for no value', async () => {
    const queue = await scene()
    const one = await queue.add('mail', { 'a.b': 1, 'c\\d': 2, e: { '0': 3 }, list: [4] })
    const has = async (search: Record<string, number>) => (await all(queue, { search })).includes(one.id)
    expect(await has({ 'data.a\\.b': 1, 'data.c\\\\d': 2, 'data.e.0': 3, 'data.list.0': 4 })).toBe(true)
    expect(await has({ 'data.a.b': 1 })).toBe(false)
    expect(await has({ 'data.list.length': 1 })).toBe(false)
    for (const path of ['data.a\\', 'data..a', 'data.', 'meta.a']) {
      await expect(queue.list({ search: { [path]: 1 } })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    }
  })

  test('an index of values makes a search exact, or is refused where there is none', async () => {
    const queue = await scene()
    const ids = await fill(queue)
    await expect(queue.searchIndex('yes' as never)).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    if (kind !== 'PostgreSQL') {
      await expect(queue.searchIndex(true)).rejects.toMatchObject({ code: 'NO_SEARCH_INDEX' })
      expect((await queue.list({ search: { 'data.n': 4 } })).exact).toBeUndefined()
      return
    }
    await queue.searchIndex(true)
    const page = await queue.list({ search: { 'data.list.0': 4, 'data.user.id': 0 } })
    expect(page.jobs.map(({ id }) => id)).toEqual([ids[4]])
    expect(page).toMatchObject({ exact: true, searched: 1 })
    await queue.searchIndex(false)
    expect(await queue.list({ search: { 'data.n': 4 } })).toMatchObject({ searched: 12 })
  })

  test('a search that reads many jobs goes on from page to page', async () => {
    const queue = await scene()
    await queue.addBulk(Array.from({ length: 1_200 }, (_, n) => ({ name: 'mail' as const, data: { n } })))
    const first = await queue.list({ search: { 'data.n': 0 } })
    expect(first).toMatchObject({ searched: 1_200 })
    expect(first.jobs).toHaveLength(1)
    const page = await queue.list({ search: { 'data.n': 1_100 }, limit: 1 })
    expect(page.jobs).toHaveLength(1)
    expect(page).toMatchObject({ searched: 500 })
    const rest = await queue.list({ search: { 'data.n': 1_100 }, limit: 1, cursor: page.cursor })
    expect(rest).toMatchObject({ jobs: [], searched: 1_200 })
  })

  test('counts by state and name come from counters', async () => {
    const queue = await scene()
    await fill(queue)
    expect(await queue.count({})).toEqual({ count: 12, exact: true })
    expect(await queue.count({ name: 'index', state: ['waiting', 'failed'] })).toEqual({ count: 4, exact: true })
    expect(await queue.count({ name: 'index', created: { from: '1h' } })).toEqual({ count: 4, exact: true })
  })
})

test('a count of very many jobs says that there are more', async () => {
  const queue = closing(new Queue('work', { store: closing(memory()), logger: false }))
  await queue.addBulk(Array.from({ length: 14_000 }, (_, n) => ({ name: 'mail', data: n })))
  expect(await queue.count({ created: { from: '1h' } })).toEqual({ count: 10_000, exact: false })
})

describe('what is wrong is refused, and nothing is written', () => {
  const queue = () => closing(new Queue('work', { store: closing(memory()), logger: false }))

  test.each([
    ['no list', 'import'],
    ['too many', Array.from({ length: 11 }, (_, n) => `tag ${n}`)],
    ['one too long', ['x'.repeat(65)]],
    ['an empty one', ['']],
    ['one twice', ['a', 'b', 'a']],
    ['a number', [7]],
    ['a control character', ['a\nb']],
  ])('tags: %s', async (_what, tags) => {
    const given = queue()
    await expect(given.add('mail', 1, { tags } as never)).rejects.toMatchObject({ code: 'INVALID_TAGS' })
    await expect(
      given.addBulk([
        { name: 'mail', data: 1 },
        { name: 'mail', data: 1, options: { tags } as never },
      ]),
    ).rejects.toMatchObject({ code: 'INVALID_TAGS' })
    expect((await given.list()).jobs).toEqual([])
  })

  test.each<readonly [string, string, unknown]>([
    ['an unknown state', 'INVALID_OPTION', { state: 'done' }],
    ['no states', 'INVALID_OPTION', { state: [] }],
    ['no names', 'INVALID_OPTION', { name: [] }],
    ['no tags', 'INVALID_OPTION', { tags: [] }],
    ['neither all nor any', 'INVALID_OPTION', { tags: {} }],
    ['another field of tags', 'UNKNOWN_OPTION', { tags: { some: ['a'] } }],
    ['a tag too long', 'INVALID_TAGS', { tags: 'x'.repeat(65) }],
    ['a range that ends before it begins', 'INVALID_RANGE', { created: { from: '1h', to: '2h' } }],
    ['an empty range', 'INVALID_RANGE', { finished: { from: 5, to: 5 } }],
    ['a range without ends', 'INVALID_OPTION', { started: {} }],
    ['a date that is none', 'INVALID_DATE', { created: { from: new Date(Number.NaN) } }],
    ['a text that is no date', 'INVALID_DATE', { created: { from: '2026-13-45' } }],
    ['a duration that is none', 'INVALID_DURATION', { created: { from: 'yesterday' } }],
    ['an error without a field', 'INVALID_OPTION', { error: {} }],
    ['an empty code', 'INVALID_NAME', { error: { code: '' } }],
    ['an empty beginning of an id', 'INVALID_ID', { idPrefix: '' }],
    ['an unknown field', 'UNKNOWN_OPTION', { tag: 'a' }],
  ])('filters: %s', async (_what, code, filter) => {
    const given = queue()
    await given.add('mail', 1)
    const calls: readonly ((filter: JobFilter) => Promise<unknown>)[] = [
      (each) => given.list(each),
      (each) => given.count(each),
      (each) => given.cancel(each),
      (each) => given.remove(each),
    ]
    for (const call of calls) await expect(call(filter as JobFilter)).rejects.toMatchObject({ code })
    expect((await given.counts()).waiting).toBe(1)
  })

  test('a cursor of another list, or of none', async () => {
    const given = queue()
    for (let n = 0; n < 3; n++) await given.add('mail', n, { tags: ['a', 'b'] })
    const { cursor } = await given.list({ tags: 'a', limit: 1 })
    expect((await given.list({ limit: 2, tags: 'a', cursor })).jobs).toHaveLength(2)
    for (const other of [
      { tags: 'b' },
      { tags: 'a', order: 'newest' },
      { tags: 'a', search: { data: 1 } },
      {},
    ] as const) {
      await expect(given.list({ ...other, cursor })).rejects.toMatchObject({ code: 'INVALID_CURSOR' })
    }
    await expect(given.list({ cursor: '7' })).rejects.toMatchObject({ code: 'INVALID_CURSOR' })
    await expect(given.list({ cursor: 7 as never })).rejects.toMatchObject({ code: 'INVALID_CURSOR' })
  })

  test('an order of ends for jobs that end well, and a search in another order', async () => {
    const given = queue()
    await expect(given.list({ order: 'finished', state: 'completed' })).rejects.toMatchObject({
      code: 'INVALID_OPTION',
    })
    await expect(given.list({ order: 'oldest', search: { data: 1 } } as never)).rejects.toMatchObject({
      code: 'INVALID_OPTION',
    })
    for (const search of [{}, { 'payload.x': 1 }, { 'data.': 1 }, { data: {} }, { data: NaN }, 7]) {
      await expect(given.list({ search: search as never })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    }
    await expect(given.errors({ limit: 0 })).rejects.toMatchObject({ code: 'INVALID_OPTION' })
    await expect(given.errors({ page: 1 } as never)).rejects.toMatchObject({ code: 'UNKNOWN_OPTION' })
  })
})

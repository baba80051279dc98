// conformance/cases/find/find.ts: cases on `find` and `get`: queries, order and pages.
import type { JobRecord } from '../../../job/job.js'
import { must, same } from '../../check.js'
import { first, ids } from '../../driver.js'
import type { Driver } from '../../driver.js'
import { area } from '../../harness.js'
import { complete, fail, insert, note, remove, failAndRetry } from '../../changes.js'
import type { Query, Store } from '../../../store/store.js'

async function found(store: Store, query: Query): Promise<readonly string[]> {
  return ids((await store.find(query)).items)
}

/** Reads all pages; `between` runs after each page but the last. */
async function pages(
  store: Store,
  query: Query,
  between: (page: number) => Promise<void> = async () => {},
): Promise<string[]> {
  const seen: string[] = []
  let cursor: string | undefined
  for (let page = 0; page < 100; page++) {
    const result = await store.find({ ...query, ...(cursor !== undefined && { cursor }) })
    must(result.items.length <= (query.limit ?? 100), 'a page has no more than its limit')
    seen.push(...ids(result.items))
    cursor = result.cursor
    if (cursor === undefined) return seen
    await between(page)
  }
  must(false, 'paging ends')
  return seen
}

/** Adds one job in each state; its id is the state. */
async function oneOfEach(d: Driver): Promise<void> {
  await d.land(complete(await d.running('a', { id: 'completed' })))
  await d.land(fail(await d.running('b', { id: 'failed' })))
  const active = await d.running('a', { id: 'active' })
  await d.add('b', { id: 'waiting' })
  await d.add('a', { id: 'delayed', run: { in: 60_000 } })
  await d.add('b', { id: 'waiting-children', after: [active] })
  await d.add('a', { id: 'elsewhere', queue: 'other' })
  await d.add('cron', { id: 'schedule', kind: 'schedule', run: { in: 60_000 } })
}

/** Bytes of a large job in these cases. */
const LARGE = 10_000

/** Cases of `find` and `get`. */
export const find = area('find', {
  'a page is cut by its bytes, and the next one starts at its cursor': async (h) => {
    const d = first(h)
    const data = 'x'.repeat(LARGE)
    for (let at = 1; at <= 7; at++) await d.add('work', { id: `job-${at}`, ...(at !== 4 && { data }) })
    const all = ['job-1', 'job-2', 'job-3', 'job-4', 'job-5', 'job-6', 'job-7']
    for (const order of ['oldest', 'newest'] as const) {
      const page = await h.store.find({ queue: 'mill', order, bytes: 2 * LARGE })
      must(page.items.length < 4 && page.cursor !== undefined, 'a page ends with the job that reaches its bytes')
      const expected = order === 'oldest' ? all : all.toReversed()
      same(await pages(h.store, { queue: 'mill', order, bytes: 2 * LARGE }), expected, 'paging leaves none out')
      same(await pages(h.store, { order, bytes: 1 }), expected, 'a page holds one job at least')
      same(await pages(h.store, { chain: 'job-1', order, bytes: 1 }), ['job-1'], 'a chain is cut in the same way')
    }
    const whole = await h.store.find({ queue: 'mill', limit: 7, bytes: 100 * LARGE })
    same([whole.items.length, whole.cursor], [7, undefined], 'what fits is not cut')
  },

  'results, notes and errors count towards the bytes of a page': async (h) => {
    const d = first(h)
    const large = 'x'.repeat(LARGE)
    await d.land(complete(await d.running('work', { id: 'result' }), { result: large }))
    await d.land(note(await d.running('work', { id: 'memo' }), { memo: JSON.stringify(large) }))
    await d.land(note(await d.running('work', { id: 'progress' }), { progress: large }))
    const error = { name: 'Error', message: 'x'.repeat(LARGE) }
    await d.land(failAndRetry(await d.running('work', { id: 'errors', attempts: 2 }), 1_000, error))
    await d.add('work', { id: 'last' })
    for (const id of ['result', 'memo', 'progress', 'errors']) {
      const page = await h.store.find({ bytes: LARGE })
      same(ids(page.items), [id], 'a page ends with the job that reaches its bytes')
      await d.land(remove(await d.job(id)))
    }
  },

  'many large jobs are read by their ids': async (h) => {
    const d = first(h)
    const data = 'x'.repeat(1_000_000)
    const known = Array.from({ length: 20 }, (_, at) => `job-${at}`)
    for (const id of known) await d.add('work', { id, data })
    const result = await h.store.get(['missing', ...known, 'job-3'])
    same(
      result.map((job) => job?.id),
      [undefined, ...known, 'job-3'],
      'jobs are returned in the requested order, however large they are',
    )
    must(
      result.every((job) => job === undefined || job.data?.length === data.length + 2),
      'each with its data',
    )
  },

  'jobs are found by queue, state, name and kind, and by all together': async (h) => {
    const d = first(h)
    await oneOfEach(d)
    const { store } = h
    const all = ['completed', 'failed', 'active', 'waiting', 'delayed', 'waiting-children', 'elsewhere', 'schedule']
    same(await found(store, {}), all, 'without a field everything matches, in the order of insertion')
    same(await found(store, { queue: 'other' }), ['elsewhere'], 'jobs are found by queue')
    same(await found(store, { states: ['active'] }), ['active'], 'jobs are found by state')
    same(
      await found(store, { states: ['waiting', 'failed'] }),
      ['failed', 'waiting', 'elsewhere'],
      'a list matches any of its states',
    )
    same(await found(store, { names: ['b'] }), ['failed', 'waiting', 'waiting-children'], 'jobs are found by name')
    same((await found(store, { names: ['a', 'b'] })).length, 7, 'a list matches any of its names')
    same(await found(store, { kind: 'schedule' }), ['schedule'], 'schedules are found by kind')
    same(await found(store, { kind: 'job' }), all.slice(0, 7), 'jobs are found by kind')
    const query = { queue: 'mill', states: ['delayed', 'waiting'], names: ['a'], kind: 'job' } as const
    same(await found(store, query), ['delayed'], 'every field given must match')
    same(await found(store, { states: ['cancelled'] }), [], 'what does not match is not found')
    same(await found(store, { queue: 'nowhere' }), [], 'a queue never used has no jobs')
    same(await found(store, { states: [] }), [], 'an empty list matches nothing')
  },

  'jobs are found by chain and by parent': async (h) => {
    const d = first(h)
    const head = await d.running('step')
    await d.land(complete(head, { continuation: insert('next', 'step', { chain: { id: head.id, index: 1 } }) }))
    await d.add('child', { id: 'child-1', parent: head.id })
    await d.add('child', { id: 'child-2', parent: head.id })
    same(await found(h.store, { chain: head.id }), [head.id, 'next'], 'jobs are found by chain')
    same(await found(h.store, { parent: head.id }), ['child-1', 'child-2'], 'jobs are found by parent')
    same(await found(h.store, { chain: head.id, states: ['waiting'] }), ['next'], 'a chain and a state go together')
  },

  'jobs are found newest first if requested': async (h) => {
    const d = first(h)
    const jobs = ids(await d.addMany(7, 'work'))
    same(await found(h.store, { order: 'oldest' }), jobs, 'the oldest come first')
    same(await found(h.store, { order: 'newest' }), jobs.toReversed(), 'the newest come first')
    same(await pages(h.store, { order: 'newest', limit: 3 }), jobs.toReversed(), 'pages keep the order')
  },

  'the order is that of insertion, whatever priority or direction': async (h) => {
    const d = first(h)
    const inserted: JobRecord[] = []
    for (const [priority, lifo] of [
      [5, false],
      [0, true],
      [-2, false],
      [0, true],
      [3, true],
    ] as const) {
      inserted.push(await d.add('work', { priority, lifo }))
    }
    await d.claim(2)
    same(await found(h.store, {}), ids(inserted), 'jobs are found in the order of their insertion')
  },

  'many names, versions and states are one order, a few jobs at a time or many': async (h) => {
    const d = first(h)
    const jobs: JobRecord[] = []
    for (let n = 0; n < 60; n++) {
      const queue = n % 7 === 0 ? 'other' : 'mill'
      jobs.push(
        await d.add(`name-${(n * 5) % 12}`, {
          queue,
          version: 1 + (n % 2),
          ...(n % 3 === 0 && { run: { in: 60_000 } }),
        }),
      )
    }
    // Between two jobs of the other names, one name has many more than fit on a page.
    jobs.push(...(await d.addMany(40, 'name-3')), await d.add('name-1'), await d.add('name-2'))
    const queries: readonly Query[] = [
      {},
      { queue: 'mill' },
      { states: ['waiting'] },
      { names: ['name-3', 'name-4'] },
      { names: ['name-3'], states: ['delayed', 'waiting'], queue: 'mill' },
    ]
    for (const query of queries) {
      const { queue, states, names } = query
      const wanted = jobs.filter(
        (job) =>
          (queue === undefined || job.queue === queue) &&
          (states?.includes(job.state) ?? true) &&
          (names?.includes(job.name) ?? true),
      )
      for (const limit of [3, 20, 1000]) {
        same(await pages(h.store, { ...query, limit }), ids(wanted), 'pages of many lists keep the order')
        const newest = await pages(h.store, { ...query, limit, order: 'newest' })
        same(newest, ids(wanted).toReversed(), 'pages of many lists keep the order, newest first')
      }
    }
  },

  'the order is that of insertion, whatever the ids are': async (h) => {
    const d = first(h)
    const names = ['zeta', 'Alpha', '10', '9', 'ß', 'alpha']
    await d.land(...names.slice(0, 3).map((id) => insert(id, 'work')))
    for (const id of names.slice(3)) await d.land(insert(id, 'work'))
    same(await pages(h.store, { limit: 1 }), names, 'ids do not affect the order')
  },

  'pages have a hundred jobs by default, and the last has no cursor': async (h) => {
    const d = first(h)
    await d.addMany(130, 'work')
    const page = await h.store.find({})
    same([page.items.length, page.cursor === undefined], [100, false], 'a page holds a hundred jobs')
    same((await pages(h.store, {})).length, 130, 'the second page holds the rest')
    const exact = await h.store.find({ limit: 130 })
    same([exact.items.length, exact.cursor], [130, undefined], 'there is no cursor where there is no next page')
  },

  'find returns the same record as get': async (h) => {
    const d = first(h)
    await oneOfEach(d)
    const { items } = await h.store.find({})
    same(items, await h.store.get(ids(items)), 'find and get return the same records')
  },

  'get returns jobs in the requested order, and undefined for a job that does not exist': async (h) => {
    const d = first(h)
    await d.addMany(3, 'work')
    const result = await h.store.get(['first-3', 'missing', 'first-1', 'first-3'])
    same(
      result.map((job) => job?.id),
      ['first-3', undefined, 'first-1', 'first-3'],
      'get returns jobs in the requested order',
    )
    same(await h.store.get([]), [], 'a request for nothing returns nothing')
  },

  ...Object.fromEntries(
    (['oldest', 'newest'] as const).map((order) => [
      `paging ${order} first neither skips nor repeats what matched all along`,
      async (h) => {
        const d = first(h)
        await d.addMany(60, 'work')
        const [held] = await d.claim(1)
        const touched = new Set<string>(held === undefined ? [] : [held.id])
        const seen = await pages(h.store, { states: ['waiting'], limit: 4, order }, async (page) => {
          if (page > 7) return
          await d.addMany(2, 'late', { lifo: page % 2 === 0 })
          const waiting = (await h.store.find({ states: ['waiting'], names: ['work'], order })).items
          for (const job of [waiting[page % 3], waiting.at(-1 - (page % 2))]) {
            if (job === undefined || touched.has(job.id)) continue
            touched.add(job.id)
            await d.land(remove(job))
          }
          const [claimed] = await d.claim(1, { names: ['work'] })
          if (claimed !== undefined) touched.add(claimed.id)
        })
        same(seen.length, new Set(seen).size, 'no job is repeated')
        const steady = ids((await h.store.find({ states: ['waiting'], names: ['work'], limit: 100 })).items)
        must(steady.length > 3, 'the story leaves some jobs alone')
        same(
          steady.filter((id) => !seen.includes(id)),
          [],
          'no job that matched all along is skipped',
        )
      },
    ]),
  ),
})

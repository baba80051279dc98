// What a producer may write: names, data, options, filters and results.
import { Queue } from 'millrace'
import type { BulkItem, Job, JobOf, NameOf } from 'millrace'
import { describe, expectTypeOf, test } from 'vitest'
import { jobs, queue, store, untyped } from './jobs.js'

type Jobs = typeof jobs

describe('add', () => {
  test('takes the input of the name', () => {
    void queue.add('email', { to: 'a', at: '2026-01-01T00:00:00Z' })
    void queue.add('resize', { path: 'a.png', size: '20' }, { delay: '5 minutes', priority: 1 })
    void queue.add('crawl', { url: 'https://example.com' })
    void queue.add('charge', { cents: 5 }, { dedup: { key: 'order-7', mode: 'reject' } })
  })

  test('refuses a name that was not declared', () => {
    // @ts-expect-error it is `email`
    void queue.add('emails', { to: 'a', at: '2026-01-01T00:00:00Z' })
  })

  test('refuses data of another type', () => {
    // @ts-expect-error `to` is missing
    void queue.add('email', { at: '2026-01-01T00:00:00Z' })
    // @ts-expect-error the handler sees a Date, `add` takes text
    void queue.add('email', { to: 'a', at: new Date() })
    // @ts-expect-error the handler sees a number, `add` takes text
    void queue.add('resize', { path: 'a.png', size: 20 })
    // @ts-expect-error `page` is a number
    void queue.add('crawl', { url: 'https://example.com', page: '1' })
    // @ts-expect-error there is no `euros`
    void queue.add('charge', { cents: 5, euros: 1 })
    // @ts-expect-error this one takes none
    void queue.add('sweep', { deep: true })
  })

  test('refuses options it does not know, and values they cannot take', () => {
    // @ts-expect-error it is `delay`
    void queue.add('charge', { cents: 5 }, { dely: '5s' })
    // @ts-expect-error a priority is a number
    void queue.add('charge', { cents: 5 }, { priority: 'high' })
    // @ts-expect-error there is no such mode
    void queue.add('charge', { cents: 5 }, { dedup: { key: 'a', mode: 'drop' } })
    // @ts-expect-error there is no such policy
    void queue.add('charge', { cents: 5 }, { after: [{ job: 'a', onFailure: 'explode' }] })
  })

  test('lets data be left out where it may be undefined, and only there', () => {
    void queue.add('sweep')
    void queue.add('report')
    void queue.add('report', undefined, { delay: '1s' })
    void queue.add('report', { since: 5 })
    void queue.add('ping')
    void queue.add('loose')
    // @ts-expect-error data is missing
    void queue.add('charge')
  })

  test('takes for a name that may be one of several only what fits them all', () => {
    const name = 'charge' as 'charge' | 'resize'
    // @ts-expect-error it might be `resize`
    void queue.add(name, { cents: 5 })
    void queue.add(name, { cents: 5, path: 'a.png', size: '20' })
  })

  test('answers a handle with the data as it was added and the result of the name', async () => {
    const sent = await queue.add('email', { to: 'a', at: '2026-01-01T00:00:00Z' })
    expectTypeOf(sent.name).toEqualTypeOf<'email'>()
    expectTypeOf(sent.data).toEqualTypeOf<{ to: string; cc?: string[] | undefined; at: string }>()
    expectTypeOf(await sent.result({ timeout: '1m' })).toEqualTypeOf<{ messageId: string; copies: number }>()
    expectTypeOf(sent.returned).toEqualTypeOf<{ messageId: string; copies: number } | undefined>()
    expectTypeOf(await (await queue.add('resize', { path: '', size: '' })).result()).toEqualTypeOf<{ bytes: number }>()
    expectTypeOf(await (await queue.add('crawl', { url: '' })).result()).toEqualTypeOf<{ links: string[] }>()
    expectTypeOf(await (await queue.add('charge', { cents: 5 })).result()).toEqualTypeOf<{ receipt: string }>()
    expectTypeOf(await (await queue.add('report')).result()).toEqualTypeOf<void>()
    expectTypeOf(await (await queue.add('loose')).result()).toEqualTypeOf<unknown>()
  })
})

describe('addBulk', () => {
  test('takes items that are distinguished by their names', () => {
    void queue.addBulk([
      { name: 'email', data: { to: 'a', at: '2026-01-01T00:00:00Z' } },
      { name: 'charge', data: { cents: 5 }, options: { delay: '1s' } },
      { name: 'sweep' },
    ])
    const item: BulkItem<Jobs> = { name: 'charge', data: { cents: 5 } }
    expectTypeOf(item.data).toEqualTypeOf<{ cents: number }>()
  })

  test('refuses an item that is wrong', () => {
    // @ts-expect-error data of `resize` under the name `charge`
    void queue.addBulk([{ name: 'charge', data: { path: 'a.png', size: '20' } }])
    // @ts-expect-error no such name
    void queue.addBulk([{ name: 'charged', data: { cents: 5 } }])
    // @ts-expect-error data is missing
    void queue.addBulk([{ name: 'charge' }])
    // @ts-expect-error it is `options`
    void queue.addBulk([{ name: 'sweep', opts: { delay: '1s' } }])
  })
})

describe('get and list', () => {
  test('return handles that are narrowed by their names', async () => {
    const found = await queue.get('id')
    expectTypeOf(found).toEqualTypeOf<JobOf<Jobs> | undefined>()
    if (found?.name === 'charge') {
      expectTypeOf(found.data).toEqualTypeOf<{ cents: number }>()
      expectTypeOf(await found.result()).toEqualTypeOf<{ receipt: string }>()
    }
    const { jobs: listed, cursor } = await queue.list({ state: ['waiting', 'delayed'], name: 'charge', limit: 10 })
    expectTypeOf(listed).toEqualTypeOf<readonly JobOf<Jobs>[]>()
    expectTypeOf(cursor).toEqualTypeOf<string | undefined>()
  })

  test('can be used without telling them apart', async () => {
    const found = await queue.get('id')
    expectTypeOf(found?.name).toEqualTypeOf<NameOf<Jobs> | undefined>()
    await found?.cancel()
    await found?.refresh()
    await found?.result({ timeout: '1s' })
  })

  test('refuse a filter that matches nothing', () => {
    // @ts-expect-error no such name
    void queue.list({ name: 'charged' })
    // @ts-expect-error no such state
    void queue.list({ state: 'done' })
    // @ts-expect-error no such order
    void queue.list({ order: 'random' })
  })
})

describe('operations by id or by filter', () => {
  test('answer whether they did it for an id, and how many for a filter', () => {
    expectTypeOf(queue.cancel('id')).resolves.toEqualTypeOf<boolean>()
    expectTypeOf(queue.cancel({ state: 'waiting', name: ['charge', 'email'] })).resolves.toEqualTypeOf<number>()
    expectTypeOf(queue.retry('id')).resolves.toEqualTypeOf<boolean>()
    expectTypeOf(queue.retry({ state: 'failed' })).resolves.toEqualTypeOf<number>()
    expectTypeOf(queue.promote('id')).resolves.toEqualTypeOf<boolean>()
    expectTypeOf(queue.promote({ all: true })).resolves.toEqualTypeOf<number>()
    expectTypeOf(queue.remove('id')).resolves.toEqualTypeOf<boolean>()
    expectTypeOf(queue.remove({ chain: 'id' })).resolves.toEqualTypeOf<number>()
    expectTypeOf(queue.update('id', { priority: 1 })).resolves.toEqualTypeOf<boolean>()
    expectTypeOf(queue.update({ name: 'charge' }, { delay: '1s' })).resolves.toEqualTypeOf<number>()
  })

  test('refuse names that were not declared', () => {
    // @ts-expect-error no such name
    void queue.cancel({ name: 'charged' })
    // @ts-expect-error no such name
    void queue.remove({ name: ['charge', 'charged'] })
    // @ts-expect-error no such name
    void queue.pause('charged')
    // @ts-expect-error no such name
    void queue.resume('charged')
    void queue.pause('charge')
    void queue.pause()
  })

  test('update takes data of the name in the filter, and by id data of some name', () => {
    void queue.update({ name: 'charge' }, { data: { cents: 6 } })
    void queue.update('id', { data: { cents: 6 } })
    void queue.update({ state: 'waiting' }, { priority: 3 })
    // @ts-expect-error data of `resize`
    void queue.update({ name: 'charge' }, { data: { path: 'a.png', size: '20' } })
  })

  test('update of a handle takes data of its name', async () => {
    const charge = await queue.add('charge', { cents: 5 })
    void charge.update({ data: { cents: 6 }, priority: 2, delay: '1m' })
    // @ts-expect-error cents are a number
    void charge.update({ data: { cents: '6' } })
    // @ts-expect-error attempts cannot be changed
    void charge.update({ attempts: 6 })
  })
})

describe('a queue without declared jobs', () => {
  test('takes any name and data, and gives unknown', async () => {
    const added = await untyped.add('anything', { at: 'all' }, { delay: '1s' })
    await untyped.add('anything')
    expectTypeOf(added).toEqualTypeOf<Job<unknown, unknown, 'anything'>>()
    expectTypeOf(added.data).toEqualTypeOf<unknown>()
    expectTypeOf(await added.result()).toEqualTypeOf<unknown>()
    void untyped.addBulk([{ name: 'a', data: 1 }, { name: 'b' }])
    void untyped.cancel({ name: 'whatever' })
    // @ts-expect-error options are checked all the same
    void untyped.add('anything', {}, { dely: '1s' })
  })
})

describe('new Queue', () => {
  test('checks its options', () => {
    new Queue('q', { store, jobs, defaults: { attempts: 5, backoff: '1s', removeOnComplete: '1h' }, logger: false })
    new Queue('q', { store, retention: { deleteAfter: '7d' }, logger: console })
    new Queue('q', { store, retention: false })
    new Queue('q', { store, retention: { failed: { staleAfter: '1d', deleteAfter: false }, cancelled: false } })
    // @ts-expect-error there is no such state
    new Queue('q', { store, retention: { active: { deleteAfter: '1d' } } })
    new Queue('q', {
      store,
      jobs,
      retention: { onDelete: (job) => expectTypeOf(job).toEqualTypeOf<JobOf<typeof jobs>>() },
    })
    // @ts-expect-error an id is of one job
    new Queue('q', { store, defaults: { id: 'x' } })
    // @ts-expect-error a store is needed
    new Queue('q', {})
    // @ts-expect-error jobs are made by job()
    new Queue('q', { store, jobs: { a: {} } })
  })

  test('makes queues that pass for a queue of any jobs', () => {
    const close = (any: Queue): Promise<void> => any.close()
    void close(queue)
    const closeAll = (every: readonly Queue[]): unknown => every
    closeAll([queue, untyped])
  })

  test('makes queues whose jobs pass for any job', async () => {
    const anyJob: Job = await queue.add('charge', { cents: 5 })
    void queue.add('sweep', undefined, { after: [anyJob, 'id', { job: anyJob, onFailure: 'ignore' }] })
  })
})

test('counts are typed by the declared names', async () => {
  const states = await queue.counts()
  expectTypeOf(states.waiting).toEqualTypeOf<number>()
  const { total, names } = await queue.counts({ by: 'name' })
  expectTypeOf(total.failed).toEqualTypeOf<number>()
  expectTypeOf(names.email.failed).toEqualTypeOf<number>()
  // @ts-expect-error it is `email`
  void names.emial
  // @ts-expect-error there is no other way to count
  await queue.counts({ by: 'queue' })
})

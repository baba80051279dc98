// What filters, lists, counts and causes of failures take and give.
import type { ErrorsPage, JobFilter, MatchCount } from 'millrace'
import { describe, expectTypeOf, test } from 'vitest'
import { queue } from './jobs.js'

describe('tags', () => {
  test('are a list of texts, when added and when read', () => {
    void queue.add('charge', { cents: 5 }, { tags: ['user:7', 'import'] })
    // @ts-expect-error a list
    void queue.add('charge', { cents: 5 }, { tags: 'user:7' })
    // @ts-expect-error of texts
    void queue.add('charge', { cents: 5 }, { tags: [7] })
    expectTypeOf<Awaited<ReturnType<typeof queue.add<'charge'>>>['tags']>().toEqualTypeOf<readonly string[]>()
  })
})

describe('filters', () => {
  test('take tags, times, workers and errors, in lists, counts and operations', () => {
    void queue.list({ tags: 'a', created: { from: '2h', to: new Date() }, error: { code: 'E' }, order: 'finished' })
    void queue.count({ tags: { any: ['a'], all: ['b'] }, worker: 'w', idPrefix: 'order-' })
    void queue.cancel({ tags: ['a', 'b'], started: { to: 5 } })
    void queue.retry({ name: 'charge', error: { fingerprint: 'f' }, finished: { from: '1h' } })
    void queue.remove({ all: true })
    void queue.update({ all: true }, { priority: 1 })
    // @ts-expect-error all, or a filter
    void queue.remove({ all: false })
    // @ts-expect-error a list needs no word for all
    void queue.list({ all: true })
    // @ts-expect-error there is no `some`
    void queue.list({ tags: { some: ['a'] } })
    // @ts-expect-error a range has ends
    void queue.list({ created: '2h' })
    // @ts-expect-error names are those declared
    void queue.count({ name: 'chargee' })
    // @ts-expect-error a search is for lists
    void queue.cancel({ search: { 'data.id': 7 } })
    // @ts-expect-error there is no such order
    void queue.list({ order: 'started' })
    expectTypeOf<JobFilter<'a' | 'b'>['name']>().toEqualTypeOf<'a' | 'b' | readonly ('a' | 'b')[] | undefined>()
  })

  test('search for plain values', () => {
    void queue.list({ search: { 'data.user.id': 7, 'data.paid': true, result: null } })
    void queue.list({ search: { 'data.id': 7 }, order: 'finished' })
    // @ts-expect-error from the newest on
    void queue.list({ search: { 'data.id': 7 }, order: 'oldest' })
    // @ts-expect-error not for objects
    void queue.list({ search: { 'data.user': { id: 7 } } })
  })
})

describe('results', () => {
  test('of counts, causes and searches', () => {
    expectTypeOf(queue.count({})).toEqualTypeOf<Promise<MatchCount>>()
    expectTypeOf(queue.errors({ limit: 5 })).toEqualTypeOf<Promise<ErrorsPage>>()
    expectTypeOf<Awaited<ReturnType<typeof queue.list>>['searched']>().toEqualTypeOf<number | undefined>()
    expectTypeOf<Awaited<ReturnType<typeof queue.list>>['stoppedAt']>().toEqualTypeOf<number | undefined>()
  })
})

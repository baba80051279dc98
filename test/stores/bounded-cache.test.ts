// Caches by name are bounded: a process may use any number of queues, names and groups.
import { expect, test } from 'vitest'
import { BoundedCache } from '../../src/stores/bounded-cache.js'
import { ClaimCursors } from '../../src/stores/postgres/claim-cursors.js'
import { LaneIds } from '../../src/stores/postgres/lane-ids.js'
import { Cache } from '../../src/stores/sqlite/cache.js'
import type { Statements } from '../../src/stores/sqlite/statements.js'
import type { Ask } from '../../src/store/store.js'

const MANY = 50_000

test('a bounded cache keeps what was used last', () => {
  const cache = new BoundedCache<number, string>(10)
  for (let n = 0; n < 1_000; n++) {
    cache.trim()
    cache.set(n, `${n}`)
    expect(cache.get(0)).toBe('0')
    expect(cache.size).toBeLessThanOrEqual(20)
  }
  for (let n = 990; n < 1_000; n++) expect(cache.get(n)).toBe(`${n}`)
  expect(cache.get(500)).toBeUndefined()
  cache.delete(999)
  expect(cache.get(999)).toBeUndefined()
  cache.clear()
  expect([cache.size, cache.get(0)]).toEqual([0, undefined])
})

const job = (n: number) => ({ queue: `queue ${n}`, name: 'name', version: 1, group: undefined })

/** The lanes of a process on PostgreSQL, and how often each was looked up. */
function openLanes() {
  const looked = new Map<number, number>()
  const lanes = new LaneIds({
    make: async (keys) =>
      keys.map(([queue]) => {
        const n = Number(queue.slice(6))
        looked.set(n, (looked.get(n) ?? 0) + 1)
        return [n, n]
      }),
    look: async () => [],
    names: async (ids) => ids.map((id) => [id, `queue ${id}`, 'name', 1, 1, false] as const),
    pause: async () => {},
  })
  return { lanes, looked }
}

test('on PostgreSQL a process remembers the lanes and queues that it used last', async () => {
  const { lanes, looked } = openLanes()
  for (let n = 1; n <= MANY; n++) {
    await lanes.know([job(0), job(n)])
    expect(lanes.find(job(n))).toEqual({ lane: n, queue: n })
  }
  await lanes.know([job(1)])
  expect([looked.get(0), looked.get(1), looked.get(MANY)]).toEqual([1, 2, 1])
  expect(lanes.queues.length).toBeLessThanOrEqual(MANY / 2)
})

test('on PostgreSQL the lanes of one batch are all remembered, however many they are', async () => {
  const { lanes } = openLanes()
  const jobs = Array.from({ length: MANY }, (_, n) => job(n))
  for (let times = 0; times < 2; times++) {
    await lanes.know(jobs)
    expect(jobs.filter((each) => lanes.find(each) === undefined)).toEqual([])
    await lanes.recognise(new Set(jobs.keys()))
    expect(lanes.lane(0)).toMatchObject({ queue: 'queue 0' })
  }
})

test('on PostgreSQL a claim sends the cursors of a bounded number of lanes', () => {
  const cursors = new ClaimCursors()
  const ask: Ask = { worker: 'w', queues: [], handles: [], want: 1_000, ahead: 0 }
  for (let lane = 1; lane <= 3_000; lane++) {
    const rows = Array.from({ length: 1_000 }, (_, ord) => [lane, 'id', 0, ord])
    cursors.claimed(ask, rows)
  }
  expect(Object.keys(cursors.of(ask) ?? {}).length).toBeLessThanOrEqual(1_000)
})

test('on SQLite a connection remembers the lanes that it used last', () => {
  const looked = new Map<number, number>()
  const lane = {
    get: (id: number) => {
      looked.set(id, (looked.get(id) ?? 0) + 1)
      return [id, id, `queue ${id}`, 'name', 1, 1, false, 0]
    },
  }
  const cache = new Cache({ lane } as unknown as Statements)
  for (let n = 1; n <= MANY; n++) {
    cache.lane(n)
    cache.lane(0)
  }
  cache.lane(1)
  expect([looked.get(0), looked.get(1), looked.get(MANY)]).toEqual([1, 2, 1])
})

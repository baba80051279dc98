// Claims: what is passed over is not read, and a job costs as many looks however many wait.
import { describe, expect, test } from 'vitest'
import type { JobRecord } from '../../../src/job/job.js'
import { laneOf } from '../../../src/stores/memory/table.js'
import type { Lane, Row } from '../../../src/stores/memory/row.js'
import { insert, LEASE, limit, Mill, pause } from './table.making.js'

const ids = (jobs: readonly JobRecord[]): string[] => jobs.map((job) => job.id)

/** Counts how often the jobs of a lane are looked at. */
function watched(lane: Lane): () => number {
  const { rows } = lane
  let looks = 0
  Object.defineProperty(rows, 'min', {
    get: () => {
      looks++
      return rows.ascend().next().value
    },
  })
  for (const row of rows.ascend()) {
    let { job } = row
    Object.defineProperty(row, 'job', {
      get: () => {
        looks++
        return job
      },
      set: (next: Row['job']) => {
        job = next
      },
    })
  }
  return () => looks
}

const numbered = (count: number, name: string): ReturnType<typeof insert>[] =>
  Array.from({ length: count }, (_, at) => insert(`${name}-${at}`, { name }))

describe('a claim', () => {
  test('does not read the jobs of a name that is paused or at its limit', () => {
    const mill = new Mill()
    mill.do(...numbered(50, 'paused'), ...numbered(50, 'limited'), ...numbered(3, 'free'))
    mill.do(pause({ all: false, names: ['paused'] }), limit({ names: { limited: { concurrency: 1 } } }))
    mill.claim(1, { handles: [{ name: 'limited', lease: LEASE }] })
    const paused = watched(laneOf(mill.table, 'mill', 'paused', 1))
    const limited = watched(laneOf(mill.table, 'mill', 'limited', 1))
    expect(ids(mill.claim(9))).toEqual(['free-0', 'free-1', 'free-2'])
    expect(ids(mill.claim(9, { handles: ['paused', 'limited'].map((name) => ({ name, lease: LEASE })) }))).toEqual([])
    expect([paused(), limited()]).toEqual([0, 0])
  })

  test('does not read a queue that is paused or at its limit', () => {
    for (const setting of [pause({ all: true, names: [] }), limit({ concurrency: 0 })]) {
      const mill = new Mill()
      mill.do(...numbered(50, 'grind'), setting)
      const looks = watched(laneOf(mill.table, 'mill', 'grind', 1))
      expect(mill.claim(9)).toEqual([])
      expect(looks()).toBe(0)
    }
  })

  test('does not read names that are not handled', () => {
    const mill = new Mill()
    mill.do(...numbered(50, 'other'), ...numbered(2, 'grind'))
    const looks = watched(laneOf(mill.table, 'mill', 'other', 1))
    expect(mill.claim(9, { handles: [{ name: 'grind', lease: LEASE }] })).toHaveLength(2)
    expect(looks()).toBe(0)
  })

  test('looks at a job as often when thousands wait behind it as when none does', () => {
    const looksAt = (waiting: number): number => {
      const mill = new Mill()
      mill.do(...numbered(waiting, 'grind'))
      const looks = watched(laneOf(mill.table, 'mill', 'grind', 1))
      expect(mill.claim(10)).toHaveLength(10)
      return looks()
    }
    expect(looksAt(5_000)).toBeLessThan(looksAt(11) * 2)
  })

  test('looks at jobs that have expired once, however often one claims, and however many it takes', () => {
    const mill = new Mill()
    const expired = Array.from({ length: 1_000 }, (_, at) => insert(`e-${at}`, { expires: { in: 1 } }))
    mill.do(...expired, ...numbered(40, 'grind').map(({ job }) => insert(job.id)))
    mill.now += 1
    const looks = watched(laneOf(mill.table, 'mill', 'grind', 1))
    expect(mill.claim(1)).toHaveLength(1)
    const first = looks()
    for (let n = 0; n < 9; n++) expect(mill.claim(1)).toHaveLength(1)
    expect(mill.claim(50)).toHaveLength(30)
    expect(mill.claim(50)).toHaveLength(0)
    expect(looks() - first).toBeLessThan(5 * first)
  })

  test('takes the lowest priority first over all lanes, then the longest waiting', () => {
    const mill = new Mill()
    mill.do(
      insert('late', { priority: 1 }),
      insert('second', { name: 'sift', version: 2 }),
      insert('third', { queue: 'farm' }),
      insert('urgent', { name: 'pack', priority: -1 }),
      insert('first', { lifo: true }),
    )
    expect(ids(mill.claim(9, { queues: ['mill', 'farm'] }))).toEqual(['urgent', 'first', 'second', 'third', 'late'])
  })

  test('merges a thousand names in the order in which their jobs came', () => {
    const mill = new Mill()
    const inserts = Array.from({ length: 3_000 }, (_, at) => insert(`job-${at}`, { name: `name-${(at * 7) % 1_000}` }))
    mill.do(...inserts)
    const expected = inserts.map((change) => change.job.id)
    expect([...ids(mill.claim(1_700)), ...ids(mill.claim(1_300))]).toEqual(expected)
  })

  test('gives each name its own lease, and the rest that of everybody else', () => {
    const mill = new Mill()
    mill.do(insert('a'), insert('b', { name: 'sift' }), insert('c', { version: 2 }))
    const handles = [
      { name: 'grind', versions: [1], lease: 10 },
      { name: undefined, lease: 20 },
    ]
    const leases = mill.claim(9, { handles }).map((job) => [job.id, job.leaseUntil! - mill.now])
    expect(leases).toEqual([
      ['a', 10],
      ['b', 20],
    ])
  })

  test('forgets names that have no jobs left', () => {
    const mill = new Mill()
    for (let at = 0; at < 100; at++) {
      mill.do(insert('only', { name: `name-${at}`, keep: { completed: { deleteAfter: 0 } } }))
      const { id, fence } = mill.claim(1)[0]!
      const move = { kind: 'move', id, fence, held: true, place: 'old', why: undefined, closesBroken: false } as const
      mill.land([
        { ...move, to: 'completed', set: {} },
        { ...move, to: 'removed', fence: fence + 1, held: false, set: {} },
      ])
    }
    expect(mill.table.queues.get('mill')?.names.size).toBe(0)
  })
})

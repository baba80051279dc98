// Dedup keys: held until the job has finished, or until the window is over, and then cleared away bit by bit.
import { describe, expect, test } from 'vitest'
import { cancel, retry } from '../../../src/job/lifecycle.js'
import type { Group } from '../../../src/store/store.js'
import { checkTable } from './table.check.js'
import { insert, Mill } from './table.making.js'

const WINDOW = 1_000

describe('a dedup key', () => {
  test('with a window outlives its job, and is free when the window is over', () => {
    const mill = new Mill()
    mill.do(insert('a', { dedup: { key: 'k', window: WINDOW } }))
    mill.land(cancel(mill.job('a')) as Group)
    mill.now += WINDOW - 1
    expect(mill.do(insert('b', { dedup: { key: 'k' } })).groups[0]).toMatchObject({ why: 'duplicate', id: 'a' })
    mill.now += 1
    expect(mill.do(insert('b', { dedup: { key: 'k' } })).groups[0]?.ok).toBe(true)
  })

  test('is taken again by a job that is retried, unless another has it', () => {
    const mill = new Mill()
    mill.do(insert('a', { dedup: { key: 'k' } }))
    mill.land(cancel(mill.job('a')) as Group)
    mill.do(insert('b', { dedup: { key: 'k' } }))
    const refused = mill.commit({ groups: [retry(mill.job('a')) as Group] }).groups[0]
    expect(refused).toMatchObject({ why: 'duplicate', id: 'b', job: { id: 'b' } })
    mill.land(cancel(mill.job('b')) as Group)
    mill.land(retry(mill.job('a')) as Group)
    expect(mill.do(insert('c', { dedup: { key: 'k' } })).groups[0]).toMatchObject({ why: 'duplicate', id: 'a' })
    checkTable(mill.table)
  })
})

describe('keys past their window', () => {
  test('are cleared away a few at each commit, and none before its time', () => {
    const mill = new Mill()
    const windowed = (at: number) => insert(`w-${at}`, { dedup: { key: `w-${at}`, window: WINDOW } })
    mill.do(...Array.from({ length: 100 }, (_, at) => windowed(at)), insert('held', { dedup: { key: 'held' } }))
    mill.commit({})
    expect(mill.table.keys.size).toBe(101)
    mill.now += WINDOW
    mill.commit({})
    const left = mill.table.keys.size
    expect(left).toBeLessThan(101)
    expect(left, 'one commit does not pay for all').toBeGreaterThan(50)
    for (let commits = 0; commits < 10; commits++) mill.commit({})
    expect([...mill.table.keys.values()].map((key) => key.key)).toEqual(['held'])
    checkTable(mill.table)
  })

  test('do not pile up while new ones come', () => {
    const mill = new Mill()
    for (let at = 0; at < 2_000; at++) {
      mill.do(insert(`w-${at}`, { dedup: { key: `w-${at}`, window: 10 } }))
      mill.now += 1
    }
    expect(mill.table.keys.size).toBeLessThan(30)
  })
})

// Groups are applied whole or leave no trace, every index follows the rows, and no returned record is written to again.
import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Change } from '../../../src/job/change.js'
import { find } from '../../../src/stores/memory/find.js'
import { due } from '../../../src/stores/memory/read.js'
import { checkTable, dump } from './table.check.js'
import { handOut, insert, Mill } from './table.making.js'
import { ask, planned, plans, renewal } from './table.random.js'
import type { Plan } from './table.random.js'

const MISSING: Change = {
  kind: 'move',
  id: 'nobody',
  fence: 0,
  to: 'waiting',
  held: false,
  place: 'old',
  why: undefined,
  closesBroken: false,
  set: {},
}

const step = fc.record({
  groups: fc.array(plans, { maxLength: 3 }),
  renewals: fc.array(renewal, { maxLength: 2 }),
  asks: fc.array(ask, { maxLength: 2 }),
  wait: fc.constantFrom(0, 0, 7, 40_000),
})
const steps = fc.array(step, { minLength: 1, maxLength: 20 })

function walk(mill: Mill, taken: readonly (typeof step extends fc.Arbitrary<infer T> ? T : never)[]): void {
  for (const { groups, renewals, asks, wait } of taken) {
    mill.commit({
      groups: groups.map((group) => planned(mill.table, group)),
      renewals: renewals.map((renew) => renew(mill.table)),
      asks,
    })
    mill.now += wait
    for (const job of find(mill.table, {}).items) handOut(job)
    for (const job of due(mill.table, { queues: ['mill', 'farm'], except: [], limit: 9 }, mill.now).jobs) handOut(job)
  }
}

describe('a table', () => {
  test('keeps every index in step with its rows, whatever is sent', () => {
    fc.assert(
      fc.property(steps, (taken) => {
        const mill = new Mill()
        for (const one of taken) {
          walk(mill, [one])
          checkTable(mill.table)
        }
      }),
      { numRuns: 150 },
    )
  })

  test('is as it was before a group that is refused after some of it was applied', () => {
    let applied = 0
    fc.assert(
      fc.property(steps, plans, (taken, doomed: readonly Plan[]) => {
        const mill = new Mill()
        walk(mill, taken)
        mill.commit({}) // what time alone does is done before the group
        const before = dump(mill.table)
        const group = [...planned(mill.table, doomed), MISSING]
        const [verdict] = mill.commit({ groups: [group] }).groups
        expect(verdict?.ok).toBe(false)
        if (verdict?.ok === false && verdict.id === 'nobody') applied++
        expect(dump(mill.table)).toEqual(before)
        checkTable(mill.table)
        expect([mill.notices?.events, mill.notices?.revoked, [...mill.notices!.work], [...mill.notices!.due]]).toEqual([
          [],
          [],
          [],
          [],
        ])
      }),
      { numRuns: 500 },
    )
    expect(applied, 'groups of which all but the last change was applied').toBeGreaterThan(50)
  })

  test('is as it was before a group whose own changes clash', () => {
    fc.assert(
      fc.property(steps, plans, (taken, group: readonly Plan[]) => {
        const mill = new Mill()
        walk(mill, taken)
        mill.commit({})
        const before = dump(mill.table)
        const [verdict] = mill.commit({ groups: [planned(mill.table, group)] }).groups
        if (verdict?.ok === false) expect(dump(mill.table)).toEqual(before)
        checkTable(mill.table)
      }),
      { numRuns: 300 },
    )
  })
})

describe('a refused group', () => {
  test('does not take its neighbours down', () => {
    const mill = new Mill()
    const { groups } = mill.commit({ groups: [[insert('a')], [insert('b'), MISSING], [insert('c')]] })
    expect(groups.map((verdict) => verdict.ok)).toEqual([true, false, true])
    expect([...mill.table.rows.keys()]).toEqual(['a', 'c'])
  })

  test('publishes nothing, and events of its neighbours are kept', () => {
    const mill = new Mill()
    mill.commit({
      groups: [[insert('a', { run: { in: 5 } })], [insert('b', { run: { in: 1 } }), insert('w'), MISSING]],
    })
    expect(mill.notices?.events.map((event) => event.id)).toEqual(['a'])
    expect([...mill.notices!.due]).toEqual([['mill', mill.now + 5]])
    expect([...mill.notices!.work]).toEqual([])
  })

  test('leaves no trace where the removal of what it has just ended is refused', () => {
    const mill = new Mill()
    mill.commit({ groups: [[insert('a')]] })
    const before = dump(mill.table)
    const end: Change = { ...MISSING, id: 'a', to: 'completed' }
    const [verdict] = mill.commit({ groups: [[end, { ...end, to: 'removed', fence: 1, reaps: true }]] }).groups
    expect(verdict?.ok).toBe(false)
    expect(dump(mill.table)).toEqual(before)
  })

  test('leaves no trace though its last change was spoilt by the one before it', () => {
    const mill = new Mill()
    mill.do(insert('child'), insert('parent', { edges: [{ on: 'child', policy: 'fail' }] }))
    mill.land([{ ...MISSING, id: 'child', to: 'failed' }])
    const before = dump(mill.table)
    const { groups } = mill.commit({
      groups: [
        [
          { ...MISSING, id: 'parent', to: 'waiting-children', set: { data: '1' } },
          { kind: 'release', chain: 'child', outcome: 'failed' }, // raises the fence of its dependent
          { ...MISSING, id: 'parent', to: 'removed', fence: 1 },
        ],
      ],
    })
    expect(groups[0]).toMatchObject({ why: 'fence', id: 'parent' })
    expect(dump(mill.table)).toEqual(before)
  })

  test('gives the name of its last job back to those who come after', () => {
    const mill = new Mill()
    mill.do(insert('a', { name: 'rare' }))
    const remove: Change = { ...MISSING, id: 'a', to: 'removed' }
    mill.commit({ groups: [[remove, insert('other'), insert('b', { name: 'rare' }), MISSING]] })
    mill.do(insert('c', { name: 'rare' }))
    checkTable(mill.table)
    expect(mill.claim(5).map((job) => job.id)).toEqual(['a', 'c'])
  })
})

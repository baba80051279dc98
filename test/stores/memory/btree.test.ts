// The ordered set: the same as a sorted array in all it answers, and never more than a few looks at its entries.
import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { BTree } from '../../../src/stores/memory/btree.js'

interface Entry {
  key: number
}

const byKey = (a: Entry, b: Entry): number => a.key - b.key

/** The set and the array it must equal; keys are unique. */
class Pair {
  readonly sorted = new BTree<Entry>(byKey)
  readonly model = new Map<number, Entry>()

  insert(key: number): void {
    if (this.model.has(key)) return
    const entry = { key }
    this.model.set(key, entry)
    this.sorted.insert(entry)
  }

  delete(key: number): void {
    const entry = this.model.get(key)
    this.model.delete(key)
    expect(this.sorted.delete(entry ?? { key })).toBe(entry !== undefined)
    if (entry !== undefined) entry.key = NaN // an entry may change once it is out: nothing of it must be left behind
  }

  expected(): readonly Entry[] {
    return [...this.model.values()].toSorted(byKey)
  }

  check(probe: number): void {
    const expected = this.expected()
    expect(this.sorted.size).toBe(expected.length)
    expect(this.sorted.min).toBe(expected[0])
    expect(this.sorted.max).toBe(expected.at(-1))
    expect([...this.sorted.ascend()]).toEqual(expected)
    expect([...this.sorted.descend()]).toEqual(expected.toReversed())
    const before = (entry: Entry): boolean => entry.key < probe
    expect([...this.sorted.ascend(before)]).toEqual(expected.filter((entry) => !before(entry)))
    expect([...this.sorted.descend(before)]).toEqual(expected.filter(before).toReversed())
  }
}

describe('an ordered set', () => {
  const key = fc.integer({ min: 0, max: 2_000 })
  const step = fc.oneof(
    fc.record({
      verb: fc.constant('insert' as const),
      from: key,
      count: fc.nat(300),
      by: fc.constantFrom(-3, -1, 1, 3),
    }),
    fc.record({
      verb: fc.constant('delete' as const),
      from: key,
      count: fc.nat(300),
      by: fc.constantFrom(-3, -1, 1, 3),
    }),
    fc.record({ verb: fc.constant('scatter' as const), keys: fc.array(key, { maxLength: 200 }) }),
    fc.record({ verb: fc.constant('gather' as const), keys: fc.array(key, { maxLength: 200 }) }),
  )

  test('answers like a sorted array, whatever is inserted and deleted in whatever order', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 25 }), key, (steps, probe) => {
        const pair = new Pair()
        for (const step of steps) {
          switch (step.verb) {
            case 'insert':
              for (let at = 0; at < step.count; at++) pair.insert(step.from + at * step.by)
              break
            case 'delete':
              for (let at = 0; at < step.count; at++) pair.delete(step.from + at * step.by)
              break
            case 'scatter':
              for (const key of step.keys) pair.insert(key)
              break
            case 'gather':
              for (const key of step.keys) pair.delete(key)
              break
          }
        }
        pair.check(probe)
      }),
      { numRuns: 200 },
    )
  })

  test('stays whole while it grows to three levels and shrinks to nothing, from either end and from the middle', () => {
    const size = 20_000
    const order = Array.from({ length: size }, (_, at) => (at * 7_919) % size)
    for (const taken of [order, [...order.keys()], [...order.keys()].toReversed()]) {
      const pair = new Pair()
      for (const key of order) pair.insert(key)
      pair.check(size / 2)
      for (const [at, key] of taken.entries()) {
        pair.delete(key)
        if (at % 4_001 === 0) pair.check(key)
      }
      pair.check(0)
      pair.insert(1)
      pair.check(1)
    }
  })

  test('finds entries by identity, not by being equal', () => {
    const sorted = new BTree<Entry>(byKey)
    sorted.insert({ key: 1 })
    expect(sorted.delete({ key: 1 })).toBe(false)
    expect(sorted.size).toBe(1)
  })
})

describe('the looks that an ordered set takes', () => {
  function counted(size: number): { sorted: BTree<Entry>; looks: () => number } {
    let count = 0
    const sorted = new BTree<Entry>((a, b) => {
      count++
      return a.key - b.key
    })
    for (let key = 0; key < size; key++) sorted.insert({ key: key * 2 })
    return {
      sorted,
      looks: () => {
        const looks = count
        count = 0
        return looks
      },
    }
  }

  test('one for an entry that goes last', () => {
    const { sorted, looks } = counted(100_000)
    looks()
    for (let key = 0; key < 1_000; key++) sorted.insert({ key: 200_000 + key })
    expect(looks()).toBe(1_000)
  })

  test('at most one to take the first', () => {
    const { sorted, looks } = counted(100_000)
    looks()
    for (let taken = 0; taken < 1_000; taken++) sorted.delete(sorted.min!)
    expect(looks()).toBeLessThanOrEqual(1_000)
  })

  test('as many as the logarithm of its size for any other', () => {
    for (const size of [1_000, 10_000, 100_000]) {
      const { sorted, looks } = counted(size)
      const most = Math.log2(size) + 12
      for (let key = 1; key < 2 * size; key += Math.floor(size / 50) * 2) {
        looks()
        const entry = { key }
        sorted.insert(entry)
        expect(looks()).toBeLessThan(most)
        sorted.delete(entry)
        expect(looks()).toBeLessThan(most)
      }
    }
  })

  test('none beyond what is read of a page that begins anywhere', () => {
    const { sorted, looks } = counted(100_000)
    looks()
    let asked = 0
    const page = sorted.ascend((entry) => {
      asked++
      return entry.key < 77_777
    })
    expect(page.next().value).toEqual({ key: 77_778 })
    expect(asked).toBeLessThan(Math.log2(100_000) + 12)
    expect(looks()).toBe(0)
  })
})

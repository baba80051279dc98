// Counts over time: into which bucket a time falls, and how counts of many names are added up and written.
import { expect, test } from 'vitest'
import {
  addAll,
  bucketOf,
  count,
  countsFor,
  decodeCounts,
  encodeCounts,
  readCounts,
  SERIES_BUCKETS,
  SERIES_NAMES,
} from '../../src/job/series.js'
import type { CountsByName } from '../../src/job/series.js'

test('a time falls into the first bucket whose bound it does not exceed', () => {
  for (const [at, bound] of SERIES_BUCKETS.entries()) {
    expect(bucketOf(bound)).toBe(at)
    expect(bucketOf(bound + 1)).toBe(at + 1)
  }
  expect(bucketOf(0)).toBe(0)
  expect(SERIES_BUCKETS).toHaveLength(15)
})

test('counts read back as they were written, and add up', () => {
  const names: CountsByName = new Map()
  count(countsFor(names, 'mail'), 'added')
  count(countsFor(names, 'mail'), 'cancelled')
  const sum = decodeCounts(encodeCounts(names))
  addAll(sum, names)
  expect(readCounts(sum.get('mail')!)).toMatchObject({ added: 2, cancelled: 2, completed: 0 })
})

test('names beyond the bound are counted together', () => {
  const names: CountsByName = new Map()
  for (let n = 0; n < SERIES_NAMES + 50; n++) count(countsFor(names, `name ${n}`), 'added')
  expect(names.size).toBe(SERIES_NAMES + 1)
  expect(names.get('')![0]).toBe(50)
})

test.each(['{}', '[1]', '[["a"]]', '[[1,[2]]]'])('a cell of another form counts nothing: %s', (text) => {
  expect(decodeCounts(text).size).toBe(0)
})

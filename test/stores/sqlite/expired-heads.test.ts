// Where claims begin in lanes whose first jobs have expired.
import { expect, test } from 'vitest'
import { ExpiredHeads, START } from '../../../src/stores/sqlite/expired-heads.js'

test('a claim begins after the jobs that an earlier one found to have expired', () => {
  const heads = new ExpiredHeads()
  expect(heads.open(1, 100)).toEqual({ from: START, looks: true })
  heads.passed(1, [0, 50, Infinity], 100)
  expect(heads.open(1, 100)).toEqual({ from: [0, 50, Infinity], looks: true })
  expect(heads.open(2, 100).from).toBe(START)
})

test('a job that waits among them, or before them, is found', () => {
  for (const [priority, ord, isFound] of [
    [0, 50, true],
    [0, 3, true],
    [-1, 70, true],
    [0, 51, false],
    [1, 3, false],
  ] as const) {
    const heads = new ExpiredHeads()
    heads.open(1, 100)
    heads.passed(1, [0, 50, Infinity], 100)
    heads.waits(1, { priority, ord })
    expect(heads.open(1, 100).from === START).toBe(isFound)
  }
})

test('a clock that went back makes no job be passed over', () => {
  const heads = new ExpiredHeads()
  heads.open(1, 100)
  heads.passed(1, [0, 50, Infinity], 100)
  expect(heads.open(1, 99).from).toBe(START)
})

test('a lane without such jobs is looked at in one claim of sixteen', () => {
  const heads = new ExpiredHeads()
  const looks = Array.from({ length: 32 }, () => heads.open(1, 100).looks)
  expect(looks.filter(Boolean)).toHaveLength(2)
})

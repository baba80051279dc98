import { expect, test } from 'vitest'
import { GroupRound } from '../../src/worker/prefetch.js'
import { record } from '../job/lifecycle.records.js'

const claims = (rounds: GroupRound, groups: readonly (string | undefined)[]): number => {
  rounds.claimed(groups.map((group) => record({ group })))
  return rounds.size
}

const tenants = (count: number): string[] => Array.from({ length: count }, (_, n) => `tenant ${n}`)

test('without groups there is no round, and so no bound', () => {
  const rounds = new GroupRound()
  expect(claims(rounds, [undefined, undefined])).toBe(Infinity)
  expect(claims(rounds, [])).toBe(Infinity)
})

test('one group alone is a round by itself, however many of its jobs come', () => {
  const rounds = new GroupRound()
  claims(rounds, ['a', 'a', 'a'])
  expect(
    claims(
      rounds,
      Array.from({ length: 500 }, () => 'a'),
    ),
  ).toBeLessThanOrEqual(2)
})

test('a round of many groups is found out, in claims of whatever size', () => {
  const rounds = new GroupRound()
  const all = [...tenants(1000), ...tenants(1000), ...tenants(1000)]
  for (let at = 0; at < 2900; at += 50) claims(rounds, all.slice(at, at + 50))
  expect(rounds.size).toBeGreaterThanOrEqual(1000)
  expect(rounds.size).toBeLessThanOrEqual(2000)
})

test('as long as no group has come again, it may hold twice as many as have come', () => {
  const rounds = new GroupRound()
  expect(claims(rounds, tenants(100).slice(0, 50))).toBe(100)
  expect(claims(rounds, tenants(100).slice(50))).toBe(200)
})

test('it shrinks with the groups that have work', () => {
  const rounds = new GroupRound()
  claims(rounds, [...tenants(100), ...tenants(100)])
  claims(
    rounds,
    Array.from({ length: 20 }, (_, n) => tenants(2)[n % 2]!),
  )
  expect(rounds.size).toBeLessThanOrEqual(4)
})

// A clock that steps back: rates go on, on every store.
import { describe, expect, test } from 'vitest'
import { first } from '../../src/conformance/driver.js'
import type { Harness } from '../../src/conformance/harness.js'
import { tokensLeft, tokensOut, takeTokens } from '../../src/job/limits.js'
import { memoryHarness } from '../conformance/clock.js'
import { postgresHarness } from '../conformance/postgres.js'
import { fileHarness } from '../conformance/sqlite.js'

const HOUR = 3_600_000
const MINUTE = 60_000

describe('tokens', () => {
  const rate = { max: 3, per: MINUTE }
  const now = 1_700_000_000_000
  const taken = takeTokens([], rate, 3, now)

  test('of a moment further ahead than a stretch are back: the clock was set back since', () => {
    expect(tokensLeft(tokensOut(taken, rate, now - HOUR), rate)).toBe(3)
    expect(tokensLeft(tokensOut(taken, rate, now - MINUTE - 1_000), rate)).toBe(3)
  })

  test('of a moment nearer than that are out, so that a small correction of the clock lets nothing through', () => {
    expect(tokensLeft(tokensOut(taken, rate, now), rate)).toBe(0)
    expect(tokensLeft(tokensOut(taken, rate, now - 5_000), rate)).toBe(0)
    expect(tokensLeft(tokensOut(taken, rate, now - MINUTE + 1_000), rate)).toBe(0)
  })

  test('taken before and after are distinguished', () => {
    const mixed = takeTokens(takeTokens([], rate, 1, now - HOUR), rate, 2, now)
    expect(tokensLeft(tokensOut(mixed, rate, now - HOUR), rate)).toBe(2)
    expect(tokensOut(mixed, rate, now + HOUR)).toEqual([])
  })
})

const stores: Readonly<Record<string, () => Promise<Harness>>> = {
  memory: () => memoryHarness(),
  sqlite: () => fileHarness(),
  postgres: () => postgresHarness(),
}

test.each(Object.entries(stores))('on %s a rate goes on after the clock was set back', async (_, make) => {
  const h = await make()
  try {
    const d = first(h)
    await d.addMany(20, 'work')
    await d.addMany(5, 'other', { group: 'g' })
    await d.limit({ rate: { max: 3, per: MINUTE }, group: { rate: { max: 1, per: MINUTE } } })
    expect(await d.claim(5)).toHaveLength(3)
    await h.advance(-5_000)
    expect(await d.claim(5), 'a small correction lets nothing through').toHaveLength(0)
    await h.advance(-HOUR)
    expect(await d.claim(5), 'what was taken in the future is back').toHaveLength(3)
    expect(await d.claim(5), 'what was taken since is counted').toHaveLength(0)
    await h.advance(MINUTE + 1_000)
    expect(await d.claim(5)).toHaveLength(3)
  } finally {
    await h.dispose()
  }
})

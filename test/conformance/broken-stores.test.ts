// The suite can fail: each sabotage is noticed in the area it belongs to, and by random walks.
import { describe, expect, test } from 'vitest'
import {
  compareStores,
  compareWalk,
  conformanceCases,
  randomWalk,
  runConformance,
  shrinkWalk,
} from 'millrace/conformance'
import type { WalkStep } from 'millrace/conformance'
import { memoryHarness } from './clock.js'
import { sabotages } from './broken-stores.js'

describe('the suite notices a store that', () => {
  test.each(Object.entries(sabotages))('%s', { timeout: 30_000 }, async (_, { areas, wrap }) => {
    for (const area of areas) {
      const cases = conformanceCases.filter((story) => story.area === area)
      const report = await runConformance(() => memoryHarness(wrap), { cases, patience: 500 })
      expect(report.ok).toBe(false)
      expect(new Set(report.failed.map((result) => result.area))).toEqual(new Set([area]))
    }
  })
})

describe('random walks notice a store that', () => {
  const walked = Object.entries(sabotages).filter(([, { walks }]) => walks)
  test.each(walked)('%s', async (_, { wrap }) => {
    const meet = async (seed: number) => {
      return compareWalk(
        () => memoryHarness(wrap),
        () => memoryHarness(),
        randomWalk(seed, 60),
      )
    }
    const found = []
    for (let seed = 1; seed <= 8 && found.length === 0; seed++) {
      const divergence = await meet(seed)
      if (divergence !== undefined) found.push(divergence)
    }
    expect(found).toHaveLength(1)
  })
})

test('every area has a sabotage that proves it can fail, but for those that memory skips', () => {
  const proven = new Set(Object.values(sabotages).flatMap(({ areas }) => areas))
  const unproven = new Set(conformanceCases.map(({ area }) => area).filter((area) => !proven.has(area)))
  expect(unproven).toEqual(new Set(['transactions']))
})

test('the whole suite reports what passed, what failed and what was skipped', async () => {
  const reported: string[] = []
  const broken = sabotages['returns log lines newest first']!
  const report = await runConformance(() => memoryHarness(broken.wrap), {
    report: ({ outcome }) => reported.push(outcome),
  })
  expect(reported).toHaveLength(conformanceCases.length)
  expect(report.skipped.map(({ area }) => area)).toEqual(
    conformanceCases.filter(({ needs }) => needs === 'transactions').map(({ area }) => area),
  )
  expect(new Set(report.failed.map(({ area }) => area))).toEqual(new Set(['details', 'notes']))
  expect(report.passed + report.failed.length + report.skipped.length).toBe(conformanceCases.length)
})

test('a walk that finds a difference between two stores reports its smallest form', async () => {
  const broken = sabotages['releases nobody']!
  const error = await compareStores(
    () => memoryHarness(broken.wrap),
    () => memoryHarness(),
    1,
    60,
  ).then(
    () => undefined,
    (caught: Error) => caught,
  )
  expect(error?.message).toContain('the stores differ in')
  const steps = error?.message.split('\n').filter((line) => line.startsWith('{"step"')) ?? []
  expect(steps.length).toBeGreaterThan(0)
  expect(steps.length).toBeLessThanOrEqual(6)
})

/** Fails in this test's sense: somewhere a replay, and somewhere an ask. */
function needed(walk: readonly WalkStep[]): boolean {
  const asks = walk.some((step) => step.step === 'batch' && step.asks.length > 0)
  return asks && walk.some((step) => step.step === 'replay')
}

test('shrinking leaves out whatever is not needed to fail', async () => {
  const walk = randomWalk(3, 60)
  expect(needed(walk)).toBe(true)
  const small = await shrinkWalk(walk, async (steps) => needed(steps))
  expect(small).toHaveLength(2)
  expect(small.find((step) => step.step === 'batch')).toMatchObject({ groups: [], renewals: [], asks: [{}] })
})

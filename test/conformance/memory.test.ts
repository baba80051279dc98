// The memory store passes the whole suite, and two of them walk alike.
import { describe, expect, test } from 'vitest'
import { compareStores, compareWalk, conformanceCases, randomWalk, runCase } from 'millrace/conformance'
import { memoryHarness } from './clock.js'

// Another beginning of time: nothing that is compared may depend on the date.
const late = () => memoryHarness(undefined, 1_800_000_000_000)

for (const area of new Set(conformanceCases.map((story) => story.area))) {
  describe(area, () => {
    for (const story of conformanceCases.filter((one) => one.area === area)) {
      test(story.title, async () => {
        const outcome = await runCase(() => memoryHarness(), story)
        expect(outcome).toBe(story.needs === 'transactions' ? 'skipped' : 'passed')
      })
    }
  })
}

test('every title of the suite is there once', () => {
  const titles = conformanceCases.map(({ area, title }) => `${area}: ${title}`)
  expect(new Set(titles).size).toBe(titles.length)
})

describe('random walks', () => {
  test.each([1, 2, 3, 5, 8, 13, 21, 34])('two memory stores walk alike from seed %i', async (seed) => {
    await compareStores(() => memoryHarness(), late, seed, 120)
  })

  test('the same seed gives the same walk, and another seed another', () => {
    expect(randomWalk(7, 50)).toEqual(randomWalk(7, 50))
    expect(randomWalk(7, 50)).not.toEqual(randomWalk(8, 50))
  })

  test('a walk survives JSON, so that it can be kept and run again', async () => {
    const walk = randomWalk(11, 30)
    const kept = JSON.parse(JSON.stringify(walk)) as typeof walk
    expect(
      await compareWalk(
        () => memoryHarness(),
        () => memoryHarness(),
        kept,
      ),
    ).toBeUndefined()
  })
})

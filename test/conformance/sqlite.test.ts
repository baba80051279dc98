// The SQLite store passes the whole suite, on a file and in memory, and walks like the reference.
import { describe, expect, test } from 'vitest'
import { compareStores, conformanceCases, runCase } from 'millrace/conformance'
import { memoryHarness } from './clock.js'
import { fileHarness, inMemoryHarness } from './sqlite.js'

for (const [where, make] of [
  ['on a file', fileHarness],
  ['in memory', inMemoryHarness],
] as const) {
  describe(where, () => {
    for (const area of new Set(conformanceCases.map((story) => story.area))) {
      describe(area, () => {
        for (const story of conformanceCases.filter((one) => one.area === area)) {
          test(story.title, async () => {
            const outcome = await runCase(() => make(), story)
            expect(outcome).toBe(story.needs === 'transactions' ? 'skipped' : 'passed')
          })
        }
      })
    }
  })
}

describe('random walks', () => {
  test.each([1, 2, 3, 5])('a SQLite file walks like the reference from seed %i', async (seed) => {
    await compareStores(
      () => fileHarness(),
      () => memoryHarness(),
      seed,
      120,
    )
  })
})

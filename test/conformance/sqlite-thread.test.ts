// The SQLite store in a thread passes the whole suite but for transactions, which it has none of, and walks like the
// reference.
import { afterAll, describe, expect, test } from 'vitest'
import { compareStores, conformanceCases, runCase } from 'millrace/conformance'
import { memoryHarness } from './clock.js'
import { threadHarnesses } from './thread.js'

const FIRST = Number(process.env['MILLRACE_SEED'] ?? 1)
const { make, end } = threadHarnesses()
afterAll(end)

for (const area of new Set(conformanceCases.map((story) => story.area))) {
  describe(area, () => {
    for (const story of conformanceCases.filter((one) => one.area === area)) {
      test(story.title, async () => {
        expect(await runCase(make, story)).toBe(story.needs === 'transactions' ? 'skipped' : 'passed')
      })
    }
  })
}

test.each([0, 1, 2])(
  'part %i of the walks comes to what the reference comes to',
  { timeout: 180_000 },
  async (part) => {
    for (let seed = FIRST + part * 4; seed < FIRST + part * 4 + 4; seed++) {
      await compareStores(make, () => memoryHarness(), seed, 60, { every: 15 })
    }
  },
)

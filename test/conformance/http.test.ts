// A remote store passes the whole suite but for transactions, which it has none of, whatever store is behind the server;
// and walks like the reference.
import { describe, expect, test } from 'vitest'
import { compareStores, conformanceCases, runCase } from 'millrace/conformance'
import type { MakeHarness } from '../../src/conformance/harness.js'
import { memoryHarness } from './clock.js'
import { httpHarness } from './http.js'
import { postgresHarness } from './postgres.js'
import { fileHarness } from './sqlite.js'

const FIRST = Number(process.env['MILLRACE_SEED'] ?? 1)

const behind: Readonly<Record<string, MakeHarness>> = {
  memory: () => memoryHarness(),
  SQLite: () => fileHarness(),
  PostgreSQL: () => postgresHarness(),
}

for (const [store, harness] of Object.entries(behind)) {
  describe(`over ${store}`, () => {
    const make: MakeHarness = () => httpHarness(harness)

    for (const area of new Set(conformanceCases.map((story) => story.area))) {
      describe(area, () => {
        for (const story of conformanceCases.filter((one) => one.area === area)) {
          test(story.title, async () => {
            expect(await runCase(make, story)).toBe(story.needs === 'transactions' ? 'skipped' : 'passed')
          })
        }
      })
    }

    test('random walks come to what the reference comes to', { timeout: 180_000 }, async () => {
      for (let seed = FIRST; seed < FIRST + 4; seed++) {
        await compareStores(make, () => memoryHarness(), seed, 60, { every: 15 })
      }
    })
  })
}

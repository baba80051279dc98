// The SQLite store passes the whole suite, on a file and in memory.
import { describe, expect, test } from 'vitest'
import { conformanceCases, runCase } from 'millrace/conformance'
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
            expect(await runCase(() => make(), story)).toBe('passed')
          })
        }
      })
    }
  })
}

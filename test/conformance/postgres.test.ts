// The PostgreSQL store passes the whole suite, on a real server.
import { describe, expect, test } from 'vitest'
import { conformanceCases, runCase } from 'millrace/conformance'
import { postgresHarness } from './postgres.js'

for (const area of new Set(conformanceCases.map((story) => story.area))) {
  describe(area, () => {
    for (const story of conformanceCases.filter((one) => one.area === area)) {
      test(story.title, async () => {
        expect(await runCase(() => postgresHarness(), story)).toBe('passed')
      })
    }
  })
}

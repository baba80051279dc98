// The cases about transactions can be passed, with locks on rows and with locks on the whole store.
import { describe, expect, test } from 'vitest'
import { conformanceCases, runCase } from 'millrace/conformance'
import { transactingHarness } from './transacting-store.js'

const cases = conformanceCases.filter(({ area }) => area === 'transactions' || area === 'closing')

describe.each(['rows', 'store'] as const)('a toy store that locks by %s', (locks) => {
  test.each(cases)('$title', async (story) => {
    expect(await runCase(() => transactingHarness(locks), story)).toBe('passed')
  })
})

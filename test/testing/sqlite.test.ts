// The simulator on SQLite: the same promises are kept, and the same seed runs as it does in memory.
import { describe, expect, test } from 'vitest'
import { sqlite } from 'millrace/sqlite'
import { describeFailure, generateScript, runScript, runSeeds } from 'millrace/testing'
import type { RunScriptOptions } from 'millrace/testing'

const store: RunScriptOptions['store'] = (runtime) => sqlite(':memory:', { runtime, ring: 100_000 })

describe('many seeds', () => {
  for (const from of [1001, 1026, 1051, 1076]) {
    test(`seeds ${from} to ${from + 24} keep every promise`, { timeout: 120_000 }, async () => {
      const { failures } = await runSeeds({ from, count: 25, store })
      expect(failures.map((failure) => describeFailure(failure)).join('\n\n')).toBe('')
    })
  }
})

test('a seed gives the trace that it gives in memory, byte for byte', async () => {
  for (const seed of [3, 14, 159]) {
    const script = generateScript(seed)
    const [here, there] = [await runScript(script, { store }), await runScript(script)]
    expect(here.trace).toEqual(there.trace)
  }
})

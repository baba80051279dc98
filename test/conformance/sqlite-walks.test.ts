// At least 20,000 random batches, on a file with two handles and in memory, compared with the reference: receipt by
// receipt and row by row. A walk that parts from it is cut down. MILLRACE_SEED begins at another seed.
import { describe, expect, test } from 'vitest'
import { compareStores, randomWalk } from 'millrace/conformance'
import { memoryHarness } from './clock.js'
import { fileHarness, inMemoryHarness } from './sqlite.js'

const FIRST = Number(process.env['MILLRACE_SEED'] ?? 1)
const PARTS = 20
const WALKS = 20
const STEPS = 60

const seeds = (part: number): readonly number[] =>
  Array.from({ length: WALKS }, (_, walk) => FIRST + part * WALKS + walk)

describe('random walks', () => {
  test('are at least 20,000 batches', () => {
    const walks = Array.from({ length: PARTS }, (_, part) => seeds(part)).flat()
    const batches = walks.flatMap((seed) => randomWalk(seed, STEPS)).filter(({ step }) => step !== 'advance')
    expect(batches.length).toBeGreaterThanOrEqual(20_000)
  })

  for (let part = 0; part < PARTS; part++) {
    const [first] = seeds(part)
    const make = part % 2 === 0 ? fileHarness : inMemoryHarness
    const where = part % 2 === 0 ? 'on a file' : 'in memory'
    test(`SQLite ${where} walks like the reference from seed ${first} on`, { timeout: 180_000 }, async () => {
      for (const seed of seeds(part)) {
        await compareStores(
          () => make(),
          () => memoryHarness(),
          seed,
          STEPS,
          { every: 15 },
        )
      }
    })
  }
})

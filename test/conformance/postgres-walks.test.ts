// Random batches on a real server, through two handles, compared with the reference: receipt by receipt and row by row. A
// walk that parts from it is cut down. MILLRACE_SEED begins at another seed, MILLRACE_WALKS makes more of them.
import { describe, test } from 'vitest'
import { compareStores } from 'millrace/conformance'
import { memoryHarness } from './clock.js'
import { postgresHarness } from './postgres.js'

const FIRST = Number(process.env['MILLRACE_SEED'] ?? 1)
const WALKS = Number(process.env['MILLRACE_WALKS'] ?? 24)
const STEPS = 60

describe('random walks', () => {
  for (let seed = FIRST; seed < FIRST + WALKS; seed++) {
    test(`PostgreSQL walks like the reference from seed ${seed}`, { timeout: 180_000 }, async () => {
      await compareStores(
        () => postgresHarness(),
        () => memoryHarness(),
        seed,
        STEPS,
        { every: 10 },
      )
    })
  }
})

// The fast paths of SQLite have the effect of the engine: random batches are sent both ways, and compared step by step.
import { expect, test, vi } from 'vitest'
import { compareStores } from 'millrace/conformance'
import type { Harness } from '../../../src/conformance/harness.js'
import type { FastPaths } from '../../../src/engine/workspace.js'
import type { Store } from '../../../src/store/store.js'
import type { SqliteWorkspace } from '../../../src/stores/sqlite/workspace.js'
import { inMemoryHarness } from '../../conformance/sqlite.js'

const { state } = vi.hoisted(() => ({ state: { engineOnly: false, groups: 0, inserts: 0 } }))

vi.mock('../../../src/stores/sqlite/fast-paths.js', async (importOriginal) => {
  const original = await importOriginal<{ fastPaths(workspace: SqliteWorkspace): FastPaths }>()
  return {
    fastPaths(workspace: SqliteWorkspace): FastPaths {
      const fast = original.fastPaths(workspace)
      if (state.engineOnly) return { groups: () => [], inserts: () => [] }
      return {
        groups(...parts) {
          const verdicts = fast.groups(...parts)
          state.groups += verdicts.length
          return verdicts
        },
        inserts(...parts) {
          const records = fast.inserts(...parts)
          state.inserts += records.length
          return records
        },
      }
    },
  }
})

/** A store whose commits take no fast path. */
function engineOnly(store: Store): Store {
  return new Proxy(store, {
    get(target, key) {
      if (key === 'commit') {
        return async (...parts: Parameters<Store['commit']>) => {
          state.engineOnly = true
          try {
            return await target.commit(...parts)
          } finally {
            state.engineOnly = false
          }
        }
      }
      const value: unknown = Reflect.get(target, key, target)
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

async function plainHarness(): Promise<Harness> {
  const harness = await inMemoryHarness()
  const store = engineOnly(harness.store)
  return { ...harness, store, peer: async () => store }
}

test('random batches have the same effect with and without fast paths', { timeout: 180_000 }, async () => {
  for (let seed = 1; seed <= 30; seed++) await compareStores(inMemoryHarness, plainHarness, seed, 60, { every: 20 })
  expect(state.groups, 'groups that a fast path has applied').toBeGreaterThan(500)
  expect(state.inserts, 'inserts of one group that a fast path has applied').toBeGreaterThan(50)
})

// SQLite stores for the suite: on a file with a second handle, or in memory, on a clock that the test moves.
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Harness } from '../../src/conformance/harness.js'
import type { Store } from '../../src/store/store.js'
import type { SqliteHandle } from '../../src/stores/sqlite/file/driver.js'
import { sqlite } from '../../src/stores/sqlite/store.js'
import { RING, RING_BYTES, steppedClock } from './clock.js'

/** A store on a fresh file, with a second handle on it; `handle` opens the user's own handles, which the stores are given. */
export async function fileHarness(start?: number, handle?: (path: string) => SqliteHandle): Promise<Harness> {
  const { runtime, advance } = steppedClock(start)
  const folder = mkdtempSync(join(tmpdir(), 'millrace-conformance-'))
  const handles: Store[] = []
  const given: SqliteHandle[] = []
  const target = (): string | SqliteHandle => {
    const path = join(folder, 'jobs.db')
    if (handle === undefined) return path
    given.push(handle(path))
    return given.at(-1)!
  }
  const open = async (): Promise<Store> => {
    const store = sqlite(target(), { runtime, ring: RING, ringBytes: RING_BYTES, synchronous: 'off' })
    handles.push(store)
    await store.open()
    return store
  }
  return {
    store: await open(),
    peer: open,
    advance,
    ring: RING,
    ringBytes: RING_BYTES,
    async dispose() {
      await Promise.all(handles.map((store) => store.close()))
      for (const each of given) each.close()
      rmSync(folder, { recursive: true, force: true })
    },
  }
}

/** A store in memory, which is its own second handle. */
export async function inMemoryHarness(start?: number): Promise<Harness> {
  const { runtime, advance } = steppedClock(start)
  const store = sqlite(':memory:', { runtime, ring: RING, ringBytes: RING_BYTES })
  await store.open()
  return {
    store,
    peer: async () => store,
    advance,
    dispose: () => store.close(),
    ring: RING,
    ringBytes: RING_BYTES,
    readsWait: true,
  }
}

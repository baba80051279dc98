// Stores in this process for the suite, on a clock that the test moves.
import { setImmediate } from 'node:timers/promises'
import { createIds } from '../../src/store/ids.js'
import type { Harness } from '../../src/conformance/harness.js'
import { systemRuntime } from '../../src/store/runtime.js'
import type { Runtime, Stop } from '../../src/store/runtime.js'
import type { Store } from '../../src/store/store.js'
import { memory } from '../../src/stores/memory/store.js'

/** How many events the memory stores of these tests hold. */
export const RING = 500

/** How many bytes of them. */
export const RING_BYTES = 8_000_000

/** A runtime that stands still, and the way to move it. */
export function stoppedClock(start = 1_700_000_000_000): { runtime: Runtime; advance: (ms: number) => Promise<void> } {
  let now = start
  const runtime: Runtime = {
    ...systemRuntime(),
    now: () => now,
    elapsed: () => now,
    id: createIds(
      () => now,
      (target) => void target.fill(7),
    ),
  }
  return {
    runtime,
    advance: async (ms) => {
      now += ms
    },
  }
}

/** Waits longer than this belong to the clock of the test; shorter ones are for the machine. */
const LONG = 10_000

/** A stopped clock on which signs of life come when it is moved. */
export function steppedClock(start?: number): { runtime: Runtime; advance: (ms: number) => Promise<void> } {
  const { runtime, advance } = stoppedClock(start)
  const waiting = new Set<{ at: number; work: () => void }>()
  const timer = (delay: number, work: () => void): Stop => {
    if (delay < LONG) return runtime.timer(delay, work)
    const one = { at: runtime.now() + delay, work }
    waiting.add(one)
    return () => void waiting.delete(one)
  }
  return {
    runtime: { ...runtime, timer },
    advance: async (ms) => {
      await advance(ms)
      for (const one of [...waiting]) {
        if (one.at > runtime.now() || !waiting.delete(one)) continue
        one.work()
      }
      await setImmediate()
    },
  }
}

/** A memory store with a clock of its own; `wrap` may wrap the store. */
export async function memoryHarness(
  wrap: (store: Store) => Store = (store) => store,
  start?: number,
): Promise<Harness> {
  const { runtime, advance } = stoppedClock(start)
  const store = wrap(memory({ runtime, ring: RING, ringBytes: RING_BYTES }))
  await store.open()
  return { store, peer: async () => store, advance, dispose: () => store.close(), ring: RING, ringBytes: RING_BYTES }
}

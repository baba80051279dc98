// A store that counts its watchers, to check that none is left.
import type { Runtime, Store } from '../../src/index.js'
import { systemRuntime } from '../../src/store/runtime.js'
import { observed } from '../observed-store.js'

/** A store that counts who watches it, and the timers of those who live on it. */
export function counting(
  of: Store,
  left: () => void = () => {},
): { store: Store; watchers: () => number; timers: () => number } {
  let watchers = 0
  let timers = 0
  const own = systemRuntime()
  const runtime: Runtime = {
    ...own,
    timer: (delay, work) => {
      timers++
      let over = false
      const end = (): void => {
        if (!over) timers--
        over = true
      }
      const stop = own.timer(delay, () => {
        end()
        work()
      })
      return () => {
        end()
        stop()
      }
    },
  }
  const store: Store = {
    ...observed(of, () => {}),
    runtime,
    watch: (options, listener) => {
      watchers++
      const stop = of.watch(options, listener)
      let over = false
      return () => {
        if (!over) watchers--
        over = true
        stop()
        queueMicrotask(left)
      }
    },
  }
  return { store, watchers: () => watchers, timers: () => timers }
}

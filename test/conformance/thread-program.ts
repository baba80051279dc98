// A thread that serves SQLite stores for the suite, each over a channel of its own, by a clock that moves only when told.
import { parentPort } from 'node:worker_threads'
import type { MessagePort } from 'node:worker_threads'
import { sqlite } from '../../src/stores/sqlite/store.js'
import { serveStore } from '../../src/stores/sqlite/thread/serve.js'
import { RING, RING_BYTES, steppedClock } from './clock.js'

/** What the thread is told: to serve a store, or to move the clock of the stores on a path. */
export type Errand =
  | { readonly path: string; readonly port: MessagePort }
  | { readonly path: string; readonly advance: number; readonly done: MessagePort }

const clocks = new Map<string, ReturnType<typeof steppedClock>>()

parentPort!.on('message', (errand: Errand) => {
  const { path } = errand
  const clock = clocks.get(path) ?? steppedClock()
  clocks.set(path, clock)
  if ('advance' in errand) {
    void clock.advance(errand.advance).then(() => {
      errand.done.postMessage('advanced')
      errand.done.close()
    })
    return
  }
  const options = { runtime: clock.runtime, ring: RING, ringBytes: RING_BYTES, synchronous: 'off' } as const
  serveStore(sqlite(path, options), errand.port)
})

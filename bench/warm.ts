// A little of everything before the first round, so that no contender is measured while its code is still being compiled.
import { raw } from './raw.js'
import type { Scratch } from './scratch.js'
import { millrace } from './sqlite.js'
import type { Subject } from './subject.js'

const JOBS = 10_000

/** Lets Millrace, the raw driver and the peers add and drain some jobs. */
export async function warmUp(peers: readonly Subject[], scratch: Scratch): Promise<void> {
  const load = { mode: 'normal', weight: 'light', count: JOBS } as const
  for (const subject of [millrace, raw, ...peers]) {
    for (const way of ['awaited', 'flight', 'bulk'] as const) {
      const path = scratch.fresh()
      await subject.add(path, way, load)
      if (way === 'bulk') await subject.drain(path, load, { weight: 'light', waiting: JOBS })
      scratch.drop(path)
    }
  }
}

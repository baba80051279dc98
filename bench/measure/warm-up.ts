// Runs a little of everything before the first round, so that no contender is measured while its code is still compiled.
import { raw } from '../contenders/raw-sqlite.js'
import type { Scratch } from './scratch-files.js'
import { millrace } from '../contenders/millrace-sqlite.js'
import type { Subject } from '../contenders/contender.js'

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

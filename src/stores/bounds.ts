// stores/bounds.ts: what the cells of a queue say about claims and inserts: pauses and limits.
import type { JsonText } from '../job/json.js'
import { readCell } from '../store/cells.js'
import type { LimitCell, PauseCell } from '../store/cells.js'

/** What bounds a queue. */
export interface Bounds {
  /** Claims pass the whole queue over. */
  readonly paused: boolean
  /** Names that claims pass over. */
  readonly pausedNames: ReadonlySet<string>
  /** Leases at a time. */
  readonly limit: number
  /** Leases at a time, by name. */
  readonly limitedNames: ReadonlyMap<string, number>
  /** Unfinished, unclaimed jobs. */
  readonly backlog: number
  /** Some bound on leases is set, on the queue or on a name. */
  readonly limited: boolean
}

/** Reads the two cells of a queue. */
export function boundsOf(pause: JsonText | undefined, limit: JsonText | undefined): Bounds {
  const paused = readCell<PauseCell>(pause)
  const limits = readCell<LimitCell>(limit)
  const limitedNames = new Map<string, number>()
  for (const [name, { concurrency }] of Object.entries(limits.names ?? {})) {
    if (concurrency !== undefined) limitedNames.set(name, concurrency)
  }
  const bound = limits.concurrency ?? Infinity
  return {
    paused: paused.all === true,
    pausedNames: new Set(paused.names),
    limit: bound,
    limitedNames,
    backlog: limits.backlog ?? Infinity,
    limited: bound !== Infinity || limitedNames.size > 0,
  }
}

// stores/queue-bounds.ts: what the cells of a queue say about claims and inserts: pauses, limits and weights.
import type { JsonText } from '../job/json.js'
import { readCell } from '../store/settings.js'
import type { Bound, GroupBound, LimitCell, PauseCell, Rate } from '../store/settings.js'

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
  /** Claims in a stretch of time. */
  readonly rate: Rate | undefined
  /** The same, by name. */
  readonly ratedNames: ReadonlyMap<string, Rate>
  /** What bounds a group; undefined where nothing bounds it. */
  group(name: string): GroupBound | undefined
  /** Some group has a bound on its claims, so that claims must look whose a job is. */
  readonly groupsLimited: boolean
  /** Some group has a bound on its backlog. */
  readonly groupsFull: boolean
  /** Turns that a group has for each one of others. */
  weight(group: string): number
  /** Unfinished, unclaimed jobs. */
  readonly backlog: number
  /** Some bound on claims is set, on the queue, on a name or on a group. */
  readonly limited: boolean
}

const bounds = ({ concurrency, rate }: Bound): boolean => concurrency !== undefined || rate !== undefined

/** Reads the two cells of a queue. */
export function boundsOf(pause: JsonText | undefined, limit: JsonText | undefined): Bounds {
  const paused = readCell<PauseCell>(pause)
  const limits = readCell<LimitCell>(limit)
  const limitedNames = new Map<string, number>()
  const ratedNames = new Map<string, Rate>()
  for (const [name, { concurrency, rate }] of Object.entries(limits.names ?? {})) {
    if (concurrency !== undefined) limitedNames.set(name, concurrency)
    if (rate !== undefined) ratedNames.set(name, rate)
  }
  const each = limits.group
  const single = new Map(Object.entries(limits.groups ?? {}).map(([name, own]) => [name, { ...each, ...own }]))
  const all = each === undefined ? [...single.values()] : [each, ...single.values()]
  const groupsLimited = all.some(bounds)
  return {
    paused: paused.all === true,
    pausedNames: new Set(paused.names),
    limit: limits.concurrency ?? Infinity,
    limitedNames,
    rate: limits.rate,
    ratedNames,
    group: (name) => single.get(name) ?? each,
    groupsLimited,
    groupsFull: all.some(({ backlog }) => backlog !== undefined),
    weight: (group) => single.get(group)?.weight ?? 1,
    backlog: limits.backlog ?? Infinity,
    limited: bounds(limits) || limitedNames.size > 0 || ratedNames.size > 0 || groupsLimited,
  }
}

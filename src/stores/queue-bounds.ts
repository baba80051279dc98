// stores/queue-bounds.ts: parses the cells of a queue that bound claims and inserts: pauses, limits and weights.
import type { JsonText } from '../job/json.js'
import { readCell } from '../store/settings.js'
import type { Bound, GroupBound, LimitCell, PauseCell, Rate } from '../store/settings.js'

/** The bounds of a queue. */
export interface Bounds {
  /** The whole queue is paused: claims skip it. */
  readonly paused: boolean
  /** Paused names: claims skip them. */
  readonly pausedNames: ReadonlySet<string>
  /** Maximum number of leases at a time. */
  readonly limit: number
  /** Maximum number of leases at a time, by name. */
  readonly limitedNames: ReadonlyMap<string, number>
  /** Maximum number of claims per interval. */
  readonly rate: Rate | undefined
  /** Maximum number of claims per interval, by name. */
  readonly ratedNames: ReadonlyMap<string, Rate>
  /** The bounds of a group; undefined if there are none. */
  group(name: string): GroupBound | undefined
  /** Some group has a limit on its claims, so that claims must look at the group of each job. */
  readonly groupsLimited: boolean
  /** Some group has a limit on its backlog. */
  readonly groupBacklogs: boolean
  /** Turns that a group gets for each turn of a group of weight 1. */
  weight(group: string): number
  /** Maximum number of jobs that are neither finished nor claimed. */
  readonly backlog: number
  /** There is a limit on claims: of the queue, of a name or of a group. */
  readonly limited: boolean
}

const limitsClaims = ({ concurrency, rate }: Bound): boolean => concurrency !== undefined || rate !== undefined

/** Parses the two cells of a queue. */
export function boundsOf(pause: JsonText | undefined, limit: JsonText | undefined): Bounds {
  const paused = readCell<PauseCell>(pause)
  const limits = readCell<LimitCell>(limit)
  const limitedNames = new Map<string, number>()
  const ratedNames = new Map<string, Rate>()
  for (const [name, { concurrency, rate }] of Object.entries(limits.names ?? {})) {
    if (concurrency !== undefined) limitedNames.set(name, concurrency)
    if (rate !== undefined) ratedNames.set(name, rate)
  }
  const perGroup = limits.group
  const overrides = new Map(Object.entries(limits.groups ?? {}).map(([name, own]) => [name, { ...perGroup, ...own }]))
  const all = perGroup === undefined ? [...overrides.values()] : [perGroup, ...overrides.values()]
  const groupsLimited = all.some(limitsClaims)
  return {
    paused: paused.all === true,
    pausedNames: new Set(paused.names),
    limit: limits.concurrency ?? Infinity,
    limitedNames,
    rate: limits.rate,
    ratedNames,
    group: (name) => overrides.get(name) ?? perGroup,
    groupsLimited,
    groupBacklogs: all.some(({ backlog }) => backlog !== undefined),
    weight: (group) => overrides.get(group)?.weight ?? 1,
    backlog: limits.backlog ?? Infinity,
    limited: limitsClaims(limits) || limitedNames.size > 0 || ratedNames.size > 0 || groupsLimited,
  }
}

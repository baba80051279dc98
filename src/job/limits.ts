// job/limits.ts: what the limits of a queue mean: pauses, concurrency, rates, backlogs, and the fair order of groups.
import { holdsIn } from './holds.js'
import type { Holds, StoredHolds } from './holds.js'
import type { JobState, Millis, Time } from './job.js'
import type { JsonText } from './values/json.js'

/** What is paused in a queue. */
export interface PauseCell {
  /** The whole queue. */
  readonly all: boolean
  /** Single names. */
  readonly names: readonly string[]
  /** Holds, which end by themselves; absent: none. */
  readonly holds?: StoredHolds
}

/** At most `max` claims in any stretch of `per` milliseconds. */
export interface Rate {
  readonly max: number
  readonly per: number
}

/** Limits on some of a queue's jobs. Counted by leases and by claims, in the claim's own transaction. */
export interface Bound {
  /** Leases at a time; absent: no limit. */
  readonly concurrency?: number
  /** Claims in a stretch of time; absent: no limit. */
  readonly rate?: Rate
}

/** Limits on one group, or on each. */
export interface GroupBound extends Bound {
  /** Unfinished, unclaimed jobs; an insert past it is refused as `full`. */
  readonly backlog?: number
  /** What the caller does when it adds to a group at its limit: fail, or drop the oldest job. Stores do not read it. */
  readonly whenFull?: 'reject' | 'drop-oldest'
}

/** Limits on a queue. All of them apply together. */
export interface LimitCell extends Bound {
  /** By name. */
  readonly names?: Readonly<Record<string, Bound>>
  /** Each group by itself. */
  readonly group?: GroupBound
  /** Single groups: these limits override those of `group`. `weight`: turns for each turn of another group; absent: 1. */
  readonly groups?: Readonly<Record<string, GroupBound & { readonly weight?: number }>>
  /** Unfinished, unclaimed jobs in the queue; an insert past it is refused as `full`. */
  readonly backlog?: number
  /** What set `concurrency`: a worker's option is only an initial value, and never overrides what was set on the queue. */
  readonly by: 'worker' | 'queue'
}

/** The contents of a cell; empty, where it is missing or not an object, because a commit must not fail over a setting. */
export function readCell<T>(value: JsonText | undefined): Partial<T> {
  if (value === undefined) return {}
  try {
    const parsed: unknown = JSON.parse(value)
    return typeof parsed === 'object' && parsed !== null ? parsed : {}
  } catch {
    return {}
  }
}

/** The states of jobs that count towards a backlog: those that no worker has started. */
export const backlogStates = ['waiting', 'delayed', 'waiting-children'] as const satisfies readonly JobState[]

/** Whether a state counts towards a backlog. */
export function isBacklog(state: JobState | undefined): boolean {
  return state === 'waiting' || state === 'delayed' || state === 'waiting-children'
}

/** The bounds of a queue. */
export interface Bounds {
  /** The whole queue is paused: claims skip it. */
  readonly paused: boolean
  /** Paused names: claims skip them. */
  readonly pausedNames: ReadonlySet<string>
  /** Holds, some of which may be over; undefined: none. */
  readonly holds: Holds | undefined
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

/** Longer intervals of a rate count as this one, in milliseconds. */
export const LONGEST_INTERVAL: Millis = 1e15

const numberIn = (value: unknown): number | undefined => (typeof value === 'number' ? value : undefined)

function objectIn(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? { ...value } : {}
}

function rateIn(value: unknown): Rate | undefined {
  const { max, per } = objectIn(value)
  if (typeof max !== 'number' || typeof per !== 'number' || per <= 0) return undefined
  return { max, per: Math.min(per, LONGEST_INTERVAL) }
}

/** A bound with the limits that are numbers, and the rate that is one. */
function boundIn(value: unknown): GroupBound & { readonly weight?: number } {
  const given = objectIn(value)
  const [concurrency, backlog, weight] = [given.concurrency, given.backlog, given.weight].map(numberIn)
  const rate = rateIn(given.rate)
  return {
    ...(concurrency !== undefined && { concurrency }),
    ...(rate !== undefined && { rate }),
    ...(backlog !== undefined && { backlog }),
    ...(weight !== undefined && weight > 0 && { weight }),
  }
}

/** Parses the two cells of a queue. What is not a number, or not a rate, limits nothing. */
export function boundsOf(pause: JsonText | undefined, limit: JsonText | undefined): Bounds {
  const paused = readCell<PauseCell>(pause)
  const limits = readCell<LimitCell>(limit)
  const whole = boundIn(limits)
  const limitedNames = new Map<string, number>()
  const ratedNames = new Map<string, Rate>()
  for (const [name, value] of Object.entries(objectIn(limits.names))) {
    const { concurrency, rate } = boundIn(value)
    if (concurrency !== undefined) limitedNames.set(name, concurrency)
    if (rate !== undefined) ratedNames.set(name, rate)
  }
  const perGroup = limits.group === undefined ? undefined : boundIn(limits.group)
  const overrides = new Map(
    Object.entries(objectIn(limits.groups)).map(([name, own]) => [name, { ...perGroup, ...boundIn(own) }]),
  )
  const all = perGroup === undefined ? [...overrides.values()] : [perGroup, ...overrides.values()]
  const groupsLimited = all.some(limitsClaims)
  return {
    paused: paused.all === true,
    pausedNames: new Set(Array.isArray(paused.names) ? paused.names : []),
    holds: holdsIn(paused.holds),
    limit: whole.concurrency ?? Infinity,
    limitedNames,
    rate: whole.rate,
    ratedNames,
    group: (name) => overrides.get(name) ?? perGroup,
    groupsLimited,
    groupBacklogs: all.some(({ backlog }) => backlog !== undefined),
    weight: (group) => overrides.get(group)?.weight ?? 1,
    backlog: whole.backlog ?? Infinity,
    limited: limitsClaims(whole) || limitedNames.size > 0 || ratedNames.size > 0 || groupsLimited,
  }
}

// Rates: each claim takes a token, which returns one interval later.

/** Tokens by the time at which they were taken, oldest first; tokens of one bucket are stored as one entry. */
export type TakenTokens = readonly (readonly [at: Time, count: number])[]

/** Buckets per interval of a rate. A token never returns early, and returns at most one bucket late. */
export const BUCKETS = 128

/** The time to store for a token that is taken now: the end of its bucket. */
function tokenTime({ per }: Rate, now: Time): Time {
  const bucket: Millis = Math.max(1, Math.floor(per / BUCKETS))
  return Math.ceil(now / bucket) * bucket
}

/**
 * The tokens that have not returned. A token taken more than one interval in the future counts as returned: the clock
 * was set back since, and the token would stay out for as long as the clock was set back. A smaller step of the clock
 * keeps tokens out for at most one interval longer, so that no clock correction lets more claims through.
 */
export function tokensOut(taken: TakenTokens, rate: Rate, now: Time): TakenTokens {
  const latest = tokenTime(rate, now) + rate.per
  let end = taken.length
  while (end > 0 && taken[end - 1]![0] > latest) end--
  let first = 0
  while (first < end && taken[first]![0] + rate.per <= now) first++
  return first === 0 && end === taken.length ? taken : taken.slice(first, end)
}

/** How many more tokens may be taken; `taken` are the tokens that have not returned. */
export function tokensLeft(taken: TakenTokens, { max }: Rate): number {
  let count = 0
  for (const [, each] of taken) count += each
  return Math.max(0, max - count)
}

/** The tokens that have not returned, after some more were taken. */
export function takeTokens(taken: TakenTokens, rate: Rate, count: number, now: Time): TakenTokens {
  if (count === 0) return taken
  const at = tokenTime(rate, now)
  const last = taken.at(-1)
  return last !== undefined && last[0] >= at
    ? [...taken.slice(0, -1), [last[0], last[1] + count]]
    : [...taken, [at, count]]
}

/** When the first token returns; `taken` are the tokens that have not returned. */
export function nextReturn(taken: TakenTokens, { per, max }: Rate): Time | undefined {
  return max > 0 && taken.length > 0 ? taken[0]![0] + per : undefined
}

// Fair order: groups take turns, however many jobs each has waiting.

/** The distance between two turns of a group of weight 1. */
export const TURN_STEP = 65_536

/** The longest distance between two turns, of a group of the least weight. */
export const LONGEST_STEP = 1e12

/**
 * The order of a job that starts to wait: one turn after the last waiting job of its group (`last`), but never before
 * the current turn of its queue (`current`), which is the highest order claimed from it. Both are within one priority.
 * A group of weight 2 gets two turns where others get one.
 *
 * So a job that is added late starts at the current turn, and not behind all jobs that other groups have waiting.
 */
export function turn(current: number, last: number | undefined, weight: number): number {
  const step = Math.max(1, Math.min(Math.round(TURN_STEP / weight), LONGEST_STEP))
  const next = last === undefined ? 0 : Math.min(last + step, Number.MAX_SAFE_INTEGER)
  return Math.max(current, next)
}

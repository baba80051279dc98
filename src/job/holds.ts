// job/holds.ts: holds: no job of a queue, a name or a group starts until a time. They are part of the cell of pauses,
// which every claim reads anyway.
import { MillraceError } from './errors/errors.js'
import type { Millis, Time } from './job.js'
import type { JsonText } from './values/json.js'

/** The key of the cell that holds the pauses and the holds of a queue. */
export function pauseKey(queue: string): string {
  return `pause:${queue}`
}

/** What a hold is for: the jobs of a name or of a group, or (with neither) of the whole queue. */
export interface HoldScope {
  /** The name of the jobs. */
  readonly name?: string
  /** The group of the jobs. */
  readonly group?: string
}

/** A hold to add. */
export interface NewHold extends HoldScope {
  /** How long it lasts, from the commit that adds it, by the store's clock. */
  readonly for: Millis
  /** Who adds it: a worker, or what an operator calls himself. */
  readonly by?: string
  /** The job whose handler adds it. */
  readonly job?: string
}

/** A hold as stored. */
export interface StoredHold {
  /** When it ends. */
  readonly until: Time
  /** When it was added. */
  readonly at: Time
  /** Who added it. */
  readonly by?: string
  /** The job whose handler added it. */
  readonly job?: string
}

/** Holds by what they are for: `''` for the queue, `n` and a name, or `g` and a group. */
export type StoredHolds = Readonly<Record<string, StoredHold>>

/** A hold of a queue, with its end. */
export interface HoldEnd extends HoldScope {
  /** The queue. */
  readonly queue: string
  /** When it ends. */
  readonly until: Time
}

/** The ends of the holds of a queue; some of them may be over. */
export interface Holds {
  /** Of the whole queue. */
  readonly queue: Time | undefined
  /** By name. */
  readonly names: ReadonlyMap<string, Time>
  /** By group. */
  readonly groups: ReadonlyMap<string, Time>
}

/** The most holds of a queue at one time, because claims read all of them. */
export const MAX_HOLDS = 1000

/** The longest hold: a year. */
export const LONGEST_HOLD: Millis = 366 * 86_400_000

/** The key of a hold in its cell. */
export function holdKey({ name, group }: HoldScope): string {
  return name !== undefined ? `n${name}` : group !== undefined ? `g${group}` : ''
}

/** What a hold with this key is for. */
export function scopeOf(key: string): HoldScope {
  return key === '' ? {} : key.startsWith('n') ? { name: key.slice(1) } : { group: key.slice(1) }
}

/** Whether a hold is for a job. */
export function isFor(
  { name, group }: HoldScope,
  job: { readonly name: string; readonly group?: string | undefined },
): boolean {
  return name !== undefined ? job.name === name : group === undefined || job.group === group
}

/** The holds in a cell of pauses; without those that cannot be read. */
export function storedHolds(value: unknown): StoredHolds {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return {}
  const holds = Object.entries(value).filter(
    ([, hold]) => typeof (hold as Partial<StoredHold> | null)?.until === 'number',
  )
  return Object.fromEntries(holds)
}

/** The ends of stored holds; undefined if there are none. */
export function holdsIn(value: unknown): Holds | undefined {
  if (value === undefined) return undefined
  let queue: Time | undefined
  const [names, groups] = [new Map<string, Time>(), new Map<string, Time>()]
  for (const [key, { until }] of Object.entries(storedHolds(value))) {
    const { name, group } = scopeOf(key)
    if (name !== undefined) names.set(name, until)
    else if (group !== undefined) groups.set(group, until)
    else queue = until
  }
  return queue === undefined && names.size + groups.size === 0 ? undefined : { queue, names, groups }
}

/** The holds that are not over. */
export function currentHolds(holds: StoredHolds, now: Time): StoredHolds {
  return Object.fromEntries(Object.entries(holds).filter(([, { until }]) => until > now))
}

/**
 * Adds a hold to those of a queue: of two for the same jobs, the one that ends later counts. Returns the holds that then
 * apply, and the end of this one; `full` if there are too many others; undefined if it changes nothing.
 */
export function addHold(
  before: unknown,
  { for: length, by, job, ...scope }: NewHold,
  now: Time,
): { readonly holds: StoredHolds; readonly until: Time } | 'full' | undefined {
  const current = currentHolds(storedHolds(before), now)
  const key = holdKey(scope)
  const until = now + length
  const existing = Object.hasOwn(current, key) ? current[key] : undefined
  if (existing === undefined) {
    if (Object.keys(current).length >= MAX_HOLDS) return 'full'
  } else if (existing.until >= until) return undefined
  const hold: StoredHold = { until, at: now, ...(by !== undefined && { by }), ...(job !== undefined && { job }) }
  const holds = [...Object.entries(current).filter(([each]) => each !== key), [key, hold] as const]
  return { holds: Object.fromEntries(holds), until }
}

/** The error where a queue has as many holds as it may have. */
export function tooManyHolds(queue: string): MillraceError {
  return new MillraceError(
    'TOO_MANY_HOLDS',
    `Queue '${queue}' has ${MAX_HOLDS} holds already, and claims read all of them. Hold a name or the whole queue, or bound each group by a rate.`,
    { details: { queue, limit: MAX_HOLDS } },
  )
}

/** A cell of pauses with these holds: without the field if there are none. */
export function withHolds(cell: object, holds: StoredHolds): JsonText {
  return JSON.stringify({ ...cell, holds: Object.keys(holds).length === 0 ? undefined : holds })
}

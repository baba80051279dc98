// store/settings.ts: the cells that stores read themselves (pauses, limits), those of retention, and the worker
// registry.
import type { KeepByState } from '../job/job.js'
import type { JsonText } from '../job/json.js'
import type { Origin } from './processes.js'

/** The keys of the known cells. */
export const cellKey = {
  /** Holds a `PauseCell`. */
  pause: (queue: string): string => `pause:${queue}`,
  /** Holds a `LimitCell`. */
  limit: (queue: string): string => `limit:${queue}`,
  /** Holds a `RetentionCell`. */
  retention: (queue: string): string => `retention:${queue}`,
  /** Holds a `WorkerCell`; `at` of the cell is when the worker was last seen. */
  worker: (id: string): string => `worker:${id}`,
} as const

/** The prefix of all worker cells. */
export const WORKERS = 'worker:'

/** What is paused in a queue. */
export interface PauseCell {
  /** The whole queue. */
  readonly all: boolean
  /** Single names. */
  readonly names: readonly string[]
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

/**
 * How long finished jobs of a queue are kept, where the jobs do not define it, and which processes apply it. Stores do
 * not read it.
 */
export interface RetentionCell {
  /** The retention has callbacks: only processes that have registered them apply it. */
  readonly callbacks?: boolean
  /** Absent: the default. */
  readonly keep?: KeepByState
}

/** A worker's entry in the registry. */
export interface WorkerCell {
  readonly id: string
  readonly host: string
  readonly pid: number
  /** Its process, where it can be identified: others on the same machine can check whether it is gone. */
  readonly origin?: Origin
  readonly queues: readonly string[]
  /** The names it handles; `undefined`: all. */
  readonly names: readonly string[] | undefined
  /** The versions that it handles, of the names that have any. */
  readonly versions: Readonly<Record<string, readonly number[]>>
  readonly state: 'running' | 'paused' | 'stopping'
  /** Its heartbeat interval in milliseconds: a live worker writes its entry at least this often. */
  readonly every: number
  readonly startedAt: number
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

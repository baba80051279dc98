// store/settings.ts: the cells that stores read themselves (pauses, limits) and the registry of workers.
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

/** So many claims in any stretch of so many milliseconds. */
export interface Rate {
  readonly max: number
  readonly per: number
}

/** What bounds some of a queue's jobs. Counted by leases and by claims, in the claim's own transaction. */
export interface Bound {
  /** Leases at a time; absent: no bound. */
  readonly concurrency?: number
  /** Claims in a stretch of time; absent: no bound. */
  readonly rate?: Rate
}

/** What bounds one group, or each. */
export interface GroupBound extends Bound {
  /** Unfinished, unclaimed jobs; an insert past it is refused as `full`. */
  readonly backlog?: number
  /** What whoever adds to a group at its bound does: gives up, or drops the oldest. The store does not look at it. */
  readonly whenFull?: 'reject' | 'drop-oldest'
}

/** What bounds a queue. All bounds hold together. */
export interface LimitCell extends Bound {
  /** By name. */
  readonly names?: Readonly<Record<string, Bound>>
  /** Each group by itself. */
  readonly group?: GroupBound
  /** Single groups: what is said here goes before what `group` says. `weight`: turns for each one of others; absent: 1. */
  readonly groups?: Readonly<Record<string, GroupBound & { readonly weight?: number }>>
  /** Unfinished, unclaimed jobs in the queue; an insert past it is refused as `full`. */
  readonly backlog?: number
  /** Who set `concurrency`: a worker's option is only a seed, and never overrides what was set on the queue. */
  readonly by: 'worker' | 'queue'
}

/** How long finished jobs of a queue are kept, for those that do not say, and who carries it out. Stores do not look at it. */
export interface RetentionCell {
  /** Somebody is to be called: only processes that know whom carry it out. */
  readonly callbacks?: boolean
  /** Absent: the default. */
  readonly keep?: KeepByState
}

/** A worker as others see it. */
export interface WorkerCell {
  readonly id: string
  readonly host: string
  readonly pid: number
  /** Its process, where that can be told: whoever is on the same machine can see whether it is gone. */
  readonly origin?: Origin
  readonly queues: readonly string[]
  /** The names it handles; `undefined`: all. */
  readonly names: readonly string[] | undefined
  /** The versions it knows of the names that have any. */
  readonly versions: Readonly<Record<string, readonly number[]>>
  readonly state: 'running' | 'paused' | 'stopping'
  /** It is seen at least this often, in milliseconds, while it lives. */
  readonly every: number
  readonly startedAt: number
}

/** What a cell says; nothing, where it is not there or is not an object, for a commit must not fail over a setting. */
export function readCell<T>(value: JsonText | undefined): Partial<T> {
  if (value === undefined) return {}
  try {
    const parsed: unknown = JSON.parse(value)
    return typeof parsed === 'object' && parsed !== null ? parsed : {}
  } catch {
    return {}
  }
}

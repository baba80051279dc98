// store/cells.ts: the cells that stores read themselves (pauses, limits) and the registry of workers.
import type { JsonText } from '../job/json.js'

/** The keys of the known cells. */
export const cellKey = {
  /** Holds a `PauseCell`. */
  pause: (queue: string): string => `pause:${queue}`,
  /** Holds a `LimitCell`. */
  limit: (queue: string): string => `limit:${queue}`,
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

/** What bounds a queue. Counted by leases, in the claim's own transaction. */
export interface LimitCell {
  /** Leases at a time in the queue; absent: no bound. */
  readonly concurrency?: number
  /** Leases at a time by name. */
  readonly names?: Readonly<Record<string, { readonly concurrency?: number }>>
  /** Unfinished, unclaimed jobs in the queue; an insert past it is refused as `full`. */
  readonly backlog?: number
  /** Who set it: a worker's option is only a seed, and never overrides what was set on the queue. */
  readonly by: 'worker' | 'queue'
}

/** A worker as others see it. */
export interface WorkerCell {
  readonly id: string
  readonly host: string
  readonly pid: number
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

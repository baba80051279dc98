// store/settings.ts: the keys of cells, and the cells of retention and of the worker registry. job/limits.ts has those of
// pauses and limits.
import type { KeepByState } from '../job/job.js'
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

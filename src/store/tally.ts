// store/tally.ts: the counts that a store keeps of a queue.
import type { JobState } from '../job/job.js'

/** How often each thing has happened in a queue since it was created; never goes down. */
export interface Lifetime {
  /** Jobs added. */
  readonly added: number
  /** Jobs completed. */
  readonly completed: number
  /** Jobs failed for good. */
  readonly failed: number
  /** Jobs cancelled. */
  readonly cancelled: number
  /** Retries by the rules after a failure; not those requested by hand. */
  readonly retried: number
  /** Leases that expired. */
  readonly stalled: number
}

/** The counts of one queue. */
export interface QueueTally {
  /** The queue. */
  readonly queue: string
  /** Jobs by name and state; names and states without jobs may be absent. Schedules are not counted. */
  readonly names: Readonly<Record<string, Readonly<Partial<Record<JobState, number>>>>>
  /** By name, the leases that count against limits: of active jobs, and revoked ones whose handlers may still run. */
  readonly leases: Readonly<Record<string, number>>
  /** What has happened since the queue was created. */
  readonly lifetime: Lifetime
}

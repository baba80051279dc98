// store/tally.ts: the counts that a store keeps of a queue.
import type { JobState, Time } from '../job/job.js'
import type { TakenTokens } from '../job/limits.js'

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
  /** The heads of its indexes, where they were asked for. */
  readonly heads?: QueueHeads
}

/** What a tally reads beside the counts. */
export interface TallyOptions {
  /** Also read `heads`. Default false: then they cost nothing. */
  readonly heads?: boolean
}

/** The most active jobs that heads look at. */
export const HEADS_READ = 500

/** The most due rows that heads look at. */
export const DUE_READ = 100

/**
 * What stands at the heads of a queue's indexes: how late the queue is, at a cost that does not depend on the number of
 * its jobs.
 */
export interface QueueHeads {
  /** The store's time. */
  readonly now: Time
  /**
   * By name with waiting jobs, since when the oldest one has waited. Of each lane, the job that is claimed next and the
   * job that was added first are looked at.
   */
  readonly waiting: Readonly<Record<string, Time>>
  /**
   * By name with active jobs, when the longest running one was claimed: of the `HEADS_READ` jobs whose leases expire
   * first. Prefetched jobs do not run.
   */
  readonly running: Readonly<Record<string, Time>>
  /** Active jobs of each group, among those looked at for `running`. */
  readonly groups: Readonly<Record<string, number>>
  /** Since when the first due row is due, whatever it is; absent: nothing is due. */
  readonly overdue?: Time
  /** Since when a delayed job is due: the first among the `DUE_READ` rows that are due for longest. */
  readonly delayed?: Time
  /** Since when a schedule is due, found likewise. */
  readonly schedule?: Time
  /** Since when the first expired lease has been over. */
  readonly lease?: Time
  /** The claims that count against the rate of the queue (key `''`) and of names (`n` and the name), at most 100 keys. */
  readonly rates: Readonly<Record<string, TakenTokens>>
}

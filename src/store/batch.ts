// store/batch.ts: what a store is sent and what it answers: batches of groups, renewals and claims, and their receipts.
import type { Change } from '../job/change.js'
import type { JobRecord, Millis, MovedJob, Time } from '../job/job.js'
import type { JsonText } from '../job/values/json.js'

/** Changes that are applied whole or refused whole, in order. Each sees the ones before it. */
export type Group = readonly Change[]

/** Extends a lease, or gives it up. */
export interface Renewal {
  /** The job. */
  readonly id: string
  /** The fence of the lease; another one refuses the renewal. */
  readonly fence: number
  /**
   * Counted from now. 0 reports that the handler of a job whose lease was revoked has ended, so that the lease stops
   * counting against limits.
   */
  readonly lease: Millis
  /** The handler has started, so the job no longer counts as prefetched. */
  readonly started: boolean
}

/** A job name that a worker handles. */
export interface Handled {
  /** The job's name; `undefined`: every name that the same claim does not list otherwise. */
  readonly name: string | undefined
  /** The versions that the worker handles; `undefined`: all. */
  readonly versions?: readonly number[]
  /** How long to lease a claimed job. */
  readonly lease: Millis
}

/** A worker's claim for jobs. */
export interface Ask {
  /** The worker, as the claimed jobs name it. */
  readonly worker: string
  /** The queues to claim from. */
  readonly queues: readonly string[]
  /** The names that the worker handles. */
  readonly handles: readonly Handled[]
  /** Jobs to start at once, one for each free slot. */
  readonly want: number
  /**
   * Further jobs to prefetch: leased before a slot is free. The store never prefetches jobs with one attempt, jobs that
   * have stalled before, and jobs under a limit.
   */
  readonly ahead: number
}

/** What leaves for the store at one moment: one atomic, durable write. */
export interface Batch {
  /** The sender. */
  readonly writer: string
  /** Counts up by one for each batch of this writer, from 1. */
  readonly seq: number
  /** Applied first, in order. */
  readonly groups: readonly Group[]
  /** Applied after the groups. */
  readonly renewals: readonly Renewal[]
  /** Claims, which come last and see all of the above. */
  readonly asks: readonly Ask[]
}

/** Why a group was refused. */
export type Why = 'fence' | 'duplicate' | 'missing' | 'broken' | 'full' | 'version' | 'busy'

/** The group was applied. */
export interface Landed {
  readonly ok: true
  /** The jobs inserted, as they are after the group, in order. */
  readonly inserted: readonly JobRecord[]
}

/** What every refusal holds. */
interface Refusal {
  readonly ok: false
  /** Which change of the group was refused: its index, from 0. 0 for a renewal. */
  readonly change: number
  /** The job, or the key of the cell, that caused the refusal. */
  readonly id: string
  /** The current cell, of a refusal as `version`. */
  readonly cell?: Cell
}

/** Refused because the job was moved since, or its holder's lease has expired; `job` is its current header. */
export interface RefusedAsMoved extends Refusal {
  readonly why: 'fence'
  /** Its current header. */
  readonly job?: MovedJob
}

/**
 * Refused for another reason:
 *
 * - `duplicate`: the id or the dedup key is taken by the job `id`; `job` is that job unless it has been removed.
 * - `missing`: there is no such job.
 * - `broken`: the job cannot start over, because the chain `id` that it depends on failed, was cancelled or is gone; the
 *   first such chain in the order of its edges.
 * - `full`: the backlog of the queue is at its limit; or that of the job's group, and `job` is the oldest in it.
 * - `version`: the cell has another version; `cell` is the current one.
 * - `busy`: an open transaction holds a row; send this group again.
 */
export interface RefusedOtherwise extends Refusal {
  /** The reason. */
  readonly why: Exclude<Why, 'fence'>
  /** The job that the reason mentions. */
  readonly job?: JobRecord
}

/** The group was refused and left no trace. */
export type Refused = RefusedAsMoved | RefusedOtherwise

/** The answer to one group or renewal. */
export type Verdict = Landed | Refused

/** The answer to a batch, in the batch's order. */
export interface Receipt {
  /** The writer of the batch. */
  readonly writer: string
  /** The number of the batch. */
  readonly seq: number
  /** The store's time of the commit. */
  readonly now: Time
  /** A verdict for each group. */
  readonly groups: readonly Verdict[]
  /** A verdict for each renewal. */
  readonly renewals: readonly Verdict[]
  /** For each claim the jobs claimed, in the order in which they should start; prefetched jobs come last. */
  readonly asks: readonly (readonly JobRecord[])[]
  /**
   * When to claim again. Set where a claim returned fewer jobs than there are: a rate lets more through from then on,
   * another transaction held a waiting job and may release it without a notice, or the answer was full (then at once).
   */
  readonly again?: Time
}

/** A versioned setting. */
export interface Cell {
  /** Its key. */
  readonly key: string
  /** Its value, as JSON. */
  readonly value: JsonText
  /** 1 when first written, then up by one with each `Put`. */
  readonly version: number
  /** When it was last written. */
  readonly at: Time
}

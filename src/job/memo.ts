// job/memo.ts: what a job's memo says: how far its phases are, and what was delivered about its end.
import type { ErrorInfo, FinishedState, JobRecord, Time } from './job.js'
import type { JsonText } from './json.js'

/** How far a phase is. */
export type PhaseStatus = 'pending' | 'active' | 'completed' | 'failed' | 'cancelled'

/** What is known of a phase besides its name. */
export interface PhaseState {
  readonly status: PhaseStatus
  /** From 0 to 100; absent before it has told any. */
  readonly progress?: number
  /** What it returned, of one that is completed and returned something. */
  readonly result?: JsonText
  /** What it threw, of one that failed and has not begun again. */
  readonly error?: ErrorInfo
  /** Attempts of this phase that have failed. */
  readonly failures?: number
  /** How often the job had stalled when it began; absent: never. */
  readonly stalls?: number
}

/** One attempt to tell a webhook. */
export interface DeliveryEntry {
  /** The same for all attempts of a delivery; sent along as `webhook-id`. */
  readonly id: string
  /** When it ended. */
  readonly at: Time
  /** The end that was to be told. */
  readonly event: FinishedState
  /** Where it was to be told. */
  readonly url: string
  /** Which attempt of the delivery it was; the first is 1. */
  readonly attempt: number
  /** The status of the answer, where there was one. */
  readonly status?: number
  /** Why it was not taken, where it was not. */
  readonly error?: string
}

/** What was written down about a job. */
export interface Memo {
  /** By their names, all of them in order, once the first has begun. */
  readonly phases?: Readonly<Record<string, PhaseState>>
  /** Deliveries of its end, the last of them. */
  readonly deliveries?: readonly DeliveryEntry[]
  /** The end that has been told, by its `finishedAt`: it may have ended again since. */
  readonly webhookSent?: Time
  /** The end that could not be told, and is not tried any more. */
  readonly webhookGaveUp?: Time
}

const NOTHING: Memo = Object.freeze({})

/** What is written down about a job. */
export function memoOf({ memo }: Pick<JobRecord, 'memo'>): Memo {
  return memo === undefined ? NOTHING : (JSON.parse(memo) as Memo)
}

/** A memo as a job holds it. */
export function writeMemo(memo: Memo): JsonText {
  return JSON.stringify(memo)
}

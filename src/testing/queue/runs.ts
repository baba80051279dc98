// testing/queue/runs.ts: what a run of a job came to, for tests.
import type { Move } from '../../job/change.js'
import type { ErrorInfo, JobRecord, Time } from '../../job/job.js'
import { decodeJson } from '../../job/values/json.js'
import type { JobDefinitions, NameOf, OwnResultOf } from '../../queue/define.js'
import type { JobOf } from '../../queue/queue-types.js'

/** How a run ended. */
export type RunEnd<Result = unknown> =
  | {
      /** The handler returned. */
      readonly outcome: 'completed'
      /** What it returned. */
      readonly result: Result
    }
  | {
      /** The job failed for good. */
      readonly outcome: 'failed'
      /** The error. */
      readonly error: ErrorInfo
    }
  | {
      /** The run failed, and the job has attempts left. */
      readonly outcome: 'retrying'
      /** The error. */
      readonly error: ErrorInfo
      /** When it runs again. */
      readonly runAt: Time
    }
  | {
      /** The handler snoozed, or sleeps. */
      readonly outcome: 'delayed'
      /** When it runs again. */
      readonly runAt: Time
    }
  | {
      /** The handler waits for other jobs, or for a signal. */
      readonly outcome: 'waiting-children'
    }
  | {
      /** The job was cancelled, or removed, while it ran. */
      readonly outcome: 'cancelled'
    }

/** The ways in which a run can end. */
export const outcomes = ['completed', 'failed', 'retrying', 'delayed', 'waiting-children', 'cancelled'] as const

/** One run of a job of one declared name, or of any, discriminated by `name` and `outcome`. */
export type TestRun<Jobs extends JobDefinitions, Name extends NameOf<Jobs> = NameOf<Jobs>> = Name extends unknown
  ? {
      /** The id of the job. */
      readonly id: string
      /** The name of the job. */
      readonly name: Name
      /** The number of the attempt, from 1. */
      readonly attempt: number
      /** The job, as it is now; of a job that has been removed, as it was. */
      readonly job: JobOf<Jobs, Name>
    } & RunEnd<OwnResultOf<Jobs[Name]>>
  : never

/** A run that has ended, without the job's handle. */
export interface EndedRun {
  readonly record: JobRecord
  readonly end: RunEnd
}

/** How the move that ends a run ends it; undefined if the job was given back without a run. */
export function endOf(move: Move, now: Time): RunEnd | undefined {
  const { to, why, set } = move
  const runAt = set.run === undefined || set.run === null ? now : 'at' in set.run ? set.run.at : now + set.run.in
  switch (to) {
    case 'completed':
      return { outcome: 'completed', result: set.result === undefined ? undefined : decodeJson(set.result) }
    case 'failed':
      return { outcome: 'failed', error: set.error! }
    case 'cancelled':
    case 'removed':
      return { outcome: 'cancelled' }
    default:
      if (why === 'retrying') return { outcome: 'retrying', error: set.error!, runAt }
      if (to === 'delayed' || set.run !== undefined) return { outcome: 'delayed', runAt }
      return to === 'waiting-children' ? { outcome: 'waiting-children' } : undefined
  }
}

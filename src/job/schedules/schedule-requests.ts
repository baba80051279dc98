// job/schedules/schedule-requests.ts: what a caller asks of an existing schedule: to pause, to go on, to run now, to run for past
// times. Pure.
import { move } from '../change.js'
import type { Change } from '../change.js'
import { isFinished } from '../job.js'
import type { JobRecord, Time } from '../job.js'
import { cancel, insertRun, isDenied } from '../lifecycle.js'
import type { Decision } from '../lifecycle.js'
import { end } from '../moves.js'
import { chainsOf, isQueueFull, readProgress, readSpec, runAt, runNow, writeProgress } from './schedule.js'
import { nextTime, timesWithin } from './schedule-times.js'
import type { Overlap } from './schedule-times.js'

/** The most runs of one backfill. */
export const MAX_BACKFILL = 1000

const ENDED = { denied: 'has ended; schedule it again' } as const

/** Pauses a schedule: its times pass, and no run is made for them. */
export function pauseSchedule(row: JobRecord, now: Time): Decision {
  if (isFinished(row.state)) return ENDED
  const progress = readProgress(row)
  if (progress.paused !== undefined) return []
  return [
    move(row, 'delayed', {
      set: { run: { at: row.runAt ?? now }, result: writeProgress({ ...progress, paused: now }) },
    }),
  ]
}

/** Resumes a schedule, from its next time on: those that have passed meanwhile were missed. */
export function resumeSchedule(row: JobRecord, now: Time): Decision {
  if (isFinished(row.state)) return ENDED
  const { paused, ...progress } = readProgress(row)
  if (paused === undefined) return []
  const { timing } = readSpec(row)
  const due = row.runAt ?? now
  const next = due > now ? due : nextTime(timing, now, due)
  const result = writeProgress(progress)
  return next === undefined
    ? end(row, 'completed', { result })
    : [move(row, 'delayed', { set: { run: { at: next }, result } })]
}

/** Why no run may be added now, and the run that is in the way, where it is one. */
export interface TriggerDenied {
  readonly denied: string
  readonly run?: string
}

/**
 * The changes that add a run now, beside the times of its schedule; denied if it may not overlap another. Where other
 * runs matter, they begin with a move of the row, which leaves it as it is: the fence keeps two triggers, or a trigger
 * and a time of the schedule, from deciding about the same runs.
 */
export function triggerRun(
  row: JobRecord,
  id: string,
  given: Overlap | undefined,
  unfinished: readonly JobRecord[],
): readonly Change[] | TriggerDenied {
  const { key, timing, run } = readSpec(row)
  const overlap = given ?? timing.overlap
  if (overlap === 'allow') return [insertRun(runNow(row, key, overlap, run, id), [])]
  if (overlap === 'skip' && unfinished.length > 0) {
    return { denied: 'has a run that has not finished', run: unfinished.at(-1)!.id }
  }
  if (overlap === 'queue' && isQueueFull(timing, unfinished)) return { denied: 'has a run that waits already' }
  const before = overlap === 'cancel' ? unfinished.flatMap((each) => cancelled(each, key)) : []
  const after = overlap === 'queue' ? chainsOf(unfinished) : []
  // The times of a schedule with `skip` also skip for a run that took the place of others.
  const keeps = overlap === 'cancel' && timing.overlap === 'skip' ? 'skip' : overlap
  return [move(row, row.state), ...before, insertRun(runNow(row, key, keeps, run, id), after)]
}

function cancelled(run: JobRecord, key: string): readonly Change[] {
  const decision = cancel(run, `Schedule '${key}' was triggered, with overlap: 'cancel'.`)
  return isDenied(decision) ? [] : decision
}

/** The times of a schedule in a range that has passed; one more than `MAX_BACKFILL` if there are too many. */
export function backfillTimes(row: JobRecord, from: Time, to: Time): readonly Time[] {
  const anchor = row.runAt ?? readProgress(row).last?.at ?? row.createdAt
  return timesWithin(readSpec(row).timing, from, to, anchor, MAX_BACKFILL + 1)
}

/**
 * The changes that add runs for times before the schedule's next one. With `queue` each waits until the one before has
 * ended, the first for the chains in `after`. They begin with a move of the row, which leaves it as it is: the fence keeps
 * the schedule from making a run meanwhile. Their ids are those of the times, so that none runs twice.
 */
export function backfillRuns(
  row: JobRecord,
  times: readonly Time[],
  overlap: 'queue' | 'allow',
  after: readonly string[],
): readonly Change[] {
  const { key, timing, run } = readSpec(row)
  let before = after
  const inserts = times.map((time) => {
    const spec = { ...runAt(row, key, timing, run, time), run: undefined, dedup: undefined }
    const insert = insertRun(spec, overlap === 'queue' ? before : [])
    before = [spec.id]
    return insert
  })
  return [move(row, row.state), ...inserts]
}

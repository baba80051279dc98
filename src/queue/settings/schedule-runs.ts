// queue/settings/schedule-runs.ts: reads the runs of a schedule: the last ones to list, and those that have not finished.
import { isFinished } from '../../job/job.js'
import type { JobRecord, JobState, Time } from '../../job/job.js'
import { RUNS_LOOKED_AT, timeOfRun } from '../../job/schedules/schedule.js'
import type { Steps } from '../../store/maybe-sync.js'
import { pages } from '../../store/read-pages.js'
import type { Session } from '../../store/session.js'

/** A run of a schedule. */
export interface ScheduleRun {
  /** The id of its job. */
  readonly id: string
  /** The state of its job. */
  readonly state: JobState
  /** The time of the schedule that it is for; undefined: it was triggered. */
  readonly scheduledAt: Time | undefined
  /** When it was added. */
  readonly createdAt: Time
  /** When its last attempt started. */
  readonly startedAt: Time | undefined
  /** When it finished. */
  readonly finishedAt: Time | undefined
}

/** How many runs are listed by default, and at most. */
export const LISTED_RUNS = 10
export const MAX_LISTED_RUNS = 100

/** The most jobs of a schedule that are looked at for a list: a run may be continued by many. */
const MAX_LOOKED_AT = 1000

/** The last runs of a schedule, the newest first. Jobs that continue a run are not counted. */
export function* lastRuns(session: Pick<Session, 'find'>, id: string, limit: number): Steps<readonly ScheduleRun[]> {
  const runs: ScheduleRun[] = []
  let looked = 0
  for (const page of pages(session, { ...newest(id), limit })) {
    const jobs = yield* page
    runs.push(...jobs.filter(({ chainIndex }) => chainIndex === 0).map(runOf))
    looked += jobs.length
    if (runs.length >= limit || looked >= MAX_LOOKED_AT) break
  }
  return runs.slice(0, limit)
}

/** The unfinished jobs among the last ones of a schedule: its runs, and those that continue them. */
export function* unfinishedRuns(session: Pick<Session, 'find'>, id: string): Steps<readonly JobRecord[]> {
  const last: JobRecord[] = []
  // A page may be cut by its bytes.
  for (const page of pages(session, { ...newest(id), limit: RUNS_LOOKED_AT })) {
    last.push(...(yield* page))
    if (last.length >= RUNS_LOOKED_AT) break
  }
  return last.slice(0, RUNS_LOOKED_AT).filter(({ state }) => !isFinished(state))
}

function newest(id: string): { readonly parent: string; readonly kind: 'job'; readonly order: 'newest' } {
  return { parent: id, kind: 'job', order: 'newest' }
}

function runOf(run: JobRecord): ScheduleRun {
  const { id, state, createdAt, startedAt, finishedAt } = run
  return { id, state, scheduledAt: timeOfRun(run), createdAt, startedAt, finishedAt }
}

// queue/operations/by-filter.ts: what is done with jobs of one queue, by id or by filter.
import { MillraceError } from '../../job/errors.js'
import { jobStates } from '../../job/job.js'
import type { JobRecord, JobState } from '../../job/job.js'
import { cancel, promote, remove, retry, update } from '../../job/lifecycle.js'
import type { Decision, Edit } from '../../job/lifecycle.js'
import { checkName } from '../../job/names.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import { removeDependents } from './cascade.js'
import type { JobOperations } from './job-operations.js'
import { eachPage } from './filter.js'
import type { JobFilter } from './filter.js'
import type { UpdateOptions } from '../job.js'
import type { Session } from '../../store/session.js'

/** The queue whose jobs are meant, and the way to them. */
export interface Place {
  readonly queue: string
  readonly desk: JobOperations
  readonly way: Session
}

/** Wishes that the rules judge by the job alone, and the states in which they can come true. */
const wishes = {
  retry: { decide: retry, states: ['failed', 'cancelled'] },
  promote: { decide: promote, states: ['delayed'] },
} as const satisfies Record<string, { decide: (job: JobRecord) => Decision; states: readonly JobState[] }>

/** The job, if it is one of this queue. */
export function* ownJob({ queue, desk, way }: Place, id: string): Steps<JobRecord> {
  const record = yield* desk.reading(checkName(id, 'job id'), way)
  if (record.queue === queue) return record
  throw new MillraceError('JOB_NOT_FOUND', `Job ${id} is not in queue '${queue}' but in '${record.queue}'.`, {
    details: { id, queue: record.queue },
  })
}

/** Does it to a job, and answers whether that changed anything; or to all jobs that match, and answers to how many. */
export function* wish(place: Place, what: keyof typeof wishes, which: string | JobFilter): Steps<boolean | number> {
  const { queue, desk, way } = place
  const { decide, states } = wishes[what]
  if (typeof which === 'string') return (yield* desk.acting(which, decide, way, yield* ownJob(place, which))).done
  return yield* eachPage(way, queue, which, states, (page) => desk.actingOnAll(page, decide, way))
}

/** Cancels a job, or all that match. */
export function* cancelJobs(
  place: Place,
  which: string | JobFilter,
  how: { readonly cascade: boolean; readonly reason: string | undefined },
): Steps<boolean | number> {
  const { queue, desk, way } = place
  if (typeof which === 'string') return (yield* desk.cancelling(which, way, how, yield* ownJob(place, which))).done
  return yield* eachPage(way, queue, which, ['waiting', 'delayed', 'waiting-children', 'active'], function* (page) {
    if (!how.cascade) return yield* desk.actingOnAll(page, (job) => cancel(job, how.reason), way)
    let done = 0
    for (const { id } of page) if ((yield* desk.cancelling(id, way, how)).done) done++
    return done
  })
}

/** Removes a job, or all that match. */
export function* removeJobs(place: Place, which: string | JobFilter, cascade = false): Steps<boolean | number> {
  const { queue, desk, way } = place
  if (typeof which === 'string') {
    const record = yield* step(way.get(checkName(which, 'job id')))
    return record?.queue === queue && (yield* desk.removing(which, way, cascade)).done
  }
  return yield* eachPage(way, queue, which, jobStates, function* (page) {
    const ids = page.map(({ id }) => id)
    if (cascade) yield* removeDependents(desk, ids, way)
    return yield* desk.actingOnAll(yield* desk.removable(page, way), remove, way)
  })
}

/** Changes a job, or all that match and have not started. */
export function* updateJobs(place: Place, which: string | JobFilter, changes: UpdateOptions): Steps<boolean | number> {
  const { queue, desk, way } = place
  if (typeof which === 'string') {
    yield* ownJob(place, which)
    return (yield* desk.updating(which, changes, way)).done
  }
  const { data: _data, ...rest } = changes
  yield* desk.editing(rest, '') // a bad option is refused even if nothing matches
  return yield* eachPage(way, queue, which, ['waiting', 'delayed', 'waiting-children'], function* (page) {
    const edits = new Map<string, Edit>()
    for (const name of new Set(page.map((record) => record.name))) edits.set(name, yield* desk.editing(changes, name))
    const fit = changes.data === undefined ? page : page.filter((record) => desk.writes(record))
    return yield* desk.actingOnAll(fit, (job) => update(job, edits.get(job.name)!), way)
  })
}

// queue/operations/by-filter.ts: operations on jobs of one queue, by id or by filter.
import { MillraceError } from '../../job/errors.js'
import type { JobRecord } from '../../job/job.js'
import { cancel, promote, remove, retry, statesFor, update } from '../../job/lifecycle.js'
import type { Decision, Edit } from '../../job/lifecycle.js'
import { checkName } from '../../job/names.js'
import { SIGNAL } from '../../job/signals.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import { removeDependents } from './cascade.js'
import { cancelJob, parseUpdate, removable, removeJob, updateJob } from './change-job.js'
import type { Cancellation } from './change-job.js'
import { changeJob, changeJobs, readJob } from './decide.js'
import type { JobOperations } from './job-operations.js'
import { eachPage } from './filter.js'
import type { JobFilter } from './filter.js'
import type { UpdateOptions } from '../job.js'
import type { Session } from '../../store/session.js'

/** The queue of a call, its operations and its session. */
export interface QueueScope {
  readonly queue: string
  readonly operations: JobOperations
  readonly session: Session
}

/** Operations that depend on the job's record alone. */
const plainOperations = { retry, promote } as const

/** The record of a job of this queue; throws if it is in another. */
export function* ownJob({ queue, session }: QueueScope, id: string): Steps<JobRecord> {
  const record = yield* readJob(session, checkName(id, 'job id'))
  if (record.queue === queue) return record
  throw new MillraceError('JOB_NOT_FOUND', `Job ${id} is not in queue '${queue}' but in '${record.queue}'.`, {
    details: { id, queue: record.queue },
  })
}

/**
 * Applies an operation to one job and returns whether it changed, or to all that match and returns how many changed.
 */
export function* applyToJobs(
  scope: QueueScope,
  what: keyof typeof plainOperations,
  which: string | JobFilter,
): Steps<boolean | number> {
  const { queue, session } = scope
  const decide: (job: JobRecord) => Decision = plainOperations[what]
  if (typeof which === 'string') return (yield* changeJob(session, yield* ownJob(scope, which), decide)).done
  return yield* eachPage(session, queue, which, statesFor[what], (page) => changeJobs(session, page, decide))
}

/** Cancels a job, or all that match. */
export function* cancelJobs(scope: QueueScope, which: string | JobFilter, how: Cancellation): Steps<boolean | number> {
  const { queue, session } = scope
  if (typeof which === 'string') return (yield* cancelJob(session, yield* ownJob(scope, which), how)).done
  return yield* eachPage(session, queue, which, statesFor.cancel, function* (page) {
    if (!how.cascade) return yield* changeJobs(session, page, (job) => cancel(job, how.reason))
    let done = 0
    for (const job of page) if ((yield* cancelJob(session, job, how)).done) done++
    return done
  })
}

/** Removes a job, or all that match. */
export function* removeJobs(scope: QueueScope, which: string | JobFilter, cascade = false): Steps<boolean | number> {
  const { queue, session } = scope
  if (typeof which === 'string') {
    const job = yield* step(session.get(checkName(which, 'job id')))
    return job?.queue === queue && job.kind !== SIGNAL && (yield* removeJob(session, job, cascade))
  }
  return yield* eachPage(session, queue, which, statesFor.remove, function* (page) {
    const ids = page.map(({ id }) => id)
    if (cascade) yield* removeDependents(session, ids)
    return yield* changeJobs(session, yield* removable(session, page), remove)
  })
}

/** Updates a job, or all that match and have not started. */
export function* updateJobs(
  scope: QueueScope,
  which: string | JobFilter,
  changes: UpdateOptions,
): Steps<boolean | number> {
  const { queue, session } = scope
  const { payloads } = scope.operations
  if (typeof which === 'string') return (yield* updateJob(session, yield* ownJob(scope, which), changes, payloads)).done
  const { data: _data, ...rest } = changes
  yield* parseUpdate(rest, '', payloads) // throws for a bad option even if nothing matches
  return yield* eachPage(session, queue, which, statesFor.update, function* (page) {
    const edits = new Map<string, Edit>()
    for (const name of new Set(page.map((record) => record.name)))
      edits.set(name, yield* parseUpdate(changes, name, payloads))
    const matching = changes.data === undefined ? page : page.filter((record) => payloads.hasSameVersion(record))
    return yield* changeJobs(session, matching, (job) => update(job, edits.get(job.name)!))
  })
}

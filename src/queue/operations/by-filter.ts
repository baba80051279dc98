// queue/operations/by-filter.ts: operations on jobs of one queue, by id or by filter.
import { MillraceError } from '../../job/errors.js'
import type { JobRecord } from '../../job/job.js'
import { cancel, promote, remove, retry, statesFor, update } from '../../job/lifecycle.js'
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

/** The queue of a call, its operations and its session. */
export interface QueueScope {
  readonly queue: string
  readonly operations: JobOperations
  readonly session: Session
}

/** Operations that depend on the job's record alone. */
const plainOperations = { retry, promote } as const

/** The record of a job of this queue; throws if it is in another. */
export function* ownJob({ queue, operations, session }: QueueScope, id: string): Steps<JobRecord> {
  const record = yield* operations.readSteps(checkName(id, 'job id'), session)
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
  const { queue, operations, session } = scope
  const decide: (job: JobRecord) => Decision = plainOperations[what]
  if (typeof which === 'string')
    return (yield* operations.decideAndCommit(which, decide, session, yield* ownJob(scope, which))).done
  return yield* eachPage(session, queue, which, statesFor[what], (page) =>
    operations.decideAndCommitAll(page, decide, session),
  )
}

/** Cancels a job, or all that match. */
export function* cancelJobs(
  scope: QueueScope,
  which: string | JobFilter,
  how: { readonly cascade: boolean; readonly reason: string | undefined },
): Steps<boolean | number> {
  const { queue, operations, session } = scope
  if (typeof which === 'string')
    return (yield* operations.cancelSteps(which, session, how, yield* ownJob(scope, which))).done
  return yield* eachPage(session, queue, which, statesFor.cancel, function* (page) {
    if (!how.cascade) return yield* operations.decideAndCommitAll(page, (job) => cancel(job, how.reason), session)
    let done = 0
    for (const { id } of page) if ((yield* operations.cancelSteps(id, session, how)).done) done++
    return done
  })
}

/** Removes a job, or all that match. */
export function* removeJobs(scope: QueueScope, which: string | JobFilter, cascade = false): Steps<boolean | number> {
  const { queue, operations, session } = scope
  if (typeof which === 'string') {
    const record = yield* step(session.get(checkName(which, 'job id')))
    return record?.queue === queue && (yield* operations.removeSteps(which, session, cascade)).done
  }
  return yield* eachPage(session, queue, which, statesFor.remove, function* (page) {
    const ids = page.map(({ id }) => id)
    if (cascade) yield* removeDependents(operations, ids, session)
    return yield* operations.decideAndCommitAll(yield* operations.removable(page, session), remove, session)
  })
}

/** Updates a job, or all that match and have not started. */
export function* updateJobs(
  scope: QueueScope,
  which: string | JobFilter,
  changes: UpdateOptions,
): Steps<boolean | number> {
  const { queue, operations, session } = scope
  if (typeof which === 'string') {
    yield* ownJob(scope, which)
    return (yield* operations.updateSteps(which, changes, session)).done
  }
  const { data: _data, ...rest } = changes
  yield* operations.parseUpdate(rest, '') // throws for a bad option even if nothing matches
  return yield* eachPage(session, queue, which, statesFor.update, function* (page) {
    const edits = new Map<string, Edit>()
    for (const name of new Set(page.map((record) => record.name)))
      edits.set(name, yield* operations.parseUpdate(changes, name))
    const matching = changes.data === undefined ? page : page.filter((record) => operations.hasSameVersion(record))
    return yield* operations.decideAndCommitAll(matching, (job) => update(job, edits.get(job.name)!), session)
  })
}

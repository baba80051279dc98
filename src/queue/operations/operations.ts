// queue/operations/operations.ts: cancels, retries, promotes, removes, updates and redelivers jobs of a queue: one that has
// been read, or all that match a filter.
import { MillraceError } from '../../job/errors/errors.js'
import { describeError } from '../../job/errors/failure.js'
import type { JobRecord, Millis } from '../../job/job.js'
import { cancel, fail, isDenied, promote, remove, retry, statesFor, update } from '../../job/lifecycle.js'
import type { Decision, Edit } from '../../job/lifecycle.js'
import { checkName, refuseUnknown } from '../../job/values/names.js'
import { flag, mustBe } from '../../job/values/options.js'
import { SIGNAL } from '../../job/signals.js'
import { redeliver } from '../../job/webhooks.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import { portions, READ_SIZE } from '../../store/read-pages.js'
import type { Connection } from '../../store/connection.js'
import type { Runtime } from '../../store/runtime.js'
import type { Query } from '../../store/store.js'
import type { Session } from '../../store/session.js'
import { refuseChainEnd, withoutChainEnds } from '../flows/chain-ends.js'
import type { UpdateOptions } from '../job.js'
import type { Payloads } from '../payloads.js'
import { webhookId } from '../settings/webhook.js'
import { operateHere } from './bulk/start.js'
import { parseEdits } from './bulk/options.js'
import type { BulkSpec } from './bulk/spec.js'
import { cancelChildren, hasDependents, openDependents, removeDependents } from './cascade.js'
import { changeJob, changeJobs, readJob } from './decide.js'
import type { Decided } from './decide.js'
import { otherVersion, parseUpdate } from './edits.js'
import { eachPage } from './filter.js'
import type { JobFilter, Matches } from './filter.js'

/** The queue of a call, its session, and what its operations need besides. */
export interface QueueScope {
  readonly queue: string
  readonly session: Session
  readonly payloads: Payloads
  readonly runtime: Runtime
  readonly connection: Connection
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
  const { session } = scope
  const decide: (job: JobRecord) => Decision = plainOperations[what]
  if (typeof which === 'string') return (yield* changeJob(session, yield* ownJob(scope, which), decide)).done
  const beyond = byOperation(scope, which, { do: what })
  return yield* eachPage(
    scope,
    which,
    statesFor[what],
    (page, matches) => changeJobs(session, page, decide, matches),
    beyond,
  )
}

/** Changes the jobs of a query by a bulk operation, where there are too many for one call. */
function byOperation(
  scope: QueueScope,
  where: JobFilter,
  how: Pick<BulkSpec, 'do' | 'spread' | 'reason' | 'edits'> & { readonly cascade?: boolean },
): (query: Query) => Steps<number> {
  const { cascade, ...rest } = how
  return (query) => operateHere(scope, { ...rest, where, query, ...(cascade === true && { cascade }) })
}

/** Cancels a job, or all that match. */
export function* cancelJobs(scope: QueueScope, which: string | JobFilter, how: Cancellation): Steps<boolean | number> {
  const { session } = scope
  if (typeof which === 'string') return (yield* cancelJob(session, yield* ownJob(scope, which), how)).done
  const { cascade, reason } = how
  const decide = (job: JobRecord): Decision => cancel(job, reason)
  const work = function* (page: readonly JobRecord[], matches: Matches): Steps<number> {
    if (!cascade) return yield* changeJobs(session, page, decide, matches)
    let done = 0
    for (const job of page) {
      if ((yield* changeJobs(session, [job], decide, matches)) === 0) continue // it has ended, or matches no longer
      yield* cancelChildren(session, job.id, reason)
      done++
    }
    return done
  }
  const beyond = byOperation(scope, which, { do: 'cancel', cascade, ...(reason !== undefined && { reason }) })
  return yield* eachPage(scope, which, statesFor.cancel, work, beyond)
}

/** Removes a job, or all that match. */
export function* removeJobs(scope: QueueScope, which: string | JobFilter, cascade = false): Steps<boolean | number> {
  const { queue, session } = scope
  if (typeof which === 'string') {
    const job = yield* step(session.get(checkName(which, 'job id')))
    return job?.queue === queue && job.kind !== SIGNAL && (yield* removeJob(session, job, cascade))
  }
  const work = function* (page: readonly JobRecord[], matches: Matches): Steps<number> {
    const ids = page.map(({ id }) => id)
    if (cascade) yield* removeDependents(session, ids)
    return yield* changeJobs(session, yield* removable(session, page), remove, matches)
  }
  return yield* eachPage(scope, which, statesFor.remove, work, byOperation(scope, which, { do: 'remove', cascade }))
}

/** Updates a job, or all that match and have not started. */
export function* updateJobs(
  scope: QueueScope,
  which: string | JobFilter,
  changes: UpdateOptions,
): Steps<boolean | number> {
  const { session, payloads } = scope
  if (typeof which === 'string') return (yield* updateJob(session, yield* ownJob(scope, which), changes, payloads)).done
  const { data: _data, ...rest } = changes
  yield* parseUpdate(rest, '', payloads) // throws for a bad option even if nothing matches
  const work = function* (page: readonly JobRecord[], matches: Matches): Steps<number> {
    const edits = new Map<string, Edit>()
    for (const name of new Set(page.map((record) => record.name)))
      edits.set(name, yield* parseUpdate(changes, name, payloads))
    const matching = changes.data === undefined ? page : page.filter((record) => payloads.hasSameVersion(record))
    return yield* changeJobs(session, matching, (job) => update(job, edits.get(job.name)!), matches)
  }
  return yield* eachPage(scope, which, statesFor.update, work, function* (query) {
    const edits = yield* parseEdits(scope, changes, query, 'queue.update')
    return yield* byOperation(scope, which, { do: 'update', edits })(query)
  })
}

/** How a job is cancelled. */
interface Cancellation {
  readonly cascade: boolean
  readonly reason: string | undefined
}

/** Cancels a job, and then its children if it cascades. */
export function* cancelJob(session: Session, job: JobRecord, { cascade, reason }: Cancellation): Steps<Decided> {
  const decided = yield* changeJob(session, job, (each) => cancel(each, reason))
  if (cascade) yield* cancelChildren(session, job.id, reason)
  return decided
}

/** Fails an unfinished job for good; throws if it has finished. */
export function* failJob(session: Session, job: JobRecord, error: unknown): Steps<Decided> {
  const info = describeError(error)
  return yield* changeJob(session, job, (each) => fail(each, info))
}

/** Removes a job; false if it was gone. Throws while other jobs wait for it, because they would wait for ever. */
export function* removeJob(session: Session, job: JobRecord, cascade: boolean): Steps<boolean> {
  yield* refuseChainEnd(session, job)
  if (cascade) yield* removeDependents(session, [job.id])
  const dependents = (yield* openDependents(session, [job])).get(job.id)
  if (dependents !== undefined) throw hasDependents('Job', job.id, dependents)
  return (yield* changeJobs(session, [job], remove)) > 0
}

/** The jobs that can be removed together: no other job waits for them, and no chain loses only its last job. */
function* removable(session: Session, jobs: readonly JobRecord[]): Steps<readonly JobRecord[]> {
  const ids = new Set(jobs.map(({ id }) => id))
  const dependents = yield* openDependents(session, jobs, ids)
  const candidates = jobs.filter(({ id }) => !dependents.has(id))
  return yield* withoutChainEnds(session, candidates)
}

/** Changes data, priority or time of a job. */
export function* updateJob(
  session: Session,
  job: JobRecord,
  changes: UpdateOptions,
  payloads: Payloads,
): Steps<Decided> {
  if (changes.data !== undefined && !payloads.hasSameVersion(job)) throw otherVersion(job)
  const edit = yield* parseUpdate(changes, job.name, payloads)
  return yield* changeJob(session, job, (each) => update(each, edit))
}

/** Queues another delivery for a finished job; returns its `webhook-id`. */
export function* redeliverJob(session: Session, job: JobRecord, runtime: Runtime): Steps<string> {
  const delivery = `millrace:webhook:${runtime.id()}`
  const request = { id: webhookId(delivery), at: runtime.now() }
  yield* changeJob(session, job, (each) => redeliver(each, delivery, request))
  return request.id
}

/** Options for restarting many jobs. */
export interface RetryOptions {
  /** How many of them become due per second: the first at once, the others delayed. Default: all at once. */
  readonly rate?: number
  /**
   * Changes nothing, and returns how many jobs match. No more than these would restart; fewer, if a dependency stays failed or
   * a dedup key is taken. Default false.
   */
  readonly dryRun?: boolean
}

/** Checks the options. */
function checkRetry(options: RetryOptions): Required<RetryOptions> {
  refuseUnknown(options, ['rate', 'dryRun', 'tx'], 'queue.retry')
  const { rate = Infinity } = options
  if (typeof rate !== 'number' || !(rate > 0)) {
    throw mustBe('queue.retry: rate', 'a number above 0', rate)
  }
  return { rate, dryRun: flag(options.dryRun, 'queue.retry: dryRun') }
}

/**
 * Restarts all failed and cancelled jobs that match; returns how many. A job with a failed dependency is tried again
 * after the others, because the dependency may be one of them.
 */
export function* retryJobs(scope: QueueScope, filter: JobFilter, options: RetryOptions): Steps<number> {
  const { session } = scope
  const { rate, dryRun } = checkRetry(options)
  const delayAt = (position: number): Millis => Math.round((1000 * position) / rate)
  let blocked: Blocked[] = []
  let position = 0
  let stillMatches: Matches = () => true
  const work = function* (page: readonly JobRecord[], matches: Matches): Steps<number> {
    stillMatches = matches
    if (dryRun) return page.filter((job) => !isDenied(retry(job))).length
    // Positions are assigned up front, so that a job that is decided again, because it was moved, keeps its position.
    const positions = new Map<string, number>()
    for (const { id } of page) positions.set(id, position++)
    return yield* retryPage(page, positions, blocked)
  }
  const beyond = byOperation(scope, filter, { do: 'retry', ...(rate !== Infinity && { spread: rate }) })
  let done = yield* eachPage(scope, filter, statesFor.retry, work, dryRun ? undefined : beyond)
  for (let before = Infinity; blocked.length > 0 && blocked.length < before;) {
    before = blocked.length
    // Newest first: a job that waits for its own children was added before them.
    const left = blocked.toReversed()
    blocked = []
    for (const batch of portions(left, READ_SIZE)) {
      const records = yield* step(session.getAll(batch.map(({ id }) => id)))
      const page = records.filter((record) => record !== undefined && stillMatches(record)) as readonly JobRecord[]
      done += yield* retryPage(page, new Map(batch.map((each) => [each.id, each.position])), blocked)
    }
    blocked.reverse()
  }
  return done

  function* retryPage(
    page: readonly JobRecord[],
    positions: ReadonlyMap<string, number>,
    into: Blocked[],
  ): Steps<number> {
    const ids: string[] = []
    const count = yield* changeJobs(
      session,
      page,
      (job) => retry(job, delayAt(positions.get(job.id)!)),
      stillMatches,
      ids,
    )
    for (const id of ids) into.push({ id, position: positions.get(id)! })
    return count
  }
}

/** A job that could not restart, and its position among all that match. */
interface Blocked {
  readonly id: string
  readonly position: number
}

// queue/operations/operations.ts: cancels, retries, promotes, removes, updates and redelivers jobs of a queue: one that has
// been read, or all that match a filter.
import { MillraceError } from '../../job/errors.js'
import { describeError } from '../../job/failure.js'
import { isFinished } from '../../job/job.js'
import type { JobRecord, Millis } from '../../job/job.js'
import { cancel, fail, isDenied, promote, remove, retry, statesFor, update } from '../../job/lifecycle.js'
import type { Decision, Edit } from '../../job/lifecycle.js'
import { checkName, refuseUnknown } from '../../job/names.js'
import { flag, mustBe } from '../../job/options.js'
import { SIGNAL } from '../../job/signals.js'
import { redeliver } from '../../job/webhooks.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import { portions, READ_SIZE, readDetails } from '../../store/read-pages.js'
import type { Runtime } from '../../store/runtime.js'
import type { Session } from '../../store/session.js'
import { parseOptions, parseWhen } from '../add-options.js'
import { refuseChainEnd, withoutChainEnds } from '../flows/chain-ends.js'
import type { UpdateOptions } from '../job.js'
import type { Payloads } from '../payloads.js'
import { webhookId } from '../settings/webhook.js'
import { cancelChildren, hasDependents, removeDependents } from './cascade.js'
import { changeJob, changeJobs, readJob } from './decide.js'
import type { Decided } from './decide.js'
import { eachPage } from './filter.js'
import type { JobFilter } from './filter.js'

/** The queue of a call, its session, and what its operations need besides. */
export interface QueueScope {
  readonly queue: string
  readonly session: Session
  readonly payloads: Payloads
  readonly runtime: Runtime
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
  const { queue, session, payloads } = scope
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

/** The jobs that wait for each unfinished job, without those of `except`. */
function* openDependents(
  session: Session,
  jobs: readonly JobRecord[],
  except: ReadonlySet<string> = new Set(),
): Steps<ReadonlyMap<string, readonly string[]>> {
  const unfinished = jobs.filter(({ state }) => !isFinished(state)).map(({ id }) => id)
  const found = new Map<string, readonly string[]>()
  for (const { id, dependents } of yield* readDetails(session, { jobs: unfinished, parts: ['dependents'] })) {
    const open = dependents.filter(({ state, dependent }) => state === 'open' && !except.has(dependent))
    if (open.length > 0)
      found.set(
        id,
        open.map(({ dependent }) => dependent),
      )
  }
  return found
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

/** Parses `UpdateOptions` into the terms of the lifecycle. */
function* parseUpdate(changes: UpdateOptions, name: string, payloads: Payloads): Steps<Edit> {
  refuseUnknown(changes, ['data', 'priority', 'delay', 'runAt'], 'update')
  const run = parseWhen(changes, 'update') ?? (changes.delay === undefined ? undefined : { in: 0 })
  const { priority } = parseOptions({ priority: changes.priority }, 'update', '', '', undefined)
  const text = changes.data === undefined ? undefined : payloads.encode(name, changes.data)
  const data = text instanceof Promise ? yield* step(text) : text
  return {
    ...(data !== undefined && { data }),
    ...(changes.priority !== undefined && { priority }),
    ...(run !== undefined && { run }),
  }
}

function otherVersion({ id, name, version }: JobRecord): MillraceError {
  return new MillraceError(
    'OTHER_VERSION',
    `Job ${id} was added under version ${version} of '${name}', and data made here is of another: its data stays as it is.`,
    { details: { id, version } },
  )
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
  refuseUnknown(options, ['rate', 'dryRun'], 'queue.retry')
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
export function* retryJobs({ queue, session }: QueueScope, filter: JobFilter, options: RetryOptions): Steps<number> {
  const { rate, dryRun } = checkRetry(options)
  const delayAt = (position: number): Millis => Math.round((1000 * position) / rate)
  let blocked: Blocked[] = []
  let position = 0
  let done = yield* eachPage(session, queue, filter, statesFor.retry, function* (page) {
    if (dryRun) return page.filter((job) => !isDenied(retry(job))).length
    // Positions are assigned up front, so that a job that is decided again, because it was moved, keeps its position.
    const positions = new Map<string, number>()
    for (const { id } of page) positions.set(id, position++)
    return yield* retryPage(page, positions, blocked)
  })
  for (let before = Infinity; blocked.length > 0 && blocked.length < before;) {
    before = blocked.length
    // Newest first: a job that waits for its own children was added before them.
    const left = blocked.toReversed()
    blocked = []
    for (const batch of portions(left, READ_SIZE)) {
      const records = yield* step(session.getAll(batch.map(({ id }) => id)))
      const page = records.filter((record) => record !== undefined)
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
    const count = yield* changeJobs(session, page, (job) => retry(job, delayAt(positions.get(job.id)!)), ids)
    for (const id of ids) into.push({ id, position: positions.get(id)! })
    return count
  }
}

/** A job that could not restart, and its position among all that match. */
interface Blocked {
  readonly id: string
  readonly position: number
}

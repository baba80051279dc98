// queue/operations/change-job.ts: cancels, removes, updates and redelivers one job that has been read.
import { MillraceError } from '../../job/errors.js'
import { isFinished } from '../../job/job.js'
import type { JobRecord } from '../../job/job.js'
import { cancel, remove, update } from '../../job/lifecycle.js'
import type { Edit } from '../../job/lifecycle.js'
import { refuseUnknown } from '../../job/names.js'
import { redeliver } from '../../job/webhooks.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import { readDetails } from '../../store/read-pages.js'
import type { Runtime } from '../../store/runtime.js'
import type { Session } from '../../store/session.js'
import { parseOptions, parseWhen } from '../add-options.js'
import { refuseChainEnd, withoutChainEnds } from '../flows/chain-ends.js'
import type { UpdateOptions } from '../job.js'
import type { Payloads } from '../payloads.js'
import { webhookId } from '../settings/webhook.js'
import { cancelChildren, hasDependents, removeDependents } from './cascade.js'
import { changeJob, changeJobs } from './decide.js'
import type { Decided } from './decide.js'

/** How a job is cancelled. */
export interface Cancellation {
  readonly cascade: boolean
  readonly reason: string | undefined
}

/** Cancels a job, and then its children if it cascades. */
export function* cancelJob(session: Session, job: JobRecord, { cascade, reason }: Cancellation): Steps<Decided> {
  const decided = yield* changeJob(session, job, (each) => cancel(each, reason))
  if (cascade) yield* cancelChildren(session, job.id, reason)
  return decided
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
export function* removable(session: Session, jobs: readonly JobRecord[]): Steps<readonly JobRecord[]> {
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
export function* parseUpdate(changes: UpdateOptions, name: string, payloads: Payloads): Steps<Edit> {
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

// queue/operations/bulk/prepare.ts: decides what a bulk operation does with some jobs: changes, or why there are none.
import type { BulkRefusal } from '../../../job/bulk.js'
import type { Change } from '../../../job/change.js'
import { MillraceError } from '../../../job/errors/errors.js'
import type { JobRecord } from '../../../job/job.js'
import { cancel, isDenied, promote, remove, retry, update } from '../../../job/lifecycle.js'
import type { Decision } from '../../../job/lifecycle.js'
import type { Steps } from '../../../store/maybe-sync.js'
import type { Refused } from '../../../store/store.js'
import type { Session } from '../../../store/session.js'
import { chainEnd, withoutChainEnds } from '../../flows/chain-ends.js'
import { hasDependents, openDependents } from '../cascade.js'
import { dedupTaken, denied } from '../decide.js'
import { otherVersion } from '../edits.js'
import type { BulkSpec } from './spec.js'

/** The decision about some jobs. */
export interface Prepared {
  /** Jobs that change, and how. */
  readonly changes: readonly { readonly job: JobRecord; readonly group: readonly Change[] }[]
  /** Jobs that cannot be changed. */
  readonly refused: readonly BulkRefusal[]
  /** Jobs that already are as asked for. */
  readonly unchanged: number
}

/** Decides about some jobs of one page; `before` jobs have been changed already, by which a retry is spread over time. */
export function* prepare(
  session: Session,
  spec: BulkSpec,
  jobs: readonly JobRecord[],
  before: number,
): Steps<Prepared> {
  const removes = spec.do === 'remove'
  const dependents = removes ? yield* openDependents(session, jobs) : NO_JOBS
  const stays = removes ? yield* notRemovable(session, jobs, dependents) : NO_ERRORS
  const changes: { job: JobRecord; group: readonly Change[] }[] = []
  const refused: BulkRefusal[] = []
  let unchanged = 0
  for (const job of removes ? inOrder(jobs, dependents) : jobs) {
    const error = stays.get(job.id)
    const decision = error ?? decide(spec, job, before + changes.length)
    if (decision instanceof MillraceError) refused.push(refusal(job, decision))
    else if (isDenied(decision)) refused.push(refusal(job, denied(job, decision.denied)))
    else if (decision.length === 0) unchanged++
    else changes.push({ job, group: decision })
  }
  return { changes, refused, unchanged }
}

const NO_JOBS: ReadonlyMap<string, readonly string[]> = new Map()
const NO_ERRORS: ReadonlyMap<string, MillraceError> = new Map()

function decide(spec: BulkSpec, job: JobRecord, position: number): Decision | MillraceError {
  switch (spec.do) {
    case 'cancel':
      return cancel(job, spec.reason)
    case 'retry':
      return retry(job, spec.spread === undefined ? 0 : Math.round((1000 * position) / spec.spread))
    case 'promote':
      return promote(job)
    case 'remove':
      return remove(job)
    case 'update': {
      const own = spec.edits?.find(({ name }) => name === undefined || name === job.name)
      if (own === undefined) return noEdit(job)
      return own.version === undefined || own.version === job.version ? update(job, own.edit) : otherVersion(job)
    }
  }
}

/** The jobs that stay: other jobs wait for them, or a chain would lose only its last job. */
function* notRemovable(
  session: Session,
  jobs: readonly JobRecord[],
  dependents: ReadonlyMap<string, readonly string[]>,
): Steps<ReadonlyMap<string, MillraceError>> {
  const stays = new Map<string, MillraceError>()
  const ids = new Set(jobs.map(({ id }) => id))
  for (const [id, waiting] of dependents) {
    const others = waiting.filter((each) => !ids.has(each))
    if (others.length > 0) stays.set(id, hasDependents('Job', id, others))
  }
  const candidates = jobs.filter(({ id }) => !stays.has(id))
  const removable = new Set(yield* withoutChainEnds(session, candidates))
  for (const job of candidates) if (!removable.has(job)) stays.set(job.id, chainEnd(job))
  return stays
}

/**
 * These jobs, each behind those of them that wait for it: the end of a job moves the jobs that wait for it, and what is
 * decided about those in the same commit would be refused.
 */
export function* dependentsFirst(session: Session, jobs: readonly JobRecord[]): Steps<readonly JobRecord[]> {
  return inOrder(jobs, yield* openDependents(session, jobs))
}

function inOrder(jobs: readonly JobRecord[], dependents: ReadonlyMap<string, readonly string[]>): readonly JobRecord[] {
  const left = new Map(jobs.map((job) => [job.id, job]))
  const ordered: JobRecord[] = []
  const place = (id: string): void => {
    const job = left.get(id)
    if (job === undefined) return
    left.delete(id)
    for (const each of dependents.get(id) ?? []) place(each)
    ordered.push(job)
  }
  for (const { id } of jobs) place(id)
  return ordered
}

/** Maximum length of a message that is kept, in characters. */
const MAX_MESSAGE_LENGTH = 500

/** A job that was refused for the reason of an error. */
export function refusal({ id, name, state }: JobRecord, { code, message }: MillraceError): BulkRefusal {
  return { id, name, state, code, message: message.slice(0, MAX_MESSAGE_LENGTH) }
}

/** A job whose changes the store refused for good. */
export function refusedByStore(job: JobRecord, { why, id }: Refused): BulkRefusal {
  if (why === 'duplicate') return refusal(job, dedupTaken(job, id))
  if (why === 'broken') return refusal(job, waitsForFailed(job, id))
  return refusal(
    job,
    new MillraceError('STORE_BUSY', `Job ${job.id} stayed in use by other callers; repeat the operation for it.`),
  )
}

/** The error for a job that cannot start over before another one does. */
export function waitsForFailed({ id }: JobRecord, chain: string): MillraceError {
  return new MillraceError(
    'DEPENDENCY_FAILED',
    `Job ${id} cannot start over: job ${chain}, which it waits for, failed, was cancelled or is gone. Retry that one first.`,
  )
}

function noEdit({ id, name }: JobRecord): MillraceError {
  return new MillraceError(
    'UNKNOWN_JOB',
    `Job ${id} is of name '${name}', for which no data was checked when the operation began; it stays as it is.`,
  )
}

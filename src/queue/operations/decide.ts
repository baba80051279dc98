// queue/operations/decide.ts: the loop of every operation: read a job, decide by the lifecycle, commit, and decide again
// if another writer was faster.
import type { Change } from '../../job/change.js'
import { MillraceError } from '../../job/errors/errors.js'
import { isFinished } from '../../job/job.js'
import type { JobHeader, JobRecord } from '../../job/job.js'
import { isDenied } from '../../job/lifecycle.js'
import type { Decision } from '../../job/lifecycle.js'
import { SIGNAL } from '../../job/signals.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Session } from '../../store/session.js'
import type { Group, Refused, Verdict } from '../../store/store.js'

/** How often a call decides again because other writers were faster. */
export const MAX_RACES = 100

/** The current record of a job; throws if there is none. */
export function* readJob(session: Pick<Session, 'get'>, id: string): Steps<JobRecord> {
  const record = yield* step(session.get(id))
  if (record === undefined || record.kind === SIGNAL) throw jobNotFound(id)
  return record
}

/** Whether an operation changed its job, and the record that it decided on. */
export interface Decided {
  readonly done: boolean
  readonly job: JobRecord
}

/**
 * Commits the changes that `decide` returns for a job. Where the job has been moved, decides again on its current
 * record; where the group is refused for another reason, on the one that `refused` returns. Undefined if the job is
 * gone.
 */
export function* decideAndCommit(
  session: Pick<Session, 'commit' | 'get' | 'changed'>,
  first: JobRecord,
  decide: (job: JobRecord) => readonly Change[],
  refused?: (verdict: Refused, job: JobRecord) => Steps<JobRecord | undefined>,
): Steps<Decided | undefined> {
  let job = first
  for (let races = 0; races < MAX_RACES; races++) {
    const changes = decide(job)
    if (changes.length === 0) return { done: false, job }
    const verdict: Verdict = yield* step(session.commit(changes))
    if (verdict.ok) {
      session.changed(job, changes)
      return { done: true, job }
    }
    const next: JobRecord | undefined =
      verdict.why === 'fence' ? yield* step(session.get(job.id)) : refused && (yield* refused(verdict, job))
    if (next === undefined) return undefined
    job = next
  }
  return undefined
}

/** Applies an operation to a job. Throws if the lifecycle denies it, or other jobs prevent it. */
export function* changeJob(session: Session, first: JobRecord, decide: (job: JobRecord) => Decision): Steps<Decided> {
  const decided = yield* decideAndCommit(
    session,
    first,
    (job) => {
      const decision = decide(job)
      if (isDenied(decision)) throw denied(job, decision.denied)
      return decision
    },
    function* (verdict, job) {
      if (verdict.why === 'duplicate') throw dedupTaken(job, verdict.id)
      return verdict.why === 'broken' ? yield* stillBlocked(session, job, verdict.id) : undefined
    },
  )
  if (decided === undefined) throw jobNotFound(first.id)
  return decided
}

/** Throws for the job that keeps another from starting over; returns the other if none does any more. */
function* stillBlocked(session: Session, job: JobRecord, chain: string): Steps<JobRecord> {
  const [last] = (yield* step(session.find({ chain, order: 'newest', limit: 1 }))).items
  if (last !== undefined && (!isFinished(last.state) || last.state === 'completed')) return job
  throw dependencyFailed(job, chain, last)
}

/**
 * Applies an operation to many jobs; skips those that the lifecycle denies or that are gone, and of those that others have
 * changed meanwhile the ones that `matches` does not accept. Returns how many changed. Adds to `blocked` the ids of jobs
 * that a failed dependency keeps from restarting.
 */
export function* changeJobs<Seen extends JobHeader>(
  session: Session,
  jobs: readonly Seen[],
  decide: (job: Seen | JobRecord) => Decision,
  matches: (job: JobRecord) => boolean = () => true,
  blocked: string[] = [],
): Steps<number> {
  let done = 0
  let left: readonly (Seen | JobRecord)[] = jobs
  for (let races = 0; left.length > 0 && races < MAX_RACES; races++) {
    const groups: Group[] = []
    const sent: (Seen | JobRecord)[] = []
    for (const job of left) {
      const decision = decide(job)
      if (isDenied(decision) || decision.length === 0) continue
      groups.push(decision)
      sent.push(job)
    }
    const verdicts = yield* step(session.commitAll(groups))
    const moved: string[] = []
    for (const [at, verdict] of verdicts.entries()) {
      const job = sent[at]!
      if (verdict.ok) {
        done++
        session.changed(job, groups[at]!)
      } else if (verdict.why === 'broken') blocked.push(job.id)
      else if (verdict.why === 'fence') moved.push(job.id)
    }
    const current = moved.length === 0 ? [] : yield* step(session.getAll(moved))
    left = current.filter((job) => job !== undefined && matches(job)) as readonly JobRecord[]
  }
  return done
}

/** The error for a job that does not exist. */
export function jobNotFound(id: string): MillraceError {
  return new MillraceError('JOB_NOT_FOUND', `There is no job ${id}: it was never added, or has been removed.`, {
    details: { id },
  })
}

/** The error for an operation that a job's state does not allow. */
export function denied({ id, state }: JobRecord, why: string): MillraceError {
  return new MillraceError('INVALID_STATE', `Job ${id} ${why}.`, { details: { id, state } })
}

/** The error for a job that cannot start over, because another job has taken its dedup key. */
export function dedupTaken({ id }: JobRecord, holder: string): MillraceError {
  return new MillraceError(
    'DEDUP_TAKEN',
    `Job ${id} cannot start over: job ${holder} holds its dedup key. Wait for that one or cancel it.`,
    { details: { id, holder } },
  )
}

/** The error for a job that cannot start over, because of the last job of a chain that it waits for. */
function dependencyFailed({ id, queue }: JobRecord, chain: string, last: JobRecord | undefined): MillraceError {
  const where = last === undefined || last.queue === queue ? '' : ` in queue '${last.queue}'`
  const how =
    last === undefined
      ? 'was removed. Add both anew.'
      : last.id === chain
        ? `is ${last.state}${where}. Retry that one first.`
        : `went on with job ${last.id}${where}, and that is ${last.state}. Retry that one first.`
  return new MillraceError(
    'DEPENDENCY_FAILED',
    `Job ${id} cannot start over: job ${chain}, which it waits for, ${how}`,
    {
      details: { id, dependency: chain, ...(last !== undefined && { job: last.id }), state: last?.state ?? 'removed' },
    },
  )
}

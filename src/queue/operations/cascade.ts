// queue/operations/cascade.ts: removes the dependents of a removed job, and cancels the children of a cancelled one.
import { isFinished, unfinishedStates } from '../../job/job.js'
import type { JobRecord } from '../../job/job.js'
import { MillraceError } from '../../job/errors/errors.js'
import { invalid, mustBe } from '../../job/values/options.js'
import { cleanText } from '../../job/errors/failure.js'
import { cancel, remove } from '../../job/lifecycle.js'
import { PAGE_SIZE, pages, portions, READ_SIZE, readDetails } from '../../store/read-pages.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Store } from '../../store/store.js'
import { withEarlierJobs } from '../flows/chain-ends.js'
import { changeJobs } from './decide.js'
import type { InTransaction, WithTransaction } from '../transactions.js'
import type { Session } from '../../store/session.js'

/** Whether an operation extends to related jobs. */
export interface CascadeOptions {
  /**
   * Removing: also removes the jobs that wait for this job, each with its chain, and the jobs that wait for those.
   * Cancelling: also cancels its unfinished children, and their children. Default false.
   */
  readonly cascade?: boolean
}

/** Options of `cancel`. */
export interface CancelOptions extends CascadeOptions {
  /** Why, in at most 500 characters: for the handler's signal, the event and `explain`. Default: none. */
  readonly reason?: string
}

/** The last argument of calls that cancel. */
export type CancelArgument<S extends Store> = [options?: WithTransaction<S, CancelOptions>]

/** Maximum length of a cancellation's reason, in characters: it travels in notices, which are small. */
const MAX_REASON_LENGTH = 500

/** Separates the reason of a cancellation from the other options. */
export function splitReason<T extends CancelOptions>(
  options: T | undefined,
  call: string,
): { readonly reason: string | undefined; readonly rest: Omit<T, 'reason'> | undefined } {
  if (typeof options !== 'object' || options === null) return { reason: undefined, rest: options }
  const { reason, ...rest } = options
  if (reason === undefined) return { reason, rest }
  if (typeof reason === 'string' && reason.length > 0 && reason.length <= MAX_REASON_LENGTH) {
    return { reason: cleanText(reason), rest }
  }
  throw mustBe(`${call}: reason`, `a text of 1 to ${MAX_REASON_LENGTH} characters`, reason)
}

/** The last argument of calls that may cascade. */
export type CascadeArgument<S extends Store> = [options?: WithTransaction<S, CascadeOptions>]

/** Separates `cascade` from the other options. */
export function splitCascade(
  options: (CascadeOptions & InTransaction) | undefined,
  call: string,
): { readonly cascade: boolean; readonly rest: InTransaction | undefined } {
  if (options === undefined || typeof options !== 'object' || options === null) return { cascade: false, rest: options }
  const { cascade = false, ...rest } = options
  if (typeof cascade !== 'boolean') throw invalid(`${call}: cascade must be true or false, not ${String(cascade)}.`)
  return { cascade, rest }
}

/**
 * Removes all dependents of the chains of these jobs, and their dependents. Those without dependents go first, so that
 * after a failure half-way no job waits for one that is gone.
 */
export function* removeDependents(session: Session, ids: readonly string[]): Steps<number> {
  const waiting = new Set<string>()
  const given = new Set(ids)
  const seen = new Set(ids)
  for (let level: readonly string[] = ids; level.length > 0;) {
    const next: string[] = []
    for (const some of portions(level, PAGE_SIZE)) {
      const jobs = yield* readDetails(session, { jobs: some, parts: ['dependents'] })
      for (const { dependent, state } of jobs.flatMap(({ dependents }) => dependents)) {
        // A dependent found again on a longer path is removed before every job found before.
        if ((state !== 'open' && state !== 'broken') || given.has(dependent)) continue
        waiting.delete(dependent)
        waiting.add(dependent)
        if (seen.has(dependent)) continue
        seen.add(dependent)
        next.push(dependent)
      }
    }
    level = next
  }
  let removed = 0
  for (const some of portions([...waiting].toReversed(), READ_SIZE)) {
    const records = yield* step(session.getAll(some))
    const existing = records.filter((record) => record !== undefined)
    removed += yield* changeJobs(session, yield* withEarlierJobs(session, existing), remove)
  }
  return removed
}

/**
 * Cancels the unfinished children of a cancelled job, and theirs: parents first, which then wait for nothing. Also
 * visits the children of cancelled jobs, so that it completes what a process that died half-way left.
 */
export function* cancelChildren(session: Session, id: string, reason?: string): Steps<number> {
  const parents = [id]
  let cancelled = 0
  for (let at = 0; at < parents.length; at++) {
    const query = { parent: parents[at]!, kind: 'job', states: [...unfinishedStates, 'cancelled'] } as const
    for (const page of pages(session, query)) {
      const children = yield* page
      cancelled += yield* changeJobs(session, children, (job) => cancel(job, reason))
      for (const child of children) parents.push(child.id)
    }
  }
  return cancelled
}

/** The jobs that wait for each unfinished job, without those of `except`. */
export function* openDependents(
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

/** Maximum number of dependents that an error lists. */
const MAX_LISTED = 1000

/** The error for a job or chain that other jobs wait for. */
export function hasDependents(what: 'Job' | 'Chain', id: string, waiting: readonly string[]): MillraceError {
  const some = waiting.slice(0, 5).join(', ') + (waiting.length > 5 ? ', …' : '')
  return new MillraceError(
    'JOB_HAS_DEPENDENTS',
    `${what} ${id} cannot be removed: ${waiting.length} wait for it (${some}). Cancel it instead, or remove them as well: { cascade: true }.`,
    { details: { id, dependents: waiting.slice(0, MAX_LISTED), count: waiting.length } },
  )
}

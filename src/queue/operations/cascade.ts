// queue/operations/cascade.ts: what goes with a job: those that wait for it when it is removed, its children when it is cancelled.
import { isFinished, jobStates } from '../../job/job.js'
import type { JobHeader, JobRecord, JobState } from '../../job/job.js'
import { MillraceError } from '../../job/errors.js'
import { cleanText } from '../../job/failure.js'
import { cancel, remove } from '../../job/lifecycle.js'
import type { Decision } from '../../job/lifecycle.js'
import { quote } from '../../job/quote.js'
import { readDetails } from '../../store/read-pages.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Store } from '../../store/store.js'
import { withChains } from '../flows/chain-ends.js'
import { READ } from './filter.js'
import type { InTransaction, WithTransaction } from '../transactions.js'
import type { Session } from '../../store/session.js'

/** What becomes of others. */
export interface CascadeOptions {
  /**
   * Removing: those that wait for the job are removed as well, each with its chain, and those that wait for them. Cancelling: its unfinished
   * children are cancelled as well, and theirs. Default false.
   */
  readonly cascade?: boolean
}

/** How a job is cancelled. */
export interface CancelOptions extends CascadeOptions {
  /** Why, in at most 500 characters: for the handler's signal, the event and `explain`. Default: none. */
  readonly reason?: string
}

/** The last argument of calls that cancel. */
export type CancelArgument<S extends Store> = [options?: WithTransaction<S, CancelOptions>]

/** Characters that the reason of a cancellation may have: it travels in notices, which are small. */
const LONGEST_REASON = 500

/** The reason that a cancellation was given, and the rest of the options. */
export function reasonIn<T extends CancelOptions>(
  options: T | undefined,
  call: string,
): { readonly reason: string | undefined; readonly rest: Omit<T, 'reason'> | undefined } {
  if (typeof options !== 'object' || options === null) return { reason: undefined, rest: options }
  const { reason, ...rest } = options
  if (reason === undefined) return { reason, rest }
  if (typeof reason === 'string' && reason.length > 0 && reason.length <= LONGEST_REASON) {
    return { reason: cleanText(reason), rest }
  }
  throw new MillraceError(
    'INVALID_OPTION',
    `${call}: reason must be a text of 1 to ${LONGEST_REASON} characters, not ${quote(reason)}.`,
  )
}

/** The last argument of calls that may cascade. */
export type CascadeArgument<S extends Store> = [options?: WithTransaction<S, CascadeOptions>]

/** What was said of others, and the rest of the options. */
export function cascadeIn(
  options: (CascadeOptions & InTransaction) | undefined,
  call: string,
): { readonly cascade: boolean; readonly rest: InTransaction | undefined } {
  if (options === undefined || typeof options !== 'object' || options === null) return { cascade: false, rest: options }
  const { cascade = false, ...rest } = options
  if (typeof cascade !== 'boolean') {
    throw new MillraceError('INVALID_OPTION', `${call}: cascade must be true or false, not ${String(cascade)}.`)
  }
  return { cascade, rest }
}

/** Whoever carries out what the rules decide. */
interface Acting {
  actingOnAll(records: readonly JobHeader[], decide: (job: JobHeader) => Decision, way: Session): Steps<number>
}

/** Jobs handled at a time. */
const PORTION = 500

const unfinished: readonly JobState[] = jobStates.filter((state) => !isFinished(state))

/**
 * Removes all that wait for the chains of some jobs, and for theirs; those first that nobody waits for, so that whatever
 * happens in between, nobody is left waiting for what is gone.
 */
export function* removeDependents(desk: Acting, ids: readonly string[], way: Session): Steps<number> {
  const waiting = new Set<string>()
  const given = new Set(ids)
  const seen = new Set(ids)
  for (let level: readonly string[] = ids; level.length > 0;) {
    const next: string[] = []
    for (let from = 0; from < level.length; from += PORTION) {
      const jobs = yield* readDetails(way, { jobs: level.slice(from, from + PORTION), parts: ['dependents'] })
      for (const { dependent, state } of jobs.flatMap(({ dependents }) => dependents)) {
        // One that is met again on a longer way goes before all that it was met by.
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
  const last = [...waiting].toReversed()
  let removed = 0
  for (let from = 0; from < last.length; from += READ) {
    const records = yield* step(way.getAll(last.slice(from, from + READ)))
    removed += yield* desk.actingOnAll(yield* withChains(way, records.filter(isThere)), remove, way)
  }
  return removed
}

/**
 * Cancels the unfinished children of a job that was cancelled, and theirs: parents first, which then wait for nobody any more.
 * Children of cancelled ones are looked for as well, so that what was left by somebody who died half-way is found.
 */
export function* cancelChildren(desk: Acting, id: string, way: Session, reason?: string): Steps<number> {
  const parents = [id]
  let cancelled = 0
  for (let at = 0; at < parents.length; at++) {
    const parent = parents[at]!
    let cursor: string | undefined
    do {
      const from = cursor === undefined ? {} : { cursor }
      const page = yield* step(
        way.find({ parent, kind: 'job', states: [...unfinished, 'cancelled'], limit: PORTION, ...from }),
      )
      cancelled += yield* desk.actingOnAll(page.items, (job) => cancel(job, reason), way)
      for (const child of page.items) parents.push(child.id)
      cursor = page.cursor
    } while (cursor !== undefined)
  }
  return cancelled
}

/** Those who wait that an error lists at most. */
const LISTED = 1000

/** The error for what cannot be removed because others wait for it. */
export function hasDependents(what: 'Job' | 'Chain', id: string, waiting: readonly string[]): MillraceError {
  const some = waiting.slice(0, 5).join(', ') + (waiting.length > 5 ? ', …' : '')
  return new MillraceError(
    'JOB_HAS_DEPENDENTS',
    `${what} ${id} cannot be removed: ${waiting.length} wait for it (${some}). Cancel it instead, or remove them as well: { cascade: true }.`,
    { details: { id, dependents: waiting.slice(0, LISTED), count: waiting.length } },
  )
}

function isThere(record: JobRecord | undefined): record is JobRecord {
  return record !== undefined
}

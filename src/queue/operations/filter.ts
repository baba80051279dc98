// queue/operations/filter.ts: job filters and pages, for lists, for logs and for operations on many jobs.
import { jobStates, LOGS_KEPT } from '../../job/job.js'
import type { JobRecord, JobState } from '../../job/job.js'
import { checkName, refuseUnknown } from '../../job/values/names.js'
import { flag, invalid, isObject, mustBe, oneOf, whole } from '../../job/values/options.js'
import { MillraceError, quote } from '../../job/errors/errors.js'
import { scheduleId } from '../../job/schedules/schedule.js'
import type { Time } from '../../job/job.js'
import type { Steps } from '../../store/maybe-sync.js'
import { matchesFiltered } from '../../store/matches.js'
import { bytesOfRecord, endStates, pages, READ_BYTES } from '../../store/read-pages.js'
import type { Query } from '../../store/store.js'
import type { Runtime } from '../../store/runtime.js'
import type { Session } from '../../store/session.js'
import { emptyList, errorTerms, rangeTerm, tagTerms } from './filter-terms.js'
import type { ErrorFilter, MomentRange, TagFilter } from './filter-terms.js'

/**
 * Selects jobs of a queue. Every given field must match; a list of states or names matches any of its values, a list of
 * tags all of them. State, name, group, chain, parent, tags, error and time of finish are read from indexes, so the cost
 * does not depend on other jobs in the store; further fields are checked job by job.
 */
export interface JobFilter<Name extends string = string> {
  /** In one of these states. Default: any. */
  readonly state?: JobState | readonly JobState[]
  /** With one of these names. Default: any. */
  readonly name?: Name | readonly Name[]
  /** In the chain whose first job has this id. Default: any. */
  readonly chain?: string
  /** Children of the job with this id. Default: any. */
  readonly parent?: string
  /** In this group. Default: any, and those without. */
  readonly group?: string
  /** Runs of the schedule with this key. Default: any. */
  readonly schedule?: string
  /** With this tag, with all tags of a list, or with any: `{ any: ['user:7', 'user:8'] }`. Default: any, and those without. */
  readonly tags?: TagFilter
  /** Leased by the worker of this name now, or in the last attempt of a finished job. Default: any. */
  readonly worker?: string
  /** With an id that begins with this text. Default: any. */
  readonly idPrefix?: string
  /** Added in this range of time. Default: at any time. */
  readonly created?: MomentRange
  /** Whose last attempt started in this range of time. Default: at any time, and those that have not started. */
  readonly started?: MomentRange
  /** Finished in this range of time. Default: at any time, and unfinished ones. */
  readonly finished?: MomentRange
  /** Whose last attempt failed with this error. Default: any, and those without. */
  readonly error?: ErrorFilter
}

/** Selects all jobs of a queue, for a call that changes jobs. */
export interface AllJobs {
  /** All jobs, in the states in which the call can change them. No default: without a filter, it must be given. */
  readonly all: true
}

/** Selects a page. */
export interface PageOptions {
  /** Maximum number of items, up to 1000. Default 100. */
  readonly limit?: number
  /** The cursor of the page before. Default: from the start. */
  readonly cursor?: string | undefined
}

/** Requests a page from a call that otherwise returns all: with `limit` or `cursor`. */
export type PageWish = PageOptions &
  (
    | {
        /** As in `PageOptions`. No default: it is given. */
        readonly limit: number
      }
    | {
        /** As in `PageOptions`. No default: it is given. */
        readonly cursor: string
      }
  )

/** The names of the fields of a filter. */
export const filterNames = [
  'state',
  'name',
  'chain',
  'parent',
  'group',
  'schedule',
  'tags',
  'worker',
  'idPrefix',
  'created',
  'started',
  'finished',
  'error',
] as const satisfies readonly (keyof JobFilter)[]

/** The part of a query that selects a page. */
export function pageQuery({ limit = 100, cursor }: PageOptions, call: string): Pick<Query, 'limit' | 'cursor'> {
  checkLimit(limit, call)
  if (cursor !== undefined && !(typeof cursor === 'string' && /^-?\d{1,16}$/.test(cursor))) {
    throw new MillraceError('INVALID_CURSOR', `${call}: the cursor ${quote(cursor)} is not one that a page of it gave.`)
  }
  return { limit, ...(cursor !== undefined && { cursor }) }
}

/** Checks the number of items in a page. */
export function checkLimit(limit: number, call: string): number {
  if (Number.isInteger(limit) && limit >= 1 && limit <= 1000) return limit
  throw mustBe(`${call}: limit`, 'between 1 and 1000', limit)
}

/** The page options, if one is requested. Throws for unknown options. */
export function requestedPage(options: PageOptions, call: string): PageOptions | undefined {
  refuseUnknown(options, ['limit', 'cursor'], call)
  return options.limit === undefined && options.cursor === undefined ? undefined : options
}

/** The query of a filter, without a page. Throws for a field that cannot be used; `now` is what durations count back from. */
export function filterQuery(queue: string, filter: JobFilter, now: Time): Query {
  const { state, name, chain, group, schedule, tags, worker, idPrefix, created, started, finished, error } = filter
  if (schedule !== undefined && filter.parent !== undefined) {
    throw invalid('Give either parent or schedule: the runs of a schedule have it as parent.')
  }
  const parent = schedule === undefined ? filter.parent : scheduleId(queue, schedule)
  for (const [what, value] of Object.entries({ chain, parent: filter.parent, group, schedule, worker, idPrefix })) {
    if (value !== undefined) checkName(value, textFields[what as keyof typeof textFields])
  }
  return {
    queue,
    kind: 'job',
    ...(state !== undefined && { states: toList(state, 'state').map((each) => oneOf(each, jobStates, 'state')) }),
    ...(name !== undefined && { names: toList(name, 'name').map((each) => checkName(each, 'job name')) }),
    ...(chain !== undefined && { chain }),
    ...(parent !== undefined && { parent }),
    ...(group !== undefined && { group }),
    ...(tags !== undefined && tagTerms(tags, 'tags')),
    ...(worker !== undefined && { worker }),
    ...(idPrefix !== undefined && { idPrefix }),
    ...(created !== undefined && { created: rangeTerm(created, 'created', now) }),
    ...(started !== undefined && { started: rangeTerm(started, 'started', now) }),
    ...(finished !== undefined && { finished: rangeTerm(finished, 'finished', now) }),
    ...(error !== undefined && errorTerms(error, 'error')),
  }
}

/** What messages call the fields of a filter that are one text. */
const textFields = {
  chain: 'job id',
  parent: 'job id',
  group: 'group',
  schedule: 'schedule',
  worker: 'worker name',
  idPrefix: 'beginning of a job id',
} as const

function toList<T extends string>(value: T | readonly T[], field: string): readonly T[] {
  if (!Array.isArray(value)) return [value as T]
  if (value.length === 0) throw emptyList(field)
  return value as readonly T[]
}

/** Whether it was written as `{ … }`, here or in another realm. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === null || Object.getPrototypeOf(prototype) === null
}

/** What an operation on many jobs needs to find them. */
export interface FilterScope {
  readonly queue: string
  readonly session: Session
  readonly runtime: Pick<Runtime, 'now'>
}

/** Throws unless a value is a filter: one that was meant as such, without a field that is undefined. */
export function checkFilter(filter: unknown): asserts filter is JobFilter {
  // An object without fields means all jobs, so it must be meant as a filter: a promise, say, is an id that was not awaited.
  if (typeof filter !== 'object' || filter === null || (!isPlain(filter) && Object.keys(filter).length === 0)) {
    throw invalid(
      `Give a job id, a filter like { state: 'failed' }, or { all: true } for all jobs of the queue, not ${quote(filter)}.`,
    )
  }
  refuseUnknown(filter, filterNames, 'the filter')
  for (const [field, value] of Object.entries(filter)) {
    if (value !== undefined) continue
    throw invalid(`The filter's ${field} is undefined. Leave it out to match any ${field}.`)
  }
}

/**
 * The filter of a call that changes the jobs it selects; `{}` for all jobs. Throws for one without a condition, which may be
 * a mistake, unless `all` shows that it is none.
 */
export function selected(which: JobFilter | AllJobs, call: string): JobFilter {
  const { all, ...filter } = isObject(which) ? (which as Partial<AllJobs> & JobFilter) : { all: undefined }
  const isAll = flag(all, `${call}: all`)
  checkFilter(isAll ? filter : which)
  const isEmpty = Object.keys(filter).length === 0
  if (isEmpty && !isAll) throw noFilter(call, "{ state: 'failed' }", '{ all: true }')
  if (!isEmpty && isAll) throw invalid(`${call}: give either a filter or all: true, not both.`)
  return filter
}

/** The error for a change of all jobs that nobody has asked for in so many words. */
export function noFilter(call: string, filter: string, all: string): MillraceError {
  return new MillraceError('NO_FILTER', `${call} needs a filter, as in ${filter}, or ${all} for all jobs of the queue.`)
}

/** The query of a filter for the jobs that are in one of `states`; undefined if it names none of them. */
export function queryIn(
  { queue, runtime }: Pick<FilterScope, 'queue' | 'runtime'>,
  filter: JobFilter,
  states: readonly JobState[],
): Query | undefined {
  checkFilter(filter)
  const query = filterQuery(queue, filter, runtime.now())
  const applicable = (query.states ?? states).filter((state) => states.includes(state))
  if (applicable.length === 0) return undefined
  const order = query.finished !== undefined && applicable.every((state) => endStates.includes(state))
  return { ...query, states: applicable, ...(order && { order: 'finished' as const }) }
}

/** Whether a job, as it was read again, still matches the filter by which it was found. */
export type Matches = (job: JobRecord) => boolean

/** Jobs, and about the bytes of them, that a call changes by itself; more are changed by a bulk operation. */
const OWN_JOBS = 1_000
const OWN_BYTES = 2 * READ_BYTES

/**
 * Visits all jobs that match, page by page, while they are in one of `states`. Processed jobs no longer match, so it
 * can be repeated. Returns the sum of what `work` returns, which may read jobs again: then they may match no longer. Where there are more than a call changes by itself, and the call
 * is not in a transaction, nothing is visited, and `beyond` is called instead.
 */
export function* eachPage(
  scope: FilterScope,
  filter: JobFilter,
  states: readonly JobState[],
  work: (page: readonly JobRecord[], matches: Matches) => Steps<number>,
  beyond?: (query: Query) => Steps<number>,
): Steps<number> {
  const { session } = scope
  const query = queryIn(scope, filter, states)
  if (query === undefined) return 0
  const matches: Matches = (job) => matchesFiltered(job, query)
  let count = 0
  const peeks = beyond !== undefined && !session.within
  const first: (readonly JobRecord[])[] = []
  let [found, bytes] = [0, 0]
  for (const page of pages(session, query)) {
    const jobs = yield* page
    if (!peeks) count += yield* work(jobs, matches)
    else if (jobs.length > 0) {
      // A page of a filter may be short, or empty, while there are more.
      found += jobs.length
      for (const job of jobs) bytes += bytesOfRecord(job)
      if (found > OWN_JOBS || (first.length > 0 && bytes > OWN_BYTES)) return yield* beyond(query)
      first.push(jobs)
    }
  }
  for (const jobs of first) count += yield* work(jobs, matches)
  return count
}

/**
 * Selects a page of a job's log. A page is also cut at 8 MiB of lines, with one line at least; a page without lines is behind
 * the last one. Without either option, all lines are read.
 */
export interface LogOptions {
  /** Lines after this one: the `index` of the last line of the page before. Default: from the first line kept. */
  readonly after?: number | undefined
  /** Maximum number of lines, up to 1000, which is how many a job keeps. Default 1000. */
  readonly limit?: number
}

/** Checks the options; returns the page for the store. */
export function logPage(options: LogOptions = {}): { readonly after: number; readonly limit: number } {
  refuseUnknown(options, ['after', 'limit'], 'job.logs')
  const { after = 0, limit = LOGS_KEPT } = options
  if (!Number.isSafeInteger(after) || after < 0) {
    throw mustBe('job.logs: after', 'the index of a line', after)
  }
  return { after, limit: whole(limit, 'job.logs: limit', 1, LOGS_KEPT) }
}

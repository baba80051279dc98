// queue/operations/filter.ts: job filters and pages, for lists, for logs and for operations on many jobs.
import { jobStates, LOGS_KEPT } from '../../job/job.js'
import type { JobRecord, JobState } from '../../job/job.js'
import { checkName, refuseUnknown } from '../../job/names.js'
import { invalid, mustBe, oneOf, whole } from '../../job/options.js'
import { quote } from '../../job/errors.js'
import { scheduleId } from '../../job/schedule.js'
import type { Steps } from '../../store/maybe-sync.js'
import { pages } from '../../store/read-pages.js'
import type { Query } from '../../store/store.js'
import type { Session } from '../../store/session.js'

/**
 * Selects jobs of a queue. Every given field must match; a list matches any of its values. State, name, both, chain and
 * parent are read from indexes, so the cost does not depend on other jobs in the store; fields given besides a chain or
 * a parent are checked job by job.
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

/** Options of `queue.list`. */
export interface ListOptions<Name extends string = string> extends JobFilter<Name>, PageOptions {
  /** Whether the oldest or the newest jobs come first. Default `oldest`. */
  readonly order?: 'oldest' | 'newest'
}

const filterNames = [
  'state',
  'name',
  'chain',
  'parent',
  'group',
  'schedule',
] as const satisfies readonly (keyof JobFilter)[]

/** The query for a page of a list. */
export function listQuery(queue: string, options: ListOptions): Query {
  refuseUnknown(options, [...filterNames, 'limit', 'cursor', 'order'], 'queue.list')
  const { order = 'oldest' } = options
  oneOf(order, ['oldest', 'newest'], 'queue.list: order')
  return { ...filterQuery(queue, options), ...pageQuery(options, 'queue.list'), order }
}

/** The part of a query that selects a page. */
export function pageQuery({ limit = 100, cursor }: PageOptions, call: string): Pick<Query, 'limit' | 'cursor'> {
  if (!Number.isInteger(limit) || limit < 1 || limit > 1000) {
    throw mustBe(`${call}: limit`, 'between 1 and 1000', limit)
  }
  if (cursor !== undefined && !(typeof cursor === 'string' && /^-?\d{1,16}$/.test(cursor))) {
    throw mustBe(`${call}: cursor`, 'one that a page gave', cursor)
  }
  return { limit, ...(cursor !== undefined && { cursor }) }
}

/** The page options, if one is requested. Throws for unknown options. */
export function requestedPage(options: PageOptions, call: string): PageOptions | undefined {
  refuseUnknown(options, ['limit', 'cursor'], call)
  return options.limit === undefined && options.cursor === undefined ? undefined : options
}

function filterQuery(queue: string, filter: JobFilter): Query {
  const { state, name, chain, group, schedule } = filter
  if (schedule !== undefined && filter.parent !== undefined) {
    throw invalid('Give either parent or schedule: the runs of a schedule have it as parent.')
  }
  const parent = schedule === undefined ? filter.parent : scheduleId(queue, schedule)
  for (const [what, value] of Object.entries({ chain, parent: filter.parent, group, schedule })) {
    if (value !== undefined) checkName(value, what === 'chain' || what === 'parent' ? 'job id' : what)
  }
  const states = state === undefined ? undefined : toList(state).map((each) => oneOf(each, jobStates, 'state'))
  return {
    queue,
    kind: 'job',
    ...(states !== undefined && { states }),
    ...(name !== undefined && { names: toList(name).map((each) => checkName(each, 'job name')) }),
    ...(chain !== undefined && { chain }),
    ...(parent !== undefined && { parent }),
    ...(group !== undefined && { group }),
  }
}

function toList<T extends string>(value: T | readonly T[]): readonly T[] {
  return Array.isArray(value) ? (value as readonly T[]) : [value as T]
}

/** Whether it was written as `{ … }`, here or in another realm. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === null || Object.getPrototypeOf(prototype) === null
}

/**
 * Visits all jobs that match, page by page, while they are in one of `states`. Processed jobs no longer match, so it
 * can be repeated. Returns the sum of what `work` returns.
 */
export function* eachPage(
  session: Session,
  queue: string,
  filter: JobFilter,
  states: readonly JobState[],
  work: (page: readonly JobRecord[]) => Steps<number>,
): Steps<number> {
  // An object without fields means all jobs, so it must be meant as a filter: a promise, say, is an id that was not awaited.
  if (typeof filter !== 'object' || filter === null || (!isPlain(filter) && Object.keys(filter).length === 0)) {
    throw invalid(`Give a job id, or a filter like { state: 'failed' }, not ${quote(filter)}; {} matches all jobs.`)
  }
  refuseUnknown(filter, filterNames, 'the filter')
  for (const [field, value] of Object.entries(filter)) {
    if (value !== undefined) continue
    throw invalid(`The filter's ${field} is undefined. Leave it out to match any ${field}.`)
  }
  const query = filterQuery(queue, filter)
  const applicable = (query.states ?? states).filter((state) => states.includes(state))
  if (applicable.length === 0) return 0
  let count = 0
  for (const page of pages(session, { ...query, states: applicable })) count += yield* work(yield* page)
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

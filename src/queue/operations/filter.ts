// queue/operations/filter.ts: which jobs of a queue, for lists and for operations on many.
import { MillraceError } from '../../job/errors.js'
import { jobStates } from '../../job/job.js'
import type { JobRecord, JobState } from '../../job/job.js'
import { checkName, refuseUnknown } from '../../job/names.js'
import { quote } from '../../job/quote.js'
import { scheduleId } from '../../job/schedule.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Page, Query } from '../../store/store.js'
import { oneOf } from '../add-options.js'
import type { Session } from '../../store/session.js'

/**
 * Which jobs of a queue. Every field given must match; lists match any of theirs. Read from indexes, whatever else is in the
 * store: by state, by name, by both, by chain and by parent; what is said beside a chain or a parent is looked at job by job.
 */
export interface JobFilter<Name extends string = string> {
  /** In one of these states. Default: any. */
  readonly state?: JobState | readonly JobState[]
  /** Of one of these names. Default: any. */
  readonly name?: Name | readonly Name[]
  /** Of the chain with this first job, by its id. Default: any. */
  readonly chain?: string
  /** Children of the job with this id. Default: any. */
  readonly parent?: string
  /** Of this group. Default: any, and those without. */
  readonly group?: string
  /** Runs of the schedule with this key. Default: any. */
  readonly schedule?: string
}

/** Which page. */
export interface PageOptions {
  /** At most this many, up to 1000. Default 100. */
  readonly limit?: number
  /** Continue after a page, with the cursor it gave. Default: from the start. */
  readonly cursor?: string | undefined
}

/** A page, of what is given whole where neither is said: one of the two is. */
export type PageWish = PageOptions &
  (
    | {
        /** As in `PageOptions`. No default: it is said. */
        readonly limit: number
      }
    | {
        /** As in `PageOptions`. No default: it is said. */
        readonly cursor: string
      }
  )

/** Which page of a list. */
export interface ListOptions<Name extends string = string> extends JobFilter<Name>, PageOptions {
  /** Which of those added go first. Default `oldest`. */
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

/** Jobs handled at a time by operations on many. */
const PAGE = 500

/** Jobs read by their ids at a time, with their payloads: such a read is not cut by bytes. */
export const READ = 50

/** A list's page as a query. */
export function listQuery(queue: string, options: ListOptions): Query {
  refuseUnknown(options, [...filterNames, 'limit', 'cursor', 'order'], 'queue.list')
  const { order = 'oldest' } = options
  oneOf(order, ['oldest', 'newest'], 'queue.list: order')
  return { ...filterQuery(queue, options), ...pageQuery(options, 'queue.list'), order }
}

/** Where a page begins and ends, as a query. */
export function pageQuery({ limit = 100, cursor }: PageOptions, call: string): Pick<Query, 'limit' | 'cursor'> {
  if (!Number.isInteger(limit) || limit < 1 || limit > 1000) {
    throw new MillraceError('INVALID_OPTION', `${call}: limit must be between 1 and 1000, not ${quote(limit)}.`)
  }
  if (cursor !== undefined && !(typeof cursor === 'string' && /^-?\d{1,16}$/.test(cursor))) {
    throw new MillraceError('INVALID_OPTION', `${call}: cursor must be one that a page gave, not ${quote(cursor)}.`)
  }
  return { limit, ...(cursor !== undefined && { cursor }) }
}

/** Whether a call that lists all without a page was asked for one. Options that it does not know are refused. */
export function pageIn(options: PageOptions, call: string): PageOptions | undefined {
  refuseUnknown(options, ['limit', 'cursor'], call)
  return options.limit === undefined && options.cursor === undefined ? undefined : options
}

function filterQuery(queue: string, filter: JobFilter): Query {
  const { state, name, chain, group, schedule } = filter
  if (schedule !== undefined && filter.parent !== undefined) {
    throw new MillraceError(
      'INVALID_OPTION',
      'Give either parent or schedule: the runs of a schedule have it as parent.',
    )
  }
  const parent = schedule === undefined ? filter.parent : scheduleId(queue, schedule)
  for (const [what, value] of Object.entries({ chain, parent: filter.parent, group, schedule })) {
    if (value !== undefined) checkName(value, what === 'chain' || what === 'parent' ? 'job id' : what)
  }
  const states = state === undefined ? undefined : list(state).map((each) => oneOf(each, jobStates, 'state'))
  return {
    queue,
    kind: 'job',
    ...(states !== undefined && { states }),
    ...(name !== undefined && { names: list(name).map((each) => checkName(each, 'job name')) }),
    ...(chain !== undefined && { chain }),
    ...(parent !== undefined && { parent }),
    ...(group !== undefined && { group }),
  }
}

function list<T extends string>(value: T | readonly T[]): readonly T[] {
  return Array.isArray(value) ? (value as readonly T[]) : [value as T]
}

/** Whether it was written as `{ … }`, here or in another realm. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === null || Object.getPrototypeOf(prototype) === null
}

/**
 * Goes through all jobs that match, page by page, as long as they are in one of `states`. Those dealt with no longer
 * match, so that it can be repeated. Answers the sum of what `work` says.
 */
export function* eachPage(
  way: Session,
  queue: string,
  filter: JobFilter,
  states: readonly JobState[],
  work: (page: readonly JobRecord[]) => Steps<number>,
): Steps<number> {
  // An object without fields means all jobs, so it must be meant as a filter: a promise, say, is an id that was not awaited.
  if (typeof filter !== 'object' || filter === null || (!isPlain(filter) && Object.keys(filter).length === 0)) {
    throw new MillraceError(
      'INVALID_OPTION',
      `Give a job id, or a filter like { state: 'failed' }, not ${quote(filter)}; {} matches all jobs.`,
    )
  }
  refuseUnknown(filter, filterNames, 'the filter')
  for (const [field, value] of Object.entries(filter)) {
    if (value !== undefined) continue
    throw new MillraceError('INVALID_OPTION', `The filter's ${field} is undefined. Leave it out to match any ${field}.`)
  }
  const query = filterQuery(queue, filter)
  const wanted = (query.states ?? states).filter((state) => states.includes(state))
  if (wanted.length === 0) return 0
  let count = 0
  let cursor: string | undefined
  do {
    const from = cursor === undefined ? {} : { cursor }
    const page: Page<JobRecord> = yield* step(way.find({ ...query, states: wanted, limit: PAGE, ...from }))
    count += yield* work(page.items)
    cursor = page.cursor
  } while (cursor !== undefined)
  return count
}

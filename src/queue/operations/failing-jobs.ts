// queue/operations/failing-jobs.ts: the failing jobs of a queue by cause, and how many jobs match a filter.
import { MillraceError, quote } from '../../job/errors/errors.js'
import { placeOf } from '../../job/errors/failure.js'
import type { Time } from '../../job/job.js'
import { refuseUnknown } from '../../job/values/names.js'
import { whole } from '../../job/values/options.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { FailureCount, Query } from '../../store/store.js'
import type { QueueTally } from '../../store/tally.js'
import { checkFilter, filterQuery } from './filter.js'
import type { FilterScope, JobFilter } from './filter.js'

/** Options of `queue.errors`. */
export interface ErrorsOptions {
  /** Maximum number of fingerprints, up to 200. Default 50. */
  readonly limit?: number
  /** The cursor of the page before. Default: from the start. */
  readonly cursor?: string | undefined
}

/** The failing jobs of one cause: those whose last attempt failed with it, and that have not completed since. */
export interface FailingJobs {
  /** Equal for errors of one name and code that were made at one place: `queue.list({ error: { fingerprint } })`. */
  readonly fingerprint: string
  /** The error's class name. */
  readonly errorName: string
  /** The error's code, where it has one. */
  readonly code?: string
  /** Where in the program's own code the error of the sample was made, as `file:line:column`, where that is known. */
  readonly place?: string
  /** How many jobs; at least so many, unless `exact`. */
  readonly count: number
  /** Whether all of them were counted: one call counts about 5,000 jobs. */
  readonly exact: boolean
  /** When the first added of these jobs failed last. */
  readonly first: Time
  /** When the last added of these jobs failed last. */
  readonly last: Time
  /** The last added of these jobs. */
  readonly sample: {
    /** Its id. */
    readonly id: string
    /** Its name. */
    readonly name: string
    /** The message of its error. */
    readonly message: string
  }
}

/** A page of causes, and where the next begins. */
export interface ErrorsPage {
  /** The causes; of one page, the one last seen first. */
  readonly errors: readonly FailingJobs[]
  /** Where the next page begins; absent where there is none. */
  readonly cursor?: string
}

/** The most fingerprints of one page: their errors stay below the bytes of one answer. */
const MOST_ERRORS = 200

/** One page of the causes of failing jobs. */
export function* failingJobs({ queue, session }: FilterScope, options: ErrorsOptions): Steps<ErrorsPage> {
  refuseUnknown(options, ['limit', 'cursor'], 'queue.errors')
  const limit = whole(options.limit ?? 50, 'queue.errors: limit', 1, MOST_ERRORS)
  const after = options.cursor === undefined ? {} : { after: fingerprintIn(options.cursor) }
  // One more than asked for shows whether there is another page.
  const query = { jobs: [], parts: [], failures: { queue, limit: limit + 1, ...after } }
  const { failures = [] } = yield* step(session.details(query))
  const shown = failures.slice(0, limit)
  const errors = shown.map(causeOf).toSorted((a, b) => b.last - a.last)
  return failures.length > limit ? { errors, cursor: `${CURSOR}${shown.at(-1)!.fingerprint}` } : { errors }
}

/** A cursor of causes is this and the last fingerprint of its page, so that no other cursor is taken for one. */
const CURSOR = 'after-'

function fingerprintIn(cursor: string): string {
  const fingerprint = typeof cursor === 'string' ? /^after-([0-9a-f]{16})$/.exec(cursor)?.[1] : undefined
  if (fingerprint !== undefined) return fingerprint
  const message = `queue.errors: the cursor ${quote(cursor)} comes from no page of queue.errors(). Begin without a cursor.`
  throw new MillraceError('INVALID_CURSOR', message)
}

function causeOf({ fingerprint, count, more, first, last, id, name, error }: FailureCount): FailingJobs {
  const place = placeOf(error)
  return {
    fingerprint,
    errorName: error.name,
    ...(error.code !== undefined && { code: error.code }),
    ...(place !== undefined && { place }),
    count,
    exact: !more,
    first,
    last,
    sample: { id, name, message: error.message },
  }
}

/** How many jobs match. */
export interface MatchCount {
  /** The number of jobs; at least so many, unless `exact`. */
  readonly count: number
  /** Whether all of them were counted. Counts by state and name are exact; others go as far as one call looks. */
  readonly exact: boolean
}

/** One call counts no further than this. */
const MOST_COUNTED = 10_000

/** Reads of one call that counts; each looks at a bounded number of rows. */
const MOST_READS = 50

/** Counts the jobs that match: by the store's counters where the filter is by state and name alone. */
export function* countMatches({ queue, session, runtime }: FilterScope, filter: JobFilter): Steps<MatchCount> {
  checkFilter(filter)
  const query = filterQuery(queue, filter, runtime.now())
  if (Object.keys(query).every((field) => countedFields.has(field as keyof Query))) {
    const [tally] = yield* step(session.tally(queue))
    return { count: tally === undefined ? 0 : sumOf(tally, query), exact: true }
  }
  let count = 0
  let cursor: string | undefined
  for (let reads = 0; reads < MOST_READS && count < MOST_COUNTED; reads++) {
    const page = yield* step(session.find({ ...query, count: true, ...(cursor !== undefined && { cursor }) }))
    count += page.count ?? 0
    cursor = page.cursor
    if (cursor === undefined) return { count, exact: true }
  }
  return { count, exact: false }
}

/** The fields of a query that the store has counters for. */
const countedFields: ReadonlySet<keyof Query> = new Set(['queue', 'kind', 'states', 'names'])

function sumOf({ names }: QueueTally, { states, names: wanted }: Query): number {
  let sum = 0
  for (const [name, counts] of Object.entries(names)) {
    if (wanted !== undefined && !wanted.includes(name)) continue
    for (const [state, count] of Object.entries(counts)) {
      if (states === undefined || (states as readonly string[]).includes(state)) sum += count
    }
  }
  return sum
}

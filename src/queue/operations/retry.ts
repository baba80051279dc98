// queue/operations/retry.ts: starting many jobs over: so many a second, or only counted.
import { MillraceError } from '../../job/errors.js'
import type { JobRecord, Millis } from '../../job/job.js'
import { isDenied, retry } from '../../job/lifecycle.js'
import { refuseUnknown } from '../../job/names.js'
import { quote } from '../../job/quote.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import { eachPage, READ } from './filter.js'
import type { JobFilter } from './filter.js'
import type { Place } from './by-filter.js'

/** How many jobs are started over. */
export interface RetryOptions {
  /** So many of them become due in a second, one after the other: the first at once, the others delayed. Default: all at once. */
  readonly rate?: number
  /**
   * Changes nothing, and answers how many match. No more are started over; fewer, where a dependency stays failed or a dedup key
   * is taken. Default false.
   */
  readonly dryRun?: boolean
}

/** Refuses what cannot be said of many. */
function checkRetry(options: RetryOptions): Required<RetryOptions> {
  refuseUnknown(options, ['rate', 'dryRun'], 'queue.retry')
  const { rate = Infinity, dryRun = false } = options
  if (typeof rate !== 'number' || !(rate > 0)) {
    throw new MillraceError('INVALID_OPTION', `queue.retry: rate must be a number above 0, not ${quote(rate)}.`)
  }
  if (typeof dryRun !== 'boolean') {
    throw new MillraceError('INVALID_OPTION', `queue.retry: dryRun must be true or false, not ${quote(dryRun)}.`)
  }
  return { rate, dryRun }
}

/**
 * Starts all failed and cancelled jobs over that match, and answers how many. One whose dependency still stands failed when its
 * turn comes is tried again after the others, for the dependency may be one of them.
 */
export function* retryJobs({ queue, desk, way }: Place, filter: JobFilter, options: RetryOptions): Steps<number> {
  const { rate, dryRun } = checkRetry(options)
  const waitAt = (place: number): Millis => Math.round((1000 * place) / rate)
  let blocked: Blocked[] = []
  let place = 0
  let done = yield* eachPage(way, queue, filter, ['failed', 'cancelled'], function* (page) {
    if (dryRun) return page.filter((job) => !isDenied(retry(job))).length
    // Given by their order, so that one that is judged anew, because somebody moved it, keeps its place.
    const places = new Map<string, number>()
    for (const { id } of page) places.set(id, place++)
    return yield* retryPage(page, places, blocked)
  })
  for (let before = Infinity; blocked.length > 0 && blocked.length < before;) {
    before = blocked.length
    // The newest first: a job that waits for children of its own was added before them.
    const left = blocked.toReversed()
    blocked = []
    for (let from = 0; from < left.length; from += READ) {
      const some = left.slice(from, from + READ)
      const records = yield* step(way.getAll(some.map(({ id }) => id)))
      const page = records.filter((record) => record !== undefined)
      done += yield* retryPage(page, new Map(some.map((each) => [each.id, each.place])), blocked)
    }
    blocked.reverse()
  }
  return done

  function* retryPage(page: readonly JobRecord[], places: ReadonlyMap<string, number>, into: Blocked[]): Steps<number> {
    const ids: string[] = []
    const count = yield* desk.actingOnAll(page, (job) => retry(job, waitAt(places.get(job.id)!)), way, ids)
    for (const id of ids) into.push({ id, place: places.get(id)! })
    return count
  }
}

/** A job that could not start over, and its place among all that match. */
interface Blocked {
  readonly id: string
  readonly place: number
}

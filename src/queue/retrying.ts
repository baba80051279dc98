// queue/retrying.ts: starting many jobs over: so many a second, or only counted.
import { MillraceError } from '../job/errors.js'
import type { JobRecord, Millis } from '../job/job.js'
import { isDenied, retry } from '../job/lifecycle.js'
import { refuseUnknown } from '../job/names.js'
import { show } from '../job/show.js'
import type { Steps } from '../store/stepwise.js'
import { eachPage } from './filter.js'
import type { JobFilter } from './filter.js'
import type { Place } from './operations.js'

/** How many jobs are started over. */
export interface RetryOptions {
  /** So many of them become due in a second, one after the other: the first at once, the others delayed. Default: all at once. */
  readonly rate?: number
  /** Changes nothing, and answers how many would be started over. Default false. */
  readonly dryRun?: boolean
}

/** Refuses what cannot be said of many. */
function checkRetry(options: RetryOptions): Required<RetryOptions> {
  refuseUnknown(options, ['rate', 'dryRun'], 'queue.retry')
  const { rate = Infinity, dryRun = false } = options
  if (typeof rate !== 'number' || !(rate > 0)) {
    throw new MillraceError('INVALID_OPTION', `queue.retry: rate must be a number above 0, not ${show(rate)}.`)
  }
  if (typeof dryRun !== 'boolean') {
    throw new MillraceError('INVALID_OPTION', `queue.retry: dryRun must be true or false, not ${show(dryRun)}.`)
  }
  return { rate, dryRun }
}

/** Starts all failed and cancelled jobs over that match, and answers how many. */
export function* retryJobs({ queue, desk, way }: Place, filter: JobFilter, options: RetryOptions): Steps<number> {
  const { rate, dryRun } = checkRetry(options)
  let place = 0
  return yield* eachPage(way, queue, filter, ['failed', 'cancelled'], function* (page) {
    if (dryRun) return page.filter((job) => !isDenied(retry(job))).length
    // Given by their order, so that one that is judged anew, because somebody moved it, keeps its time.
    const waits = new Map<string, Millis>()
    for (const { id } of page) waits.set(id, Math.round((1000 * place++) / rate))
    return yield* desk.actingOnAll(page, (job: JobRecord) => retry(job, waits.get(job.id)), way)
  })
}

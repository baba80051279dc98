// queue/operations/retry.ts: restarts many jobs, optionally at a rate or as a dry run.
import type { JobRecord, Millis } from '../../job/job.js'
import { isDenied, retry, statesFor } from '../../job/lifecycle.js'
import { refuseUnknown } from '../../job/names.js'
import { flag, mustBe } from '../../job/options.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import { portions, READ_SIZE } from '../../store/read-pages.js'
import { changeJobs } from './decide.js'
import { eachPage } from './filter.js'
import type { JobFilter } from './filter.js'
import type { QueueScope } from './by-filter.js'

/** Options for restarting many jobs. */
export interface RetryOptions {
  /** How many of them become due per second: the first at once, the others delayed. Default: all at once. */
  readonly rate?: number
  /**
   * Changes nothing, and returns how many jobs match. No more than these would restart; fewer, if a dependency stays failed or
   * a dedup key is taken. Default false.
   */
  readonly dryRun?: boolean
}

/** Checks the options. */
function checkRetry(options: RetryOptions): Required<RetryOptions> {
  refuseUnknown(options, ['rate', 'dryRun'], 'queue.retry')
  const { rate = Infinity } = options
  if (typeof rate !== 'number' || !(rate > 0)) {
    throw mustBe('queue.retry: rate', 'a number above 0', rate)
  }
  return { rate, dryRun: flag(options.dryRun, 'queue.retry: dryRun') }
}

/**
 * Restarts all failed and cancelled jobs that match; returns how many. A job with a failed dependency is tried again
 * after the others, because the dependency may be one of them.
 */
export function* retryJobs({ queue, session }: QueueScope, filter: JobFilter, options: RetryOptions): Steps<number> {
  const { rate, dryRun } = checkRetry(options)
  const delayAt = (position: number): Millis => Math.round((1000 * position) / rate)
  let blocked: Blocked[] = []
  let position = 0
  let done = yield* eachPage(session, queue, filter, statesFor.retry, function* (page) {
    if (dryRun) return page.filter((job) => !isDenied(retry(job))).length
    // Positions are assigned up front, so that a job that is decided again, because it was moved, keeps its position.
    const positions = new Map<string, number>()
    for (const { id } of page) positions.set(id, position++)
    return yield* retryPage(page, positions, blocked)
  })
  for (let before = Infinity; blocked.length > 0 && blocked.length < before;) {
    before = blocked.length
    // Newest first: a job that waits for its own children was added before them.
    const left = blocked.toReversed()
    blocked = []
    for (const batch of portions(left, READ_SIZE)) {
      const records = yield* step(session.getAll(batch.map(({ id }) => id)))
      const page = records.filter((record) => record !== undefined)
      done += yield* retryPage(page, new Map(batch.map((each) => [each.id, each.position])), blocked)
    }
    blocked.reverse()
  }
  return done

  function* retryPage(
    page: readonly JobRecord[],
    positions: ReadonlyMap<string, number>,
    into: Blocked[],
  ): Steps<number> {
    const ids: string[] = []
    const count = yield* changeJobs(session, page, (job) => retry(job, delayAt(positions.get(job.id)!)), ids)
    for (const id of ids) into.push({ id, position: positions.get(id)! })
    return count
  }
}

/** A job that could not restart, and its position among all that match. */
interface Blocked {
  readonly id: string
  readonly position: number
}

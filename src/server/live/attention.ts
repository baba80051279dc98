// server/live/attention.ts: what of a queue needs attention: each with a sentence, and the request that helps.
import type { Millis } from '../../job/job.js'
import type { QueueHealth } from '../../queue/health/health.js'

/** A request of this API that helps. */
interface Remedy {
  readonly method: 'GET' | 'POST' | 'PATCH'
  readonly path: string
  readonly body?: object
}

/** Something that needs attention. */
export interface Attention {
  /** What it is. */
  readonly kind: 'failing' | 'no-worker' | 'late' | 'schedule-late' | 'upkeep-late' | 'at-limit' | 'paused'
  /** `error`: jobs fail, or are not worked on; `warning`: that is near, or is meant. */
  readonly level: 'error' | 'warning'
  readonly queue: string
  /** The name of the jobs, where it is about one. */
  readonly name?: string
  /** A sentence. */
  readonly text: string
  /** Where to look, or what to do. */
  readonly remedy: Remedy
}

/** How many jobs of a queue failed for good lately. */
export interface Failures {
  readonly failed: number
  readonly within: Millis
}

/** How long jobs may wait without a worker, a schedule may be late, upkeep may be late, and a head may wait at all. */
const NO_WORKER: Millis = 10_000
const SCHEDULE_LATE: Millis = 60_000
const UPKEEP_LATE: Millis = 30_000
const WAITS_LONG: Millis = 600_000

/** The most names of one queue that are listed. */
const MOST_NAMES = 5

/** What of a queue needs attention, the worst first. */
export function attentionOf(health: QueueHealth, failures: Failures | undefined): readonly Attention[] {
  const { queue, counts, paused, names } = health
  const path = `/v1/queues/${encodeURIComponent(queue)}`
  const found: Attention[] = []
  if (failures !== undefined && failures.failed > 0) {
    const text = `${failures.failed} jobs failed for good within ${words(failures.within)}.`
    found.push({ kind: 'failing', level: 'error', queue, text, remedy: { method: 'GET', path: `${path}/errors` } })
  }
  for (const [name, own] of Object.entries(names).slice(0, 1_000)) {
    if (own.paused || own.workers > 0 || (own.oldestWaiting ?? 0) < NO_WORKER || found.length > MOST_NAMES) continue
    const text = `No live worker handles '${name}': ${own.counts.waiting} wait, the oldest for ${words(own.oldestWaiting!)}.`
    found.push({ kind: 'no-worker', level: 'error', queue, name, text, remedy: { method: 'GET', path: '/v1/workers' } })
  }
  const { scheduleLag, upkeepLag, oldestWaiting, atLimit } = health
  if ((scheduleLag ?? 0) >= SCHEDULE_LATE) {
    const text = `A schedule is ${words(scheduleLag!)} late: no upkeep runs for this queue, or it cannot keep up.`
    const remedy: Remedy = { method: 'GET', path: `${path}/schedules` }
    found.push({ kind: 'schedule-late', level: 'error', queue, text, remedy })
  } else if ((upkeepLag ?? 0) >= UPKEEP_LATE) {
    const text = `What is due has not been handled for ${words(upkeepLag!)}: no upkeep runs for this queue, or it cannot keep up.`
    found.push({ kind: 'upkeep-late', level: 'error', queue, text, remedy: { method: 'GET', path: '/v1/workers' } })
  }
  if (paused && counts.waiting > 0) {
    const text = `The queue is paused, and ${counts.waiting} jobs wait.`
    found.push({ kind: 'paused', level: 'warning', queue, text, remedy: { method: 'POST', path: `${path}/resume` } })
  } else if ((oldestWaiting ?? 0) >= WAITS_LONG) {
    const [limit] = atLimit
    const why = limit === undefined ? '' : ` It is at its limit: ${limit.what} ${limit.used} of ${limit.max}.`
    const kind = limit === undefined ? 'late' : 'at-limit'
    const text = `The oldest job has waited for ${words(oldestWaiting!)}.${why}`
    found.push({ kind, level: 'warning', queue, text, remedy: { method: 'GET', path } })
  }
  return found
}

/** A duration for people. */
function words(millis: Millis): string {
  if (millis < 120_000) return `${Math.round(millis / 1000)} s`
  return millis < 7_200_000 ? `${Math.round(millis / 60_000)} min` : `${Math.round(millis / 3_600_000)} h`
}

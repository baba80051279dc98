// testing/queue/next-time.ts: when time alone next changes what a test queue can run.
import type { JobRecord, Time } from '../../job/job.js'
import type { Reason } from '../../queue/explain.js'
import type { Queue } from '../../queue/queue.js'
import { runSteps } from '../../store/maybe-sync.js'
import { pages } from '../../store/read-pages.js'

/** Jobs of more kinds (names, versions and groups) than this are not looked at. */
const MAX_KINDS = 1_000

/**
 * When the next job can run that cannot run now, or expires; undefined if time alone changes nothing. Of schedules only
 * if they count.
 */
export async function nextTime(queue: Queue, now: Time, schedules: boolean): Promise<Time | undefined> {
  let next = Infinity
  const kinds = new Map<string, string>()
  for (const page of pages(queue.store, { queue: queue.name, states: ['waiting', 'delayed', 'waiting-children'] })) {
    for (const record of await runSteps(page)) {
      if (schedules || record.kind !== 'schedule') next = Math.min(next, record.dueAt ?? Infinity)
      const kind = record.state === 'waiting' ? kindOf(record) : undefined
      if (kind !== undefined && kinds.size < MAX_KINDS && !kinds.has(kind)) kinds.set(kind, record.id)
    }
  }
  for (const id of kinds.values()) next = Math.min(next, heldUntil((await queue.explain(id)).reasons, now))
  return next === Infinity ? undefined : Math.max(next, now + 1)
}

/** What decides whether a waiting job can run, beside its expiry: jobs that are alike in this are looked at once. */
function kindOf({ name, version, group }: JobRecord): string {
  return JSON.stringify([name, version, group])
}

/** When a waiting job can run by time alone; infinite if never. */
function heldUntil(reasons: readonly Reason[], now: Time): Time {
  let until = -Infinity
  for (const reason of reasons) {
    if (reason.why === 'held') until = Math.max(until, reason.until)
    else if (reason.why === 'rate') until = Math.max(until, now + Math.ceil(reason.per / reason.max))
    else return Infinity
  }
  return until
}

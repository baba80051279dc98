// worker/postponing.ts: what a handler changes of its own job: `job.update` while it runs.
import type { JobRecord, Millis, Time } from '../job/job.js'
import type { Desk } from '../queue/desk.js'
import type { Done, UpdateOptions } from '../queue/job.js'
import { parseWhen } from '../queue/options.js'

/** When a job is to run again. */
export type Postponed = Millis | { readonly at: Time }

/** The attempt whose handler changes its job. */
interface Postponing {
  readonly record: JobRecord
  readonly running: boolean
  readonly lost: unknown
  postponed: Postponed | undefined
}

/** Changes a running job: its data at once, and when it runs again once its handler has returned. */
export async function updateRunning(attempt: Postponing, desk: Desk, changes: UpdateOptions): Promise<Done> {
  const { id } = attempt.record
  const { delay, runAt, ...rest } = changes ?? {}
  const isOwn = attempt.running && attempt.lost === undefined && (delay !== undefined || runAt !== undefined)
  if (!isOwn) return desk.update(id, changes)
  const run = parseWhen(changes, 'update') ?? { in: 0 }
  const others = Object.values(rest).some((value) => value !== undefined)
  const done = others ? await desk.update(id, rest) : { record: attempt.record }
  attempt.postponed = 'at' in run ? run : run.in
  return { ...done, done: true }
}

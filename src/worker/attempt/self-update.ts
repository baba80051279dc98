// worker/attempt/self-update.ts: what a handler changes of its own job: `job.update` while it runs.
import type { MillraceError } from '../../job/errors.js'
import type { JobRecord, Millis, Time } from '../../job/job.js'
import type { JobOperations } from '../../queue/operations/job-operations.js'
import type { Done, UpdateOptions } from '../../queue/job.js'
import { parseWhen } from '../../queue/add-options.js'
import { outOfOrder } from '../../queue/flows/follow-ups.js'

/** When a job is to run again. */
export type Postponed = Millis | { readonly at: Time }

/** The attempt whose handler changes its job. */
interface Postponing {
  readonly record: JobRecord
  readonly running: boolean
  readonly lost: unknown
  readonly transactions: { readonly successors: unknown } | undefined
  postponed: Postponed | undefined
}

/** A job that is sent back does not complete: what ctx.complete did would be undone without a word. */
export function sentBack(): MillraceError {
  return outOfOrder(
    'job.update({ delay }) and ctx.complete exclude each other: a job that is sent back is not completed',
  )
}

/** Changes a running job: its data at once, and when it runs again once its handler has returned. */
export async function updateRunning(attempt: Postponing, desk: JobOperations, changes: UpdateOptions): Promise<Done> {
  const { id } = attempt.record
  const { delay, runAt, ...rest } = changes ?? {}
  const isOwn = attempt.running && attempt.lost === undefined && (delay !== undefined || runAt !== undefined)
  if (!isOwn) return desk.update(id, changes)
  if (attempt.transactions?.successors !== undefined) throw sentBack()
  const run = parseWhen(changes, 'update') ?? { in: 0 }
  const others = Object.values(rest).some((value) => value !== undefined)
  const done = others ? await desk.update(id, rest) : { record: attempt.record }
  attempt.postponed = 'at' in run ? run : run.in
  return { ...done, done: true }
}

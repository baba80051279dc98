// worker/attempt/self-update.ts: `job.update` of a running job by its own handler.
import type { MillraceError } from '../../job/errors.js'
import type { JobRecord, Millis, Time } from '../../job/job.js'
import type { JobOperations } from '../../queue/operations/job-operations.js'
import type { OperationResult, UpdateOptions } from '../../queue/job.js'
import { parseWhen } from '../../queue/add-options.js'
import { outOfOrder } from '../../queue/flows/follow-ups.js'

/** When to run a job again. */
export type Postponed = Millis | { readonly at: Time }

/** The attempt whose handler updates its job. */
interface UpdatingAttempt {
  readonly record: JobRecord
  readonly running: boolean
  readonly lost: unknown
  readonly transactions: { readonly followUps: unknown } | undefined
  postponed: Postponed | undefined
}

/**
 * The error of a job that is both rescheduled and completed: rescheduling would silently undo what ctx.complete did.
 */
export function sentBack(): MillraceError {
  return outOfOrder(
    'job.update({ delay }) and ctx.complete exclude each other: a job that is sent back is not completed',
  )
}

/** Updates a running job: its data at once, and its next run once its handler has returned. */
export async function updateRunning(
  attempt: UpdatingAttempt,
  operations: JobOperations,
  changes: UpdateOptions,
): Promise<OperationResult> {
  const { id } = attempt.record
  const { delay, runAt, ...rest } = changes ?? {}
  const isOwn = attempt.running && attempt.lost === undefined && (delay !== undefined || runAt !== undefined)
  if (!isOwn) return operations.update(id, changes)
  if (attempt.transactions?.followUps !== undefined) throw sentBack()
  const run = parseWhen(changes, 'update') ?? { in: 0 }
  const others = Object.values(rest).some((value) => value !== undefined)
  const done = others ? await operations.update(id, rest) : { record: attempt.record }
  attempt.postponed = 'at' in run ? run : run.in
  return { ...done, done: true }
}

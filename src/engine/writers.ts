// engine/writers.ts: what every store owes to the writers of batches: how long it remembers them, and what it refuses.
import { MillraceError } from '../job/errors/errors.js'
import type { Millis } from '../job/job.js'
import type { Batch } from '../store/store.js'

/** How long a writer may be idle before it is forgotten where there are many. In milliseconds. */
export const IDLE_FOR: Millis = 600_000

/** How long a writer may be idle before it is forgotten in any case. In milliseconds. */
export const IDLE_FOR_LONG: Millis = 86_400_000

/** The error for a batch that arrives after a later batch of its writer, the one numbered `last`, was applied. */
export function writerBehind({ writer, seq }: Batch, last: number): MillraceError {
  const message = `Writer ${writer} sent batch ${seq} after batch ${last} was applied; it was not applied.`
  return new MillraceError('WRITER_BEHIND', message, { details: { writer, seq, last } })
}

// worker/attempt/call.ts: calls the handler of an attempt: its payload, its middleware, its phases or its batch.
import { MillraceError } from '../../job/errors/errors.js'
import { Job } from '../../queue/job.js'
import { currentPosition, restorePosition, runAtPosition } from '../../store/transaction-context.js'
import type { Batch } from '../batches/run.js'
import { runPhases } from '../phases/run.js'
import { wrap } from './context.js'
import type { JobContext } from './context.js'
import type { GiveUp } from './attempt.js'
import { tookTooLong } from './attempt-errors.js'
import type { HandlerAttempt } from './handler-attempt.js'
import { Context } from './handler-context.js'
import { isUnchanged, jobForHandler } from './payload.js'

/**
 * Calls the handler, in its batch if it has one. Returns what the handler returns, at once or as a promise, and throws
 * what it throws. `giveUp` is called if the handler is stopped later and does not end.
 */
export function callHandler(attempt: HandlerAttempt, batch: Batch | undefined, giveUp: GiveUp): unknown {
  const { record, handler, parts } = attempt
  attempt.start(giveUp)
  const tracing = (attempt.tracing = parts.telemetry?.process(record))
  const timeout = record.timeout ?? handler.timeout
  if (timeout !== undefined) attempt.arm(timeout, () => tookTooLong(timeout))
  const before = currentPosition()
  if (before !== undefined) restorePosition(undefined) // this handler is in no transaction yet, even if its caller is
  try {
    // Handlers that are known to use transactions enter the context at the start, so that all their calls can join.
    if (handler.transacts) {
      return runAtPosition(attempt.useTransactions().position, () =>
        tracing === undefined ? call(attempt, batch) : tracing.run(() => call(attempt, batch)),
      )
    }
    return tracing === undefined ? call(attempt, batch) : tracing.run(() => call(attempt, batch))
  } finally {
    restorePosition(before)
  }
}

function call(attempt: HandlerAttempt, batch: Batch | undefined): unknown {
  const { record, parts, definition } = attempt
  if (!isUnchanged(definition) || parts.middleware.length > 0) return callPrepared(attempt, batch)
  return run(attempt, batch, new Job(parts.operations, record, { running: attempt }), new Context(attempt))
}

/** Calls the handler with validated data, inside of all middleware. */
async function callPrepared(attempt: HandlerAttempt, batch: Batch | undefined): Promise<unknown> {
  const { record, parts, definition } = attempt
  const job = await jobForHandler(parts.operations, record, definition, attempt)
  if (job instanceof MillraceError) throw (attempt.refusedPayload = job)
  return wrap(parts.middleware, job, new Context(attempt), (ctx) => run(attempt, batch, job, ctx))
}

function run(attempt: HandlerAttempt, batch: Batch | undefined, job: Job, ctx: JobContext): unknown {
  const { handler } = attempt
  try {
    if (handler.phases !== undefined) return runPhases(attempt, handler.phases, job, ctx)
    return batch === undefined ? handler.run(job, ctx) : batch.join(attempt, job, ctx)
  } finally {
    attempt.pastFirstAwait = true
  }
}

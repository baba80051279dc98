// worker/context.ts: what a handler is given beside its job.
import type { Duration } from '../job/duration.js'
import { MillraceError } from '../job/errors.js'
import type { Job } from '../queue/job.js'

/** Why a running handler should stop. */
export type AbortReason = 'cancelled' | 'lease-lost' | 'completed-elsewhere' | 'removed' | 'timeout' | 'shutdown'

/** What a handler's signal aborts with. */
export class JobAbort extends Error {
  override readonly name = 'AbortError'
  /** Why the handler should stop. */
  readonly reason: AbortReason

  /** What a signal aborts with, for tests of handlers. */
  constructor(reason: AbortReason, message: string) {
    super(message)
    this.reason = reason
  }
}

/** A signal whose reason is a `JobAbort`. */
export interface JobSignal extends AbortSignal {
  /** Why it aborted; undefined until it has. */
  readonly reason: JobAbort | undefined
}

/** What a handler is given beside its job. */
export interface JobContext {
  /** Aborts when the handler should stop; `signal.reason?.reason` says why. */
  readonly signal: JobSignal
  /** Tells how far the job is: any JSON. Resolves when it is durable; calls within one batch leave as one. */
  progress(value: unknown): Promise<void>
  /** Writes a line to the job's log. Resolves when it is durable. */
  log(line: string): Promise<void>
  /** Ends this run here, gives the attempt back, and runs the job again after that time. Never returns. */
  snooze(duration: Duration): never
}

/** Thrown by `ctx.snooze` to leave the handler. */
export class Snoozed extends Error {
  override readonly name = 'Snoozed'
}

/**
 * Wraps each run of a handler; the first is the outermost. What is given to `next` is added to the context of all that
 * come after it. It may change the result, but a failure it swallows completes the job.
 */
export type Middleware<Extra extends object | void = object | void> = (
  job: Job,
  ctx: JobContext,
  next: (extra: Extra) => Promise<unknown>,
) => unknown

/** Declares a middleware and what it adds to the context (default: nothing), so that handlers see it typed. */
export function middleware<Extra extends object | void = object | void>(run: Middleware<Extra>): Middleware<Extra> {
  return run
}

/** What a list of middleware adds to the context, all together. */
export type ExtrasOf<Wraps extends readonly Middleware[]> = Wraps extends readonly [
  Middleware<infer First>,
  ...infer Rest extends readonly Middleware[],
]
  ? (void extends First ? unknown : First) & ExtrasOf<Rest>
  : unknown

/** Adds what a middleware gave to the context. */
export function extend(ctx: JobContext, extra: object | void): void {
  if (typeof extra !== 'object' || extra === null) return
  for (const key of Object.keys(extra)) {
    if (key in ctx && reserved.has(key)) {
      throw new MillraceError('CALLBACK_FAILED', `A middleware may not replace ctx.${key}.`)
    }
  }
  Object.assign(ctx, extra)
}

const reserved: ReadonlySet<string> = new Set(['signal', 'progress', 'log', 'snooze'])

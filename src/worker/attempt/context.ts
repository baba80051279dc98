// worker/attempt/context.ts: the context of a handler, `ctx`, and middleware that wraps handlers.
import type { Duration } from '../../job/values/duration.js'
import { MillraceError } from '../../job/errors/errors.js'
import type { Jsonable } from '../../job/values/json.js'
import type { JobDefinitions, NameOf } from '../../queue/define.js'
import type { Job } from '../../queue/job.js'
import type { PageWish } from '../../queue/operations/filter.js'
import type { DependencyPage, Ended } from '../../queue/flows/chain-types.js'
import type { Dependency } from '../../queue/add-options.js'
import type { Completing, Inside, PlanArguments, Planned, Planning } from '../../queue/flows/follow-ups.js'
import type { AnyJobs, InputFor } from '../../queue/queue-types.js'
import type { Store, TakenBy } from '../../store/store.js'
import { UnawaitedCalls } from './unawaited.js'
import type { WaitOptions } from './children.js'
import { EarlyExit } from './early-exit.js'
import type { HoldOptions } from './hold.js'

/** Why a running handler should stop. */
export type AbortReason = 'cancelled' | 'lease-lost' | 'completed-elsewhere' | 'removed' | 'timeout' | 'shutdown'

/** Why a lease is lost; with the reason given to `cancel`, if the job was cancelled with one. */
export type LostReason = readonly [reason: AbortReason, cancelReason?: string | undefined]

/** The abort reason of a handler's signal. */
export class JobAbort extends Error {
  override readonly name = 'AbortError'
  /** Why the handler should stop. */
  readonly reason: AbortReason
  /** The reason given to `cancel`, if the job was cancelled with one. */
  readonly cancelReason: string | undefined

  /** The abort reason of a signal; public for tests of handlers. */
  constructor(reason: AbortReason, message: string, cancelReason?: string) {
    super(message)
    this.reason = reason
    this.cancelReason = cancelReason
  }
}

const messages: Readonly<Record<AbortReason, string>> = {
  cancelled: 'The job was cancelled.',
  'lease-lost': 'The lease of this job ran out, and it may run elsewhere.',
  'completed-elsewhere': 'The job was finished by another process or call.',
  removed: 'The job was removed.',
  timeout: 'The handler ran past its timeout.',
  shutdown: 'The worker is shutting down.',
}

/** The error that a signal aborts with. */
export function abortFor(reason: AbortReason, cancelReason?: string): JobAbort {
  if (cancelReason === undefined) return new JobAbort(reason, messages[reason])
  return new JobAbort(reason, `The job was cancelled: ${cancelReason}`, cancelReason)
}

/** A signal whose reason is a `JobAbort`. */
export interface JobSignal extends AbortSignal {
  /** Why it aborted; undefined until it has. */
  readonly reason: JobAbort | undefined
}

/**
 * How the transactions of `ctx.prepare` and `ctx.complete` relate.
 *
 * - `atomic`: both run in one transaction, which locks the job from the first on.
 * - `staged`: each runs in its own transaction. Between them, the lease is renewed and nothing is locked.
 */
export type Mode = 'atomic' | 'staged'

/** Options of `ctx.prepare`. */
export interface PrepareOptions {
  /** One transaction with `ctx.complete`, or two. */
  readonly mode: Mode
}

/** Options of `ctx.waitForSignal`. */
export interface SignalOptions {
  /** Give up after this long, with `SIGNAL_TIMEOUT`. Counted from the first wait for the signal. Default: no limit. */
  readonly timeout?: Duration
}

/**
 * What a handler gets besides its job. `S` determines the type of its transactions, `Jobs` the jobs it may add, `Next`
 * the jobs its chain may continue with, and `Waited` the outcomes of the jobs it waited for.
 */
export interface JobContext<
  S extends Store = Store,
  Jobs extends JobDefinitions = AnyJobs,
  Next extends NameOf<Jobs> = NameOf<Jobs>,
  Waited extends readonly Ended[] = readonly Ended[],
> {
  /** Aborts when the handler should stop; `signal.reason?.reason` is why. */
  readonly signal: JobSignal
  /**
   * Reports the progress of the job: any JSON. Resolves when it is durable. Calls made while a batch is in flight are
   * merged into one write. While a transaction of the handler is open, it is written and committed there.
   */
  progress<T>(value: T & Jsonable<T>): Promise<void>
  /** Writes a line to the job's log. Resolves when it is durable, or written in the open transaction. */
  log(line: string): Promise<void>
  /**
   * Runs the callback in a transaction before the work itself, to read what that needs. Call it before `ctx.complete`,
   * and read it from `ctx` before the handler's first `await`. If the callback throws, its writes are rolled back.
   */
  prepare<T>(options: PrepareOptions, work: (inside: Inside<S>) => T | Promise<T>): Promise<T>
  /**
   * Runs the callback in the transaction that settles the job once the handler has returned: its writes, the jobs it
   * adds and the settlement are committed together or not at all. An error rolls back all of it, even if the handler
   * throws it later. Without `ctx.prepare`, it is `atomic` if called before the handler's first `await`, else `staged`.
   * The job's result is what the handler returns, or else what the callback returned.
   */
  complete<T>(work: (inside: NoInfer<Completing<S, Jobs, Next>>) => T | Promise<T>): Promise<T>
  /**
   * The same in a transaction that you have opened, with Prisma, Drizzle or any other library, and that you end. It
   * locks the job there first, and when it resolves, the settlement is the last statement. The job's result is what the
   * callback returns. Commit right after it, before the handler returns. If you roll back, nothing has happened, and
   * the attempt fails.
   */
  complete<T, Taken extends TakenBy<S>>(
    options: { readonly tx: Taken },
    work: (inside: NoInfer<{ readonly tx: Taken } & Planning<Jobs, Next>>) => T | Promise<T>,
  ): Promise<T>
  /**
   * Adds a child to the same queue, in the commit in which this attempt settles or begins to wait: it exists if and
   * only if that is committed. An attempt that fails adds nothing. Inside the callback of `ctx.complete` it is the same
   * as its `add`.
   */
  add<Name extends NameOf<Jobs>>(name: Name, ...args: PlanArguments<InputFor<Jobs, Name>>): Promise<Planned>
  /**
   * Ends this run here and frees the slot; the attempt does not count. The handler runs again from its start when all
   * of these jobs have ended: children added with `ctx.add`, or any other jobs. Then `ctx.dependencies()` returns their
   * outcomes. Never returns.
   */
  waitFor(children: Dependency | readonly Dependency[], options?: WaitOptions): never
  /** A page of what those that this job waited for came to, in order: at most `limit` of them, or 8 MiB of results, about. */
  dependencies(options: PageWish): Promise<DependencyPage<Waited[number]>>
  /**
   * The outcomes of all jobs that this job waited for, in order: `after`, the children of a flow, and those of
   * `ctx.waitFor`. Each has `id`, `name` and `status`, and a `result` or an `error`. Failed and cancelled ones are
   * included if their failure was ignored.
   */
  dependencies(): Promise<Waited>
  /** Ends this run here and runs the job again after that time; the attempt does not count. Never returns. */
  snooze(duration: Duration): never
  /**
   * Ends this run here, and holds jobs like this one for that time: of its name (the default), its group or its queue.
   * No worker starts another of them until then; this one waits in its place, and the attempt does not count. For a
   * service that answers 429. Of two holds for the same jobs the one that ends later counts. Never returns.
   */
  hold(duration: Duration, options?: HoldOptions): never
  /**
   * Does something once for the job, however often its handler runs. The result of `fn` is kept across retries, crashes
   * and manual retries, and returned again under the same name. Resolves when the result is durable. An error of `fn`
   * is not kept. A result that is not JSON, or too large, fails the job permanently.
   */
  step<T>(name: string, fn: () => (T & Jsonable<T>) | Promise<T & Jsonable<T>>): Promise<T>
  /** The same, for a union that is returned at once: of that, the compiler would infer one member above. */
  step<T>(
    name: string,
    fn: (() => T | Promise<T>) & (() => NoInfer<Jsonable<T>> | Promise<NoInfer<Jsonable<T>>>),
  ): Promise<T>
  /**
   * Ends this run here and frees the slot; the attempt does not count. The handler runs again from its start after that
   * time, and then this call returns at once, as in all later runs. `promote` ends the sleep early. Await it.
   */
  sleep(name: string, duration: Duration): Promise<void>
  /**
   * The data that `queue.signal(id, name, data)` sent to this job, before or after this call. If it has not arrived,
   * ends this run here and frees the slot; the attempt does not count. The handler runs again from its start when the
   * signal arrives. Rejects with `SIGNAL_TIMEOUT` if it does not arrive within `timeout`. A job gets one signal of each
   * name. Await it.
   */
  waitForSignal<T = unknown>(name: string, options?: SignalOptions): Promise<T>
}

/** Thrown by `ctx.snooze` and `ctx.hold` to end the run. */
export class Snoozed extends EarlyExit {
  override readonly name = 'Snoozed'
}

/**
 * Wraps each run of a handler; the first is the outermost. What it passes to `next` is added to the context of
 * everything inside it. It may change the result, but if it swallows an error, the job completes.
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

/** What a list of middleware adds to the context, combined. */
export type ExtrasOf<Wraps extends readonly Middleware[]> = Wraps extends readonly [
  Middleware<infer First>,
  ...infer Rest extends readonly Middleware[],
]
  ? (void extends First ? unknown : First) & ExtrasOf<Rest>
  : unknown

/** Runs a handler inside of all middleware, from index `at` on. */
export async function wrap(
  middlewares: readonly Middleware[],
  job: Job,
  ctx: JobContext,
  run: (ctx: JobContext) => unknown,
  at = 0,
): Promise<unknown> {
  const around = middlewares[at]
  if (around === undefined) return run(ctx)
  const calls = new UnawaitedCalls()
  let called = false
  const next = async (extra: object | void): Promise<unknown> => {
    if (called) throw new MillraceError('CALLBACK_FAILED', 'A middleware called next() twice; a handler runs once.')
    called = true
    extend(ctx, extra)
    return wrap(middlewares, job, ctx, run, at + 1)
  }
  const value = await around(job, ctx, (extra) => calls.track('next()', false, next(extra)))
  await calls.ended // calls that it did not await are part of it all the same
  return value
}

/** Adds what a middleware passed to `next` to the context. */
function extend(ctx: JobContext, extra: object | void): void {
  if (typeof extra !== 'object' || extra === null) return
  for (const key of Object.keys(extra)) {
    if (reserved.has(key)) {
      throw new MillraceError('CALLBACK_FAILED', `A middleware may not replace ctx.${key}.`)
    }
  }
  Object.assign(ctx, extra)
}

/** The names of the context, and that by which an assignment would replace all of them. */
const reserved: ReadonlySet<string> = new Set([
  ...'signal progress log prepare complete add waitFor dependencies snooze hold step sleep waitForSignal'.split(' '),
  ...'phaseResult phaseResults __proto__'.split(' '),
])

// worker/attempt/context.ts: what a handler is given beside its job.
import type { Duration } from '../../job/duration.js'
import { MillraceError } from '../../job/errors.js'
import { cleanText } from '../../job/failure.js'
import { encodeJson } from '../../job/json.js'
import type { Jsonable } from '../../job/json.js'
import type { JobDefinitions, NameOf } from '../../queue/define.js'
import type { Job } from '../../queue/job.js'
import type { PageOptions, PageWish } from '../../queue/operations/filter.js'
import type { DependencyPage, Ended } from '../../queue/flows/chain-types.js'
import type { AddOptions, Dependency } from '../../queue/add-options.js'
import type { Completing, Inside, PlanArguments, Planned, Planning } from '../../queue/flows/follow-ups.js'
import type { InTransaction } from '../../queue/transactions.js'
import type { AnyJobs, InputFor } from '../../queue/queue-types.js'
import type { Store, TakenBy } from '../../store/store.js'
import { UnawaitedCalls } from './unawaited.js'
import type { WaitOptions } from './children.js'
import { EarlyExit } from './early-exit.js'
import type { NoteEntry } from './pending-notes.js'

/** Why a running handler should stop. */
export type AbortReason = 'cancelled' | 'lease-lost' | 'completed-elsewhere' | 'removed' | 'timeout' | 'shutdown'

/** Why a job was taken from its worker; of one that was cancelled, with the reason that was given. */
export type Why = readonly [reason: AbortReason, cancelReason?: string | undefined]

/** What a handler's signal aborts with. */
export class JobAbort extends Error {
  override readonly name = 'AbortError'
  /** Why the handler should stop. */
  readonly reason: AbortReason
  /** The reason that was given to `cancel`, of a job that was cancelled for one. */
  readonly cancelReason: string | undefined

  /** What a signal aborts with, for tests of handlers. */
  constructor(reason: AbortReason, message: string, cancelReason?: string) {
    super(message)
    this.reason = reason
    this.cancelReason = cancelReason
  }
}

const messages: Readonly<Record<AbortReason, string>> = {
  cancelled: 'The job was cancelled.',
  'lease-lost': 'The lease of this job ran out, and it may run elsewhere.',
  'completed-elsewhere': 'The job was finished by somebody else.',
  removed: 'The job was removed.',
  timeout: 'The handler ran past its timeout.',
  shutdown: 'The worker is shutting down.',
}

/** What a signal aborts with for a reason. */
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
 * How `ctx.prepare` and `ctx.complete` belong together.
 *
 * - `atomic`: both run in one transaction, which holds the job from the first on.
 * - `staged`: each runs in a transaction of its own; between them, the lease is renewed, and nothing is held.
 */
export type Mode = 'atomic' | 'staged'

/** How `ctx.prepare` runs. */
export interface PrepareOptions {
  /** One transaction with `ctx.complete`, or two. */
  readonly mode: Mode
}

/** How long a signal is waited for. */
export interface SignalOptions {
  /** Give up after this long, with `SIGNAL_TIMEOUT`. Counted from the first wait for it. Default: no bound. */
  readonly timeout?: Duration
}

/**
 * What a handler is given beside its job. `S` says what its transactions are, `Jobs` what may be added, `Next` what its chain
 * may go on with, and `Waited` what those that it waited for came to.
 */
export interface JobContext<
  S extends Store = Store,
  Jobs extends JobDefinitions = AnyJobs,
  Next extends NameOf<Jobs> = NameOf<Jobs>,
  Waited extends readonly Ended[] = readonly Ended[],
> {
  /** Aborts when the handler should stop; `signal.reason?.reason` says why. */
  readonly signal: JobSignal
  /**
   * Tells how far the job is: any JSON. Resolves when it is durable; calls within one batch leave as one. While a
   * transaction of the handler is open it is written there, and lands with it.
   */
  progress<T>(value: T & Jsonable<T>): Promise<void>
  /** Writes a line to the job's log. Resolves when it is durable, or written in the transaction that is open. */
  log(line: string): Promise<void>
  /**
   * Runs the callback in a transaction before the work itself, to read what it needs. Only before `ctx.complete`, and to
   * be taken from `ctx` before the handler's first `await`. What the callback throws undoes what it wrote.
   */
  prepare<T>(options: PrepareOptions, work: (inside: Inside<S>) => T | Promise<T>): Promise<T>
  /**
   * Runs the callback in the transaction in which the job will settle, when the handler has returned: what it writes, the
   * jobs it adds and the settlement are there together or not at all. An error undoes all of it, also one that the handler
   * throws afterwards. Without `ctx.prepare`: called before the handler's first `await` it is `atomic`, else `staged`.
   * The job's result is what the handler returns, or else what the callback did.
   */
  complete<T>(work: (inside: NoInfer<Completing<S, Jobs, Next>>) => T | Promise<T>): Promise<T>
  /**
   * The same in a transaction that you have open, of Prisma, Drizzle or any other library, and that you end: the job is locked
   * there first, and its settlement is the last statement when this resolves. Its result is what the callback returns. Commit
   * right after it, before the handler returns; if you roll back, nothing has happened, and the attempt fails.
   */
  complete<T, Taken extends TakenBy<S>>(
    options: { readonly tx: Taken },
    work: (inside: NoInfer<{ readonly tx: Taken } & Planning<Jobs, Next>>) => T | Promise<T>,
  ): Promise<T>
  /**
   * Adds a child to the same queue, in the commit in which this attempt settles or begins to wait: it is there if, and only
   * if, that is. An attempt that fails adds nothing. Inside the callback of `ctx.complete` it is the same as its `add`.
   */
  add<Name extends NameOf<Jobs>>(name: Name, ...args: PlanArguments<InputFor<Jobs, Name>>): Promise<Planned>
  /**
   * Ends this run here, gives the attempt and the slot back, and runs the handler again from its start when all of these
   * have ended: children added with `ctx.add`, or any other jobs. Then `ctx.dependencies()` tells what they came to. Never
   * returns.
   */
  waitFor(children: Dependency | readonly Dependency[], options?: WaitOptions): never
  /** A page of what those that this job waited for came to, in order: at most `limit` of them, or 8 MiB of results, about. */
  dependencies(options: PageWish): Promise<DependencyPage<Waited[number]>>
  /**
   * All of what those that this job waited for came to, in order: `after`, the children of a flow, and those of `ctx.waitFor`. Each
   * has `id`, `name` and `status`, and a `result` or an `error`; failed and cancelled ones are among them where they were
   * ignored.
   */
  dependencies(): Promise<Waited>
  /** Ends this run here, gives the attempt back, and runs the job again after that time. Never returns. */
  snooze(duration: Duration): never
  /**
   * Does something once for the job, however often its handler runs: what `fn` came to is remembered across retries, crashes
   * and retries by hand, and given again under the same name. Resolves when that is durable. What `fn` throws is not
   * remembered. A result that is no JSON, or too large, fails the job for good.
   */
  step<T>(name: string, fn: () => (T & Jsonable<T>) | Promise<T & Jsonable<T>>): Promise<T>
  /** The same, for a union that is returned at once: of that, the compiler would infer one member above. */
  step<T>(
    name: string,
    fn: (() => T | Promise<T>) & (() => NoInfer<Jsonable<T>> | Promise<NoInfer<Jsonable<T>>>),
  ): Promise<T>
  /**
   * Ends this run here, gives the attempt and the slot back, and runs the handler again from its start after that time; then it
   * passes, as it does in all later runs. `promote` ends it early. Await it.
   */
  sleep(name: string, duration: Duration): Promise<void>
  /**
   * What `queue.signal(id, name, data)` sent to this job, before or after this call. Until it has come, ends this run here, gives
   * the attempt and the slot back, and runs the handler again from its start when it comes. Rejects with `SIGNAL_TIMEOUT` where
   * it did not come within `timeout`. One signal of a name for a job. Await it.
   */
  waitForSignal<T = unknown>(name: string, options?: SignalOptions): Promise<T>
}

/** Thrown by `ctx.snooze` to leave the handler. */
export class Snoozed extends EarlyExit {
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

/** Runs a handler inside of all middleware, from one on. */
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
  await calls.ended // what it did not wait for belongs to it all the same
  return value
}

/** Adds what a middleware gave to the context. */
function extend(ctx: JobContext, extra: object | void): void {
  if (typeof extra !== 'object' || extra === null) return
  for (const key of Object.keys(extra)) {
    if (reserved.has(key)) {
      throw new MillraceError('CALLBACK_FAILED', `A middleware may not replace ctx.${key}.`)
    }
  }
  Object.assign(ctx, extra)
}

const reserved: ReadonlySet<string> = new Set(
  'signal progress log prepare complete add waitFor dependencies snooze step sleep waitForSignal phaseResult phaseResults'.split(
    ' ',
  ),
)

/** What a context asks of its attempt. */
export interface Attempting {
  signal(): JobSignal
  readonly saying: { say(what: () => NoteEntry): Promise<void> }
  snooze(duration: Duration): never
  readonly steps: {
    step(name: string, fn: () => unknown): Promise<unknown>
    sleep(name: string, duration: Duration): Promise<void>
    waitForSignal(name: string, options?: SignalOptions): Promise<unknown>
  }
  add(name: string, data: unknown, options: AddOptions | undefined): Promise<Planned>
  waitFor(children: Dependency | readonly Dependency[], options?: WaitOptions): never
  dependencies(options?: PageOptions): Promise<readonly Ended[] | DependencyPage>
  transacting(): {
    access(): void
    prepare(options: PrepareOptions, work: (inside: never) => unknown): Promise<unknown>
    complete(work: (inside: never) => unknown): Promise<unknown>
    completeGiven(options: InTransaction, work: (inside: never) => unknown): Promise<unknown>
  }
}

/** The context of one attempt. */
export class Context implements JobContext {
  readonly #attempt: Attempting

  constructor(attempt: Attempting) {
    this.#attempt = attempt
  }

  get signal(): JobSignal {
    return this.#attempt.signal()
  }

  // Getters, so that `({ progress, log }) => …` works and handlers that use neither pay nothing.
  get progress() {
    return (value: unknown): Promise<void> => this.say(() => ({ progress: encodeJson(value ?? null, 'progress') }))
  }

  get log() {
    return (line: string): Promise<void> =>
      this.say(() => {
        const text = cleanText(String(line))
        encodeJson(text, 'log line')
        return { logs: [text] }
      })
  }

  get prepare() {
    const transacting = this.#attempt.transacting()
    transacting.access()
    return <T>(options: PrepareOptions, work: (inside: Inside<Store>) => T | Promise<T>): Promise<T> =>
      transacting.prepare(options, work) as Promise<T>
  }

  get complete(): JobContext['complete'] {
    const attempt = this.#attempt
    const complete = (first: unknown, ...rest: readonly unknown[]): Promise<never> => {
      const transacting = attempt.transacting()
      const done =
        rest.length === 0
          ? transacting.complete(first as () => unknown)
          : transacting.completeGiven(first as InTransaction, rest[0] as () => unknown)
      return done as Promise<never>
    }
    return complete
  }

  get add() {
    return (name: string, data?: unknown, options?: AddOptions): Promise<Planned> =>
      this.#attempt.add(name, data, options)
  }

  get waitFor() {
    return (children: Dependency | readonly Dependency[], options?: WaitOptions): never =>
      this.#attempt.waitFor(children, options)
  }

  get dependencies(): JobContext['dependencies'] {
    return (options?: PageOptions) => this.#attempt.dependencies(options) as Promise<never>
  }

  get snooze() {
    return (duration: Duration): never => this.#attempt.snooze(duration)
  }

  get step(): JobContext['step'] {
    return <T>(name: string, fn: () => unknown): Promise<T> => this.#attempt.steps.step(name, fn) as Promise<T>
  }

  get sleep() {
    return (name: string, duration: Duration): Promise<void> => this.#attempt.steps.sleep(name, duration)
  }

  get waitForSignal() {
    return <T>(name: string, options?: SignalOptions): Promise<T> =>
      this.#attempt.steps.waitForSignal(name, options) as Promise<T>
  }

  protected say(what: () => NoteEntry): Promise<void> {
    return this.#attempt.saying.say(what)
  }
}

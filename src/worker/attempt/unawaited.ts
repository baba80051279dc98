// worker/attempt/unawaited.ts: tracks the calls of a handler, to find those that it does not await.
import { MillraceError, isInstance } from '../../job/errors/errors.js'
import { AwaitedPromise } from '../../queue/flows/awaited.js'
import { EarlyExit } from './early-exit.js'

/** A tracked call. */
interface Call {
  readonly what: string
  /** Whether it can end the run: a sleep, or a wait. */
  readonly endsRun: boolean
  readonly done: Promise<unknown>
  over: boolean
  /** What it rejected with. */
  failed: { readonly error: unknown } | undefined
  awaited: boolean
}

/** The calls of one attempt. */
export class UnawaitedCalls {
  readonly #open = new Set<Call>()
  #closed = false

  /** The handler has ended, so its calls can no longer end the run. */
  get isClosed(): boolean {
    return this.#closed
  }

  /** The handler has ended. A pending call that could end the run never settles, so that no code after it runs. */
  close(): void {
    this.#closed = true
  }

  /** Tracks a call until it has ended and was awaited. A call that is not awaited causes no unhandled rejection. */
  track<T>(what: string, endsRun: boolean, done: Promise<T>): Promise<T> {
    const call: Call = { what, endsRun, done, over: false, failed: undefined, awaited: false }
    this.#open.add(call)
    const over = (failed: Call['failed']): void => {
      call.over = true
      call.failed = failed
      if (call.awaited) this.#open.delete(call)
    }
    done.then(
      () => over(undefined),
      (error: unknown) => over({ error }),
    )
    const onAwait = (): void => {
      call.awaited = true
      if (call.over) this.#open.delete(call)
    }
    const isGone = (): boolean => endsRun && this.#closed
    return new AwaitedPromise(
      (resolve, reject) =>
        void done.then(
          (value) => isGone() || resolve(value),
          (error: unknown) => isGone() || reject(error),
        ),
      onAwait,
      endsRun,
    )
  }

  /** Resolves when the running steps have ended; undefined if there are none. */
  get runningSteps(): Promise<unknown> | undefined {
    const steps = [...this.#open].filter(({ endsRun, over }) => !endsRun && !over)
    return steps.length === 0 ? undefined : Promise.allSettled(steps.map(({ done }) => done))
  }

  /** Whether a call is pending, or has failed without being awaited. */
  get isBusy(): boolean {
    return this.unawaitedFailure !== undefined || [...this.#open].some(({ over }) => !over)
  }

  /** Whether a call of this kind is pending, and nothing awaits it. */
  isFloating(what: string): boolean {
    return [...this.#open].some((call) => call.what === what && !call.over && !call.awaited)
  }

  /** Resolves when all calls have ended. Rejects if one of them fails, or has failed without being awaited. */
  async settled(): Promise<void> {
    await Promise.all([...this.#open].filter(({ over }) => !over).map(({ done }) => done))
    if (this.unawaitedFailure !== undefined) throw this.unawaitedFailure.error
  }

  /** Resolves when the unawaited calls have ended, rejects if one of them fails; undefined if there are none. */
  get ended(): Promise<unknown> | undefined {
    const unawaited = [...this.#open].filter(({ awaited }) => !awaited)
    return unawaited.length === 0 ? undefined : Promise.all(unawaited.map(({ done }) => done))
  }

  /** The error of a handler that did not await a call: that of the call, or that it was not awaited. */
  get unawaitedFailure(): { readonly error: unknown } | undefined {
    for (const { what, endsRun, awaited, failed } of this.#open) {
      if (awaited) continue
      if (failed !== undefined && !isInstance(failed.error, EarlyExit)) return failed
      if (endsRun) return { error: notAwaited(what, 'was not awaited') }
    }
    return undefined
  }

  /** The error of a handler that has returned while a call could still end the run. */
  get pending(): { readonly error: MillraceError } | undefined {
    for (const { what, endsRun, over } of this.#open) {
      if (endsRun && !over) return { error: notAwaited(what, 'was still pending when the handler returned') }
    }
    return undefined
  }
}

/** The error of a handler that did not await a call that ends the run. */
export function notAwaited(what: string, how: string): MillraceError {
  return new MillraceError(
    'NOT_AWAITED',
    `${what} ${how}: the job would have gone on, and run again after it all the same. Write \`await ${what}\`, and do not race it.`,
  )
}

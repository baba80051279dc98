// worker/attempt/unawaited.ts: the calls of a handler that leave it, or are taken to their end: which of them nobody waits for.
import { MillraceError, isInstance } from '../../job/errors.js'
import { AwaitedPromise } from './awaited.js'
import { EarlyExit } from './early-exit.js'

/** One of them. */
interface Call {
  readonly what: string
  /** Whether it can leave the handler: a sleep, or a wait. */
  readonly leaves: boolean
  readonly done: Promise<unknown>
  over: boolean
  /** What it rejected with. */
  failed: { readonly error: unknown } | undefined
  heard: boolean
}

/** The calls of one attempt. */
export class UnawaitedCalls {
  readonly #open = new Set<Call>()
  #cut = false

  /** The handler has ended: what could have left it does not any more. */
  get isCut(): boolean {
    return this.#cut
  }

  /** Ends what has not left the handler until now: it will never settle, so that nothing that comes after it is run. */
  cut(): void {
    this.#cut = true
  }

  /** Keeps a call until it is over and somebody has waited for it. Those who do not wait are not brought down by it. */
  track<T>(what: string, leaves: boolean, done: Promise<T>): Promise<T> {
    const call: Call = { what, leaves, done, over: false, failed: undefined, heard: false }
    this.#open.add(call)
    const over = (failed: Call['failed']): void => {
      call.over = true
      call.failed = failed
      if (call.heard) this.#open.delete(call)
    }
    done.then(
      () => over(undefined),
      (error: unknown) => over({ error }),
    )
    const heard = (): void => {
      call.heard = true
      if (call.over) this.#open.delete(call)
    }
    const isGone = (): boolean => leaves && this.#cut
    return new AwaitedPromise(
      (resolve, reject) =>
        void done.then(
          (value) => isGone() || resolve(value),
          (error: unknown) => isGone() || reject(error),
        ),
      heard,
      leaves,
    )
  }

  /** Resolves when the steps under way have ended; undefined where there are none. */
  get underWay(): Promise<unknown> | undefined {
    const steps = [...this.#open].filter(({ leaves, over }) => !leaves && !over)
    return steps.length === 0 ? undefined : Promise.allSettled(steps.map(({ done }) => done))
  }

  /** Whether one is under way, or has failed without anybody knowing. */
  get isBusy(): boolean {
    return this.unheard !== undefined || [...this.#open].some(({ over }) => !over)
  }

  /** Resolves when all have ended; rejects with what one failed with meanwhile, or before without anybody knowing. */
  async settled(): Promise<void> {
    await Promise.all([...this.#open].filter(({ over }) => !over).map(({ done }) => done))
    if (this.unheard !== undefined) throw this.unheard.error
  }

  /** Resolves when those that nobody waits for have ended; rejects with what one of them failed with. Undefined where there are none. */
  get ended(): Promise<unknown> | undefined {
    const unheard = [...this.#open].filter(({ heard }) => !heard)
    return unheard.length === 0 ? undefined : Promise.all(unheard.map(({ done }) => done))
  }

  /** What a handler that did not wait for a call is to fail with: what that failed with, or that it was not awaited. */
  get unheard(): { readonly error: unknown } | undefined {
    for (const { what, leaves, heard, failed } of this.#open) {
      if (heard) continue
      if (failed !== undefined && !isInstance(failed.error, EarlyExit)) return failed
      if (leaves) return { error: notAwaited(what, 'was not awaited') }
    }
    return undefined
  }

  /** The error for what could still leave a handler that has returned. */
  get pending(): { readonly error: MillraceError } | undefined {
    for (const { what, leaves, over } of this.#open) {
      if (leaves && !over) return { error: notAwaited(what, 'was still pending when the handler returned') }
    }
    return undefined
  }
}

/** The error of a job whose handler did not wait for a call that leaves it. */
export function notAwaited(what: string, how: string): MillraceError {
  return new MillraceError(
    'NOT_AWAITED',
    `${what} ${how}: the job would have gone on, and run again after it all the same. Write \`await ${what}\`, and do not race it.`,
  )
}

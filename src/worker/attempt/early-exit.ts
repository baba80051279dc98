// worker/attempt/early-exit.ts: errors that end a run early, and errors of calls that a handler forgot to await.
import { setImmediate } from 'node:timers'
import { isInstance } from '../../job/errors/errors.js'

/** Marks the guard and the errors it handles, including those of another copy of this package in the same process. */
const UNCAUGHT = Symbol.for('millrace.uncaught')

/**
 * Thrown by the calls that end a run: `ctx.sleep`, `ctx.waitForSignal`, `ctx.waitFor`, `ctx.snooze`. In an async
 * function that the handler does not await, nothing catches it, and Node would end the process. The guard reports it to
 * the attempt instead.
 */
export class EarlyExit extends Error {
  override readonly name: string = 'Leaving'
  readonly [UNCAUGHT]: () => void

  /** `uncaught` is called if nothing has caught it. */
  constructor(message: string, uncaught: () => void) {
    super(`${message} If this is not caught, a promise was not awaited.`)
    this[UNCAUGHT] = uncaught
    guard()
  }
}

/**
 * Marks the error of a call that a handler made: `uncaught` is called if nothing catches it, and the process goes on. The
 * last mark counts. A thrown value that is not an object cannot be marked, nor can a frozen one.
 */
function markUncaught(error: unknown, uncaught: () => void): void {
  if (typeof error !== 'object' || error === null || isInstance(error, EarlyExit)) return
  try {
    Object.defineProperty(error, UNCAUGHT, { value: uncaught, configurable: true })
  } catch {
    return
  }
  guard()
}

/**
 * Listens for unhandled rejections. Having a listener disables Node's default, so it restores the default for a
 * rejection that is not marked, if there is no other listener.
 */
const onRejection = Object.assign(
  (reason: unknown): void => {
    if (isUncaught(reason)) return reason[UNCAUGHT]()
    if (process.listenerCount('unhandledRejection') > 1) return // other listeners handle it
    process.off('unhandledRejection', onRejection)
    void Promise.reject(reason)
    setImmediate(guard).unref() // where the default does not end the process
  },
  { [UNCAUGHT]: true },
)

/** Installs the guard; a process needs only one. */
function guard(): void {
  if (process.listeners('unhandledRejection').some((each) => UNCAUGHT in each)) return
  process.on('unhandledRejection', onRejection)
}

function isUncaught(reason: unknown): reason is { readonly [UNCAUGHT]: () => void } {
  try {
    return typeof (reason as Partial<EarlyExit> | null | undefined)?.[UNCAUGHT] === 'function'
  } catch {
    return false
  }
}

/**
 * The calls of one attempt. Where a call fails in a function that the handler does not await, nothing catches the error,
 * and Node would end the process with all jobs that run in it. Its errors are marked, so that the worker reports them
 * instead. Code that catches them gets them as they are.
 */
export class GuardedCalls {
  readonly #report: (what: string, error: unknown) => void
  /** The calls that were reported: a forgotten timer may fail for ever. */
  readonly #reported = new Set<string>()

  constructor(report: (what: string, error: unknown) => void) {
    this.#report = report
  }

  /**
   * Makes a call and marks its error. `reportsFloating`: also reports the error if nothing awaits the call itself.
   * Otherwise the call does that, or the attempt fails with the error.
   */
  run<T>(call: string, work: () => T, reportsFloating: boolean): T {
    try {
      const made = work()
      if (!(made instanceof Promise)) return made
      // Not `made.then`, which counts as awaiting it.
      const marked: unknown = Promise.prototype.then.call(made, undefined, (error: unknown) => {
        this.mark(call, error)
        if (reportsFloating) throw error
      })
      return reportsFloating ? (marked as T) : made
    } catch (error) {
      throw this.mark(call, error)
    }
  }

  /** Marks an error of a call. */
  mark<E>(call: string, error: E): E {
    markUncaught(error, () => {
      if (this.#reported.has(call)) return
      this.#reported.add(call)
      this.#report(`${call} in a function that the handler does not await`, error)
    })
    return error
  }
}

// worker/attempt/guarded-calls.ts: keeps failed calls that a handler forgot from ending the process.
import { markUncaught } from './early-exit.js'

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

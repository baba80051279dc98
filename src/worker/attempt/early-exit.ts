// worker/attempt/early-exit.ts: the errors that end a handler's run early, and the guard for uncaught errors.
import { isInstance } from '../../job/errors.js'

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
    super(`${message} Where nobody catches this, a promise was not awaited.`)
    this[UNCAUGHT] = uncaught
    guard()
  }
}

/**
 * Marks the error of a call that a handler made: `uncaught` is called if nothing catches it, and the process goes on. The
 * last mark counts. A thrown value that is not an object cannot be marked, nor can a frozen one.
 */
export function markUncaught(error: unknown, uncaught: () => void): void {
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

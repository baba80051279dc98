// worker/attempt/early-exit.ts: the errors that end a run of a handler early, and what becomes of one that nobody catches.
import { isInstance } from '../../job/errors.js'

/** Marks the guard, and what it looks for: also those of another copy of this package in the same process. */
const UNCAUGHT = Symbol.for('millrace.uncaught')

/**
 * Thrown by the calls that leave a handler: `ctx.sleep`, `ctx.waitForSignal`, `ctx.waitFor`, `ctx.snooze`. In an async function
 * that the handler does not await, nobody catches it, and Node would end the process: the attempt is told instead.
 */
export class EarlyExit extends Error {
  override readonly name: string = 'Leaving'
  readonly [UNCAUGHT]: () => void

  /** `uncaught` is called where nobody has caught it. */
  constructor(message: string, uncaught: () => void) {
    super(`${message} Where nobody catches this, a promise was not awaited.`)
    this[UNCAUGHT] = uncaught
    guard()
  }
}

/**
 * Listens for rejections that nobody handles. A listener of its own keeps Node from its default, so that is asked for again
 * where the rejection is somebody else's, and nobody else listens.
 */
const onRejection = Object.assign(
  (reason: unknown): void => {
    if (isUncaught(reason)) return reason[UNCAUGHT]()
    if (process.listenerCount('unhandledRejection') > 1) return // theirs to deal with
    process.off('unhandledRejection', onRejection)
    void Promise.reject(reason)
    setImmediate(guard).unref() // where the default is not to end the process
  },
  { [UNCAUGHT]: true },
)

/** Puts the guard there; one is enough for a process. */
function guard(): void {
  if (process.listeners('unhandledRejection').some((each) => UNCAUGHT in each)) return
  process.on('unhandledRejection', onRejection)
}

function isUncaught(reason: unknown): reason is EarlyExit {
  try {
    return isInstance(reason, Error) && typeof (reason as Partial<EarlyExit>)[UNCAUGHT] === 'function'
  } catch {
    return false
  }
}

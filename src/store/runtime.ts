// store/runtime.ts: time, timers, randomness and ids, injected so that the simulator can control them.
import { randomFillSync } from 'node:crypto'
import { performance } from 'node:perf_hooks'
// Imported, not global: fake timers of vitest and jest replace the global ones, and then nothing would be committed.
import { clearTimeout, setImmediate, setTimeout } from 'node:timers'
import type { Millis, Time } from '../job/job.js'
import { createIds } from './ids.js'
import { procfs } from './processes.js'
import type { Processes } from './processes.js'

/** Stops a timer or a subscription; calling it again does nothing. */
export type Stop = () => void

/**
 * `Date.now` as it was when this module was loaded: a fake date stands still, and with real timers nothing would ever be
 * due. Where the date was fake by then, the time is counted from the start of the process.
 */
const timeOfDay: () => Time = /\[native code\]/.test(Function.prototype.toString.call(Date.now))
  ? Date.now
  : () => Math.floor(performance.timeOrigin + performance.now())

/** Everything the code takes from its environment. */
export interface Runtime {
  /** The time of day. */
  now(): Time
  /** A clock that never steps back, for measuring durations. */
  elapsed(): Millis
  /** Runs `work` soon, after the running code and everything already queued. */
  defer(work: () => void): void
  /**
   * Runs `work` once after `delay`, which may exceed the longest timer of the platform. `background`: a process that has
   * nothing else to do may end before that. Default false.
   */
  timer(delay: Millis, work: () => void, background?: boolean): Stop
  /**
   * Like `timer`, for work that is repeated in case something was missed. `slack` returns how much later it may run, as
   * far as its owner knows: 0 if it is needed then, Infinity if it would find nothing. `work` receives how late it runs.
   * A virtual clock skips such work while nothing else happens. Default: `timer`.
   */
  poll?(delay: Millis, work: (late: Millis) => void, slack: () => Millis): Stop
  /** A number in [0, 1). */
  random(): number
  /** A new id, greater than all ids before it. */
  id(): string
  /** The processes of this machine, to detect dead workers. Default: nothing is known, and leases decide. */
  readonly processes?: Processes
}

const LONGEST_TIMER = 2 ** 31 - 1

function timer(delay: Millis, work: () => void, background = false): Stop {
  let handle: NodeJS.Timeout
  const arm = (left: Millis): void => {
    handle = left > LONGEST_TIMER ? setTimeout(() => arm(left - LONGEST_TIMER), LONGEST_TIMER) : setTimeout(work, left)
    if (background) handle.unref()
  }
  arm(Math.max(0, delay))
  return () => clearTimeout(handle)
}

/** Runs `work` once after `delay`, or later where the runtime may skip it; see `Runtime.poll`. */
export function poll(
  runtime: Pick<Runtime, 'timer' | 'elapsed' | 'poll'>,
  delay: Millis,
  work: (late: Millis) => void,
  slack: () => Millis,
): Stop {
  if (runtime.poll !== undefined) return runtime.poll(delay, work, slack)
  const at = runtime.elapsed() + delay
  return runtime.timer(delay, () => work(runtime.elapsed() - at))
}

/** Waits. */
export function sleep(runtime: Pick<Runtime, 'timer'>, delay: Millis): Promise<void> {
  return new Promise((resolve) => void runtime.timer(delay, resolve))
}

/** Whether a promise resolves in time. */
export async function within(runtime: Pick<Runtime, 'timer'>, limit: Millis, work: Promise<unknown>): Promise<boolean> {
  let stop: Stop = () => {}
  const late = new Promise<boolean>((resolve) => {
    stop = runtime.timer(limit, () => resolve(false))
  })
  const done = await Promise.race([work.then(() => true), late])
  stop()
  return done
}

/** Runs work soon, after the running code and everything already queued. Not replaced by fake timers. */
export function defer(work: () => void): void {
  setImmediate(work)
}

/** Runs work after the running code, before timers and I/O. Not `queueMicrotask`, which fake timers replace. */
export function microtask(work: () => void): void {
  void Promise.resolve().then(work)
}

/** The real environment, whatever fake timers a test has installed. Each call returns one with its own ids. */
export function systemRuntime(): Runtime {
  return {
    now: timeOfDay,
    elapsed: () => performance.now(),
    defer,
    timer,
    random: () => Math.random(),
    id: createIds(timeOfDay, (target) => void randomFillSync(target)),
    processes: procfs(),
  }
}

// testing/world/clock.ts: a clock that moves only when told, for tests of one's own.
import { parseDuration } from '../../job/duration.js'
import type { Duration } from '../../job/duration.js'
import type { Millis, Time } from '../../job/job.js'
import { createIds } from '../../store/ids.js'
import type { Runtime } from '../../store/runtime.js'
import { Random } from './random.js'
import { Timeline, drain } from './timeline.js'

/** How a virtual clock begins. */
export interface VirtualClockOptions {
  /** The time of day it begins at. Default: 14 November 2023, 22:13:20 UTC. */
  readonly start?: Time
  /** Where its chance comes from. Default 1. */
  readonly seed?: number
}

/** A world whose time stands still until it is moved. */
export interface VirtualClock {
  /** Give this to a store, as in `memory({ runtime })`: queues and workers on that store live by it. */
  readonly runtime: Runtime
  /** Moves time on: all timers on the way fire, in order, each at its own time. */
  advance(by: Duration): Promise<void>
  /** Moves time on without letting anything happen meanwhile, as code that blocks the event loop does. */
  block(by: Duration): void
  /** Lets everything happen that needs no time. */
  settle(): Promise<void>
  /** Moves time on until `promise` settles, and answers it. Rejects after `limit` (default one day) of virtual time. */
  until<T>(promise: Promise<T>, limit?: Duration): Promise<T>
}

const DAY: Millis = 86_400_000

/**
 * Makes a clock for tests. Calls such as `queue.add` work as ever; only waiting takes `advance`.
 *
 * ```ts
 * const clock = virtualClock()
 * const store = memory({ runtime: clock.runtime })
 * await queue.add('later', {}, { delay: '1h' })
 * await clock.advance('1h')
 * ```
 */
export function virtualClock(options: VirtualClockOptions = {}): VirtualClock {
  const { start = 1_700_000_000_000, seed = 1 } = options
  const timeline = new Timeline()
  const random = new Random(`clock/${seed}`)
  const bits = random.fork('ids')
  const now = (): Time => start + Math.floor(timeline.time)
  let deferred = 0

  const settle = async (): Promise<void> => {
    await drain()
    if (deferred > 0) await settle()
  }

  const runTo = async (end: Millis, done: () => boolean): Promise<void> => {
    await settle()
    while (!done() && timeline.step(end)) await settle()
  }

  return {
    runtime: {
      now,
      elapsed: () => timeline.time,
      defer: (work) => {
        deferred++
        setImmediate(() => {
          deferred--
          work()
        })
      },
      timer: (delay, work) => timeline.after(Math.ceil(delay), work),
      random: () => random.next(),
      id: createIds(now, (target) => {
        for (let at = 0; at < target.length; at++) target[at] = bits.between(0, 255)
      }),
    },
    advance: async (by) => {
      const end = timeline.time + parseDuration(by, 'clock.advance')
      await runTo(end, () => false)
      timeline.time = end
    },
    block: (by) => {
      timeline.time += parseDuration(by, 'clock.block')
    },
    settle,
    until: async (promise, limit = DAY) => {
      let settled = false
      const mark = (): void => {
        settled = true
      }
      promise.then(mark, mark)
      const end = timeline.time + parseDuration(limit, 'clock.until: limit')
      await runTo(end, () => settled)
      if (!settled) throw new Error('clock.until: nothing is left that could settle the promise within the limit.')
      return promise
    },
  }
}

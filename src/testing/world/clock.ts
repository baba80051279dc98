// testing/world/clock.ts: a virtual clock for tests: time stands still until the test advances it.
import { parseDuration } from '../../job/values/duration.js'
import type { Duration } from '../../job/values/duration.js'
import type { Millis, Time } from '../../job/job.js'
import { createIds } from '../../store/ids.js'
import { defer } from '../../store/runtime.js'
import type { Runtime } from '../../store/runtime.js'
import { Polls } from './polls.js'
import { Random } from './random.js'
import { Timeline, drain } from './virtual-timers.js'

/** Options of a virtual clock. */
export interface VirtualClockOptions {
  /** The time of day at which it starts. Default: 14 November 2023, 22:13:20 UTC. */
  readonly start?: Time
  /** The seed of its random numbers and ids. Default 1. */
  readonly seed?: number
}

/** A runtime whose time stands still until it is advanced. */
export interface VirtualClock {
  /** Pass this to a store, as in `memory({ runtime })`: queues and workers on that store use its clock and timers. */
  readonly runtime: Runtime
  /**
   * Advances time. All timers up to then fire in order, each at its own time. Polls of idle queues and workers are
   * skipped, so a day in which nothing happens costs a few steps.
   */
  advance(by: Duration): Promise<void>
  /** Advances time without running any timer meanwhile, as code that blocks the event loop does. */
  block(by: Duration): void
  /** Runs all pending work that needs no time to pass. */
  settle(): Promise<void>
  /** Advances time until `promise` settles and returns it. Rejects after `limit` of virtual time (default one day). */
  until<T>(promise: Promise<T>, limit?: Duration): Promise<T>
}

const DAY: Millis = 86_400_000

/**
 * Creates a clock for tests. Calls such as `queue.add` work as usual; only waiting needs `advance`.
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
  const polls = new Polls()
  const random = new Random(`clock/${seed}`)
  const bits = random.fork('ids')
  const now = (): Time => start + Math.floor(timeline.time)
  let deferred = 0

  const settle = async (): Promise<void> => {
    await drain()
    if (deferred > 0) await settle()
  }

  /** Fires the next timer or poll at or before `end`. Returns false if there is none. */
  const step = (end: Millis): boolean => {
    const limit = Math.min(end, timeline.next ?? Infinity)
    const poll = polls.next(limit)
    if (poll === undefined || poll >= (timeline.next ?? Infinity)) {
      polls.happens(limit)
      return timeline.step(end)
    }
    if (poll > end) return false
    timeline.time = Math.max(timeline.time, poll)
    polls.fire(limit, timeline.time)
    return true
  }

  // Code that is waited for may itself advance the clock. That goes first, or the wait would run ahead of it.
  const runs: { readonly waits: boolean }[] = []
  const isNext = (run: object): boolean => (runs.findLast(({ waits }) => !waits) ?? runs.at(-1)) === run
  const runTo = async (end: Millis, waits: boolean, done: () => boolean): Promise<void> => {
    const run = { waits }
    runs.push(run)
    try {
      polls.happens(timeline.time)
      await settle()
      while (!done()) {
        if (isNext(run) && !step(end)) break
        while (!isNext(run)) await drain()
        await settle()
      }
    } finally {
      runs.splice(runs.indexOf(run), 1)
    }
  }

  return {
    runtime: {
      now,
      elapsed: () => timeline.time,
      defer: (work) => {
        deferred++
        defer(() => {
          deferred--
          work()
        })
      },
      timer: (delay, work) => timeline.after(Math.ceil(delay), work),
      poll: (...poll) => polls.add(timeline.time, ...poll),
      random: () => random.next(),
      id: createIds(now, (target) => {
        for (let at = 0; at < target.length; at++) target[at] = bits.between(0, 255)
      }),
    },
    advance: async (by) => {
      const end = timeline.time + parseDuration(by, 'clock.advance')
      await runTo(end, false, () => false)
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
      await runTo(end, true, () => settled)
      if (!settled) throw new Error('clock.until: nothing is left that could settle the promise within the limit.')
      return promise
    },
  }
}

// testing/world/process.ts: a simulated process with its own runtime, behind a gate that can be frozen or closed for good.
import { parseDuration } from '../../job/values/duration.js'
import type { Duration } from '../../job/values/duration.js'
import type { Millis } from '../../job/job.js'
import type { Runtime, Stop } from '../../store/runtime.js'
import type { Random } from './random.js'
import type { Timeline } from './virtual-timers.js'

/** The time of day at which every simulation starts. */
export const EPOCH = 1_700_000_000_000

type Source = 'timer' | 'deferred' | 'response'

/** What the code that runs in a simulated process can call. */
export interface SimulatedProcess {
  /** For example `w1`, or `w1.2` after a restart. */
  readonly name: string
  /** Waits in virtual time. Rejects with the signal's reason when it aborts. */
  sleep(delay: Duration, signal?: AbortSignal): Promise<void>
  /** Blocks the event loop: nothing else runs in this process meanwhile, no renewal and no timer. */
  block(delay: Duration): Promise<void>
  /** The time of day, as this process's clock shows it. */
  now(): number
  /** A random number in [0, 1), from the seed. */
  random(): number
}

/** One process of a simulation. Callbacks reach it only through its gate. */
export class Process implements SimulatedProcess {
  readonly name: string
  readonly runtime: Runtime
  /** It cannot reach the store until this time. */
  outageUntil: Millis = 0
  /** It still reaches the store when an outage hits all processes. */
  exemptFromOutages = false
  readonly #timeline: Timeline
  readonly #random: Random
  readonly #onFreeze: ((lasts: Millis) => void) | undefined
  #state: 'running' | 'frozen' | 'dead' = 'running'
  #frozenUntil: Millis = 0
  #queued: { readonly source: Source; readonly work: () => void }[] = []

  /** `skew` is how far its clock is ahead of the true time; `onFreeze` is called at each freeze, with its length. */
  constructor(name: string, timeline: Timeline, random: Random, skew: Millis, onFreeze?: (lasts: Millis) => void) {
    this.name = name
    this.#timeline = timeline
    this.#onFreeze = onFreeze
    this.#random = random.fork('process')
    const jitter = random.fork('runtime')
    let ids = 0
    this.runtime = {
      now: () => EPOCH + Math.floor(timeline.time) + skew,
      elapsed: () => timeline.time,
      defer: (work) => void timeline.after(0, () => this.enter('deferred', work)),
      timer: (delay, work) => this.#timer(delay, work),
      random: () => jitter.next(),
      id: () => `${name}-${String(++ids).padStart(5, '0')}`,
    }
  }

  get alive(): boolean {
    return this.#state !== 'dead'
  }

  /** Runs `work` in this process: now, when it thaws, or never if it is dead. */
  enter(source: Source, work: () => void): void {
    if (this.#state === 'dead') return
    // New work must not overtake work that is left from a freeze.
    if (this.#state === 'frozen' || this.#queued.length > 0) this.#queued.push({ source, work })
    else work()
  }

  /** Stops running work for a while. Work that arrives meanwhile runs late, after the thaw. */
  freeze(delay: Millis): void {
    if (this.#state === 'dead') return
    this.#state = 'frozen'
    this.#onFreeze?.(delay)
    this.#frozenUntil = Math.max(this.#frozenUntil, this.#timeline.time + delay)
    this.#timeline.after(delay, () => {
      if (this.#timeline.time >= this.#frozenUntil) this.thaw()
    })
  }

  /** Ends a freeze. Like a real event loop, it then runs its timers first, or everything in the order of arrival. */
  thaw(): void {
    if (this.#state !== 'frozen') return
    this.#state = 'running'
    this.#frozenUntil = 0
    if (this.#random.chance(0.5)) this.#queued.sort((a, b) => rank(a.source) - rank(b.source))
    this.#catchUp()
  }

  #catchUp(): void {
    if (this.#queued.length === 0) return
    this.#timeline.after(0, () => {
      if (this.#state !== 'running') return
      this.#queued.shift()?.work()
      this.#catchUp()
    })
  }

  /** Kills the process: no work runs in it any more. */
  kill(): void {
    this.#state = 'dead'
    this.#queued = []
  }

  sleep(delay: Duration, signal?: AbortSignal): Promise<void> {
    const millis = parseDuration(delay, 'process.sleep')
    return new Promise((resolve, reject) => {
      const abort = (): void => {
        stop()
        reject(signal?.reason as Error)
      }
      const stop = this.#timer(millis, () => {
        signal?.removeEventListener('abort', abort)
        resolve()
      })
      if (signal?.aborted === true) abort()
      else signal?.addEventListener('abort', abort, { once: true })
    })
  }

  block(delay: Duration): Promise<void> {
    this.freeze(parseDuration(delay, 'process.block'))
    // At the front, so that the caller that blocked continues before any other work.
    return new Promise((resolve) => this.#queued.unshift({ source: 'timer', work: resolve }))
  }

  now(): number {
    return this.runtime.now()
  }

  random(): number {
    return this.#random.next()
  }

  #timer(delay: Millis, work: () => void): Stop {
    // A timer that is stopped while it is queued must not run either.
    let stopped = false
    const stop = this.#timeline.after(Math.ceil(delay), () => {
      this.enter('timer', () => {
        if (!stopped) work()
      })
    })
    return () => {
      stopped = true
      stop()
    }
  }
}

function rank(source: Source): number {
  return source === 'timer' ? 0 : 1
}

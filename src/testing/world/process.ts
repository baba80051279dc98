// testing/world/process.ts: a simulated process: a world of its own behind a gate that can be frozen or shut for good.
import { parseDuration } from '../../job/duration.js'
import type { Duration } from '../../job/duration.js'
import type { Millis } from '../../job/job.js'
import type { Runtime, Stop } from '../../store/runtime.js'
import type { Random } from './random.js'
import type { Timeline } from './timeline.js'

/** The time of day at which every simulation begins. */
export const EPOCH = 1_700_000_000_000

type Source = 'timer' | 'deferred' | 'answer'

/** What a simulated process gives to the code that runs in it. */
export interface SimulatedProcess {
  /** Such as `w1`, or `w1.2` after a restart. */
  readonly name: string
  /** Waits in virtual time; rejects with the signal's reason when it aborts. */
  sleep(delay: Duration, signal?: AbortSignal): Promise<void>
  /** Keeps the event loop busy: nothing else runs in this process meanwhile, no renewal and no timer. */
  block(delay: Duration): Promise<void>
  /** The time of day, as this process's clock shows it. */
  now(): number
  /** A number in [0, 1), by the seed. */
  random(): number
}

/** One process of a simulation. Callbacks reach it only through its gate. */
export class Process implements SimulatedProcess {
  readonly name: string
  readonly runtime: Runtime
  /** Its connection to the store is broken until then. */
  outageUntil: Millis = 0
  /** Its connection holds when those of all others break. */
  sheltered = false
  readonly #timeline: Timeline
  readonly #random: Random
  readonly #onFreeze: ((lasts: Millis) => void) | undefined
  #state: 'running' | 'frozen' | 'dead' = 'running'
  #frozenUntil: Millis = 0
  #held: { readonly source: Source; readonly work: () => void }[] = []

  /** `skew` is how far its clock is ahead of the true one; `onFreeze` is called whenever nothing runs here for a while. */
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

  /** Runs `work` here: at once, when the process thaws, or never. */
  enter(source: Source, work: () => void): void {
    if (this.#state === 'dead') return
    // While there is something left from a freeze, nothing overtakes it.
    if (this.#state === 'frozen' || this.#held.length > 0) this.#held.push({ source, work })
    else work()
  }

  /** Nothing runs here for a while; what comes meanwhile runs then, late. */
  freeze(delay: Millis): void {
    if (this.#state === 'dead') return
    this.#state = 'frozen'
    this.#onFreeze?.(delay)
    this.#frozenUntil = Math.max(this.#frozenUntil, this.#timeline.time + delay)
    this.#timeline.after(delay, () => {
      if (this.#timeline.time >= this.#frozenUntil) this.thaw()
    })
  }

  /** Ends a freeze. An event loop that wakes up finds its timers first, or its answers in the order they came. */
  thaw(): void {
    if (this.#state !== 'frozen') return
    this.#state = 'running'
    this.#frozenUntil = 0
    if (this.#random.chance(0.5)) this.#held.sort((a, b) => rank(a.source) - rank(b.source))
    this.#catchUp()
  }

  #catchUp(): void {
    if (this.#held.length === 0) return
    this.#timeline.after(0, () => {
      if (this.#state !== 'running') return
      this.#held.shift()?.work()
      this.#catchUp()
    })
  }

  /** The process is gone: whatever comes never runs. */
  kill(): void {
    this.#state = 'dead'
    this.#held = []
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
    // Held first, so that who blocked goes on before anybody else.
    return new Promise((resolve) => this.#held.unshift({ source: 'timer', work: resolve }))
  }

  now(): number {
    return this.runtime.now()
  }

  random(): number {
    return this.#random.next()
  }

  #timer(delay: Millis, work: () => void): Stop {
    // A timer stopped while it was held must not run either.
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

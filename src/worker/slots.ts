// worker/slots.ts: the attempts of a worker: those running, those leased ahead, and how many of these to hold.
import type { Millis } from '../job/job.js'
import type { Attempt } from './attempt.js'
import { Bag } from './bag.js'

/** What is leased ahead should start within about this long. */
const AHEAD: Millis = 100
/** How many round trips to the store it should last for: one under way, and one for the ask after it. */
const TRIPS = 3
/** The most that is ever leased ahead. */
const MOST_AHEAD = 4000

/** Runs at most so many attempts at a time; the others wait their turn here. */
export class Slots {
  readonly #concurrency: number
  readonly #mayStart: (attempt: Attempt) => boolean
  readonly #running = new Bag<'runningAt', Attempt>('runningAt')
  #queue: (Attempt | undefined)[] = []
  #head = 0
  #starting = false
  #idle: (() => void)[] = []

  /** `mayStart` is asked just before a handler is called; an attempt that may not is dropped. */
  constructor(concurrency: number, mayStart: (attempt: Attempt) => boolean) {
    this.#concurrency = concurrency
    this.#mayStart = mayStart
  }

  /** Attempts whose handlers are running. */
  get running(): readonly Attempt[] {
    return this.#running.items
  }

  /** Attempts that wait for a slot. */
  get ahead(): number {
    return this.#queue.length - this.#head
  }

  /** Slots that nothing is waiting for. */
  get free(): number {
    return Math.max(0, this.#concurrency - this.#running.size - this.ahead)
  }

  /** Takes in claimed jobs, in the order in which they should start. */
  push(attempt: Attempt): void {
    this.#queue.push(attempt)
  }

  /** Starts what there are slots for. A handler that ends at once makes room for the next without a call inside a call. */
  fill(): void {
    if (this.#starting) return
    this.#starting = true
    try {
      this.#startWhatFits()
    } finally {
      this.#starting = false
    }
    this.#compact()
  }

  #startWhatFits(): void {
    while (this.#running.size < this.#concurrency && this.#head < this.#queue.length) {
      const attempt = this.#queue[this.#head]!
      this.#queue[this.#head++] = undefined // so that it can die young
      if (!this.#mayStart(attempt)) continue
      this.#running.add(attempt)
      attempt.start()
    }
  }

  /** Forgets those that have started, which a queue that is never empty would otherwise hold for ever. */
  #compact(): void {
    if (this.#head < this.#queue.length && (this.#head < 64 || this.#head < this.#queue.length / 2)) return
    this.#queue = this.#queue.slice(this.#head)
    this.#head = 0
  }

  /** A handler has ended, or was given up. */
  release(attempt: Attempt): void {
    this.#running.delete(attempt)
    if (this.#running.size === 0) for (const done of this.#idle.splice(0)) done()
  }

  /** Takes out all that have not started. */
  takeAhead(): readonly Attempt[] {
    const waiting = this.#queue.slice(this.#head) as readonly Attempt[]
    this.#queue = []
    this.#head = 0
    return waiting
  }

  /** The one that has waited longest for a slot. */
  get first(): Attempt | undefined {
    return this.#queue[this.#head]
  }

  /** Resolves when no handler is running. */
  whenIdle(): Promise<void> {
    return this.#running.size === 0 ? Promise.resolve() : new Promise((resolve) => this.#idle.push(resolve))
  }
}

/** Measures how fast jobs end here, to size what is leased ahead. */
export class Pace {
  readonly #elapsed: () => Millis
  #ended = 0
  #since: Millis
  /** Jobs a millisecond. */
  #rate = 0

  constructor(elapsed: () => Millis) {
    this.#elapsed = elapsed
    this.#since = elapsed()
  }

  /** A job has ended. */
  ended(): void {
    this.#ended++
  }

  /** How many jobs to hold: as many as will start while the store, by its last trips, is asked for more. */
  target(trip: Millis): number {
    const now = this.#elapsed()
    const span = now - this.#since
    if (span >= 1 && this.#ended > 0) {
      const rate = this.#ended / span
      this.#rate = this.#rate === 0 ? rate : (this.#rate + rate) / 2
      this.#ended = 0
      this.#since = now
    } else if (this.#ended === 0) {
      this.#since = now
    }
    return Math.min(MOST_AHEAD, Math.floor(this.#rate * Math.min(AHEAD, TRIPS * trip)))
  }

  /** Forgets what was measured: jobs have become slower than that. */
  reset(): void {
    this.#rate = 0
    this.#ended = 0
  }
}

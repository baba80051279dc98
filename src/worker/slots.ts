// worker/slots.ts: the attempts of a worker: those running, those leased ahead, and how many of these to hold.
import type { Millis } from '../job/job.js'
import type { Attempt } from './attempt/attempt.js'
import { IndexedSet } from './indexed-set.js'
import { Batch } from './batches/run.js'
import type { BatchHost } from './batches/run.js'

/** What is leased ahead should start within about this long. */
const AHEAD: Millis = 100
/** How many round trips to the store it should last for: one under way, and one for the ask after it. */
const TRIPS = 3
/** The most that is ever leased ahead. */
const MOST_AHEAD = 4000

/** What slots need of their worker. */
export interface SlotHost extends BatchHost {
  /** Asked just before a handler is called; an attempt that may not is dropped. */
  mayStart(attempt: Attempt): boolean
  /** The handler of a job has ended, or was given up. */
  vacated(id: string): void
}

/** What takes a slot: a job, or a batch of them. */
type Unit = Attempt | Batch

/** Runs at most so many attempts or batches at a time; the others wait their turn here. */
export class Slots {
  readonly #concurrency: number
  readonly #host: SlotHost
  readonly #running = new IndexedSet<'runningAt', Attempt>('runningAt')
  /** Slots taken: by attempts, and by batches from when they gather in one. */
  #taken = 0
  #queue: (Unit | undefined)[] = []
  #head = 0
  /** Jobs in the queue beyond one for each unit. */
  #more = 0
  /** The batch of each name that still takes in jobs. */
  readonly #open = new Map<string, Batch>()
  /** Batches that have a slot and have not started. */
  readonly #seated = new Set<Batch>()
  #starting = false
  #idle: (() => void)[] = []

  constructor(concurrency: number, host: SlotHost) {
    this.#concurrency = concurrency
    this.#host = host
  }

  /** Attempts whose handlers are running. */
  get running(): readonly Attempt[] {
    return this.#running.items
  }

  /** Attempts that wait for a slot. */
  get ahead(): number {
    return this.#queue.length - this.#head + this.#more
  }

  /** Slots that nothing is waiting for. */
  get free(): number {
    return Math.max(0, this.#concurrency - this.#taken - this.#queue.length + this.#head)
  }

  /** Batches that have a slot, gather jobs, and may find some in the store. */
  get gathering(): readonly Batch[] {
    return this.#seated.size === 0 ? NONE : [...this.#seated].filter((batch) => batch.room > 0 && !batch.dry)
  }

  /** Takes in claimed jobs, in the order in which they should start. */
  push(attempt: Attempt): void {
    const { many } = attempt.handler
    if (many === undefined) {
      this.#queue.push(attempt)
      return
    }
    const { name } = attempt.record
    let batch = this.#open.get(name)
    if (batch === undefined) {
      this.#open.set(name, (batch = new Batch(name, many, this.#host)))
      this.#queue.push(batch)
    } else if (!this.#seated.has(batch)) this.#more++
    batch.add(attempt)
    if (batch.room === 0) this.#open.delete(name)
  }

  /** The store has no more jobs of this name, or of any; or it may have some again. */
  ranDry(dry: boolean, name?: string): void {
    for (const batch of this.#open.values()) if (name === undefined || name === batch.name) batch.dry = dry
  }

  /**
   * Starts what there are slots for. A handler that ends at once makes room for the next without a call inside a call.
   * Batches that find a slot go with what they have, unless the store `mayHaveMore` for them.
   */
  fill(mayHaveMore = false): void {
    if (this.#starting) return
    this.#starting = true
    try {
      this.#startWhatFits(mayHaveMore)
      for (const batch of this.#seated) if (batch.isReady) this.#startBatch(batch)
    } finally {
      this.#starting = false
    }
    this.#compact()
  }

  #startWhatFits(mayHaveMore: boolean): void {
    while (this.#taken < this.#concurrency && this.#head < this.#queue.length) {
      const unit = this.#queue[this.#head]!
      this.#queue[this.#head++] = undefined // so that it can die young
      if (unit instanceof Batch) this.#seat(unit, mayHaveMore)
      else if (this.#host.mayStart(unit)) {
        this.#taken++
        this.#running.add(unit)
        unit.start()
      }
    }
  }

  #seat(batch: Batch, mayHaveMore: boolean): void {
    this.#taken++
    this.#more -= batch.attempts.length - 1
    this.#seated.add(batch)
    if (!mayHaveMore) batch.dry = true
    if (batch.isReady) this.#startBatch(batch)
  }

  #startBatch(batch: Batch): void {
    this.#close(batch)
    const attempts = batch.attempts.filter((each) => this.#host.mayStart(each))
    for (const each of attempts) this.#running.add(each)
    if (attempts.length > 0) batch.start(attempts)
    else this.#taken--
  }

  #close(batch: Batch): void {
    batch.stop()
    this.#seated.delete(batch)
    if (this.#open.get(batch.name) === batch) this.#open.delete(batch.name)
  }

  /** Forgets those that have started, which a queue that is never empty would otherwise hold for ever. */
  #compact(): void {
    if (this.#head < this.#queue.length && (this.#head < 64 || this.#head < this.#queue.length / 2)) return
    this.#queue = this.#queue.slice(this.#head)
    this.#head = 0
  }

  /** A job has ended, and with it its handler, unless that goes on for others; or it was given up. */
  release(attempt: Attempt): void {
    if (attempt.batch === undefined) this.#taken--
    else if (!attempt.batch.ended(attempt)) return
    this.#vacate(attempt)
  }

  /** The call of a batch has ended, and these jobs had ended before. */
  releaseBatch(left: readonly Attempt[]): void {
    this.#taken--
    for (const attempt of left) this.#vacate(attempt)
  }

  #vacate(attempt: Attempt): void {
    this.#host.vacated(attempt.record.id)
    this.#running.delete(attempt)
    if (this.#running.size === 0) for (const done of this.#idle.splice(0)) done()
  }

  /** Takes out all that have no slot. */
  takeAhead(): readonly Attempt[] {
    const waiting = this.#queue.slice(this.#head) as readonly Unit[]
    this.#queue = []
    this.#head = 0
    this.#more = 0
    return waiting.flatMap((unit) => this.#unpack(unit))
  }

  /** Takes out all that gather. */
  takeGathering(): readonly Attempt[] {
    const seated = [...this.#seated]
    this.#taken -= seated.length
    return seated.flatMap((batch) => this.#unpack(batch))
  }

  #unpack(unit: Unit): readonly Attempt[] {
    if (!(unit instanceof Batch)) return [unit]
    this.#close(unit)
    return unit.attempts
  }

  /** The one that has waited longest for a slot. */
  get first(): Attempt | undefined {
    const unit = this.#queue[this.#head]
    return unit instanceof Batch ? unit.attempts[0] : unit
  }

  /** Resolves when no handler is running. */
  whenIdle(): Promise<void> {
    return this.#running.size === 0 ? Promise.resolve() : new Promise((resolve) => this.#idle.push(resolve))
  }
}

const NONE: readonly Batch[] = []

/** Measures how fast jobs end here, to size what is leased ahead. */
export class Prefetch {
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

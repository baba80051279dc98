// worker/slots.ts: the attempts of a worker that run or are prefetched, and how many to prefetch.
import type { Millis } from '../job/job.js'
import { bytesOfRecord } from '../store/read-pages.js'
import type { Attempt } from './attempt/attempt.js'
import { IndexedSet } from './indexed-set.js'
import { Batch } from './batches/run.js'
import type { BatchHost } from './batches/run.js'

/** Prefetched jobs should start within about this long. */
const START_WITHIN: Millis = 100
/** How many round trips to the store the prefetched jobs should last for: the one in flight, and the claim after it. */
const ROUND_TRIPS = 3
/** The most jobs that are ever prefetched. */
const MAX_PREFETCH = 4000

/** What slots need of their worker. */
export interface SlotHost extends BatchHost {
  /** Called just before a handler starts; if false, the attempt is dropped. */
  mayStart(attempt: Attempt): boolean
  /** The handler of a job has ended, or was abandoned. */
  handlerEnded(id: string): void
}

/** What takes a slot: a job, or a batch of jobs. */
type Unit = Attempt | Batch

/** Runs a bounded number of attempts or batches at a time; the others wait here in order. */
export class Slots {
  readonly #concurrency: number
  readonly #host: SlotHost
  readonly #running = new IndexedSet<'runningAt', Attempt>('runningAt')
  /** Slots in use. A batch uses its slot from the moment it gathers jobs there. */
  #taken = 0
  #queue: (Unit | undefined)[] = []
  #head = 0
  /** Jobs in the queue beyond the first of each unit. */
  #extra = 0
  /** About how many bytes the jobs in the queue hold. */
  #aheadBytes = 0
  /** The batch of each name that still accepts jobs. */
  readonly #open = new Map<string, Batch>()
  /** Batches that have a slot and have not started. */
  readonly #inSlot = new Set<Batch>()
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
    return this.#queue.length - this.#head + this.#extra
  }

  /** About how many bytes the jobs of these attempts hold. */
  get aheadBytes(): number {
    return this.#aheadBytes
  }

  /** Slots that no attempt waits for. */
  get free(): number {
    return Math.max(0, this.#concurrency - this.#taken - this.#queue.length + this.#head)
  }

  /** Batches that have a slot and space for more jobs, of which the store may have some. */
  get gathering(): readonly Batch[] {
    return this.#inSlot.size === 0 ? NONE : [...this.#inSlot].filter((batch) => batch.room > 0 && !batch.dry)
  }

  /** Accepts claimed jobs, in the order in which they should start. */
  push(attempt: Attempt): void {
    const { batching } = attempt.handler
    if (batching === undefined) {
      this.#queue.push(attempt)
      this.#aheadBytes += bytesOfRecord(attempt.record)
      return
    }
    const { name } = attempt.record
    let batch = this.#open.get(name)
    if (batch === undefined) {
      this.#open.set(name, (batch = new Batch(name, batching, this.#host)))
      this.#queue.push(batch)
    } else if (!this.#inSlot.has(batch)) this.#extra++
    if (!this.#inSlot.has(batch)) this.#aheadBytes += bytesOfRecord(attempt.record)
    batch.add(attempt)
    if (batch.room === 0) this.#open.delete(name)
  }

  /** Records whether the store has run dry of jobs of this name, or of any name if undefined. */
  ranDry(dry: boolean, name?: string): void {
    for (const batch of this.#open.values()) if (name === undefined || name === batch.name) batch.dry = dry
  }

  /**
   * Starts what fits into free slots. A loop and not recursion, so that a handler that ends at once lets the next one
   * start without a nested call. A batch that gets a slot starts with the jobs it has, unless the store `mayHaveMore`
   * for it.
   */
  fill(mayHaveMore = false): void {
    if (this.#starting) return
    this.#starting = true
    try {
      this.#startWhatFits(mayHaveMore)
      for (const batch of this.#inSlot) if (batch.isReady) this.#startBatch(batch)
    } finally {
      this.#starting = false
    }
    this.#compact()
  }

  #startWhatFits(mayHaveMore: boolean): void {
    while (this.#taken < this.#concurrency && this.#head < this.#queue.length) {
      const unit = this.#queue[this.#head]!
      this.#queue[this.#head++] = undefined // so that it can be garbage-collected early
      this.#aheadBytes -= bytesOfUnit(unit)
      if (unit instanceof Batch) this.#giveSlot(unit, mayHaveMore)
      else if (this.#host.mayStart(unit)) {
        this.#taken++
        this.#running.add(unit)
        unit.start()
      }
    }
  }

  #giveSlot(batch: Batch, mayHaveMore: boolean): void {
    this.#taken++
    this.#extra -= batch.attempts.length - 1
    this.#inSlot.add(batch)
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
    this.#inSlot.delete(batch)
    if (this.#open.get(batch.name) === batch) this.#open.delete(batch.name)
  }

  /** Drops the started entries, which a queue that is never empty would otherwise keep for ever. */
  #compact(): void {
    if (this.#head < this.#queue.length && (this.#head < 64 || this.#head < this.#queue.length / 2)) return
    this.#queue = this.#queue.slice(this.#head)
    this.#head = 0
  }

  /**
   * A job has ended or was abandoned. Frees its slot, unless it is a job of a batch whose handler continues for others.
   */
  release(attempt: Attempt): void {
    if (attempt.batch === undefined) this.#taken--
    else if (!attempt.batch.ended(attempt)) return
    this.#endHandler(attempt)
  }

  /** The call of a batch has ended; `left` are its jobs that had ended before. */
  releaseBatch(left: readonly Attempt[]): void {
    this.#taken--
    for (const attempt of left) this.#endHandler(attempt)
  }

  #endHandler(attempt: Attempt): void {
    this.#host.handlerEnded(attempt.record.id)
    this.#running.delete(attempt)
    if (this.#running.size === 0) for (const done of this.#idle.splice(0)) done()
  }

  /** Removes and returns all attempts without a slot. */
  takePrefetched(): readonly Attempt[] {
    const waiting = this.#queue.slice(this.#head) as readonly Unit[]
    this.#queue = []
    this.#head = 0
    this.#extra = 0
    this.#aheadBytes = 0
    return waiting.flatMap((unit) => this.#unpack(unit))
  }

  /** Removes and returns the attempts of all batches that are gathering. */
  takeGathering(): readonly Attempt[] {
    const inSlot = [...this.#inSlot]
    this.#taken -= inSlot.length
    return inSlot.flatMap((batch) => this.#unpack(batch))
  }

  #unpack(unit: Unit): readonly Attempt[] {
    if (!(unit instanceof Batch)) return [unit]
    this.#close(unit)
    return unit.attempts
  }

  /** The attempt that has waited longest for a slot. */
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

function bytesOfUnit(unit: Unit): number {
  if (!(unit instanceof Batch)) return bytesOfRecord(unit.record)
  return unit.attempts.reduce((sum, { record }) => sum + bytesOfRecord(record), 0)
}

/** Measures how fast jobs end here, to decide how many to prefetch. */
export class Prefetch {
  readonly #elapsed: () => Millis
  #ended = 0
  #since: Millis
  /** Jobs per millisecond. */
  #rate = 0

  constructor(elapsed: () => Millis) {
    this.#elapsed = elapsed
    this.#since = elapsed()
  }

  /** Counts a job that has ended. */
  ended(): void {
    this.#ended++
  }

  /** How many jobs to prefetch: as many as start during the next claim. `trip` is how long recent claims took. */
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
    return Math.min(MAX_PREFETCH, Math.floor(this.#rate * Math.min(START_WITHIN, ROUND_TRIPS * trip)))
  }

  /** Discards the measurements: jobs have become slower. */
  reset(): void {
    this.#rate = 0
    this.#ended = 0
  }
}

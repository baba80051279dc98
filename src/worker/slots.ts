// worker/slots.ts: the attempts of a worker that run, and those that wait for a slot.
import type { Millis } from '../job/job.js'
import { bytesOfRecord } from '../store/read-pages.js'
import type { Runtime } from '../store/runtime.js'
import type { Attempt } from './attempt/attempt.js'
import type { HandlerAttempt } from './attempt/handler-attempt.js'
import { Batch } from './batches/run.js'
import { IndexedSet } from './indexed-set.js'
import type { WorkerParts } from './parts.js'

/** What takes a slot: a job, or a batch of jobs. */
type Unit = HandlerAttempt | Batch

/** A bounded number of slots for attempts or batches; the others wait here in order. */
export class Slots {
  readonly #concurrency: number
  readonly #abandonAfter: Millis
  readonly #runtime: Runtime
  readonly #emptied: () => void
  readonly #running = new IndexedSet<'runningAt', Attempt>('runningAt')
  /** The batch of each running attempt that is in one. */
  readonly #batches = new Map<Attempt, Batch>()
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
  #idle: (() => void)[] = []

  /** `emptied`: a batch has lost all of its jobs while it gathered, and needs no slot. */
  constructor({ settings, connection }: Pick<WorkerParts, 'settings' | 'connection'>, emptied: () => void) {
    this.#emptied = emptied
    this.#concurrency = settings.concurrency
    this.#abandonAfter = settings.abandonAfter
    this.#runtime = connection.runtime
  }

  /** Attempts whose handlers are running. */
  get running(): readonly Attempt[] {
    return this.#running.items
  }

  /** Attempts that wait for a slot. */
  get ahead(): number {
    return this.#queue.length - this.#head + this.#extra
  }

  /** Attempts that have not started: those that wait for a slot, and those of batches that gather in one. */
  get unstarted(): number {
    let count = this.ahead
    for (const batch of this.#inSlot) count += batch.attempts.length
    return count
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

  /**
   * Accepts a claimed job, in the order in which they should start. Returns the batch that it opened, if that gathers
   * for a time.
   */
  push(attempt: HandlerAttempt): Batch | undefined {
    const { batching } = attempt.handler
    if (batching === undefined) {
      this.#queue.push(attempt)
      this.#aheadBytes += bytesOfRecord(attempt.record)
      return undefined
    }
    const { name } = attempt.record
    let batch = this.#open.get(name)
    const isNew = batch === undefined
    if (batch === undefined) {
      batch = new Batch(name, batching, this.#runtime, this.#abandonAfter)
      this.#open.set(name, batch)
      this.#queue.push(batch)
    } else if (!this.#inSlot.has(batch)) this.#extra++
    if (!this.#inSlot.has(batch)) this.#aheadBytes += bytesOfRecord(attempt.record)
    batch.add(attempt)
    const joined = batch
    attempt.onAbort = () => this.#dropFrom(joined, attempt)
    if (batch.room === 0) this.#open.delete(name)
    return isNew && batch.wait > 0 ? batch : undefined
  }

  /** A job was lost before its batch started: the batch can take another one, or ends if it was the last. */
  #dropFrom(batch: Batch, attempt: HandlerAttempt): void {
    if (!batch.drop(attempt)) return
    if (!this.#inSlot.has(batch)) {
      this.#extra--
      this.#aheadBytes -= bytesOfRecord(attempt.record)
    }
    if (batch.attempts.length === 0) this.#emptied()
  }

  /** Records whether the store has run dry of jobs of this name, or of any name if undefined. */
  ranDry(dry: boolean, name?: string): void {
    for (const batch of this.#open.values()) if (name === undefined || name === batch.name) batch.dry = dry
  }

  /**
   * Removes and returns the next job or batch that can start; undefined if there is none, or no slot. A batch that gets
   * a slot can start with the jobs it has, unless the store `mayHaveMore` for it.
   */
  next(mayHaveMore: boolean): Unit | undefined {
    while (this.#taken < this.#concurrency && this.#head < this.#queue.length) {
      const unit = this.#queue[this.#head]!
      this.#queue[this.#head++] = undefined // so that it can be garbage-collected early
      this.#aheadBytes -= bytesOfUnit(unit)
      if (!(unit instanceof Batch)) return unit
      this.#taken++
      this.#extra -= unit.attempts.length - 1
      this.#inSlot.add(unit)
      if (!mayHaveMore) unit.dry = true
      if (unit.isReady) return this.#close(unit)
    }
    for (const batch of this.#inSlot) if (batch.isReady) return this.#close(batch)
    this.#compact()
    return undefined
  }

  /** A job takes a slot. */
  take(attempt: Attempt): void {
    this.#taken++
    this.#running.add(attempt)
  }

  /** The jobs of a batch start in the slot that the batch has. If there are none, the slot is free again. */
  takeBatch(batch: Batch, attempts: readonly Attempt[]): void {
    if (attempts.length === 0) this.#taken--
    for (const attempt of attempts) {
      this.#running.add(attempt)
      this.#batches.set(attempt, batch)
    }
  }

  /** The batch accepts no more jobs. */
  #close(batch: Batch): Batch {
    batch.stop()
    this.#inSlot.delete(batch)
    if (this.#open.get(batch.name) === batch) this.#open.delete(batch.name)
    return batch
  }

  /** Drops the started entries, which a queue that is never empty would otherwise keep for ever. */
  #compact(): void {
    if (this.#head < this.#queue.length && (this.#head < 64 || this.#head < this.#queue.length / 2)) return
    this.#queue = this.#queue.slice(this.#head)
    this.#head = 0
  }

  /**
   * A job has ended or was abandoned. Frees its slot and returns true, unless it is a job of a batch whose handler
   * continues for others.
   */
  release(attempt: Attempt): boolean {
    if (!attempt.inBatch) this.#taken--
    else if (this.#batches.get(attempt)?.ended(attempt) === false) return false
    this.#endHandler(attempt)
    return true
  }

  /** The call of a batch has ended; `left` are its jobs that had ended before. */
  releaseBatch(left: readonly Attempt[]): void {
    this.#taken--
    for (const attempt of left) this.#endHandler(attempt)
  }

  #endHandler(attempt: Attempt): void {
    if (attempt.inBatch) this.#batches.delete(attempt)
    this.#running.delete(attempt)
    if (this.#running.size === 0) for (const done of this.#idle.splice(0)) done()
  }

  /** Removes and returns all attempts without a slot. */
  takePrefetched(): readonly HandlerAttempt[] {
    const waiting = this.#queue.slice(this.#head) as readonly Unit[]
    this.#queue = []
    this.#head = 0
    this.#extra = 0
    this.#aheadBytes = 0
    return waiting.flatMap((unit) => this.#unpack(unit))
  }

  /** Removes and returns the attempts of all batches that are gathering. */
  takeGathering(): readonly HandlerAttempt[] {
    const inSlot = [...this.#inSlot]
    this.#taken -= inSlot.length
    return inSlot.flatMap((batch) => this.#unpack(batch))
  }

  #unpack(unit: Unit): readonly HandlerAttempt[] {
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

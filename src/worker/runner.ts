// worker/runner.ts: the path of a job through its worker: claim → run → outcome → settle → report → the next claim.
import type { MillraceError } from '../job/errors/errors.js'
import { holdKey, isFor } from '../job/holds.js'
import type { HoldEnd } from '../job/holds.js'
import type { JobRecord, Millis } from '../job/job.js'
import type { Outcome } from '../job/lifecycle.js'
import type { Stop } from '../store/runtime.js'
import type { Attempt } from './attempt/attempt.js'
import { callHandler } from './attempt/call.js'
import { isThenable } from './attempt/attempt-errors.js'
import { HandlerAttempt } from './attempt/handler-attempt.js'
import { failure, returnedOutcome, thrownOutcome } from './attempt/outcome.js'
import type { AttemptOutcome } from './attempt/outcome.js'
import { endTransactions } from './attempt/transaction/settle.js'
import { Batch } from './batches/run.js'
import { Claimer } from './claimer.js'
import type { Leases } from './leases.js'
import type { WorkerParts } from './parts.js'
import { Prefetch } from './prefetch.js'
import { Settlements } from './settlements.js'
import { Slots } from './slots.js'

/** A prefetched job that still has no slot after this long is returned. */
const MAX_PREFETCH_WAIT: Millis = 500

/** How long a new attempt waits for an older handler of its job to end. */
const OLD_HANDLER_WAIT: Millis = 1000

/** Runs the jobs of a worker, from their claim until their settlement is sent. */
export class Runner {
  readonly claimer: Claimer
  readonly slots: Slots
  readonly settlements: Settlements
  readonly #parts: WorkerParts
  readonly #leases: Leases
  readonly #prefetch: Prefetch
  /** Attempts at jobs of which an older handler is still running here. They wait for it to end, for a limited time. */
  readonly #waitingForHandler = new Map<string, { readonly attempt: HandlerAttempt; readonly stop: Stop }>()
  /** Holds that the claim in flight may not have met, by what they are for. */
  readonly #held = new Map<string, HoldEnd>()
  /** Handlers are being started. One that ends at once lets the next one start without a nested call. */
  #filling = false
  #prefetchTimer: Stop | undefined

  constructor(parts: WorkerParts, leases: Leases) {
    this.#parts = parts
    this.#leases = leases
    this.#prefetch = new Prefetch(parts.connection.runtime.elapsed)
    this.slots = new Slots(parts, () => this.#next())
    this.settlements = new Settlements(parts, leases)
    this.claimer = new Claimer(parts, this.slots, leases, this.#prefetch, {
      accept: (...claimed) => this.#accept(...claimed),
      unstarted: () => this.unstarted,
    })
  }

  /** How many claimed jobs have not started. */
  get unstarted(): number {
    return this.slots.unstarted + this.#waitingForHandler.size
  }

  // Claim: the claimer hands over what it has claimed.

  /** Accepts claimed jobs. `sentAt` is when the claim was sent. For the names in `ranDry`, the store has no more jobs. */
  #accept(records: readonly JobRecord[], sentAt: Millis, ranDry: readonly (string | undefined)[]): void {
    const running = this.#runningAmong(records)
    const holds = records.length === 0 ? NO_HOLDS : [...this.#held.values()]
    if (sentAt > 0 || records.length > 0) this.#held.clear() // the claim is answered
    for (const record of records) {
      const handler = this.#parts.settings.handlerOf(record)!
      const attempt = new HandlerAttempt(this.#parts, this.#leases, record, handler, sentAt + handler.lease)
      this.#leases.add(attempt)
      if (holds.some((hold) => isHeldBy(hold, attempt))) this.#return(attempt)
      else if (running?.has(record.id) === true) this.#waitForOldHandler(attempt)
      else this.#push(attempt)
    }
    for (const name of ranDry) this.slots.ranDry(true, name)
    if (this.claimer.isOpen) this.#fill(true)
    else this.returnUnstarted()
  }

  #push(attempt: HandlerAttempt): void {
    this.slots.push(attempt)?.gather(() => this.#fill())
  }

  /** Which of the claimed jobs still have a handler running here, even one that knows that its lease is lost. */
  #runningAmong(records: readonly JobRecord[]): ReadonlySet<string> | undefined {
    const { running } = this.slots
    if (records.length === 0 || running.length === 0) return undefined
    const ids = running.map(({ record }) => record.id)
    const [fewer, more] =
      ids.length < records.length ? [ids, records.map(({ id }) => id)] : [records.map(({ id }) => id), ids]
    const among = new Set(fewer)
    const both = more.filter((id) => among.has(id))
    return both.length === 0 ? undefined : new Set(both)
  }

  /**
   * An older handler that lost this job is still running here, and this worker never runs two copies of a job. The new
   * attempt waits for the old handler. If that takes too long, the job is snoozed for the length of a lease, so that
   * other workers can claim it.
   */
  #waitForOldHandler(attempt: HandlerAttempt): void {
    const { id } = attempt.record
    const stop = this.#parts.connection.runtime.timer(OLD_HANDLER_WAIT, () => {
      this.#waitingForHandler.delete(id)
      if (attempt.lost === undefined) this.settlements.send(attempt, { kind: 'snoozed', for: attempt.handler.lease })
    })
    this.#waitingForHandler.set(id, { attempt, stop })
  }

  // Run: a job or a batch starts when it has a slot.

  #fill(mayHaveMore = false): void {
    if (this.#filling || !this.claimer.isOpen) return // what has not started is returned
    this.#filling = true
    try {
      for (;;) {
        const unit = this.slots.next(mayHaveMore)
        if (unit === undefined) break
        if (unit instanceof Batch) this.#startBatch(unit)
        else if (this.#mayStart(unit)) {
          this.slots.take(unit)
          this.#start(unit, undefined)
        }
      }
    } finally {
      this.#filling = false
    }
    if (this.slots.ahead > 0 && this.#prefetchTimer === undefined) this.#watchPrefetch(this.slots.first)
  }

  #startBatch(batch: Batch): void {
    const attempts = batch.attempts.filter((each) => this.#mayStart(each))
    this.slots.takeBatch(batch, attempts)
    if (attempts.length === 0) return
    void batch.begin(attempts).then(({ left, stuck }) => {
      if (stuck) this.#parts.reporter.stuck(attempts[0]!.record)
      this.slots.releaseBatch(left)
      for (const { record } of left) this.#handlerEnded(record.id)
      this.#next()
    })
    for (const attempt of attempts) this.#start(attempt, batch)
  }

  /** A claim's receipt may arrive so late that its leases have expired and other workers hold the jobs. */
  #mayStart(attempt: Attempt): boolean {
    const { connection, reporter } = this.#parts
    if (connection.runtime.elapsed() >= attempt.leaseEnds) this.#leases.lose(attempt, 'lease-lost')
    if (attempt.lost !== undefined) return false
    reporter.active(attempt.record)
    return true
  }

  /** Calls the handler. One that returns no promise has ended when this returns. */
  #start(attempt: HandlerAttempt, batch: Batch | undefined): void {
    let result: unknown
    this.#parts.run.starts()
    try {
      result = callHandler(attempt, batch, this.#giveUp)
      if (isThenable(result)) {
        result.then(
          (value) => this.#ended(attempt, returnedOutcome(attempt, value)),
          (error: unknown) => this.#ended(attempt, thrownOutcome(attempt, error)),
        )
        return
      }
    } catch (error) {
      return this.#ended(attempt, thrownOutcome(attempt, error))
    }
    this.#ended(attempt, returnedOutcome(attempt, result))
  }

  // Outcome: what the attempt has come to is known when its pending calls and its transactions have ended.

  #ended(attempt: HandlerAttempt, ended: AttemptOutcome | Promise<AttemptOutcome>): void {
    if (ended instanceof Promise) return void ended.then((each) => this.#ended(attempt, each))
    if (attempt.done) return // it was given up before
    attempt.finish()
    const { transactions } = attempt
    if (transactions === undefined || ended === undefined) return this.#settle(attempt, ended)
    const outcome = endTransactions(attempt, this.#leases, transactions, ended)
    if (outcome instanceof Promise) void outcome.then((each) => this.#settle(attempt, each))
    else this.#settle(attempt, outcome)
  }

  /** The handler was stopped and does not end: its slot is given up. */
  readonly #giveUp = (attempt: Attempt, error: MillraceError): void => {
    const outcome = failure(attempt, error, true)
    this.#parts.reporter.stuck(attempt.record)
    if (attempt.lost === undefined) return this.#settle(attempt, outcome)
    // The job counts against limits until its lease expires.
    this.#release(attempt)
    this.#next()
  }

  // Settle: the slot is free, and the outcome is sent. It is reported by the settlements once it is durable.

  #settle(attempt: Attempt, outcome: AttemptOutcome): void {
    const { committed } = attempt
    this.#release(attempt)
    if (outcome !== undefined) this.#prefetch.ended()
    if (outcome === undefined) this.settlements.releaseLease(attempt)
    else if (committed === undefined) this.#send(attempt, outcome)
    else this.settlements.landed(attempt, committed.outcome, committed.group)
    this.#next()
  }

  #send(attempt: Attempt, outcome: Outcome): void {
    this.settlements.send(attempt, outcome)
    if (outcome.kind !== 'held') return
    const { for: _length, ...scope } = outcome.hold
    this.held({ ...scope, queue: attempt.record.queue, until: Infinity }) // not only once the hold is durable
  }

  #release(attempt: Attempt): void {
    attempt.tracing?.handled()
    if (this.slots.release(attempt)) this.#handlerEnded(attempt.record.id)
  }

  /** A handler has ended, or was abandoned: a newer attempt at its job may start. */
  #handlerEnded(id: string): void {
    if (this.#waitingForHandler.size === 0) return
    const next = this.#waitingForHandler.get(id)
    this.#waitingForHandler.delete(id)
    next?.stop()
    if (next !== undefined && next.attempt.lost === undefined) this.#push(next.attempt)
  }

  #next(): void {
    this.#fill()
    this.claimer.slotFree()
  }

  // What has not started is returned.

  /** Returns leased jobs that have not started. */
  returnUnstarted(): void {
    this.#prefetchTimer?.()
    this.#prefetchTimer = undefined
    for (const { attempt, stop } of this.#waitingForHandler.values()) {
      stop()
      this.#return(attempt)
    }
    this.#waitingForHandler.clear()
    for (const attempt of this.slots.takeGathering()) this.#return(attempt)
    this.#returnPrefetched()
  }

  /**
   * Some jobs are held: returns those that were leased before and have not started, and those that the claim in flight
   * brings, unless it was applied after the end of the hold.
   */
  held(hold: HoldEnd): void {
    if (!this.claimer.isOpen) return // what has not started is returned
    if (this.claimer.isClaiming) this.#held.set(`${hold.queue.length} ${hold.queue}${holdKey(hold)}`, hold)
    if (this.unstarted === 0) return
    for (const { attempt, stop } of [...this.#waitingForHandler.values()]) {
      if (!isHeldBy(hold, attempt)) continue
      stop()
      this.#waitingForHandler.delete(attempt.record.id)
      this.#return(attempt)
    }
    for (const attempt of [...this.slots.takeGathering(), ...this.slots.takePrefetched()]) {
      if (isHeldBy(hold, attempt)) this.#return(attempt)
      else this.#push(attempt)
    }
    this.#fill(true)
  }

  /** Returns prefetched jobs. */
  #returnPrefetched(): void {
    for (const attempt of this.slots.takePrefetched()) this.#return(attempt)
  }

  #return(attempt: Attempt): void {
    if (attempt.lost === undefined) this.settlements.send(attempt, { kind: 'interrupted' })
  }

  /** Returns prefetched jobs when handlers slow down, so that other workers can take them. */
  #watchPrefetch(first: Attempt | undefined): void {
    this.#prefetchTimer = this.#parts.connection.runtime.timer(MAX_PREFETCH_WAIT, () => {
      this.#prefetchTimer = undefined
      if (this.slots.ahead === 0) return
      if (this.slots.first !== first) return this.#watchPrefetch(this.slots.first)
      this.#prefetch.reset()
      this.#returnPrefetched()
    })
  }

  /** Drops everything. Jobs whose handlers still run are left to their leases. */
  clear(): void {
    this.#prefetchTimer?.()
    for (const { stop } of this.#waitingForHandler.values()) stop()
    for (const attempt of [...this.slots.running]) attempt.abandon()
    this.#leases.clear()
  }
}

const NO_HOLDS: readonly HoldEnd[] = []

/** Whether a job that was leased before the end of a hold is held by it. Both times are of the store's clock. */
function isHeldBy(hold: HoldEnd, { record }: Attempt): boolean {
  return record.queue === hold.queue && (record.startedAt ?? 0) < hold.until && isFor(hold, record)
}

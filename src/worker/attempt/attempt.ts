// worker/attempt/attempt.ts: a claimed job in this worker: its lease, its signal, its timers, and how its run ended.
import { parseDuration } from '../../job/values/duration.js'
import type { Duration } from '../../job/values/duration.js'
import type { MillraceError } from '../../job/errors/errors.js'
import type { NewHold } from '../../job/holds.js'
import type { JobRecord, Millis, Time } from '../../job/job.js'
import type { Outcome, Returned } from '../../job/lifecycle.js'
import { leftOpen } from '../../job/phases.js'
import type { JobDefinition } from '../../queue/define.js'
import type { FollowUps } from '../../queue/flows/follow-ups.js'
import type { Processing } from '../../queue/instrumentation.js'
import type { OpenTransaction } from '../../store/transaction-context.js'
import type { Stop } from '../../store/runtime.js'
import type { Group } from '../../store/store.js'
import type { ParsedHandler } from '../options.js'
import type { WorkerParts } from '../parts.js'
import type { Children } from './children.js'
import { Snoozed, abortFor } from './context.js'
import { parseHold } from './hold.js'
import type { HoldOptions } from './hold.js'
import type { AbortReason, JobAbort, JobSignal } from './context.js'
import { leaseLost } from './attempt-errors.js'
import type { PhaseFailure } from './attempt-errors.js'
import { GuardedCalls } from './early-exit.js'
import { mergeEntries, noteOf } from './pending-notes.js'
import type { LastNote, NoteEntry, PendingNotes } from './pending-notes.js'
import { notAwaited } from './unawaited.js'

/** When to run a job again. */
export type Postponed = Millis | { readonly at: Time }

/** The transactions of an attempt, as far as its other calls depend on them. */
export interface Transactions {
  /** Whether a transaction is open, which the settlement must be part of. */
  readonly isOpen: boolean
  /** Resolves when the transaction that is being opened is open, or has failed to; undefined if none is. */
  readonly opening: Promise<void> | undefined
  /** The transaction that a call of the handler joins. */
  readonly joined: OpenTransaction | undefined
  /** The jobs that the callback of `complete` added. */
  readonly followUps: FollowUps | undefined
  /** The settlement that was written in a user transaction. */
  readonly userSettlement: Settled | undefined
  /** Rolls back whatever is open, and allows no further transaction. */
  abort(reason: unknown): void
}

/** A run of phases, as far as the end of its attempt depends on it. */
export interface EndingPhases {
  /** How the phase that is running may be retried. */
  readonly phaseFailure: PhaseFailure | undefined
  /** The note to commit with the settlement: how the last phase that ran ended. */
  finalEntry(outcome: Outcome): NoteEntry | undefined
}

/** A settlement that was written in a transaction. */
export interface Settled {
  readonly outcome: Returned
  readonly group: Group
}

/** Ends an attempt whose handler was stopped with this error and does not end. */
export type GiveUp = (attempt: Attempt, error: MillraceError) => void

/** A claimed job in this worker, from its claim until its settlement is durable. */
export class Attempt {
  readonly parts: WorkerParts
  readonly record: JobRecord
  /** The record with the notes that are durable. */
  known: JobRecord
  readonly handler: ParsedHandler
  /** When its lease expires, by this process's clock. Renewals extend it. */
  leaseEnds: Millis
  /** When its claim was sent, by this process's clock. */
  readonly #claimed: Millis
  /** At the last renewal, another transaction had the job locked. */
  busy = false
  /** Why the lease is lost. */
  lost: AbortReason | undefined
  /** Its index among the held attempts, for `IndexedSet`. */
  heldAt = -1
  /** Its index among the running attempts, for `IndexedSet`. */
  runningAt = -1

  started = false
  /** It runs in a batch. */
  inBatch = false
  /** Why the handler was aborted. */
  reason: AbortReason | undefined
  /** Called when the handler is aborted. Set by the batch that it runs in. */
  onAbort: ((attempt: Attempt, reason: AbortReason) => void) | undefined
  /** The handler has returned from its synchronous part, up to its first `await`. */
  pastFirstAwait = false
  /** The handler has ended, or was abandoned. */
  done = false
  /** Its telemetry, if any. */
  tracing: Processing | undefined

  /** When `ctx.snooze` asked to run again. */
  snoozed: Millis | undefined
  /** The hold that `ctx.hold` asked for. */
  held: NewHold | undefined
  /** When to run again after the handler has returned. */
  postponed: Postponed | undefined
  /** The outcome that a step asked for: the job sleeps, or waits for a signal. */
  stepOutcome: Outcome | undefined
  /** An early exit was thrown in a function that the handler does not await. */
  uncaughtExit: MillraceError | undefined
  /** The schema's error, if it refused the payload. A retry would not make the payload valid. */
  refusedPayload: MillraceError | undefined
  /** The error of a timeout, of the handler or of its transaction. */
  timeoutError: MillraceError | undefined
  /** The jobs that it adds and waits for, if any. */
  children: Children | undefined
  /** The notes of its handler, if any. */
  notes: PendingNotes | undefined
  /** Its transactions, if it has begun any. */
  transactions: Transactions | undefined
  /** Its run of phases, if the handler has phases and was called. */
  phases: EndingPhases | undefined

  /** The handler's last note, which is committed with the settlement. */
  lastNote: LastNote | undefined
  /** About how many bytes its settlement takes while it is unacknowledged. */
  settlementBytes = 0
  /** A settlement was sent and never acknowledged: it may or may not have been applied. */
  unsure = false
  /** The settlement that was committed in its own transaction. */
  committed: Settled | undefined
  /** The settlement of a transaction whose commit was never acknowledged: it may or may not have been applied. */
  maybeCommitted: Settled | undefined

  #abort: AbortController | undefined
  /** The reason given to `cancel`, if any. */
  #cancelReason: string | undefined
  #timers: Stop[] | undefined
  #giveUp: GiveUp | undefined
  #calls: GuardedCalls | undefined

  constructor(parts: WorkerParts, record: JobRecord, handler: ParsedHandler, leaseEnds: Millis) {
    this.parts = parts
    this.record = this.known = record
    this.handler = handler
    this.leaseEnds = leaseEnds
    this.#claimed = leaseEnds - handler.lease
  }

  /** How the job is declared. */
  get definition(): JobDefinition | undefined {
    return this.parts.jobs?.[this.record.name]
  }

  /**
   * The time by the store's clock, as far as this process knows it: the time of the claim, and how long ago that was. It
   * is ahead by no more than the claim took.
   */
  storeTime(): Time {
    const since = this.parts.connection.runtime.elapsed() - this.#claimed
    return Math.round((this.record.startedAt ?? 0) + Math.max(0, since))
  }

  /** Whether the handler is running now. */
  get running(): boolean {
    return this.started && !this.done
  }

  /** Whether its own transaction has the job locked, so that its lease cannot be renewed. */
  get isHeldByItself(): boolean {
    return this.transactions?.isOpen === true
  }

  /** The jobs that `ctx.add` and the callback of `ctx.complete` added. */
  get followUps(): FollowUps | undefined {
    const done = this.transactions?.followUps
    return this.children === undefined ? done : this.children.combined(done)
  }

  /** Whether the handler has asked to run again, and only has to end. */
  get endsEarly(): boolean {
    return (
      this.snoozed !== undefined ||
      this.held !== undefined ||
      this.children?.waits === true ||
      this.stepOutcome !== undefined
    )
  }

  /** The changes of an outcome, preceded by the handler's last note and by how its last phase ended, if there are any. */
  settlement(outcome: Outcome, changes: Group): Group {
    const entry = this.lastNote?.entry
    const final = this.phases === undefined ? this.#unfinishedPhases(outcome) : this.phases.finalEntry(outcome)
    const last = entry === undefined || final === undefined ? (entry ?? final) : mergeEntries(entry, final)
    return last === undefined ? changes : [noteOf(this.record, last), ...changes]
  }

  /** A note is durable: reports it. */
  noted(entry: NoteEntry): void {
    const { progress, memo } = entry
    if (progress !== undefined) this.known = { ...this.known, progress }
    if (memo !== undefined) this.known = { ...this.known, memo: memo() }
    this.parts.reporter.noted(this.known, entry)
  }

  /** The note for a job that completed without its phases: by middleware, or by a plain handler. */
  #unfinishedPhases(outcome: Outcome): NoteEntry | undefined {
    if (this.record.memo === undefined || outcome.kind !== 'returned') return undefined
    const memo = leftOpen(this.record)
    return memo === undefined ? undefined : { memo: () => memo }
  }

  /** The handler starts. `giveUp` is called if it is stopped later and does not end. */
  start(giveUp: GiveUp): void {
    this.started = true
    this.#giveUp = giveUp
  }

  /** The handler has ended, or its end is not awaited any more. */
  finish(): void {
    this.done = true
    this.#stopTimers()
  }

  /** Aborts the handler. Only the first reason counts. */
  abort(reason: AbortReason, cancelReason?: string): void {
    if (this.reason !== undefined || this.done) return
    this.reason = reason
    this.#cancelReason = cancelReason
    this.#abort?.abort(this.abortError(reason))
    this.onAbort?.(this, reason)
  }

  /** The lease is lost: aborts the handler; its outcome will not be sent. */
  lose(reason: AbortReason, cancelReason?: string): void {
    this.lost ??= reason
    this.abort(reason, cancelReason)
    if (!this.done) this.transactions?.abort(this.lostError())
  }

  /** Abandons a handler that does not end: stops its timers, and ignores its outcome. */
  abandon(): void {
    if (!this.done) this.transactions?.abort(this.lostError())
    this.finish()
  }

  /**
   * The attempt took too long: aborts it, fails it with this error unless it was aborted before, and gives it up if it
   * still does not end.
   */
  stop(error: MillraceError): void {
    if (this.done || this.timeoutError !== undefined) return
    if (this.reason === undefined || error.code === 'TRANSACTION_TOO_LONG') this.timeoutError = error
    const { connection, settings } = this.parts
    const giveUp = (): void => {
      if (this.done) return
      this.finish()
      this.transactions?.abort(error)
      this.#giveUp?.(this, error)
    }
    this.#stopTimers()
    this.#timers = [connection.runtime.timer(settings.abandonAfter, giveUp)]
    this.abort('timeout')
  }

  /** Stops the attempt with this error after that time. */
  arm(timeout: Millis, error: () => MillraceError): Stop {
    const stop = this.parts.connection.runtime.timer(timeout, () => this.stop(error()))
    this.#timers = [...(this.#timers ?? []), stop]
    return stop
  }

  #stopTimers(): void {
    for (const stop of this.#timers ?? []) stop()
  }

  /** Created on first use, because most short handlers never read it. */
  signal(): JobSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController()
      if (this.reason !== undefined) this.#abort.abort(this.abortError(this.reason))
    }
    return this.#abort.signal
  }

  /** The error that a signal aborts with. A function that the handler does not await may be stopped by it. */
  abortError(reason: AbortReason): JobAbort {
    return this.#guarded.mark('ctx.signal', abortFor(reason, this.#cancelReason))
  }

  /** The error of a call made after the lease is lost, or after the handler has ended. */
  lostError(): MillraceError {
    const ended = this.lost === undefined && this.done
    return leaseLost(this.record, ended ? 'its handler had ended; await what it says' : (this.lost ?? 'lease-lost'))
  }

  /**
   * Makes a call of the handler. Its error does not end the process where nothing catches it. `reportsFloating`: the
   * worker also reports it if nothing awaits the call. Default: once the handler has ended.
   */
  guard<T>(call: string, work: () => T, reportsFloating = this.done): T {
    return this.#guarded.run(call, work, reportsFloating)
  }

  get #guarded(): GuardedCalls {
    return (this.#calls ??= new GuardedCalls((what, error) => this.callbackFailed(what, error)))
  }

  /** Runs the job again after that time, whatever the outcome of its handler. */
  postpone(duration: Duration): Snoozed {
    this.snoozed = parseDuration(duration, 'ctx.snooze')
    return new Snoozed('The job is snoozed.', () => this.uncaught('ctx.snooze'))
  }

  /** Holds jobs like this one, and runs this one again afterwards, whatever the outcome of its handler. */
  hold(duration: Duration, options?: HoldOptions): Snoozed {
    const { record, parts } = this
    this.held = { ...parseHold(duration, options, record), by: parts.id, job: record.id }
    return new Snoozed('The job is held.', () => this.uncaught('ctx.hold'))
  }

  /** Nothing caught the early exit of a call: the handler does not await the function that made it. */
  uncaught(call: string): void {
    const error = notAwaited(call, 'was called in a function that the handler does not await')
    if (this.done) this.callbackFailed(call, error)
    else this.uncaughtExit ??= error
  }

  /** A user's callback threw. */
  callbackFailed(what: string, cause: unknown): void {
    this.parts.reporter.callbackFailed(this.record, what, cause)
  }
}

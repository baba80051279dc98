// worker/attempt/attempt.ts: one run of a job's handler: its signal, its timeout, and its outcome.
import { parseDuration } from '../../job/duration.js'
import type { Duration } from '../../job/duration.js'
import { MillraceError, isInstance, isMillraceError } from '../../job/errors.js'
import type { JobRecord, Millis } from '../../job/job.js'
import { encodeJson } from '../../job/json.js'
import type { JsonText } from '../../job/json.js'
import type { Outcome, Returned } from '../../job/lifecycle.js'
import type { JobDefinition } from '../../queue/define.js'
import { Job } from '../../queue/job.js'
import type { OperationResult, UpdateOptions } from '../../queue/job.js'
import type { PageOptions } from '../../queue/operations/filter.js'
import type { DependencyPage, Ended } from '../../queue/flows/chain-types.js'
import type { AddOptions, Dependency } from '../../queue/add-options.js'
import { outOfOrder } from '../../queue/flows/follow-ups.js'
import type { Planned, FollowUps } from '../../queue/flows/follow-ups.js'
import type { Processing } from '../../queue/telemetry.js'
import { restorePosition, currentPosition, runAtPosition } from '../../store/transaction-context.js'
import type { Stop } from '../../store/runtime.js'
import { notInBatch } from '../batches/types.js'
import { notAwaited } from './unawaited.js'
import type { AttemptHost, AttemptBatch } from './attempt-host.js'
import { notCommitted } from './transaction/complete-given.js'
import { Children, dependenciesOf, refuseEndlessWait, returned } from './children.js'
import type { WaitOptions } from './children.js'
import { Context, Snoozed, abortFor, wrap } from './context.js'
import type { AbortReason, JobAbort, JobContext, JobSignal } from './context.js'
import { failure, isThenable, leaseLost, notStored, tookTooLong, worthRetrying } from './failure.js'
import type { FailureContext } from './failure.js'
import { sentBack, updateRunning } from './self-update.js'
import type { Postponed } from './self-update.js'
import { isUnchanged, validateResult, jobForHandler } from './payload.js'
import type { LastNote, PublishedNote } from './pending-notes.js'
import type { ParsedHandler } from '../options.js'
import { EarlyExit } from './early-exit.js'
import { GuardedCalls } from './guarded-calls.js'
import { PhaseRun } from '../phases/run.js'
import { ProgressWriter } from './progress-writer.js'
import { settleInTransaction } from './transaction/settle.js'
import { DurableSteps } from './steps.js'
import { AttemptTransactions } from './transaction/attempt-transactions.js'

/** A claimed job in this worker, from its claim until its settlement is durable. */
export class Attempt {
  readonly record: JobRecord
  readonly handler: ParsedHandler
  /** When its lease expires, by this process's clock. Renewals extend it. */
  leaseEnds: Millis
  started = false
  /** Its index among the held attempts, for `IndexedSet`. */
  heldAt = -1
  /** Its index among the running attempts, for `IndexedSet`. */
  runningAt = -1
  /** Why the lease is lost. */
  lost: AbortReason | undefined
  /** Why the handler was aborted. */
  reason: AbortReason | undefined
  /** The batch that it runs in. */
  batch: AttemptBatch<Attempt> | undefined
  /** Its outcome, once it has ended. */
  outcome: Outcome | undefined
  /** About how many bytes its settlement takes while it is unacknowledged. */
  settlementBytes = 0
  /** A settlement was sent and never acknowledged: it may or may not have been applied. */
  unsure = false
  /** The handler's last note, which is committed with the settlement. */
  lastNote: LastNote | undefined
  /** The handler has returned from its synchronous part, up to its first `await`. */
  pastFirstAwait = false
  /** At the last renewal, another transaction had the job locked. */
  busy = false
  /** Its run of phases, if the handler has phases and was called. */
  phases: PhaseRun | undefined
  /** Its telemetry, if any. */
  tracing: Processing | undefined
  /** The outcome of a transaction whose commit was never acknowledged: it may or may not have been applied. */
  maybeCommitted: Returned | undefined
  /** When to run again after the handler has returned. */
  postponed: Postponed | undefined

  readonly #host: AttemptHost<Attempt>
  #abort: AbortController | undefined
  /** The reason given to `cancel`, if any. */
  #cancelReason: string | undefined
  #timers: Stop[] | undefined
  #snooze: Millis | undefined
  /** An early exit was thrown in a function that the handler does not await. */
  #uncaught: MillraceError | undefined
  /** The schema's error, if it refused the payload. A retry would not make the payload valid. */
  #refusedPayload: MillraceError | undefined
  #done = false
  /** The error of a timeout, of the handler or of its transaction. */
  #timeoutError: MillraceError | undefined
  #transactions: AttemptTransactions | undefined
  #progressWriter: ProgressWriter | undefined
  #children: Children | undefined
  #steps: DurableSteps | undefined
  #calls: GuardedCalls | undefined

  constructor(host: AttemptHost<Attempt>, record: JobRecord, handler: ParsedHandler, leaseEnds: Millis) {
    this.#host = host
    this.record = record
    this.handler = handler
    this.leaseEnds = leaseEnds
  }

  /** The handler has ended, or was abandoned. */
  get done(): boolean {
    return this.#done
  }

  /** Its transactions, if it has begun any. */
  get transactions(): AttemptTransactions | undefined {
    return this.#transactions
  }

  /** Whether the handler is running now. */
  get running(): boolean {
    return this.started && !this.#done
  }

  /** Whether its own transaction has the job locked, so that its lease cannot be renewed. */
  get isHeldByItself(): boolean {
    return this.#transactions?.isOpen === true
  }

  /** Calls the handler. Reports its outcome to the host and never throws. */
  start(): void {
    this.started = true
    this.tracing = this.#host.telemetry?.process(this.record)
    this.#armTimeout()
    const before = currentPosition()
    if (before !== undefined) restorePosition(undefined) // this handler is in no transaction yet, even if its caller is
    try {
      // Handlers that are known to use transactions enter the context at the start, so that all their calls can join.
      const result = this.handler.transacts
        ? runAtPosition(this.useTransactions().position, () => this.#call())
        : this.#call()
      restorePosition(before)
      if (!isThenable(result)) return this.#returned(result)
      result.then(
        (value) => this.#returned(value),
        (error: unknown) => this.#threw(error),
      )
    } catch (error) {
      restorePosition(before)
      this.#threw(error)
    }
  }

  #call(): unknown {
    return this.tracing === undefined ? this.#callHandler() : this.tracing.run(() => this.#callHandler())
  }

  #callHandler(): unknown {
    const definition = this.#host.definitionOf(this.record.name)
    return isUnchanged(definition) && this.#host.middleware.length === 0
      ? this.#run(new Job(this.#host.operations, this.record, { running: this }), new Context(this))
      : this.#callPrepared(definition)
  }

  #run(job: Job, ctx: JobContext): unknown {
    const { phases } = this.handler
    try {
      if (phases !== undefined) return (this.phases = new PhaseRun(this, phases)).run(job, ctx)
      return this.batch === undefined ? this.handler.run(job, ctx) : this.batch.join(this, job, ctx)
    } finally {
      this.pastFirstAwait = true
    }
  }

  /** Aborts the handler. Only the first reason counts. */
  abort(reason: AbortReason, cancelReason?: string): void {
    if (this.reason !== undefined || this.#done) return
    this.reason = reason
    this.#cancelReason = cancelReason
    this.#abort?.abort(this.abortError(reason))
    this.batch?.aborted(this, reason)
  }

  /** The lease is lost: aborts the handler; its outcome will not be sent. */
  lose(reason: AbortReason, cancelReason?: string): void {
    this.lost ??= reason
    this.abort(reason, cancelReason)
    if (!this.#done) this.#transactions?.abort(this.lostError())
  }

  /** Abandons a handler that does not end: stops its timers, and ignores its outcome. */
  abandon(): void {
    if (!this.#done) this.#transactions?.abort(this.lostError())
    this.#finish()
  }

  async #callPrepared(definition: JobDefinition | undefined): Promise<unknown> {
    const job = await jobForHandler(this.#host.operations, this.record, definition, this)
    if (job instanceof MillraceError) throw (this.#refusedPayload = job)
    return wrap(this.#host.middleware, job, new Context(this), (ctx) => this.#run(job, ctx))
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

  /** Makes a call of its handler. */
  guard<T>(call: string, work: () => T, reportsFloating = this.#done): T {
    return this.#guarded.run(call, work, reportsFloating)
  }

  get #guarded(): GuardedCalls {
    return (this.#calls ??= new GuardedCalls((what, error) => this.#host.callbackFailed(this, what, error)))
  }

  snooze(duration: Duration): never {
    throw this.postpone(duration)
  }

  /** Runs the job again after that time, whatever the outcome of its handler. */
  postpone(duration: Duration): Snoozed {
    this.#snooze = parseDuration(duration, 'ctx.snooze')
    return new Snoozed('The job is snoozed.', () => this.uncaught('ctx.snooze'))
  }

  /** Nothing caught the early exit of a call: the handler does not await the function that made it. */
  uncaught(call: string): void {
    const error = notAwaited(call, 'was called in a function that the handler does not await')
    if (this.#done) this.#host.callbackFailed(this, call, error)
    else this.#uncaught ??= error
  }

  /** `job.update` by its own handler. */
  update(_id: string, changes: UpdateOptions): Promise<OperationResult> {
    return updateRunning(this, this.#host.operations, changes)
  }

  /** The durable steps of its handler. */
  get steps(): DurableSteps {
    return (this.#steps ??= new DurableSteps(this, this.#host.operations))
  }

  get children(): Children {
    return (this.#children ??= new Children(this.record, this.#host.adder(this.record.queue), (call) =>
      this.uncaught(call),
    ))
  }

  add(name: string, data: unknown, options: AddOptions | undefined): Promise<Planned> {
    if (this.#done) return Promise.reject(this.lostError())
    if (this.#transactions?.userSettlement !== undefined)
      return Promise.reject(outOfOrder('ctx.add was called after ctx.complete({ tx })'))
    return this.children.add(this.#transactions?.planning, name, data, options)
  }

  waitFor(children: Dependency | readonly Dependency[], options?: WaitOptions): never {
    return this.children.waitFor(children, options, this.#transactions?.followUps !== undefined)
  }

  dependencies(options?: PageOptions): Promise<readonly Ended[] | DependencyPage> {
    return dependenciesOf(this.#host.operations, this.record, this.#host.definitionOf(this.record.name), options)
  }

  /** Writes the notes of its handler. */
  get progressWriter(): ProgressWriter {
    return (this.#progressWriter ??= new ProgressWriter(this, this.#host))
  }

  /** Removes and returns the note that has not been sent yet. */
  takeLastNote(): LastNote | undefined {
    return this.#progressWriter?.takeLast()
  }

  /** Publishes a note that was committed with the settlement. */
  publishNote(note: PublishedNote): void {
    this.#host.noted(this, note, { ok: true, inserted: [] })
  }

  /** Whether jobs were added that are to be committed with its settlement. */
  get adds(): boolean {
    const own = this.#children?.own
    return own !== undefined && (own.isBusy || own.also.length > 0)
  }

  /** Whether the handler has asked to run again, and only has to end. */
  get endsEarly(): boolean {
    return this.#snooze !== undefined || this.#children?.waits === true || this.#steps?.outcome !== undefined
  }

  /** Fails the attempt with this error after that time. */
  arm(timeout: Millis, error: () => MillraceError): Stop {
    const stop = this.#host.operations.connection.runtime.timer(timeout, () => this.stop(error()))
    this.#timers = [...(this.#timers ?? []), stop]
    return stop
  }

  /** The error of a call made after the lease is lost, or after the handler has ended. */
  lostError(): MillraceError {
    const ended = this.lost === undefined && this.#done
    return leaseLost(this.record, ended ? 'its handler had ended; await what it says' : (this.lost ?? 'lease-lost'))
  }

  #armTimeout(): void {
    const timeout = this.record.timeout ?? this.handler.timeout
    if (timeout !== undefined) this.arm(timeout, () => tookTooLong(timeout))
  }

  /**
   * The attempt took too long: aborts it, fails it with this error unless it was aborted before, and abandons it if it
   * still does not end.
   */
  stop(error: MillraceError): void {
    if (this.#done || this.#timeoutError !== undefined) return
    if (this.reason === undefined || error.code === 'TRANSACTION_TOO_LONG') this.#timeoutError = error
    const giveUp = (): void => {
      if (this.#done) return
      this.#finish()
      this.#transactions?.abort(error)
      this.#host.stuck(this, failure(this.#failureContext, error, true))
    }
    this.#finishTimers()
    this.#timers = [this.#host.operations.connection.runtime.timer(this.#host.settings.abandonAfter, giveUp)]
    this.abort('timeout')
  }

  #finish(): void {
    this.#done = true
    this.#finishTimers()
  }

  #finishTimers(): void {
    for (const stop of this.#timers ?? []) stop()
  }

  #returned(value: unknown): void {
    if (this.#done || this.#steps?.waitForSteps(() => this.#returned(value)) === true) return
    const unawaited = this.#steps?.unawaitedFailure
    if (unawaited !== undefined) return this.#threw(unawaited.error)
    if (this.#uncaught !== undefined) return this.#threw(this.#uncaught)
    if (this.lost !== undefined || this.#timeoutError !== undefined || this.endsEarly) return this.#threw(undefined)
    if (this.postponed !== undefined) return this.#end({ kind: 'snoozed', for: this.postponed })
    const [work, children] = [this.#transactions, this.#children]
    const floating = work?.unawaitedFailure
    if (floating !== undefined) return this.#failed(floating, false) // a retry would only repeat it
    const busy = children?.own.isBusy === true ? children.own.close() : work?.isBusy ? work.callsSettled() : undefined
    if (busy === undefined) return this.#validate(value === undefined ? work?.value : value)
    // The handler did not await its own calls: they are part of it all the same.
    busy.then(
      () => this.#returned(value),
      (error: unknown) => this.#threw(error),
    )
  }

  /** Validates a result against its schema. */
  #validate(value: unknown): void {
    const schema = this.#host.definitionOf(this.record.name)?.output
    if (schema === undefined) return this.#completed(value)
    const passed = (each: unknown): void => void (this.#done || this.#completed(each))
    validateResult(schema, value, passed, (error) => {
      if (this.#done) return
      // A job that continues its chain may leave the result to the next job.
      if (value === undefined && this.#transactions?.followUps?.goesOn === true) this.#completed(undefined)
      else this.#failed(error, false)
    })
  }

  #completed(value: unknown): void {
    let result: JsonText | undefined
    try {
      result = value === undefined ? undefined : encodeJson(value, 'result')
    } catch (error) {
      return this.#failed(notStored('The handler', error), false)
    }
    const work = this.#transactions
    this.#end(returned(result, work?.isOpen === true ? work.followUps : this.followUps))
  }

  #threw(thrown: unknown): void {
    if (this.#done || this.#steps?.waitForSteps(() => this.#threw(thrown)) === true) return
    if (this.lost !== undefined) {
      this.#finish()
      return this.#host.endedLost(this)
    }
    const error = this.#steps === undefined ? thrown : this.#steps.thrown(thrown)
    if (this.#uncaught === undefined) {
      if (this.#steps?.outcome !== undefined) return this.#end(this.#steps.outcome)
      if (this.#children?.waits === true) return this.#wait(this.#children)
      if (this.#snooze !== undefined) return this.#end({ kind: 'snoozed', for: this.#snooze })
    }
    if (this.#timeoutError !== undefined) return this.#failed(this.#timeoutError, true)
    if (this.reason === 'shutdown') return this.#end({ kind: 'interrupted' })
    if (this.#uncaught !== undefined && (error === this.#uncaught || isInstance(error, EarlyExit))) {
      return this.#failed(this.#uncaught, false) // a retry would only repeat it
    }
    // Not `===` alone: `throw undefined` is not a refusal.
    const refused =
      (this.#refusedPayload !== undefined && error === this.#refusedPayload) || this.#steps?.isFatal(error) === true
    this.#failed(error, !refused && worthRetrying(this.#failureContext, error))
  }

  #wait(children: Children): void {
    refuseEndlessWait(this.#host.operations, this.record, children).then(
      () => !this.#done && this.#end(children.outcome()),
      (error: unknown) => !this.#done && this.#failed(error, worthRetrying(this.#failureContext, error)),
    )
  }

  #failed(error: unknown, retryable: boolean): void {
    this.#end(failure(this.#failureContext, error, retryable))
  }

  #end(ended: Outcome): void {
    this.#finish()
    const work = this.#transactions
    const outcome = (this.outcome =
      work?.userSettlement === undefined ? ended : this.#endedInUserTransaction(ended, work.userSettlement))
    if (work === undefined || (outcome.kind === 'returned' && !work.isOpen)) return this.#host.ended(this, outcome)
    if (outcome.kind === 'returned')
      void settleInTransaction(this, this.#host, work, outcome, this.#children?.own.also ?? [])
    else void work.rollBack(new Error('The handler failed.')).then(() => this.#host.ended(this, outcome))
  }

  /**
   * The job was settled in a user transaction, and whether that was committed is unknown. If it was, the fence refuses
   * what is sent now, and the settlement of that transaction counts.
   */
  #endedInUserTransaction(ended: Outcome, settled: Returned): Outcome {
    this.unsure = true
    this.maybeCommitted = settled
    return ended.kind === 'returned' ? this.failedWith(notCommitted(this.record)) : ended
  }

  /** Encodes a result for the store; rejects if its schema refuses it. */
  async stored(value: unknown): Promise<JsonText | undefined> {
    const schema = this.#host.definitionOf(this.record.name)?.output
    const taken =
      schema === undefined
        ? value
        : await new Promise<unknown>((pass, refuse) => validateResult(schema, value, pass, refuse))
    return taken === undefined ? undefined : encodeJson(taken, 'result')
  }

  /**
   * The outcome of a failure that is found only after the handler has returned. Data that is too large stays too large,
   * so that is not retried.
   */
  failedWith(error: unknown): Outcome {
    const worth = !isMillraceError(error, 'DATA_TOO_LARGE') && worthRetrying(this.#failureContext, error)
    return failure(this.#failureContext, error, worth)
  }

  /** The jobs that `ctx.add` and the callback of `ctx.complete` added. */
  get followUps(): FollowUps | undefined {
    const done = this.#transactions?.followUps
    return this.#children === undefined ? done : this.#children.combined(done)
  }

  /** Created on first use. */
  useTransactions(): AttemptTransactions {
    if (this.batch !== undefined) throw notInBatch()
    if (this.postponed !== undefined) throw sentBack()
    if (this.#transactions === undefined) {
      this.#transactions = new AttemptTransactions(this, this.#host)
      if (this.#host.operations.connection.store.can.transactions) this.handler.transacts = true
    }
    return this.#transactions
  }

  /** Resolves when all notes so far are durable or refused; undefined if none is pending. */
  get notesSettled(): Promise<void> | undefined {
    return this.#progressWriter?.notesSettled
  }

  get #failureContext(): FailureContext {
    const { operations, settings } = this.#host
    const callbackFailed: FailureContext['callbackFailed'] = (what, cause) =>
      this.#host.callbackFailed(this, what, cause)
    return {
      record: this.record,
      handler: this.handler,
      operations,
      settings,
      phase: this.phases?.phaseFailure,
      callbackFailed,
    }
  }
}

// worker/attempt/attempt.ts: one run of one job: its handler, its signal, and how it ended.
import { parseDuration } from '../../job/duration.js'
import type { Duration } from '../../job/duration.js'
import { MillraceError, isInstance, isMillraceError } from '../../job/errors.js'
import type { JobRecord, Millis } from '../../job/job.js'
import { encodeJson } from '../../job/json.js'
import type { JsonText } from '../../job/json.js'
import type { Outcome, Returned } from '../../job/lifecycle.js'
import type { JobDefinition } from '../../queue/define.js'
import { Job } from '../../queue/job.js'
import type { Done, UpdateOptions } from '../../queue/job.js'
import type { PageOptions } from '../../queue/operations/filter.js'
import type { DependencyPage, Ended } from '../../queue/flows/chain-types.js'
import type { AddOptions, Dependency } from '../../queue/add-options.js'
import { outOfOrder } from '../../queue/flows/follow-ups.js'
import type { Planned, FollowUps } from '../../queue/flows/follow-ups.js'
import type { Processing } from '../../queue/telemetry.js'
import { leaveTo, placeNow, runInside } from '../../store/transaction-context.js'
import type { Stop } from '../../store/runtime.js'
import { notInBatch } from '../batches/types.js'
import { notAwaited } from './unawaited.js'
import type { AttemptHost, Joined } from './attempt-host.js'
import { notCommitted } from './transaction/complete-given.js'
import { Children, dependenciesOf, refuseVainWait, returned } from './children.js'
import type { WaitOptions } from './children.js'
import { Context, Snoozed, abortFor, wrap } from './context.js'
import type { AbortReason, JobContext, JobSignal } from './context.js'
import { failure, isThenable, leaseLost, notStored, tookTooLong, worthRetrying } from './failure.js'
import type { Failing } from './failure.js'
import { sentBack, updateRunning } from './self-update.js'
import type { Postponed } from './self-update.js'
import { isTakenAsIs, judge, received } from './payload.js'
import type { LastNote, NoteOutcome } from './pending-notes.js'
import type { ParsedHandler } from '../options.js'
import { EarlyExit } from './early-exit.js'
import { PhaseRun } from '../phases/run.js'
import { ProgressWriter } from './progress-writer.js'
import { settleWithin } from './transaction/settle.js'
import { DurableSteps } from './steps.js'
import { AttemptTransactions } from './transaction/attempt-transactions.js'

/** A claimed job in this worker, from its claim until its outcome is durable. */
export class Attempt {
  readonly record: JobRecord
  readonly handler: ParsedHandler
  /** When its lease is over, by this process's clock; moved on by renewals. */
  leaseEnds: Millis
  started = false
  /** Its place among those held, for `Bag`. */
  heldAt = -1
  /** Its place among those running, for `Bag`. */
  runningAt = -1
  /** Why it is no longer this worker's. */
  lost: AbortReason | undefined
  /** Why its handler was told to stop. */
  reason: AbortReason | undefined
  /** The batch that it is run in. */
  batch: Joined<Attempt> | undefined
  /** What it came to, once it ended. */
  outcome: Outcome | undefined
  /** About how many bytes its result takes, while that is on its way. */
  weight = 0
  /** A settlement was sent whose answer never came. */
  unsure = false
  /** What goes with its settlement. */
  lastWords: LastNote | undefined
  /** The part of the handler before its first `await` is over. */
  later = false
  /** Somebody's transaction held the job when its lease was last to be renewed. */
  busy = false
  /** Its run of phases, if its handler has any and was called. */
  phases: PhaseRun | undefined
  /** How it is measured, where somebody does. */
  tracing: Processing | undefined
  /** What may have been committed in its transaction, whose answer never came. */
  perhaps: Returned | undefined
  /** When it is to run again once its handler has returned. */
  postponed: Postponed | undefined

  readonly #host: AttemptHost<Attempt>
  #abort: AbortController | undefined
  /** Why it was cancelled, where that was given. */
  #cancelReason: string | undefined
  #timers: Stop[] | undefined
  #snooze: Millis | undefined
  /** What was to leave the handler was thrown in a function that it does not await. */
  #uncaught: MillraceError | undefined
  /** What the schema said of the payload, if it refused it: it will not become valid by trying again. */
  #refused: MillraceError | undefined
  #done = false
  /** What ended it before its time: its timeout, or that of its transaction. */
  #overdue: MillraceError | undefined
  #transacting: AttemptTransactions | undefined
  #saying: ProgressWriter | undefined
  #children: Children | undefined
  #steps: DurableSteps | undefined

  constructor(host: AttemptHost<Attempt>, record: JobRecord, handler: ParsedHandler, leaseEnds: Millis) {
    this.#host = host
    this.record = record
    this.handler = handler
    this.leaseEnds = leaseEnds
  }

  /** The handler has ended, or was given up. */
  get done(): boolean {
    return this.#done
  }

  /** Its transactions, if it has begun any. */
  get transactions(): AttemptTransactions | undefined {
    return this.#transacting
  }

  /** Whether the handler is running now. */
  get running(): boolean {
    return this.started && !this.#done
  }

  /** Whether its own transaction holds the job, so that its lease cannot be renewed. */
  get isHeldByItself(): boolean {
    return this.#transacting?.isOpen === true
  }

  /** Calls the handler. What it comes to is told to the host, never thrown. */
  start(): void {
    this.started = true
    this.tracing = this.#host.telemetry?.process(this.record)
    this.#armTimeout()
    const before = placeNow()
    if (before !== undefined) leaveTo(undefined) // whoever woke us, this handler is inside nothing yet
    try {
      // Handlers that are known to use transactions are inside from the start, so that all that is called can join.
      const result = this.handler.transacts ? runInside(this.transacting().place, () => this.#call()) : this.#call()
      leaveTo(before)
      if (!isThenable(result)) return this.#returned(result)
      result.then(
        (value) => this.#returned(value),
        (error: unknown) => this.#threw(error),
      )
    } catch (error) {
      leaveTo(before)
      this.#threw(error)
    }
  }

  #call(): unknown {
    return this.tracing === undefined ? this.#called() : this.tracing.run(() => this.#called())
  }

  #called(): unknown {
    const definition = this.#host.definitionOf(this.record.name)
    return isTakenAsIs(definition) && this.#host.middleware.length === 0
      ? this.#run(new Job(this.#host.desk, this.record, { running: this }), new Context(this))
      : this.#prepared(definition)
  }

  #run(job: Job, ctx: JobContext): unknown {
    const { phases } = this.handler
    try {
      if (phases !== undefined) return (this.phases = new PhaseRun(this, phases)).run(job, ctx)
      return this.batch === undefined ? this.handler.run(job, ctx) : this.batch.join(this, job, ctx)
    } finally {
      this.later = true
    }
  }

  /** Tells the handler to stop. Only the first reason counts. */
  abort(reason: AbortReason, cancelReason?: string): void {
    if (this.reason !== undefined || this.#done) return
    this.reason = reason
    this.#cancelReason = cancelReason
    this.#abort?.abort(abortFor(reason, cancelReason))
    this.batch?.aborted(this, reason)
  }

  /** The job is no longer this worker's: the handler is told, and whatever it comes to is not sent. */
  lose(reason: AbortReason, cancelReason?: string): void {
    this.lost ??= reason
    this.abort(reason, cancelReason)
    if (!this.#done) this.#transacting?.cut(this.notOurs())
  }

  /** Lets go of a handler that does not end: its timers stop, and whatever it comes to is nobody's business. */
  abandon(): void {
    if (!this.#done) this.#transacting?.cut(this.notOurs())
    this.#finish()
  }

  async #prepared(definition: JobDefinition | undefined): Promise<unknown> {
    const job = await received(this.#host.desk, this.record, definition, this)
    if (job instanceof MillraceError) throw (this.#refused = job)
    return wrap(this.#host.middleware, job, new Context(this), (ctx) => this.#run(job, ctx))
  }

  /** Made when first asked for: most handlers of short jobs never look at it. */
  signal(): JobSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController()
      if (this.reason !== undefined) this.#abort.abort(abortFor(this.reason, this.#cancelReason))
    }
    return this.#abort.signal
  }

  snooze(duration: Duration): never {
    throw this.postpone(duration)
  }

  /** Whatever its handler comes to, it is to run again after that time. */
  postpone(duration: Duration): Snoozed {
    this.#snooze = parseDuration(duration, 'ctx.snooze')
    return new Snoozed('The job is snoozed.', () => this.uncaught('ctx.snooze'))
  }

  /** What a call threw to leave the handler was caught by nobody: the handler does not await the function that it is in. */
  uncaught(call: string): void {
    const error = notAwaited(call, 'was called in a function that the handler does not await')
    if (this.#done) this.#host.misbehaved(this, call, error)
    else this.#uncaught ??= error
  }

  /** `job.update` by its own handler. */
  update(_id: string, changes: UpdateOptions): Promise<Done> {
    return updateRunning(this, this.#host.desk, changes)
  }

  /** What its handler does once for the job. */
  get steps(): DurableSteps {
    return (this.#steps ??= new DurableSteps(this, this.#host.desk))
  }

  get children(): Children {
    return (this.#children ??= new Children(this.record, this.#host.adder(this.record.queue), (call) =>
      this.uncaught(call),
    ))
  }

  add(name: string, data: unknown, options: AddOptions | undefined): Promise<Planned> {
    if (this.#transacting?.given !== undefined)
      return Promise.reject(outOfOrder('ctx.add was called after ctx.complete({ tx })'))
    return this.children.add(this.#transacting?.planning, name, data, options)
  }

  waitFor(children: Dependency | readonly Dependency[], options?: WaitOptions): never {
    return this.children.waitFor(children, options, this.#transacting?.successors !== undefined)
  }

  dependencies(options?: PageOptions): Promise<readonly Ended[] | DependencyPage> {
    return dependenciesOf(this.#host.desk, this.record, this.#host.definitionOf(this.record.name), options)
  }

  /** What its handler says. */
  get saying(): ProgressWriter {
    return (this.#saying ??= new ProgressWriter(this, this.#host))
  }

  /** What was said last and has not left yet. */
  takeLastWords(): LastNote | undefined {
    return this.#saying?.takeLast()
  }

  /** Tells of what landed with its settlement. */
  told(said: NoteOutcome): void {
    this.#host.noted(this, said, { ok: true, inserted: [] })
  }

  /** Whether jobs were added that leave with its settlement. */
  get adds(): boolean {
    const own = this.#children?.own
    return own !== undefined && (own.isBusy || own.also.length > 0)
  }

  /** Whether its handler asked to run again, and has only to end. */
  get leaves(): boolean {
    return this.#snooze !== undefined || this.#children?.waits === true || this.#steps?.outcome !== undefined
  }

  /** Fails with this after that time. */
  arm(timeout: Millis, error: () => MillraceError): Stop {
    const stop = this.#host.desk.connection.runtime.timer(timeout, () => this.stop(error()))
    this.#timers = [...(this.#timers ?? []), stop]
    return stop
  }

  /** The error for what comes when the job is no longer this worker's, or its handler has ended. */
  notOurs(): MillraceError {
    const ended = this.lost === undefined && this.#done
    return leaseLost(this.record, ended ? 'its handler had ended; await what it says' : (this.lost ?? 'lease-lost'))
  }

  #armTimeout(): void {
    const timeout = this.record.timeout ?? this.handler.timeout
    if (timeout !== undefined) this.arm(timeout, () => tookTooLong(timeout))
  }

  /** It took too long: it is told to stop, fails with this unless it was stopping, and is given up if it goes on. */
  stop(error: MillraceError): void {
    if (this.#done || this.#overdue !== undefined) return
    if (this.reason === undefined || error.code === 'TRANSACTION_TOO_LONG') this.#overdue = error
    const giveUp = (): void => {
      if (this.#done) return
      this.#finish()
      this.#transacting?.cut(error)
      this.#host.stuck(this, failure(this.#failing, error, true))
    }
    this.#finishTimers()
    this.#timers = [this.#host.desk.connection.runtime.timer(this.#host.settings.abandonAfter, giveUp)]
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
    if (this.#done || this.#steps?.delay(() => this.#returned(value)) === true) return
    const unheard = this.#steps?.unheard
    if (unheard !== undefined) return this.#threw(unheard.error)
    if (this.#uncaught !== undefined) return this.#threw(this.#uncaught)
    if (this.lost !== undefined || this.#overdue !== undefined || this.leaves) return this.#threw(undefined)
    if (this.postponed !== undefined) return this.#end({ kind: 'snoozed', for: this.postponed })
    const [work, children] = [this.#transacting, this.#children]
    const busy = children?.own.isBusy === true ? children.own.close() : work?.isBusy ? work.settledDown() : undefined
    if (busy === undefined) return this.#judge(value === undefined ? work?.value : value)
    // It did not wait for what it called: that belongs to it all the same.
    busy.then(
      () => this.#returned(value),
      (error: unknown) => this.#threw(error),
    )
  }

  /** Holds a result against its schema. */
  #judge(value: unknown): void {
    const schema = this.#host.definitionOf(this.record.name)?.output
    if (schema === undefined) return this.#completed(value)
    const passed = (each: unknown): void => void (this.#done || this.#completed(each))
    judge(schema, value, passed, (error) => {
      if (this.#done) return
      // One that goes on with its chain may leave the result to the next.
      if (value === undefined && this.#transacting?.successors?.goesOn === true) this.#completed(undefined)
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
    const work = this.#transacting
    this.#end(returned(result, work?.isOpen === true ? work.successors : this.successors))
  }

  #threw(thrown: unknown): void {
    if (this.#done || this.#steps?.delay(() => this.#threw(thrown)) === true) return
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
    if (this.#overdue !== undefined) return this.#failed(this.#overdue, true)
    if (this.reason === 'shutdown') return this.#end({ kind: 'interrupted' })
    if (this.#uncaught !== undefined && (error === this.#uncaught || isInstance(error, EarlyExit))) {
      return this.#failed(this.#uncaught, false) // it would be the same the next time
    }
    // Not `===` alone: `throw undefined` is no refusal.
    const refused = (this.#refused !== undefined && error === this.#refused) || this.#steps?.refused(error) === true
    this.#failed(error, !refused && worthRetrying(this.#failing, error))
  }

  #wait(children: Children): void {
    refuseVainWait(this.#host.desk, this.record, children).then(
      () => !this.#done && this.#end(children.outcome()),
      (error: unknown) => !this.#done && this.#failed(error, worthRetrying(this.#failing, error)),
    )
  }

  #failed(error: unknown, retryable: boolean): void {
    this.#end(failure(this.#failing, error, retryable))
  }

  #end(ended: Outcome): void {
    this.#finish()
    const work = this.#transacting
    const outcome = (this.outcome = work?.given === undefined ? ended : this.#endedGiven(ended, work.given))
    if (work === undefined || (outcome.kind === 'returned' && !work.isOpen)) return this.#host.ended(this, outcome)
    if (outcome.kind === 'returned') void settleWithin(this, this.#host, work, outcome, this.#children?.own.also ?? [])
    else void work.rollBack(new Error('The handler failed.')).then(() => this.#host.ended(this, outcome))
  }

  /**
   * It was settled in a transaction of the user's, of which nobody says whether it was committed. If it was, what is sent now is
   * refused by its fence, and that settlement is taken to stand.
   */
  #endedGiven(ended: Outcome, given: Returned): Outcome {
    this.unsure = true
    this.perhaps = given
    return ended.kind === 'returned' ? this.failedWith(notCommitted(this.record)) : ended
  }

  /** A result as it is stored; rejects where its schema refuses it. */
  async stored(value: unknown): Promise<JsonText | undefined> {
    const schema = this.#host.definitionOf(this.record.name)?.output
    const taken =
      schema === undefined ? value : await new Promise<unknown>((pass, refuse) => judge(schema, value, pass, refuse))
    return taken === undefined ? undefined : encodeJson(taken, 'result')
  }

  /** What a failure comes to, which is found only when the handler has returned. What is too large stays too large. */
  failedWith(error: unknown): Outcome {
    const worth = !isMillraceError(error, 'DATA_TOO_LARGE') && worthRetrying(this.#failing, error)
    return failure(this.#failing, error, worth)
  }

  /** What `ctx.add` and the callback of `ctx.complete` asked for. */
  get successors(): FollowUps | undefined {
    const done = this.#transacting?.successors
    return this.#children === undefined ? done : this.#children.and(done)
  }

  /** Made when first asked for, as the signal. */
  transacting(): AttemptTransactions {
    if (this.batch !== undefined) throw notInBatch()
    if (this.postponed !== undefined) throw sentBack()
    if (this.#transacting === undefined) {
      this.#transacting = new AttemptTransactions(this, this.#host)
      if (this.#host.desk.connection.store.can.transactions) this.handler.transacts = true
    }
    return this.#transacting
  }

  /** Resolves when all that was said until now is durable or refused; undefined where nothing is under way. */
  get quiet(): Promise<void> | undefined {
    return this.#saying?.quiet
  }

  get #failing(): Failing {
    const { desk, settings } = this.#host
    const misbehaved: Failing['misbehaved'] = (what, cause) => this.#host.misbehaved(this, what, cause)
    return { record: this.record, handler: this.handler, desk, settings, phase: this.phases?.failing, misbehaved }
  }
}

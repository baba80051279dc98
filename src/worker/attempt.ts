// worker/attempt.ts: one run of one job: its handler, its signal, and how it ended.
import { parseDuration } from '../job/duration.js'
import type { Duration } from '../job/duration.js'
import { MillraceError } from '../job/errors.js'
import type { JobRecord, Millis } from '../job/job.js'
import { encodeJson } from '../job/json.js'
import type { JsonText } from '../job/json.js'
import { settle } from '../job/lifecycle.js'
import type { Outcome, Returned } from '../job/lifecycle.js'
import { validate } from '../queue/define.js'
import type { JobDefinition } from '../queue/define.js'
import type { Desk } from '../queue/desk.js'
import { Job } from '../queue/job.js'
import type { Adder } from '../queue/adding.js'
import type { Successors } from '../queue/successors.js'
import { joinedTransaction, leaveTo, placeNow, runInside } from '../store/ambient.js'
import type { OpenTransaction } from '../store/ambient.js'
import type { Stop } from '../store/runtime.js'
import type { Verdict } from '../store/store.js'
import { Context, Snoozed, abortFor, wrap } from './context.js'
import type { AbortReason, JobContext, JobSignal, Middleware } from './context.js'
import { reasonOf } from './leases.js'
import type { Leases } from './leases.js'
import { failure, isThenable, worthRetrying } from './failing.js'
import type { Failing } from './failing.js'
import { Notes, commitNote } from './notes.js'
import type { LastWords } from './notes.js'
import type { ParsedHandler, Settings } from './options.js'
import { Transacting, returned } from './transacting.js'

/** What an attempt needs of its worker. */
export interface AttemptHost {
  readonly desk: Desk
  readonly settings: Settings
  readonly middleware: readonly Middleware[]
  definitionOf(name: string): JobDefinition | undefined
  /** Adds jobs to a queue. */
  adder(queue: string): Adder
  leases(): Leases
  /** The job is no longer this worker's. */
  lost(attempt: Attempt, reason: AbortReason): void
  /** The handler has ended, and what it comes to was committed in its own transaction. */
  committed(attempt: Attempt, outcome: Outcome): void
  /** The handler has ended, and this is what it comes to. */
  ended(attempt: Attempt, outcome: Outcome): void
  /** The handler has ended, but the job was no longer this worker's. */
  endedLost(attempt: Attempt): void
  /** The handler does not end: its slot is to be given up. */
  stuck(attempt: Attempt, outcome: Outcome): void
  /** A note is durable, or was refused. */
  noted(attempt: Attempt, progress: JsonText | undefined, verdict: Verdict): void
  /** A callback of the user's threw. */
  misbehaved(attempt: Attempt, what: string, cause: unknown): void
}

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
  /** What it came to, once it ended. */
  outcome: Outcome | undefined
  /** A settlement was sent whose answer never came. */
  unsure = false
  /** What goes with its settlement. */
  lastWords: LastWords | undefined
  /** The part of the handler before its first `await` is over. */
  later = false
  /** Somebody's transaction held the job when its lease was last to be renewed. */
  busy = false
  /** What may have been committed in its transaction, whose answer never came. */
  perhaps: Returned | undefined

  readonly #host: AttemptHost
  #abort: AbortController | undefined
  #reason: AbortReason | undefined
  #timers: Stop[] | undefined
  #snooze: Millis | undefined
  /** What the schema said of the payload, if it refused it: it will not become valid by trying again. */
  #refused: MillraceError | undefined
  #done = false
  /** What ended it before its time: its timeout, or that of its transaction. */
  #overdue: MillraceError | undefined
  #transacting: Transacting | undefined
  #notes: Notes | undefined

  constructor(host: AttemptHost, record: JobRecord, handler: ParsedHandler, leaseEnds: Millis) {
    this.#host = host
    this.record = record
    this.handler = handler
    this.leaseEnds = leaseEnds
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
    const definition = this.#host.definitionOf(this.record.name)
    return definition?.input === undefined && this.#host.middleware.length === 0
      ? this.#run(new Job(this.#host.desk, this.record), new Context(this))
      : this.#prepared(definition)
  }

  #run(job: Job, ctx: JobContext): unknown {
    try {
      return this.handler.run(job, ctx)
    } finally {
      this.later = true
    }
  }

  /** Tells the handler to stop. Only the first reason counts. */
  abort(reason: AbortReason): void {
    if (this.#reason !== undefined || this.#done) return
    this.#reason = reason
    this.#abort?.abort(abortFor(reason))
  }

  /** The job is no longer this worker's: the handler is told, and whatever it comes to is not sent. */
  lose(reason: AbortReason): void {
    this.lost ??= reason
    this.abort(reason)
    if (!this.#done) this.#transacting?.cut(this.notOurs())
  }

  /** Lets go of a handler that does not end: its timers stop, and whatever it comes to is nobody's business. */
  abandon(): void {
    if (!this.#done) this.#transacting?.cut(this.notOurs())
    this.#finish()
  }

  async #prepared(definition: JobDefinition | undefined): Promise<unknown> {
    const { data } = this.record
    let job = new Job(this.#host.desk, this.record)
    if (definition?.input !== undefined) {
      const said = await validate(definition.input, data === undefined ? undefined : job.data)
      if (!said.ok) {
        const issues = said.issues.join('; ')
        this.#refused = new MillraceError('INVALID_PAYLOAD', `The data of job ${this.record.id} was refused: ${issues}`)
        throw this.#refused
      }
      job = new Job(this.#host.desk, this.record, { parsed: { data: said.value } })
    }
    return wrap(this.#host.middleware, job, new Context(this), (ctx) => this.#run(job, ctx))
  }

  /** Made when first asked for: most handlers of short jobs never look at it. */
  signal(): JobSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController()
      if (this.#reason !== undefined) this.#abort.abort(abortFor(this.#reason))
    }
    return this.#abort.signal
  }

  snooze(duration: Duration): never {
    this.#snooze = parseDuration(duration, 'ctx.snooze')
    throw new Snoozed('The job is snoozed.')
  }

  /** Writes what a handler says; what cannot be written is also told to the host, since nobody may be waiting. */
  async say(what: () => readonly [JsonText | undefined, string | undefined]): Promise<void> {
    let said: readonly [JsonText | undefined, string | undefined]
    try {
      said = what()
    } catch (error) {
      this.#host.misbehaved(this, 'ctx.progress or ctx.log', error)
      throw error
    }
    return this.note(...said)
  }

  /** Adds to what leaves with the next batch. */
  note(progress: JsonText | undefined, line: string | undefined): Promise<void> {
    if (this.lost !== undefined || this.#done) return Promise.reject(this.notOurs())
    const work = this.#transacting
    if (work?.opening !== undefined) return work.opening.then(() => this.note(progress, line))
    const { store, main } = this.#host.desk.connection
    const open = work === undefined ? joinedTransaction(store) : work.joined
    if (open !== undefined) return this.#noteWithin(open, progress, line)
    const noted = (said: JsonText | undefined, verdict: Verdict): void => this.#host.noted(this, said, verdict)
    this.#notes ??= new Notes(this.record, main, noted, () => this.notOurs())
    return this.#notes.add(progress, line)
  }

  /** What is said in a transaction lands with it, and is told of when it has. */
  async #noteWithin(open: OpenTransaction, progress: JsonText | undefined, line: string | undefined): Promise<void> {
    const { runtime } = this.#host.desk.connection
    const verdict = await commitNote(open, runtime, this.record, progress, line === undefined ? [] : [line])
    if (!verdict.ok) throw this.notOurs()
    open.afterCommit(() => this.#host.noted(this, progress, verdict))
  }

  /** What was said last and has not left yet. */
  takeLastWords(): LastWords | undefined {
    return this.#notes?.takeLast()
  }

  /** The error for what comes when the job is no longer this worker's, or its handler has ended. */
  notOurs(): MillraceError {
    const { id, name } = this.record
    const why =
      this.lost === undefined && this.#done ? 'its handler had ended; await what it says' : (this.lost ?? 'lease-lost')
    return new MillraceError('LEASE_LOST', `Nothing was written for job ${id} ('${name}'): ${why}.`, {
      details: { id },
    })
  }

  #armTimeout(): void {
    const timeout = this.record.timeout ?? this.handler.timeout
    if (timeout === undefined) return
    const error = (): MillraceError =>
      new MillraceError('JOB_TIMEOUT', `The handler ran past its timeout of ${timeout} ms.`)
    this.#timers = [this.#host.desk.connection.runtime.timer(timeout, () => this.stop(error()))]
  }

  /** It took too long: it is told to stop, fails with this unless it was stopping, and is given up if it goes on. */
  stop(error: MillraceError): void {
    if (this.#done || this.#overdue !== undefined) return
    if (this.#reason === undefined || error.code === 'TRANSACTION_TOO_LONG') this.#overdue = error
    const { runtime } = this.#host.desk.connection
    const giveUp = (): void => {
      if (this.#done) return
      this.#finish()
      this.#transacting?.cut(error)
      this.#host.stuck(this, failure(this.#failing, error, true))
    }
    this.#finishTimers()
    this.#timers = [runtime.timer(this.#host.settings.abandonAfter, giveUp)]
    this.abort('timeout')
  }

  #finish(): void {
    this.#done = true
    this.#finishTimers()
  }

  #finishTimers(): void {
    if (this.#timers !== undefined) for (const stop of this.#timers) stop()
  }

  #returned(value: unknown): void {
    if (this.#done) return
    if (this.lost !== undefined || this.#overdue !== undefined || this.#snooze !== undefined)
      return this.#threw(undefined)
    const work = this.#transacting
    if (work === undefined) return this.#judge(value)
    if (!work.isBusy) return this.#judge(value === undefined ? work.value : value)
    // It did not wait for what it called: that belongs to it all the same.
    work.settledDown().then(
      () => this.#returned(value),
      (error: unknown) => this.#threw(error),
    )
  }

  /** Holds a result against its schema. */
  #judge(value: unknown): void {
    const schema = this.#host.definitionOf(this.record.name)?.output
    if (schema === undefined) return this.#completed(value)
    const said = validate(schema, value)
    const judge = (each: Awaited<typeof said>): void => {
      if (this.#done) return
      if (each.ok) return this.#completed(each.value)
      this.#failed(
        new MillraceError('INVALID_RESULT', `The handler's result was refused: ${each.issues.join('; ')}`),
        false,
      )
    }
    if (said instanceof Promise) void said.then(judge)
    else judge(said)
  }

  #completed(value: unknown): void {
    let result: JsonText | undefined
    try {
      result = value === undefined ? undefined : encodeJson(value, 'result')
    } catch (error) {
      return this.#failed(error, false)
    }
    this.#end(returned(result, this.successors))
  }

  #threw(error: unknown): void {
    if (this.#done) return
    if (this.lost !== undefined) {
      this.#finish()
      this.#host.endedLost(this)
      return
    }
    if (this.#snooze !== undefined) return this.#end({ kind: 'snoozed', for: this.#snooze })
    if (this.#overdue !== undefined) return this.#failed(this.#overdue, true)
    if (this.#reason === 'shutdown') return this.#end({ kind: 'interrupted' })
    this.#failed(error, error !== this.#refused && worthRetrying(this.#failing, error))
  }

  #failed(error: unknown, retryable: boolean): void {
    this.#end(failure(this.#failing, error, retryable))
  }

  #end(outcome: Outcome): void {
    this.#finish()
    this.outcome = outcome
    const work = this.#transacting
    if (work === undefined || (outcome.kind === 'returned' && !work.isOpen)) return this.#host.ended(this, outcome)
    if (outcome.kind === 'returned') void this.#settleWithin(work, outcome)
    else void work.rollBack(new Error('The handler failed.')).then(() => this.#host.ended(this, outcome))
  }

  /** Settles in the transaction that is open; if that cannot be, all of it was rolled back, and the attempt failed. */
  async #settleWithin(work: Transacting, outcome: Returned): Promise<void> {
    const end = await work.settle(settle(this.record, outcome))
    switch (end.kind) {
      case 'committed':
        return this.#host.committed(this, outcome)
      case 'unknown':
        this.unsure = true
        this.perhaps = outcome
        return this.#host.ended(this, (this.outcome = this.failedWith(end.error)))
      case 'refused': {
        const error = work.refusal(end.verdict, outcome)
        if (error !== undefined) return this.#host.ended(this, (this.outcome = this.failedWith(error)))
        this.#host.lost(this, reasonOf(end.verdict))
        this.#host.endedLost(this)
      }
    }
  }

  /** What a failure comes to, which is found only when the handler has returned. */
  failedWith(error: unknown): Outcome {
    const failing = this.#failing
    return failure(failing, error, worthRetrying(failing, error))
  }

  /** What the callback of `ctx.complete` asked for. */
  get successors(): Successors | undefined {
    return this.#transacting?.successors
  }

  /** Made when first asked for, as the signal. */
  transacting(): Transacting {
    if (this.#transacting === undefined) {
      this.#transacting = new Transacting(this, this.#host)
      if (this.#host.desk.connection.store.can.transactions) this.handler.transacts = true
    }
    return this.#transacting
  }

  /** Resolves when all that was said until now is durable or refused; undefined where nothing is under way. */
  get quiet(): Promise<void> | undefined {
    return this.#notes?.quiet
  }

  get #failing(): Failing {
    const { desk, settings } = this.#host
    const misbehaved = (what: string, cause: unknown): void => this.#host.misbehaved(this, what, cause)
    return { record: this.record, handler: this.handler, desk, settings, misbehaved }
  }
}

// worker/attempt.ts: one run of one job: its handler, its signal, and how it ended.
import { parseDuration } from '../job/duration.js'
import type { Duration } from '../job/duration.js'
import { MillraceError } from '../job/errors.js'
import { describeError, isUnrecoverable } from '../job/failure.js'
import type { JobRecord, Millis } from '../job/job.js'
import { encodeJson } from '../job/json.js'
import type { JsonText } from '../job/json.js'
import type { Outcome } from '../job/lifecycle.js'
import { backoffDelay, defaultBackoff } from '../job/retry.js'
import { validate } from '../queue/define.js'
import type { JobDefinition } from '../queue/define.js'
import type { Desk } from '../queue/desk.js'
import { Job } from '../queue/job.js'
import type { Stop } from '../store/runtime.js'
import type { Verdict } from '../store/store.js'
import { JobAbort, Snoozed, extend } from './context.js'
import type { AbortReason, JobContext, JobSignal, Middleware } from './context.js'
import { Notes } from './notes.js'
import type { LastWords } from './notes.js'
import type { ParsedHandler, Settings } from './options.js'

/** What an attempt needs of its worker. */
export interface AttemptHost {
  readonly desk: Desk
  readonly settings: Settings
  readonly middleware: readonly Middleware[]
  definitionOf(name: string): JobDefinition | undefined
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

const messages: Readonly<Record<AbortReason, string>> = {
  cancelled: 'The job was cancelled.',
  'lease-lost': 'The lease of this job ran out, and it may run elsewhere.',
  'completed-elsewhere': 'The job was finished by somebody else.',
  removed: 'The job was removed.',
  timeout: 'The handler ran past its timeout.',
  shutdown: 'The worker is shutting down.',
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

  readonly #host: AttemptHost
  #abort: AbortController | undefined
  #reason: AbortReason | undefined
  #timers: Stop[] | undefined
  #snooze: Millis | undefined
  /** What the schema said of the payload, if it refused it. */
  #refused: MillraceError | undefined
  #done = false
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

  /** Calls the handler. What it comes to is told to the host, never thrown. */
  start(): void {
    this.started = true
    this.#armTimeout()
    try {
      const definition = this.#host.definitionOf(this.record.name)
      const result: unknown =
        definition?.input === undefined && this.#host.middleware.length === 0
          ? this.handler.run(new Job(this.#host.desk, this.record), this.#context())
          : this.#prepared(definition)
      if (!isThenable(result)) return this.#returned(result)
      result.then(
        (value) => this.#returned(value),
        (error: unknown) => this.#threw(error),
      )
    } catch (error) {
      this.#threw(error)
    }
  }

  /** Tells the handler to stop. Only the first reason counts. */
  abort(reason: AbortReason): void {
    if (this.#reason !== undefined || this.#done) return
    this.#reason = reason
    this.#abort?.abort(new JobAbort(reason, messages[reason]))
  }

  /** The job is no longer this worker's: the handler is told, and whatever it comes to is not sent. */
  lose(reason: AbortReason): void {
    this.lost ??= reason
    this.abort(reason)
  }

  /** Lets go of a handler that does not end: its timers stop, and whatever it comes to is nobody's business. */
  abandon(): void {
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
    return this.#wrapped(job, this.#context(), 0)
  }

  async #wrapped(job: Job, ctx: JobContext, at: number): Promise<unknown> {
    const wrap = this.#host.middleware[at]
    if (wrap === undefined) return this.handler.run(job, ctx)
    let called = false
    return wrap(job, ctx, async (extra) => {
      if (called) throw new MillraceError('CALLBACK_FAILED', 'A middleware called next() twice; a handler runs once.')
      called = true
      extend(ctx, extra)
      return this.#wrapped(job, ctx, at + 1)
    })
  }

  #context(): JobContext {
    return new Context(this)
  }

  /** Made when first asked for: most handlers of short jobs never look at it. */
  signal(): JobSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController()
      if (this.#reason !== undefined) this.#abort.abort(new JobAbort(this.#reason, messages[this.#reason]))
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
    if (this.lost !== undefined || this.#done) return Promise.reject(this.#notOurs())
    this.#notes ??= new Notes(
      this.record,
      this.#host.desk.connection.main,
      (said, verdict) => this.#host.noted(this, said, verdict),
      () => this.#notOurs(),
    )
    return this.#notes.add(progress, line)
  }

  /** What was said last and has not left yet. */
  takeLastWords(): LastWords | undefined {
    return this.#notes?.takeLast()
  }

  #notOurs(): MillraceError {
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
    const { runtime } = this.#host.desk.connection
    const giveUp = (): void => {
      if (this.#done) return
      this.#finish()
      this.#host.stuck(this, this.#failure(this.#timeoutError(timeout), true))
    }
    const abort = (): void => {
      this.abort('timeout')
      this.#timers = [runtime.timer(this.#host.settings.abandonAfter, giveUp)]
    }
    this.#timers = [runtime.timer(timeout, abort)]
  }

  #timeoutError(timeout: Millis): MillraceError {
    return new MillraceError('JOB_TIMEOUT', `The handler ran past its timeout of ${timeout} ms.`)
  }

  #finish(): void {
    this.#done = true
    if (this.#timers !== undefined) for (const stop of this.#timers) stop()
  }

  #returned(value: unknown): void {
    if (this.#done) return
    if (this.lost !== undefined || this.#reason === 'timeout' || this.#snooze !== undefined)
      return this.#threw(undefined)
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
    this.#end({ kind: 'returned', result, also: NOTHING })
  }

  #threw(error: unknown): void {
    if (this.#done) return
    if (this.lost !== undefined) {
      this.#finish()
      this.#host.endedLost(this)
      return
    }
    if (this.#snooze !== undefined) return this.#end({ kind: 'snoozed', for: this.#snooze })
    if (this.#reason === 'timeout') {
      return this.#failed(this.#timeoutError(this.record.timeout ?? this.handler.timeout ?? 0), true)
    }
    if (this.#reason === 'shutdown') return this.#end({ kind: 'interrupted' })
    this.#failed(error, this.#worthRetrying(error))
  }

  #failed(error: unknown, retryable: boolean): void {
    this.#end(this.#failure(error, retryable))
  }

  #end(outcome: Outcome): void {
    this.#finish()
    this.outcome = outcome
    this.#host.ended(this, outcome)
  }

  #worthRetrying(error: unknown): boolean {
    if (isUnrecoverable(error)) return false
    if (error === this.#refused) return false // the payload itself: it will not become valid by trying again
    const { retryable } = this.#host.settings
    if (retryable === undefined) return true
    try {
      const answer: unknown = retryable(error, new Job(this.#host.desk, this.record))
      if (isThenable(answer)) {
        answer.then(undefined, () => {})
        throw new TypeError("it answered a promise; it must answer 'retry' or 'fatal' at once")
      }
      return answer !== 'fatal'
    } catch (cause) {
      this.#host.misbehaved(this, 'retryable', cause)
      return true
    }
  }

  #failure(error: unknown, retryable: boolean): Outcome {
    return { kind: 'threw', error: describeError(error), retryable, retryIn: retryable ? this.#backoff(error) : 0 }
  }

  /** A strategy that is missing or throws costs the job nothing but its formula: the default takes its place. */
  #backoff(error: unknown): Millis {
    const { random } = this.#host.desk.connection.runtime
    const backoff = this.record.backoff ?? this.handler.backoff ?? defaultBackoff
    try {
      return backoffDelay(backoff, this.record.attempt, random, this.#host.settings.custom, error)
    } catch (cause) {
      this.#host.misbehaved(this, 'backoff', cause)
      return backoffDelay(defaultBackoff, this.record.attempt, random)
    }
  }
}

const NOTHING: readonly never[] = []

class Context implements JobContext {
  readonly #attempt: Attempt

  constructor(attempt: Attempt) {
    this.#attempt = attempt
  }

  get signal(): JobSignal {
    return this.#attempt.signal()
  }

  // Getters, so that `({ progress, log }) => …` works and handlers that use neither pay nothing.
  get progress() {
    return (value: unknown): Promise<void> => this.#say(() => [encodeJson(value ?? null, 'progress'), undefined])
  }

  get log() {
    return (line: string): Promise<void> =>
      this.#say(() => {
        encodeJson(String(line), 'log line')
        return [undefined, String(line)]
      })
  }

  get snooze() {
    return (duration: Duration): never => this.#attempt.snooze(duration)
  }

  /** Those who await it hear of a failure; those who do not are not brought down by it. */
  #say(what: () => readonly [JsonText | undefined, string | undefined]): Promise<void> {
    const said = this.#attempt.say(what)
    said.catch(() => {})
    return said
  }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === 'object' && value !== null && typeof (value as { then?: unknown }).then === 'function'
}

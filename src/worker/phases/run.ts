// worker/phases/run.ts: one attempt at a job in phases: runs them from the first that has not completed to the last.
import type { NoteEvent } from '../../job/change.js'
import { MillraceError, quote } from '../../job/errors/errors.js'
import type { ErrorInfo } from '../../job/job.js'
import { decodeJson, encodeJson } from '../../job/values/json.js'
import type { JsonText } from '../../job/values/json.js'
import type { Outcome } from '../../job/lifecycle.js'
import { memoOf, writeMemo } from '../../job/memo.js'
import type { Memo, PhaseStatus } from '../../job/memo.js'
import { nearest } from '../../job/values/names.js'
import { begun, completed, cutOff, failed, overall, progressed, resumed } from '../../job/phases.js'
import type { Phases } from '../../job/phases.js'
import type { Job } from '../../queue/job.js'
import { outOfOrder } from '../../queue/flows/follow-ups.js'
import type { EndingPhases } from '../attempt/attempt.js'
import { abortFor } from '../attempt/context.js'
import type { JobContext } from '../attempt/context.js'
import type { PhaseFailure } from '../attempt/attempt-errors.js'
import { notStored, tookTooLong } from '../attempt/attempt-errors.js'
import type { HandlerAttempt } from '../attempt/handler-attempt.js'
import { Context } from '../attempt/handler-context.js'
import type { NoteEntry } from '../attempt/pending-notes.js'
import type { ProgressWriter } from '../attempt/progress-writer.js'
import type { ParsedPhases } from './handler.js'

/** Runs the phases of a handler that have not completed. */
export function runPhases(attempt: HandlerAttempt, plan: ParsedPhases, job: Job, ctx: JobContext): Promise<unknown> {
  const run = new PhaseRun(attempt, plan)
  attempt.phases = run
  return run.run(job, ctx)
}

/** One attempt at a job in phases. */
class PhaseRun implements EndingPhases {
  readonly #attempt: HandlerAttempt
  readonly #writer: ProgressWriter
  readonly #plan: ParsedPhases
  readonly #names: readonly string[]
  readonly #rest: Memo
  #phases: Phases
  /** The phase that has begun and not ended. */
  #current: string | undefined
  /** The last phase has returned. */
  #lastReturned = false
  /** The note that the first phase has begun, while it is in flight. */
  #startNote: Promise<void> | undefined
  /** The same, if a progress call waits for it. */
  #awaitedStart: Promise<void> | undefined
  /** An error that a retry would only repeat. */
  #fatal: unknown

  constructor(attempt: HandlerAttempt, plan: ParsedPhases) {
    const { record } = attempt
    this.#attempt = attempt
    this.#writer = attempt.useProgressWriter()
    this.#plan = plan
    this.#names = inOrder(plan.names, record.extras?.phases)
    this.#rest = memoOf(record)
    this.#phases = resumed(record, this.#names)
  }

  /**
   * Runs all phases that have not completed. Calls the first one at once, so that it can make the calls that must come
   * before the first `await`.
   */
  async run(job: Job, ctx: JobContext): Promise<unknown> {
    const names = this.#names
    const last = names.at(-1)!
    let events: NoteEvent[] = []
    for (const [at, name] of names.entries()) {
      if (this.#phases[name]!.status === 'completed') continue
      const isFirst = events.length === 0
      events.push(this.#begin(name))
      const noted = this.#writer.note({ memo: this.#memo, events })
      // If tries are counted, this one must be durable before it begins.
      if (isFirst && this.#plan.phases[name]!.attempts === undefined) this.#start(noted)
      else await noted
      this.#refuseExhausted(name)
      const value = await this.#call(at, name, job, ctx)
      if (name === last || this.#attempt.endsEarly) return value // a phase that asked to run again has not completed
      events = [this.#end(name, value)]
      this.#current = undefined
      if (this.#attempt.reason !== undefined || this.#attempt.postponed !== undefined) break
    }
    if (events.length > 0) await this.#writer.note({ memo: this.#memo, events })
    if (this.#attempt.reason !== undefined) throw abortFor(this.#attempt.reason)
    return this.result(last)
  }

  /** The note to commit with the settlement: how the last phase that ran ended. */
  finalEntry(outcome: Outcome): NoteEntry | undefined {
    const name = this.#current
    if (name === undefined) return undefined
    // The state of the job implies that the last phase has completed, so the memo is not written again.
    if (outcome.kind === 'returned' && this.#lastReturned)
      return { events: [phaseEvent(name, 'completed', outcome.result)] }
    if (outcome.kind === 'returned') {
      const phases = cutOff(this.#phases, name)
      return { memo: () => this.#write(phases) }
    }
    if (outcome.kind !== 'threw') return undefined
    const phases = failed(this.#phases, name, outcome.error, this.#attempt.storeTime())
    return { memo: () => this.#write(phases), events: [phaseEvent(name, 'failed', undefined, phases[name]!.error)] }
  }

  /** How the phase that is running may be retried. */
  get phaseFailure(): PhaseFailure | undefined {
    const name = this.#current
    if (name === undefined) return undefined
    const { attempts = Infinity, backoff } = this.#plan.phases[name]!
    const failures = (this.#phases[name]!.failures ?? 0) + 1
    return {
      backoff,
      failures,
      mayRetry: (error) => (this.#fatal === undefined || error !== this.#fatal) && failures < attempts,
    }
  }

  /** `ctx.progress` of a phase. Waits until the start of the phase is durable; the phase does not end before that. */
  progress(at: number, percent: number): Promise<void> {
    const isCurrent = isPercent(percent) && this.#current === this.#names[at]
    const started = isCurrent ? this.#startNote : undefined
    if (started === undefined) return this.#writer.write(() => this.#progress(at, percent))
    this.#awaitedStart = started
    const done = started.then(() => this.#writer.write(() => this.#progress(at, percent)))
    done.catch(() => {}) // callers that await it get the error
    return done
  }

  #progress(at: number, percent: number): NoteEntry {
    const name = this.#names[at]!
    if (!isPercent(percent)) {
      throw new MillraceError(
        'INVALID_OPTION',
        `ctx.progress in phase '${name}': it must be a number from 0 to 100, not ${quote(percent)}.`,
      )
    }
    if (this.#current !== name) throw outOfOrder(`ctx.progress was called after phase '${name}' had ended`)
    this.#phases = progressed(this.#phases, name, percent)
    return {
      progress: String(overall(at, this.#names.length, percent)),
      about: JSON.stringify({ phase: name, phaseProgress: percent }),
      memo: this.#memo,
    }
  }

  /** `ctx.phaseResult`. */
  result(name: string): unknown {
    const phase = Object.hasOwn(this.#phases, name) ? this.#phases[name] : undefined
    if (phase !== undefined) return phase.result === undefined ? undefined : decodeJson(phase.result)
    const near = nearest(name, this.#names)
    const hint = near === undefined ? `there are ${this.#names.join(', ')}` : `did you mean '${near}'?`
    throw new MillraceError('INVALID_OPTION', `ctx.phaseResult: there is no phase ${quote(name)}; ${hint}`)
  }

  /** `ctx.phaseResults`. */
  results(): Readonly<Record<string, unknown>> {
    const done = this.#names.filter((name) => this.#phases[name]!.result !== undefined)
    return Object.fromEntries(done.map((name) => [name, this.result(name)]))
  }

  /** Throws if a call that belongs to the settlement is made in a phase that is not the last. */
  refuseEarly(at: number, call: string): void {
    if (at === this.#names.length - 1) return
    throw outOfOrder(
      `${call} was called in phase '${this.#names[at]!}'; it belongs to the end of the job, and so to its last phase`,
    )
  }

  #begin(name: string): NoteEvent {
    this.#current = name
    this.#phases = begun(this.#phases, name, this.#attempt.record.stalls, this.#attempt.storeTime())
    return phaseEvent(name, 'active')
  }

  #start(noted: Promise<void>): void {
    const over = (): void => void (this.#startNote = undefined)
    this.#startNote = noted
    noted.then(over, over)
  }

  #end(name: string, value: unknown): NoteEvent {
    if (this.#attempt.reason === 'timeout') throw abortFor('timeout')
    if (this.#addsJobs) {
      throw (this.#fatal = outOfOrder(
        `phase '${name}' added jobs and returned; they leave with the end of the job, so add them in its last phase, or wait for them with ctx.waitFor`,
      ))
    }
    let result: JsonText | undefined
    try {
      result = encodeJson(value, 'result')
    } catch (error) {
      throw (this.#fatal = notStored(`Phase '${name}'`, error))
    }
    this.#phases = completed(this.#phases, name, result, this.#attempt.storeTime())
    return phaseEvent(name, 'completed', result)
  }

  async #call(at: number, name: string, job: Job, ctx: JobContext): Promise<unknown> {
    const { run, timeout } = this.#plan.phases[name]!
    if (this.#attempt.reason !== undefined) throw abortFor(this.#attempt.reason)
    // Own properties of the context are what middleware has added to it.
    const own = Object.assign(new PhaseContext(this.#attempt, this, at), ctx)
    const stop = timeout === undefined ? undefined : this.#attempt.arm(timeout, () => tookTooLong(timeout, name))
    try {
      const value = await run(job, own as never)
      if (this.#awaitedStart !== undefined) await this.#awaitedStart
      await this.#attempt.steps?.finish()
      this.#lastReturned = at === this.#names.length - 1
      return value
    } catch (error) {
      await this.#awaitedStart?.catch(() => {}) // its progress so far is not lost
      throw error
    } finally {
      stop?.()
    }
  }

  /** Whether jobs were added that are to be committed with the settlement. */
  get #addsJobs(): boolean {
    const own = this.#attempt.children?.own
    return own !== undefined && (own.isBusy || own.also.length > 0)
  }

  /** Throws if a phase has no try left, because its worker died in the last one. */
  #refuseExhausted(name: string): void {
    const { attempts } = this.#plan.phases[name]!
    const { failures = 0 } = this.#phases[name]!
    if (attempts === undefined || failures < attempts) return
    throw (this.#fatal = new MillraceError(
      'JOB_EXHAUSTED',
      `Phase '${name}' was cut off in try ${failures} of ${attempts}: exhausted.`,
    ))
  }

  /** Encoded only when the note is sent, and not for every `ctx.progress`: the results in it may be large. */
  readonly #memo = (): JsonText => this.#write(this.#phases)

  #write(phases: Phases): JsonText {
    return writeMemo({ ...this.#rest, phases })
  }
}

/** The context of one phase. */
class PhaseContext extends Context {
  readonly #attempt: HandlerAttempt
  readonly #run: PhaseRun
  readonly #at: number

  constructor(attempt: HandlerAttempt, run: PhaseRun, at: number) {
    super(attempt)
    this.#attempt = attempt
    this.#run = run
    this.#at = at
  }

  override get progress() {
    return (percent: unknown): Promise<void> =>
      this.#attempt.guard('ctx.progress', () => this.#run.progress(this.#at, percent as number), false)
  }

  get phaseResult() {
    return (name: string): unknown => this.#attempt.guard('ctx.phaseResult', () => this.#run.result(name))
  }

  get phaseResults() {
    return (): Readonly<Record<string, unknown>> => this.#run.results()
  }

  override get prepare() {
    this.#attempt.guard('ctx.prepare', () => this.#run.refuseEarly(this.#at, 'ctx.prepare'))
    return super.prepare
  }

  override get complete() {
    this.#attempt.guard('ctx.complete', () => this.#run.refuseEarly(this.#at, 'ctx.complete'))
    return super.complete
  }
}

function isPercent(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && value <= 100
}

/** The order that the job was added with, if the handler has the same phases in another order. */
function inOrder(names: readonly string[], stamped: readonly string[] | undefined): readonly string[] {
  if (stamped === undefined || stamped.length !== names.length) return names
  return stamped.every((name) => names.includes(name)) ? stamped : names
}

function phaseEvent(phase: string, status: PhaseStatus, result?: JsonText, error?: ErrorInfo): NoteEvent {
  let about = `{"phase":${JSON.stringify(phase)},"status":"${status}"`
  if (error !== undefined) about += `,"error":${JSON.stringify(error)}`
  if (result !== undefined) about += `,"result":${result}`
  return { type: 'phase', about: `${about}}` }
}

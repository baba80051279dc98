// worker/phases/run.ts: one attempt at a job in phases: from the first that has not completed to the last.
import type { NoteEvent } from '../../job/change.js'
import { MillraceError } from '../../job/errors.js'
import type { ErrorInfo, JobRecord, Millis } from '../../job/job.js'
import { decodeJson, encodeJson } from '../../job/json.js'
import type { JsonText } from '../../job/json.js'
import type { Outcome } from '../../job/lifecycle.js'
import { memoOf, writeMemo } from '../../job/memo.js'
import type { Memo, PhaseStatus } from '../../job/memo.js'
import { nearest } from '../../job/names.js'
import { begun, completed, cutOff, failed, leftOpen, overall, progressed, resumed } from '../../job/phases.js'
import type { Phases } from '../../job/phases.js'
import { quote } from '../../job/quote.js'
import type { Job } from '../../queue/job.js'
import { outOfOrder } from '../../queue/flows/follow-ups.js'
import type { Stop } from '../../store/runtime.js'
import type { Group } from '../../store/store.js'
import { Context, abortFor } from '../attempt/context.js'
import type { AbortReason, Attempting, JobContext } from '../attempt/context.js'
import type { PhaseFailing } from '../attempt/failure.js'
import { notStored, tookTooLong } from '../attempt/failure.js'
import { together, written } from '../attempt/pending-notes.js'
import type { LastNote, NoteEntry } from '../attempt/pending-notes.js'
import type { ParsedPhases } from './types.js'

/** The attempt that runs them. */
interface Phased extends Attempting {
  readonly record: JobRecord
  /** Why its handler was told to stop. */
  readonly reason: AbortReason | undefined
  readonly saying: Attempting['saying'] & { note(said: NoteEntry): Promise<void> }
  readonly steps: Attempting['steps'] & { over(): Promise<void> }
  /** Whether jobs were added that leave with its settlement. */
  readonly adds: boolean
  /** Whether its handler asked to run again, and has only to end. */
  readonly leaves: boolean
  /** When it is to run again once its handler has returned. */
  readonly postponed: unknown
  /** Fails with this after that time. */
  arm(timeout: Millis, error: () => MillraceError): Stop
}

/** One attempt at a job in phases. */
export class PhaseRun {
  readonly #attempt: Phased
  readonly #plan: ParsedPhases
  readonly #names: readonly string[]
  readonly #rest: Memo
  #phases: Phases
  /** The phase that has begun and not ended. */
  #now: string | undefined
  /** The last phase has returned. */
  #over = false
  /** That the first phase has begun is on its way. */
  #starting: Promise<void> | undefined
  /** What its progress waits for. */
  #waits: Promise<void> | undefined
  /** An error that would be the same the next time. */
  #fatal: unknown

  constructor(attempt: Phased, plan: ParsedPhases) {
    const { record } = attempt
    this.#attempt = attempt
    this.#plan = plan
    this.#names = inOrder(plan.names, record.extras?.phases)
    this.#rest = memoOf(record)
    this.#phases = resumed(record, this.#names)
  }

  /** Runs all that have not completed. The first is called at once, so that it can do what must be done before an `await`. */
  async run(job: Job, ctx: JobContext): Promise<unknown> {
    const names = this.#names
    const last = names.at(-1)!
    let tells: NoteEvent[] = []
    for (const [at, name] of names.entries()) {
      if (this.#phases[name]!.status === 'completed') continue
      const isFirst = tells.length === 0
      tells.push(this.#begin(name))
      const noted = this.#attempt.saying.note({ memo: this.#memo, tells })
      // Where tries are counted, this one must be known before it begins.
      if (isFirst && this.#plan.phases[name]!.attempts === undefined) this.#start(noted)
      else await noted
      this.#refuseExhausted(name)
      const value = await this.#call(at, name, job, ctx)
      if (name === last || this.#attempt.leaves) return value // what asked to run again is not over
      tells = [this.#end(name, value)]
      this.#now = undefined
      if (this.#attempt.reason !== undefined || this.#attempt.postponed !== undefined) break
    }
    if (tells.length > 0) await this.#attempt.saying.note({ memo: this.#memo, tells })
    if (this.#attempt.reason !== undefined) throw abortFor(this.#attempt.reason)
    return this.result(last)
  }

  /** What goes with the settlement: how the phase ended that ran last. */
  parting(outcome: Outcome): NoteEntry | undefined {
    const name = this.#now
    if (name === undefined) return undefined
    // That the last phase has completed is told by the state of the job, and need not be written once more.
    if (outcome.kind === 'returned' && this.#over) return { tells: [told(name, 'completed', outcome.result)] }
    if (outcome.kind === 'returned') {
      const phases = cutOff(this.#phases, name)
      return { memo: () => this.#write(phases) }
    }
    if (outcome.kind !== 'threw') return undefined
    const phases = failed(this.#phases, name, outcome.error)
    return { memo: () => this.#write(phases), tells: [told(name, 'failed', undefined, phases[name]!.error)] }
  }

  /** What the phase that is running has to say about a failure. */
  get failing(): PhaseFailing | undefined {
    const name = this.#now
    if (name === undefined) return undefined
    const { attempts = Infinity, backoff } = this.#plan.phases[name]!
    const failures = (this.#phases[name]!.failures ?? 0) + 1
    return {
      backoff,
      failures,
      mayRetry: (error) => (this.#fatal === undefined || error !== this.#fatal) && failures < attempts,
    }
  }

  /** `ctx.progress` of a phase. That it has begun is told before; until then, the phase does not end. */
  progress(at: number, percent: number, say: (what: () => NoteEntry) => Promise<void>): Promise<void> {
    const waits = isPercent(percent) && this.#now === this.#names[at]
    const told = waits ? this.#starting : undefined
    if (told === undefined) return say(() => this.#progress(at, percent))
    this.#waits = told
    const said = told.then(() => say(() => this.#progress(at, percent)))
    said.catch(() => {}) // those who await it hear of it
    return said
  }

  #progress(at: number, percent: number): NoteEntry {
    const name = this.#names[at]!
    if (!isPercent(percent)) {
      throw new MillraceError(
        'INVALID_OPTION',
        `ctx.progress in phase '${name}': it must be a number from 0 to 100, not ${quote(percent)}.`,
      )
    }
    if (this.#now !== name) throw outOfOrder(`ctx.progress was called after phase '${name}' had ended`)
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

  /** Refuses what belongs to the settlement in a phase that is not the last. */
  refuseEarly(at: number, call: string): void {
    if (at === this.#names.length - 1) return
    throw outOfOrder(
      `${call} was called in phase '${this.#names[at]!}'; it belongs to the end of the job, and so to its last phase`,
    )
  }

  #begin(name: string): NoteEvent {
    this.#now = name
    this.#phases = begun(this.#phases, name, this.#attempt.record.stalls)
    return told(name, 'active')
  }

  #start(noted: Promise<void>): void {
    const over = (): void => void (this.#starting = undefined)
    this.#starting = noted
    noted.then(over, over)
  }

  #end(name: string, value: unknown): NoteEvent {
    if (this.#attempt.reason === 'timeout') throw abortFor('timeout')
    if (this.#attempt.adds) {
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
    this.#phases = completed(this.#phases, name, result)
    return told(name, 'completed', result)
  }

  async #call(at: number, name: string, job: Job, ctx: JobContext): Promise<unknown> {
    const { run, timeout } = this.#plan.phases[name]!
    if (this.#attempt.reason !== undefined) throw abortFor(this.#attempt.reason)
    // What middleware has added to the context is on it as properties of its own.
    const own = Object.assign(new PhaseContext(this.#attempt, this, at), ctx)
    const stop = timeout === undefined ? undefined : this.#attempt.arm(timeout, () => tookTooLong(timeout, name))
    try {
      const value = await run(job, own as never)
      if (this.#waits !== undefined) await this.#waits
      await this.#attempt.steps.over()
      this.#over = at === this.#names.length - 1
      return value
    } catch (error) {
      await this.#waits?.catch(() => {}) // what it said before is not lost
      throw error
    } finally {
      stop?.()
    }
  }

  /** A phase that its worker died in may have no try left. */
  #refuseExhausted(name: string): void {
    const { attempts } = this.#plan.phases[name]!
    const { failures = 0 } = this.#phases[name]!
    if (attempts === undefined || failures < attempts) return
    throw (this.#fatal = new MillraceError(
      'JOB_EXHAUSTED',
      `Phase '${name}' was cut off in try ${failures} of ${attempts}: exhausted.`,
    ))
  }

  /** Made when a note leaves: the results in it may be large, and are not written for every call of `ctx.progress`. */
  readonly #memo = (): JsonText => this.#write(this.#phases)

  #write(phases: Phases): JsonText {
    return writeMemo({ ...this.#rest, phases })
  }
}

/** A settlement and, before it, what was said last and how the last phase ended. */
export function withLastNote(
  attempt: {
    readonly record: JobRecord
    readonly lastWords: LastNote | undefined
    readonly phases: PhaseRun | undefined
  },
  outcome: Outcome,
  settlement: Group,
): Group {
  const said = attempt.lastWords?.said
  const parting = attempt.phases === undefined ? without(attempt.record, outcome) : attempt.phases.parting(outcome)
  const last = said === undefined || parting === undefined ? (said ?? parting) : together(said, parting)
  return last === undefined ? settlement : [written(attempt.record, last), ...settlement]
}

/** What goes with the settlement of a job that was completed without its phases: by middleware, or by a plain handler. */
function without(record: JobRecord, outcome: Outcome): NoteEntry | undefined {
  const memo = record.memo === undefined || outcome.kind !== 'returned' ? undefined : leftOpen(record)
  return memo === undefined ? undefined : { memo: () => memo }
}

/** The context of one phase. */
class PhaseContext extends Context {
  readonly #run: PhaseRun
  readonly #at: number

  constructor(attempt: Attempting, run: PhaseRun, at: number) {
    super(attempt)
    this.#run = run
    this.#at = at
  }

  override get progress() {
    return (percent: unknown): Promise<void> =>
      this.#run.progress(this.#at, percent as number, (what) => this.say(what))
  }

  get phaseResult() {
    return (name: string): unknown => this.#run.result(name)
  }

  get phaseResults() {
    return (): Readonly<Record<string, unknown>> => this.#run.results()
  }

  override get prepare() {
    this.#run.refuseEarly(this.#at, 'ctx.prepare')
    return super.prepare
  }

  override get complete() {
    this.#run.refuseEarly(this.#at, 'ctx.complete')
    return super.complete
  }
}

function isPercent(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && value <= 100
}

/** The order that a job was added with, where the handler was given the same phases in another one. */
function inOrder(names: readonly string[], stamped: readonly string[] | undefined): readonly string[] {
  if (stamped === undefined || stamped.length !== names.length) return names
  return stamped.every((name) => names.includes(name)) ? stamped : names
}

function told(phase: string, status: PhaseStatus, result?: JsonText, error?: ErrorInfo): NoteEvent {
  let about = `{"phase":${JSON.stringify(phase)},"status":"${status}"`
  if (error !== undefined) about += `,"error":${JSON.stringify(error)}`
  if (result !== undefined) about += `,"result":${result}`
  return { type: 'phase', about: `${about}}` }
}

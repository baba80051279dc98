// worker/batches/run.ts: one call of a handler for many jobs: gathering them, the call itself, and the result of each.
import { MillraceError } from '../../job/errors/errors.js'
import type { Duration } from '../../job/values/duration.js'
import { describeError, isError } from '../../job/errors/failure.js'
import type { Millis } from '../../job/job.js'
import type { Job } from '../../queue/job.js'
import { outside } from '../../store/transaction-context.js'
import type { Runtime, Stop } from '../../store/runtime.js'
import type { Attempt } from '../attempt/attempt.js'
import { notInBatch } from './handler.js'
import type { BatchContext, BatchHandler, BatchedContext, ParsedBatch } from './handler.js'
import { Snoozed } from '../attempt/context.js'
import type { AbortReason, JobContext, JobSignal } from '../attempt/context.js'
import { isThenable } from '../attempt/attempt-errors.js'
import type { HandlerAttempt } from '../attempt/handler-attempt.js'
import { Context } from '../attempt/handler-context.js'
import type { HoldOptions } from '../attempt/hold.js'

/** How the call of a batch ended. */
export interface BatchEnd {
  /** Jobs that ended before the call did. */
  readonly left: readonly Attempt[]
  /** All jobs have ended long ago, but the call has not: it was given up. */
  readonly stuck: boolean
}

/** A job that is ready for the call. */
interface Member {
  readonly attempt: HandlerAttempt
  readonly job: Job
  readonly ctx: JobContext
  own: BatchedContext | undefined
  resolve(value: unknown): void
  reject(error: unknown): void
}

/** Jobs of one name that run together, from the first one gathered until the end of their handler's call. */
export class Batch {
  readonly name: string
  readonly size: number
  readonly wait: Millis
  /** The store has no more jobs for it. */
  dry = false
  readonly #run: BatchHandler
  readonly #runtime: Runtime
  readonly #abandonAfter: Millis
  /** In claim order. */
  #attempts: HandlerAttempt[] = []
  #waitOver = false
  #gathering = true
  #timer: Stop | undefined
  /** Started, and neither ready for the call nor ended. */
  readonly #awaited = new Set<Attempt>()
  readonly #ready = new Map<Attempt, Member>()
  /** Ends the batch. */
  #end: (end: BatchEnd) => void = () => {}
  /** The call in progress. */
  #call: Call | undefined
  /** How many jobs in the call have not been aborted. */
  #unaborted = 0
  /** Jobs in the call that ended before it. */
  readonly #endedEarly = new Set<Attempt>()

  constructor(name: string, { size, wait, run }: ParsedBatch, runtime: Runtime, abandonAfter: Millis) {
    this.name = name
    this.size = size
    this.wait = wait
    this.#run = run
    this.#runtime = runtime
    this.#abandonAfter = abandonAfter
  }

  /** The jobs gathered, or started. */
  get attempts(): readonly HandlerAttempt[] {
    return this.#attempts
  }

  /** How many more jobs fit. */
  get room(): number {
    return this.size - this.#attempts.length
  }

  /** Whether the batch can start as soon as it has a slot. One that has lost all of its jobs ends there. */
  get isReady(): boolean {
    return this.room <= 0 || this.#attempts.length === 0 || (this.wait === 0 ? this.dry : this.#waitOver)
  }

  /** Adds a job. */
  add(attempt: HandlerAttempt): void {
    this.#attempts.push(attempt)
  }

  /** Drops a job that was lost while the batch gathers; returns false if it does not gather any more. */
  drop(attempt: HandlerAttempt): boolean {
    if (!this.#gathering) return false
    // A full batch accepts no more jobs: it starts with those that are left.
    if (this.room <= 0) this.dry = this.#waitOver = true
    this.#attempts = this.#attempts.filter((each) => each !== attempt)
    return true
  }

  /** Calls back when it has gathered for long enough. */
  gather(gathered: () => void): void {
    this.#timer = this.#runtime.timer(this.wait, () => {
      this.#waitOver = true
      gathered()
    })
  }

  /** Stops gathering. */
  stop(): void {
    this.#gathering = false
    this.#timer?.()
  }

  /**
   * The jobs that take part. Each is started separately, and then is ready for the call or ends before it. Resolves when
   * the call has ended, or there was none.
   */
  begin(attempts: HandlerAttempt[]): Promise<BatchEnd> {
    this.stop()
    this.#attempts = attempts
    const onAbort = (attempt: Attempt, reason: AbortReason): void => this.#aborted(attempt, reason)
    for (const attempt of attempts) {
      attempt.inBatch = true
      attempt.onAbort = onAbort
      this.#awaited.add(attempt)
    }
    return new Promise((resolve) => (this.#end = resolve))
  }

  /** A job is ready for the call; resolves to its own result. */
  join(attempt: HandlerAttempt, job: Job, ctx: JobContext): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#ready.set(attempt, { attempt, job, ctx, own: undefined, resolve, reject })
      this.#prepared(attempt)
    })
  }

  /** A job has ended. Returns whether its handler has, too; if not, the job counts as running until the call ends. */
  ended(attempt: Attempt): boolean {
    if (this.#call === undefined || !this.#ready.has(attempt)) {
      this.#prepared(attempt)
      return true
    }
    this.#endedEarly.add(attempt)
    if (this.#endedEarly.size === this.#ready.size) this.#abandonLater()
    return false
  }

  /** A job was aborted. One that timed out fails at once, while the call continues for the others. */
  #aborted(attempt: Attempt, reason: AbortReason): void {
    const member = this.#ready.get(attempt)
    if (this.#call === undefined || member === undefined) return
    if (reason === 'timeout') member.reject(undefined)
    if (--this.#unaborted === 0) this.#call.abort(reason)
  }

  #prepared(attempt: Attempt): void {
    if (!this.#awaited.delete(attempt) || this.#awaited.size > 0) return
    for (const { attempt: each, reject } of this.#ready.values()) {
      if (each.reason === undefined) continue
      this.#ready.delete(each)
      reject(undefined) // aborted before the call, so it takes no part in it
    }
    if (this.#ready.size > 0) outside(() => this.#begin())
    else this.#end({ left: [], stuck: false })
  }

  #begin(): void {
    const members = this.#attempts.flatMap((each) => this.#ready.get(each) ?? [])
    const jobs = members.map(({ job }) => job)
    this.#unaborted = members.length
    this.#call = new Call(members)
    let result: unknown
    try {
      result = this.#run(jobs, this.#call)
      if (isThenable(result)) {
        result.then(
          (results) => this.#returned(members, results),
          (error: unknown) => this.#threw(members, error),
        )
        return
      }
    } catch (error) {
      return this.#threw(members, error)
    }
    this.#returned(members, result)
  }

  #returned(members: readonly Member[], results: unknown): void {
    if (!Array.isArray(results) || results.length !== members.length) {
      return this.#threw(members, wrongResults(this.name, members.length, results))
    }
    for (const [at, { resolve, reject }] of members.entries()) {
      const result: unknown = results[at]
      if (isError(result)) reject(result)
      else resolve(result)
    }
    this.#callEnded()
  }

  #threw(members: readonly Member[], error: unknown): void {
    for (const { reject } of members) reject(error)
    this.#callEnded()
  }

  /** All jobs have ended: gives up the call if it does not end. */
  #abandonLater(): void {
    this.#timer = this.#runtime.timer(this.#abandonAfter, () => this.#callEnded(true))
  }

  #callEnded(stuck = false): void {
    if (this.#call === undefined) return // it was given up before
    this.stop()
    this.#call = undefined
    this.#end({ left: [...this.#endedEarly], stuck })
  }
}

/** The context of one job in a batch, where `snooze` cannot end the handler for that job alone. */
class MemberContext extends Context {
  readonly #member: HandlerAttempt

  constructor(attempt: HandlerAttempt) {
    super(attempt)
    this.#member = attempt
  }

  // @ts-expect-error elsewhere it never returns
  override get hold() {
    return (duration: Duration, options?: HoldOptions): Error =>
      this.#member.guard('ctx.hold', () => this.#member.hold(duration, options))
  }

  // @ts-expect-error elsewhere it never returns
  override get snooze() {
    return (duration: Duration): Error => this.#member.guard('ctx.snooze', () => this.#member.postpone(duration))
  }
}

/** The context of a call. */
class Call implements BatchContext {
  readonly #members: ReadonlyMap<Job, Member>
  /** Guards the calls that are about no single job. */
  readonly #first: Attempt
  #abort: AbortController | undefined
  #reason: AbortReason | undefined

  constructor(members: readonly Member[]) {
    this.#members = new Map(members.map((member) => [member.job, member]))
    this.#first = members[0]!.attempt
  }

  get signal(): JobSignal {
    if (this.#abort === undefined) {
      this.#abort = new AbortController()
      if (this.#reason !== undefined) this.#abort.abort(this.#first.abortError(this.#reason))
    }
    return this.#abort.signal
  }

  // Getters, so that `({ of, each }) => …` works.
  get of() {
    return (job: Job): BatchedContext => {
      const member = this.#members.get(job)
      if (member !== undefined) return contextOf(member)
      return this.#first.guard('ctx.of', () => {
        throw new MillraceError('INVALID_OPTION', 'ctx.of(job): give one of the very jobs that the handler was given.')
      })
    }
  }

  get each() {
    return <Result>(work: (job: Job, ctx: BatchedContext) => Result | Promise<Result>) =>
      Promise.all(Array.from(this.#members.values(), (member) => resultOf(work, member.job, contextOf(member))))
  }

  get snooze() {
    return (duration: Duration): never => {
      for (const { attempt } of this.#members.values()) attempt.guard('ctx.snooze', () => attempt.postpone(duration))
      throw new Snoozed('The jobs are snoozed.', () => {
        for (const { attempt } of this.#members.values()) attempt.uncaught('ctx.snooze')
      })
    }
  }

  get hold() {
    return (duration: Duration, options?: HoldOptions): never => {
      for (const { attempt } of this.#members.values()) attempt.guard('ctx.hold', () => attempt.hold(duration, options))
      throw new Snoozed('The jobs are held.', () => {
        for (const { attempt } of this.#members.values()) attempt.uncaught('ctx.hold')
      })
    }
  }

  get prepare(): never {
    return this.#refuse('ctx.prepare')
  }

  get complete(): never {
    return this.#refuse('ctx.complete')
  }

  #refuse(call: string): never {
    return this.#first.guard(call, () => {
      throw notInBatch()
    })
  }

  abort(reason: AbortReason): void {
    if (this.#reason !== undefined) return
    this.#reason = reason
    this.#abort?.abort(this.#first.abortError(reason))
  }
}

/** The context of one job, with what middleware has added to it. Created on first use. */
function contextOf(member: Member): BatchedContext {
  return (member.own ??= Object.assign(new MemberContext(member.attempt), member.ctx) as unknown as BatchedContext)
}

async function resultOf<Result>(
  work: (job: Job, ctx: BatchedContext) => Result | Promise<Result>,
  job: Job,
  ctx: BatchedContext,
): Promise<Awaited<Result> | Error> {
  try {
    return await work(job, ctx)
  } catch (error) {
    return isError(error) ? error : new Error(`Thrown: ${describeError(error).message}`, { cause: error })
  }
}

function wrongResults(name: string, jobs: number, results: unknown): MillraceError {
  const what = Array.isArray(results) ? `${results.length} results` : `no array but ${typeof results}`
  return new MillraceError(
    'BATCH_RESULTS',
    `The handler of batches of '${name}' answered ${what} for ${jobs} jobs; it must answer one for each, in their order.`,
    { details: { name, jobs } },
  )
}

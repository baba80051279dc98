// queue/job.ts: the handle on a job: its record as it was last seen, and what can be done with it.
import type { Duration } from '../job/duration.js'
import type { AttemptError, Dedup, ErrorInfo, JobRecord, JobState, LogLine, Millis, Time } from '../job/job.js'
import { decodeJson } from '../job/json.js'
import type { Jsonable } from '../job/json.js'
import { hasPhases, overallOf, phasesOf } from '../job/phases.js'
import type { JobPhases } from '../job/phases.js'
import { asJob, timeOfRun } from '../job/schedule.js'
import type { CancelOptions, CascadeOptions } from './operations/cascade.js'
import type { LogOptions } from './operations/logs.js'
import { shownWebhook } from './settings/webhook.js'
import type { JobWebhook } from './settings/webhook.js'

/** How long to wait, and when to stop. */
export interface ResultOptions {
  /** Give up after this long with `RESULT_TIMEOUT`. Default: no bound. */
  readonly timeout?: Duration
  /** Give up when this aborts. Default: none. */
  readonly signal?: AbortSignal
}

/** How long to observe. */
export interface ObserveOptions {
  /** End when this aborts. Default: none. */
  readonly signal?: AbortSignal
}

/** What `update` can change of a job. */
export interface UpdateOptions<Data = unknown> {
  /** New data. A running job's next attempt sees it. Default: as it is. */
  readonly data?: Data
  /** New priority; not for a running or finished job. Default: as it is. */
  readonly priority?: number
  /** Run this long from now; not for a finished job, nor for a running one but by its own handler. Default: as it is. */
  readonly delay?: Duration
  /** Run then: a date or milliseconds since 1970; for the same jobs as `delay`. Default: as it is. */
  readonly runAt?: Date | number
}

/** What became of a wish: whether it changed anything, and the job as it stands, if it still does. */
export interface Done {
  readonly done: boolean
  readonly record: JobRecord | undefined
}

/** What a handle hands on to; see `Desk`. */
export interface JobActions {
  read(id: string): Promise<JobRecord>
  result(id: string, options: ResultOptions): Promise<unknown>
  cancel(id: string, options?: CancelOptions): Promise<Done>
  retry(id: string): Promise<Done>
  promote(id: string): Promise<Done>
  remove(id: string, options?: CascadeOptions): Promise<Done>
  update(id: string, changes: UpdateOptions): Promise<Done>
  redeliver(id: string): Promise<string>
  logs(id: string, options?: LogOptions): Promise<readonly LogLine[]>
  signal(id: string, name: string, data: unknown): Promise<boolean>
  observe(id: string, options: ObserveOptions): AsyncGenerator<Job, void, void>
}

interface JobHandleOptions {
  readonly duplicate?: boolean
  readonly removed?: boolean
  /** What a schema made of the data. */
  readonly parsed?: { readonly data: unknown }
  /** The attempt whose handler it is given to. */
  readonly running?: Pick<JobActions, 'update'>
}

const NONE: JobHandleOptions = {}

/**
 * A job as it was last seen. `refresh()` looks again. `Input` is what `update` takes as data, which differs from what a
 * handler sees where a schema transforms it; `Phases` is what its phases return, by name, where that was declared.
 */
export class Job<Data = unknown, Result = unknown, Name extends string = string, Input = Data, Phases = unknown> {
  readonly #actions: JobActions
  #record: JobRecord
  #data: Data | undefined
  #parsed = false
  #removed: boolean
  readonly #running: JobHandleOptions['running']
  /** Whether dedup (or its id) led `add` to a job that stood already. */
  readonly duplicate: boolean

  /** @internal Handles come from `add`, `get`, `list` and workers. */
  constructor(actions: JobActions, record: JobRecord, options: JobHandleOptions = NONE) {
    this.#actions = actions
    this.#record = asJob(record)
    this.#removed = options.removed ?? false
    this.duplicate = options.duplicate ?? false
    this.#running = options.running
    if (options.parsed !== undefined) {
      this.#data = options.parsed.data as Data
      this.#parsed = true
    }
  }

  /** Its id, unique in the store. */
  get id(): string {
    return this.#record.id
  }
  /** The queue it is in. */
  get queue(): string {
    return this.#record.queue
  }
  /** The name it was added under, which decides who handles it. */
  get name(): Name {
    return this.#record.name as Name
  }
  /** Which shape of payload it carries; 1 unless `job()` said otherwise. */
  get version(): number {
    return this.#record.version
  }
  /** The payload: as it was added, and in a handler as the `input` schema makes it. */
  get data(): Data {
    if (!this.#parsed) {
      this.#data = (this.#record.data === undefined ? undefined : decodeJson(this.#record.data)) as Data
      this.#parsed = true
    }
    return this.#data as Data
  }
  /** The state, or `removed` once the job is known to be gone. */
  get state(): JobState | 'removed' {
    return this.#removed ? 'removed' : this.#record.state
  }
  /** Lower goes first. */
  get priority(): number {
    return this.#record.priority
  }
  /** Attempts begun; in a handler, which attempt this is, from 1. */
  get attempt(): number {
    return this.#record.attempt
  }
  /** Attempts allowed, the first included; may be `Infinity`. */
  get attempts(): number {
    return this.#record.attempts
  }
  /** How long its handler may run, in milliseconds; undefined: as its handler says, or without bound. */
  get timeout(): Millis | undefined {
    return this.#record.timeout
  }
  /** The worker that holds it, or held it when it finished. */
  get worker(): string | undefined {
    return this.#record.worker
  }
  /** Goes up whenever the job is claimed, moved or cancelled. */
  get fence(): number {
    return this.#record.fence
  }
  /** When it may run, while delayed. */
  get runAt(): Time | undefined {
    return this.#record.runAt
  }
  /** Until when its worker holds it, while active. */
  get leaseUntil(): Time | undefined {
    return this.#record.leaseUntil
  }
  /** How often its lease ran out. */
  get stalls(): number {
    return this.#record.stalls
  }
  /** The id of the first job of its chain; its own unless another continued into it. */
  get chainId(): string {
    return this.#record.chainId
  }
  /** Its place in the chain, from 0. */
  get chainIndex(): number {
    return this.#record.chainIndex
  }
  /** The job that added it as a child, or the row of the schedule that made it. */
  get parentId(): string | undefined {
    return this.#record.parentId
  }
  /** Whose job it is, among those who share the queue by turns. */
  get group(): string | undefined {
    return this.#record.group
  }
  /** The time that it was made for, if a schedule made it; undefined otherwise. */
  get scheduledAt(): Time | undefined {
    return timeOfRun(this.#record)
  }
  /** Dependencies it still waits for. */
  get pending(): number {
    return this.#record.pending
  }
  /** The key that it holds or held, with its scope. */
  get dedup(): Dedup | undefined {
    return this.#record.dedup
  }
  /** Its phases by name, in their order; empty where it has none. */
  get phases(): JobPhases<Phases> {
    return phasesOf(this.#record) as JobPhases<Phases>
  }
  /** What `ctx.progress` said last; of a job with phases, how far the whole of it is, from 0 to 100. */
  get progress(): unknown extends Phases ? unknown : number {
    const { progress } = this.#record
    if (hasPhases(this.#record)) return overallOf(this.#record)
    return (progress === undefined ? undefined : decodeJson(progress)) as number
  }
  /** What the handler returned, once completed. `result()` waits for it. */
  get returned(): Result | undefined {
    return this.#record.result === undefined ? undefined : (decodeJson(this.#record.result) as Result)
  }
  /** The last failure. */
  get error(): ErrorInfo | undefined {
    return this.#record.error
  }
  /** Failed attempts, oldest first. */
  get errors(): readonly AttemptError[] {
    return this.#record.errors
  }
  /** Where its end is told, and whether it has been; undefined if nowhere. */
  get webhook(): JobWebhook | undefined {
    return shownWebhook(this.#record)
  }
  /** When it was added, by the store's clock, as all its times. */
  get createdAt(): Time {
    return this.#record.createdAt
  }
  /** When its last attempt began. */
  get startedAt(): Time | undefined {
    return this.#record.startedAt
  }
  /** When it completed, failed for good or was cancelled. */
  get finishedAt(): Time | undefined {
    return this.#record.finishedAt
  }
  /** When it is marked stale, once finished. */
  get staleAt(): Time | undefined {
    return this.#record.staleAt
  }
  /** When it is removed, once finished, if that was said; by the default, jobs have no such date. */
  get deleteAt(): Time | undefined {
    return this.#record.deleteAt
  }

  /** Looks again, and is this same handle. Throws `JOB_NOT_FOUND` if the job is gone. */
  async refresh(): Promise<this> {
    this.#see(await this.#actions.read(this.id))
    return this
  }

  /** What the handler returned, as soon as the job has completed; throws if it failed, was cancelled or removed. */
  result(options: ResultOptions = {}): Promise<Result> {
    return this.#actions.result(this.id, options) as Promise<Result>
  }

  /**
   * Cancels it; false if it had finished already. A running handler's signal aborts, with the `reason` if one is given. `cascade`: its
   * children as well.
   */
  async cancel(options?: CancelOptions): Promise<boolean> {
    return this.#did(await this.#actions.cancel(this.id, options))
  }

  /** Starts a failed or cancelled job over, with all its attempts. */
  async retry(): Promise<boolean> {
    return this.#did(await this.#actions.retry(this.id))
  }

  /** Lets a delayed job run now; false if it was waiting already. */
  async promote(): Promise<boolean> {
    return this.#did(await this.#actions.promote(this.id))
  }

  /** Removes it; false if it was gone already. Refused while others wait for it; `cascade`: removes them as well. */
  async remove(options?: CascadeOptions): Promise<boolean> {
    return this.#did(await this.#actions.remove(this.id, options))
  }

  /**
   * Changes data, priority or delay. Called by the handler of this very job, `delay` or `runAt` send it back: however the
   * handler returns, the job is then delayed, with its attempt given back.
   */
  async update(changes: UpdateOptions<Input>): Promise<boolean> {
    return this.#did(await (this.#running ?? this.#actions).update(this.id, changes))
  }

  /**
   * Sends it a signal, which `ctx.waitForSignal(name)` of its handler gives. Answers whether it was taken: false if one of that
   * name was sent before, or its wait was over, also once it has finished. Any other is refused then, with `INVALID_STATE`.
   */
  signal<T>(name: string, data?: T & Jsonable<T>): Promise<boolean> {
    return this.#actions.signal(this.id, name, data)
  }

  /** Tells its end to its webhook once more; answers the `webhook-id` of that delivery. */
  redeliver(): Promise<string> {
    return this.#actions.redeliver(this.id)
  }

  /** What `ctx.log` wrote, oldest first, by page; a job keeps its last 1000 lines. */
  logs(options?: LogOptions): Promise<readonly LogLine[]> {
    return this.#actions.logs(this.id, options)
  }

  /**
   * This job now, and again after each change, each time by a handle of its own; ends by itself when the job has finished
   * or is removed, or when the queue closes. Who is slow to read sees the latest state, and not each one before it.
   */
  observe(options: ObserveOptions = {}): AsyncGenerator<Job<Data, Result, Name, Input, Phases>, void, void> {
    return this.#actions.observe(this.id, options) as never
  }

  /** The record without its methods, for logs and JSON. */
  toJSON(): Record<string, unknown> {
    const { data: _data, progress: _progress, result: _result, memo: _memo, ...rest } = this.#record
    const { state, data, phases, progress, returned } = this
    return { ...rest, state, data, phases, progress, returned }
  }

  /** What `console.log` shows. */
  [Symbol.for('nodejs.util.inspect.custom')](): object {
    return this.toJSON()
  }

  #did(after: { readonly done: boolean; readonly record: JobRecord | undefined }): boolean {
    if (after.record !== undefined) this.#see(after.record)
    else this.#removed = true
    return after.done
  }

  #see(seen: JobRecord): void {
    const record = asJob(seen)
    if (record.data !== this.#record.data) this.#parsed = false
    this.#record = record
    this.#removed = false
  }
}

// queue/job.ts: the handle of a job: its record as last read, and the operations on it.
import type { Duration } from '../job/values/duration.js'
import { MillraceError } from '../job/errors/errors.js'
import type { AttemptError, Dedup, ErrorInfo, JobRecord, JobState, LogLine, Millis, Time } from '../job/job.js'
import { decodeJson } from '../job/values/json.js'
import type { Jsonable } from '../job/values/json.js'
import { fieldNames } from '../job/values/peer-names.js'
import { hasPhases, overallOf, phasesOf } from '../job/phases.js'
import type { JobPhases } from '../job/phases.js'
import { asJob, timeOfRun } from '../job/schedules/schedule.js'
import type { AttemptInfo, JobStep, Timeline } from '../job/timeline.js'
import type { JobGraph } from './graph.js'
import type { CancelOptions, CascadeOptions } from './operations/cascade.js'
import type { LogOptions } from './operations/filter.js'
import type { HistoryOptions } from './operations/times.js'
import { publicWebhook } from './settings/webhook.js'
import type { JobWebhook } from './settings/webhook.js'

const NO_TAGS: readonly string[] = Object.freeze([])

/** Options of `result()`. */
export interface ResultOptions {
  /** Give up after this time with `RESULT_TIMEOUT`. Default: no limit. */
  readonly timeout?: Duration
  /** Give up when this signal aborts. Default: none. */
  readonly signal?: AbortSignal
}

/** Options of `observe()`. */
export interface ObserveOptions {
  /** Stop when this signal aborts. Default: none. */
  readonly signal?: AbortSignal
}

/** Options of `observe()` for some fields of a job alone. */
export interface ObserveFieldsOptions<Field extends JobField = JobField> extends ObserveOptions {
  /** The fields to yield, at least one; changes of others yield nothing. */
  readonly fields: readonly Field[]
}

/** The fields of a job that can be asked for by name: all that a handle shows. */
export const jobFields = [
  'id',
  'queue',
  'name',
  'version',
  'data',
  'state',
  'priority',
  'attempt',
  'attempts',
  'timeout',
  'worker',
  'fence',
  'runAt',
  'expiresAt',
  'leaseUntil',
  'stalls',
  'chainId',
  'chainIndex',
  'parentId',
  'group',
  'tags',
  'scheduledAt',
  'pending',
  'dedup',
  'phases',
  'progress',
  'returned',
  'error',
  'errors',
  'webhook',
  'createdAt',
  'startedAt',
  'finishedAt',
  'staleAt',
  'deleteAt',
] as const satisfies readonly (keyof Job)[]

/** A field of a job. */
export type JobField = (typeof jobFields)[number]

/** What `update` can change. */
export interface UpdateOptions<Data = unknown> {
  /** New data. A running job's next attempt receives it. Default: unchanged. */
  readonly data?: Data
  /** New priority; not for a running or finished job. Default: unchanged. */
  readonly priority?: number
  /**
   * Run after this delay, from now; not for a finished job, and for a running job only in its own handler. Default:
   * unchanged.
   */
  readonly delay?: Duration
  /** Run at this time: a date or milliseconds since 1970; for the same jobs as `delay`. Default: unchanged. */
  readonly runAt?: Date | number
}

/** The outcome of an operation: whether it changed anything, and the job's current record, if the job still exists. */
export interface OperationResult {
  readonly done: boolean
  readonly record: JobRecord | undefined
}

/** The operations that a handle calls; see `JobOperations`. */
export interface JobActions {
  read(id: string): Promise<JobRecord>
  result(id: string, options: ResultOptions): Promise<unknown>
  cancel(id: string, options?: CancelOptions): Promise<OperationResult>
  fail(id: string, error: unknown): Promise<OperationResult>
  retry(id: string): Promise<OperationResult>
  promote(id: string): Promise<OperationResult>
  remove(id: string, options?: CascadeOptions): Promise<OperationResult>
  update(id: string, changes: UpdateOptions): Promise<OperationResult>
  redeliver(id: string): Promise<string>
  logs(id: string, options?: LogOptions): Promise<readonly LogLine[]>
  history(id: string, options?: HistoryOptions): Promise<readonly AttemptInfo[]>
  steps(id: string): Promise<readonly JobStep[]>
  timeline(id: string): Promise<Timeline>
  graph(id: string): Promise<JobGraph>
  signal(id: string, name: string, data: unknown): Promise<boolean>
  observe(id: string, options: ObserveOptions | ObserveFieldsOptions): AsyncGenerator<object, void, void>
}

interface JobHandleOptions {
  readonly duplicate?: boolean
  readonly removed?: boolean
  /** The data after a schema has parsed it. */
  readonly parsed?: { readonly data: unknown }
  /** The attempt whose handler receives this handle. */
  readonly running?: Pick<JobActions, 'update'>
}

const NONE: JobHandleOptions = {}

/**
 * A job as last read. `refresh()` reads it again. `Input` is what `update` takes as data, which differs from what a
 * handler receives if a schema transforms it; `Phases` is what its phases return, by name, if declared.
 */
export class Job<Data = unknown, Result = unknown, Name extends string = string, Input = Data, Phases = unknown> {
  readonly #actions: JobActions
  #record: JobRecord
  #data: Data | undefined
  #parsed = false
  #removed: boolean
  readonly #running: JobHandleOptions['running']
  /** Whether `add` returned an existing job, by its id or dedup key. */
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
  /** The name it was added under, which selects its handler. */
  get name(): Name {
    return this.#record.name as Name
  }
  /** The version of its payload; 1 unless `job()` declares another. */
  get version(): number {
    return this.#record.version
  }
  /** The payload: as it was added, and in a handler the output of the `input` schema. */
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
  /** Jobs of a lower priority number run first. */
  get priority(): number {
    return this.#record.priority
  }
  /** Attempts started so far; in a handler, the number of this attempt, from 1. */
  get attempt(): number {
    return this.#record.attempt
  }
  /** Maximum number of attempts, the first included; may be `Infinity`. */
  get attempts(): number {
    return this.#record.attempts
  }
  /** How long its handler may run, in milliseconds; undefined: the handler's own timeout, or no limit. */
  get timeout(): Millis | undefined {
    return this.#record.timeout
  }
  /** The worker that holds its lease, or held it when the job finished. */
  get worker(): string | undefined {
    return this.#record.worker
  }
  /** Increases whenever the job is claimed, moved or cancelled. */
  get fence(): number {
    return this.#record.fence
  }
  /** When it becomes due, while delayed. */
  get runAt(): Time | undefined {
    const { state, runAt } = this.#record
    return state === 'delayed' || state === 'waiting-children' ? runAt : undefined
  }
  /** When it is cancelled unless it was started before; undefined: never. */
  get expiresAt(): Time | undefined {
    return this.#record.expiresAt
  }
  /** When its lease expires, while active. */
  get leaseUntil(): Time | undefined {
    return this.#record.leaseUntil
  }
  /** How often its lease expired. */
  get stalls(): number {
    return this.#record.stalls
  }
  /** The id of the first job of its chain; its own id unless it continues another job. */
  get chainId(): string {
    return this.#record.chainId
  }
  /** Its position in the chain, from 0. */
  get chainIndex(): number {
    return this.#record.chainIndex
  }
  /** The job that added it as a child, or the row of the schedule that created it. */
  get parentId(): string | undefined {
    return this.#record.parentId
  }
  /** The texts to find it by, in the order given. */
  get tags(): readonly string[] {
    return this.#record.extras?.tags ?? NO_TAGS
  }
  /** Its group, such as a tenant; groups take turns in a queue. */
  get group(): string | undefined {
    return this.#record.group
  }
  /** The time of the schedule's run, if a schedule created it; undefined otherwise. */
  get scheduledAt(): Time | undefined {
    return timeOfRun(this.#record)
  }
  /** The number of dependencies it still waits for. */
  get pending(): number {
    return this.#record.pending
  }
  /** The dedup key that it holds or held, with its scope. */
  get dedup(): Dedup | undefined {
    return this.#record.dedup
  }
  /** Its phases by name, in their order; empty if it has none. */
  get phases(): JobPhases<Phases> {
    return phasesOf(this.#record) as JobPhases<Phases>
  }
  /** The last value of `ctx.progress`; for a job with phases, the progress of the whole job, from 0 to 100. */
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
  /** Its webhook and the deliveries so far; undefined if it has none. */
  get webhook(): JobWebhook | undefined {
    return publicWebhook(this.#record)
  }
  /** When it was added. All its times are by the store's clock. */
  get createdAt(): Time {
    return this.#record.createdAt
  }
  /** When its last attempt started. */
  get startedAt(): Time | undefined {
    return this.#record.startedAt
  }
  /** When it completed, failed for good or was cancelled. */
  get finishedAt(): Time | undefined {
    return this.#record.finishedAt
  }
  /** When it becomes stale, once finished. */
  get staleAt(): Time | undefined {
    return this.#record.staleAt
  }
  /** When it is removed, once finished, if the job or its queue specifies that; default retention sets no date. */
  get deleteAt(): Time | undefined {
    return this.#record.deleteAt
  }

  /** Reads the job again and returns this same handle. Throws `JOB_NOT_FOUND` if the job is gone. */
  async refresh(): Promise<this> {
    this.#setRecord(await this.#actions.read(this.id))
    return this
  }

  /** Resolves to what the handler returned when the job completes; throws if it failed, was cancelled or removed. */
  result(options: ResultOptions = {}): Promise<Result> {
    return this.#actions.result(this.id, options) as Promise<Result>
  }

  /**
   * Cancels it; false if it had already finished. Aborts the signal of a running handler, with the `reason` if given.
   * `cascade`: cancels its children too.
   */
  async cancel(options?: CancelOptions): Promise<boolean> {
    return this.#applyOutcome(await this.#actions.cancel(this.id, options))
  }

  /**
   * Fails it for good with this error, from outside of its handler, whatever attempts are left. Aborts the signal of a
   * running handler: `completed-elsewhere`. Throws `INVALID_STATE` if it has finished.
   */
  async fail(error: unknown): Promise<void> {
    this.#applyOutcome(await this.#actions.fail(this.id, error))
  }

  /** Restarts a failed or cancelled job, with all its attempts. */
  async retry(): Promise<boolean> {
    return this.#applyOutcome(await this.#actions.retry(this.id))
  }

  /** Makes a delayed job run now; false if it was already waiting. */
  async promote(): Promise<boolean> {
    return this.#applyOutcome(await this.#actions.promote(this.id))
  }

  /** Removes it; false if it was already gone. Throws while other jobs wait for it; `cascade`: removes those too. */
  async remove(options?: CascadeOptions): Promise<boolean> {
    return this.#applyOutcome(await this.#actions.remove(this.id, options))
  }

  /**
   * Changes data, priority or delay. In the job's own handler, `delay` or `runAt` postpones the job: whatever the
   * handler returns, the job is then delayed, and the attempt does not count.
   */
  async update(changes: UpdateOptions<Input>): Promise<boolean> {
    return this.#applyOutcome(await (this.#running ?? this.#actions).update(this.id, changes))
  }

  /**
   * Sends it a signal, which `ctx.waitForSignal(name)` in its handler returns. Returns whether the signal was accepted:
   * false if one of that name was sent before or the wait has ended, even if the job has finished. Any other signal to
   * a finished job throws `INVALID_STATE`.
   */
  signal<T>(name: string, data?: T & Jsonable<T>): Promise<boolean> {
    return this.#actions.signal(this.id, name, data)
  }

  /** Sends its webhook again; returns the `webhook-id` of that delivery. */
  redeliver(): Promise<string> {
    return this.#actions.redeliver(this.id)
  }

  /** What `ctx.log` wrote, oldest first, by page; a job keeps its last 1000 lines. */
  logs(options?: LogOptions): Promise<readonly LogLine[]> {
    return this.#actions.logs(this.id, options)
  }

  /**
   * Its attempts, oldest first: each with its start, end, worker and outcome; a job keeps its last 50. `attempts` is the
   * number that it may take.
   */
  history(options?: HistoryOptions): Promise<readonly AttemptInfo[]> {
    return this.#actions.history(this.id, options)
  }

  /** The steps of its handler that have ended, with their results, in the order in which they first ended. */
  steps(): Promise<readonly JobStep[]> {
    return this.#actions.steps(this.id)
  }

  /** What it did and when: its waits, attempts, phases, steps and log lines in one list, and how long it waited and ran. */
  timeline(): Promise<Timeline> {
    return this.#actions.timeline(this.id)
  }

  /** The jobs around it, and the edges between them: its flow, its chain, and what waits for what. */
  graph(): Promise<JobGraph> {
    return this.#actions.graph(this.id)
  }

  /**
   * Yields this job now and after each change, each time as a new handle. Ends when the job has finished or is removed,
   * or when the queue closes. A slow reader sees the latest state, not every state before it.
   */
  observe(options?: ObserveOptions): AsyncGenerator<Job<Data, Result, Name, Input, Phases>, void, void>
  /** The same, as plain objects of the given `fields`, and only when one of them has changed. */
  observe<const Field extends JobField>(
    options: ObserveFieldsOptions<Field>,
  ): AsyncGenerator<Pick<Job<Data, Result, Name, Input, Phases>, Field>, void, void>
  observe(options: ObserveOptions | ObserveFieldsOptions = {}): never {
    return this.#actions.observe(this.id, options) as never
  }

  /** The record without its methods, for logs and JSON. */
  toJSON(): Record<string, unknown> {
    const { data: _data, progress: _progress, result: _result, memo: _memo, history: _history, ...rest } = this.#record
    const { state, data, phases, progress, returned } = this
    return { ...rest, state, data, phases, progress, returned }
  }

  /** What `console.log` shows. */
  [Symbol.for('nodejs.util.inspect.custom')](): object {
    return this.toJSON()
  }

  #applyOutcome(outcome: { readonly done: boolean; readonly record: JobRecord | undefined }): boolean {
    if (outcome.record !== undefined) this.#setRecord(outcome.record)
    else this.#removed = true
    return outcome.done
  }

  #setRecord(read: JobRecord): void {
    const record = asJob(read)
    if (record.data !== this.#record.data) this.#parsed = false
    this.#record = record
    this.#removed = false
  }
}

// Names of other job queues are refused with ours. Without types, they would read as undefined. Not part of the type.
for (const [field, ours] of Object.entries(fieldNames)) {
  Object.defineProperty(Job.prototype, field, {
    configurable: true,
    get() {
      throw new MillraceError('UNKNOWN_FIELD', `A job has no '${field}'; here it is ${ours}.`, { details: { field } })
    },
  })
}

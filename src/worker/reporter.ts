// worker/reporter.ts: emits what happens to the jobs of a worker, once it is durable, and the errors of handlers.
import { afterOwnChanges } from '../job/apply.js'
import type { CellEvent } from '../job/change.js'
import { MillraceError } from '../job/errors/errors.js'
import type { StoreEvent, StoreEventType } from '../job/events.js'
import { describeError } from '../job/errors/failure.js'
import type { JobHeader, JobRecord } from '../job/job.js'
import { decodeJson } from '../job/values/json.js'
import type { Outcome } from '../job/lifecycle.js'
import { publicEvent } from '../queue/events/events.js'
import type { Emitter, QueueEvent } from '../queue/events/events.js'
import { Job } from '../queue/job.js'
import type { JobActions } from '../queue/job.js'
import type { Processed, Processing } from '../queue/instrumentation.js'
import type { Runtime } from '../store/runtime.js'
import type { SeriesRecorder } from '../store/series/series.js'
import type { Group } from '../store/store.js'
import type { PublishedNote } from './attempt/pending-notes.js'
import type { FailureLog } from './failure-log.js'

/** The names that telemetry uses for outcomes other than failures. */
const outcomeNames = {
  returned: 'completed',
  snoozed: 'snoozed',
  held: 'snoozed',
  waits: 'waiting-children',
  interrupted: 'interrupted',
} as const

/** The name of an outcome, by what its settlement changed. */
export function outcomeName(outcome: Outcome, changes: Group): Processed['outcome'] {
  if (outcome.kind !== 'threw') return outcomeNames[outcome.kind]
  return changes.some((change) => change.kind === 'move' && change.why === 'retrying') ? 'retrying' : 'failed'
}

/** What a reporter uses of its worker. */
export interface ReporterOptions {
  /** The worker's id. */
  readonly worker: string
  readonly queues: readonly string[]
  readonly runtime: Runtime
  readonly emitter: Emitter
  /** The emitter of the queue object in this process, which emits lost leases as well. */
  readonly queueEmitter: Emitter | undefined
  /** What the handles in events call. */
  readonly actions: JobActions
  /** Prints failures; undefined: they are not printed. */
  readonly failures: FailureLog | undefined
  /** Counts what becomes of jobs. */
  readonly series: Pick<SeriesRecorder, 'changed'>
}

/** Emits the events of one worker. Those about a job carry its handle. */
export class Reporter {
  readonly #worker: string
  readonly #queues: readonly string[]
  readonly #runtime: Runtime
  readonly #emitter: Emitter
  readonly #queueEmitter: Emitter | undefined
  readonly #actions: JobActions
  readonly #failures: FailureLog | undefined
  readonly #series: ReporterOptions['series']

  constructor({ worker, queues, runtime, emitter, queueEmitter, actions, failures, series }: ReporterOptions) {
    this.#worker = worker
    this.#queues = queues
    this.#runtime = runtime
    this.#emitter = emitter
    this.#queueEmitter = queueEmitter
    this.#actions = actions
    this.#failures = failures
    this.#series = series
  }

  /** An event of the worker itself. */
  workerEvent(type: CellEvent['type']): void {
    if (type === 'paused' || type === 'resumed') return
    const at = this.#runtime.now()
    for (const queue of this.#queues) this.#emitter.emit({ type, id: '', name: '', queue, at, worker: this.#worker })
  }

  /** A handler is about to start. */
  active(record: JobRecord): void {
    if (!this.#emitter.has('active')) return
    const { id, name, queue, attempt } = record
    const at = this.#runtime.now()
    this.#emit({ type: 'active', id, name, queue, at, worker: this.#worker, attempt }, record)
  }

  /** A note is durable, and in this record. */
  noted(record: JobRecord, { progress, about, events }: PublishedNote): void {
    const at = this.#runtime.now()
    const { id, name, queue } = record
    const publish = (type: StoreEventType, fields: Partial<StoreEvent>): void => {
      if (!this.#emitter.has(type)) return
      this.#emit(publicEvent({ cursor: '', id, name, queue, type, at, ...fields }), record)
    }
    if (progress !== undefined) publish('progress', { progress, ...(about !== undefined && { about }) })
    for (const each of events ?? []) publish(each.type, { about: each.about })
  }

  /** A settlement is durable: these changes, for this outcome. `tracing` measures the run, if anything does. */
  settled(record: JobRecord, outcome: Outcome, changes: Group, tracing: Processing | undefined): void {
    const { id, name, queue, attempt } = record
    this.#series.changed(record, changes)
    if (outcome.kind === 'returned' && this.#emitter.has('completed')) {
      const at = this.#runtime.now()
      const result = outcome.result === undefined ? undefined : decodeJson(outcome.result)
      const after = afterOwnChanges(record, changes, at)
      this.#emit({ type: 'completed', id, name, queue, attempt, at, result }, after)
    }
    const ended = outcomeName(outcome, changes)
    if (outcome.kind !== 'threw') return tracing?.ended({ outcome: ended })
    const { error, retryIn } = outcome
    const type = ended === 'retrying' ? 'retrying' : 'failed'
    tracing?.ended({ outcome: type, error })
    this.#failures?.applied(record, changes)
    if (!this.#emitter.has(type)) return
    const at = this.#runtime.now()
    const after = afterOwnChanges(record, changes, at)
    const base = { id, name, queue, attempt, at, error }
    if (type === 'retrying') this.#emit({ type, ...base, runAt: at + retryIn }, after)
    else this.#emit({ type, ...base }, after)
  }

  /** Upkeep has changed a job, of this worker or another, because it was due. */
  upkept(job: JobHeader, changes: Group): void {
    this.#series.changed(job, changes)
    if (job.kind === 'job') this.#failures?.applied(job, changes)
  }

  /** A lease is lost. */
  leaseLost(record: JobRecord): void {
    const { id, name, queue } = record
    const event = { type: 'lease-lost', id, name, queue, at: this.#runtime.now(), worker: this.#worker } as const
    this.#emit(event, record)
    this.#queueEmitter?.emit(event)
  }

  /** A user's callback threw. */
  callbackFailed(record: JobRecord, what: string, cause: unknown): void {
    const message = `${what} failed for job ${record.id}: ${describeError(cause).message}`
    this.#error(new MillraceError('CALLBACK_FAILED', message, { cause }), record)
  }

  /** A handler does not end: its slot is given up. */
  stuck(record: JobRecord): void {
    const { id, name } = record
    const error = new MillraceError(
      'HANDLER_STUCK',
      `The handler of job ${id} ('${name}') did not end after its timeout; its slot was given up. Make it obey ctx.signal.`,
    )
    this.#error(error, record)
  }

  #emit(event: QueueEvent, record: JobRecord): void {
    const job = new Job(this.#actions, record)
    this.#emitter.emit(Object.assign({}, event, { job }))
  }

  #error(error: MillraceError, record: JobRecord): void {
    const { id, name, queue } = record
    this.#emitter.error(error, { id, name, queue, job: new Job(this.#actions, record) })
  }
}

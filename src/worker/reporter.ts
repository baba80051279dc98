// worker/reporter.ts: emits what happens to the jobs of a worker, once it is durable, and the errors of handlers.
import type { CellEvent } from '../job/change.js'
import { MillraceError } from '../job/errors.js'
import type { StoreEvent, StoreEventType } from '../job/events.js'
import { describeError } from '../job/failure.js'
import type { JobRecord } from '../job/job.js'
import { decodeJson } from '../job/json.js'
import type { Outcome } from '../job/lifecycle.js'
import { publicEvent } from '../queue/events/events.js'
import type { Emitter } from '../queue/events/events.js'
import type { Processed, Processing } from '../queue/telemetry.js'
import type { Runtime } from '../store/runtime.js'
import type { Group } from '../store/store.js'
import type { PublishedNote } from './attempt/pending-notes.js'

/** The names that telemetry uses for outcomes other than failures. */
const outcomeNames = {
  returned: 'completed',
  snoozed: 'snoozed',
  waits: 'waiting-children',
  interrupted: 'interrupted',
} as const

/** The name of an outcome, by what its settlement changed. */
export function outcomeName(outcome: Outcome, changes: Group): Processed['outcome'] {
  if (outcome.kind !== 'threw') return outcomeNames[outcome.kind]
  return changes.some((change) => change.kind === 'move' && change.why === 'retrying') ? 'retrying' : 'failed'
}

/** Emits the events of one worker. */
export class Reporter {
  readonly #worker: string
  readonly #queues: readonly string[]
  readonly #runtime: Runtime
  readonly #emitter: Emitter
  /** The emitter of the queue object in this process, which emits lost leases as well. */
  readonly #queueEmitter: Emitter | undefined

  constructor(
    worker: string,
    queues: readonly string[],
    runtime: Runtime,
    emitter: Emitter,
    queueEmitter: Emitter | undefined,
  ) {
    this.#worker = worker
    this.#queues = queues
    this.#runtime = runtime
    this.#emitter = emitter
    this.#queueEmitter = queueEmitter
  }

  /** An event of the worker itself. */
  workerEvent(type: CellEvent['type']): void {
    if (type === 'paused' || type === 'resumed') return
    const at = this.#runtime.now()
    for (const queue of this.#queues) this.#emitter.emit({ type, id: '', name: '', queue, at, worker: this.#worker })
  }

  /** A handler is about to start. */
  active({ id, name, queue, attempt }: JobRecord): void {
    if (!this.#emitter.has('active')) return
    this.#emitter.emit({ type: 'active', id, name, queue, at: this.#runtime.now(), worker: this.#worker, attempt })
  }

  /** A note is durable. */
  noted(record: JobRecord, { progress, about, events }: PublishedNote): void {
    const at = this.#runtime.now()
    const { id, name, queue } = record
    const publish = (type: StoreEventType, fields: Partial<StoreEvent>): void => {
      if (this.#emitter.has(type)) this.#emitter.emit(publicEvent({ cursor: '', id, name, queue, type, at, ...fields }))
    }
    if (progress !== undefined) publish('progress', { progress, ...(about !== undefined && { about }) })
    for (const each of events ?? []) publish(each.type, { about: each.about })
  }

  /** A settlement is durable: these changes, for this outcome. `tracing` measures the run, if anything does. */
  settled(record: JobRecord, outcome: Outcome, changes: Group, tracing: Processing | undefined): void {
    const { id, name, queue, attempt } = record
    if (outcome.kind === 'returned' && this.#emitter.has('completed')) {
      const result = outcome.result === undefined ? undefined : decodeJson(outcome.result)
      this.#emitter.emit({ type: 'completed', id, name, queue, attempt, at: this.#runtime.now(), result })
    }
    const ended = outcomeName(outcome, changes)
    if (outcome.kind !== 'threw') return tracing?.ended({ outcome: ended })
    const { error, retryIn } = outcome
    const retrying = ended === 'retrying'
    tracing?.ended({ outcome: ended, error })
    const at = this.#runtime.now()
    const base = { id, name, queue, attempt, at, error }
    if (retrying) this.#emitter.emit({ type: 'retrying', ...base, runAt: at + retryIn })
    else this.#emitter.emit({ type: 'failed', ...base })
  }

  /** A lease is lost. */
  leaseLost({ id, name, queue }: JobRecord): void {
    const event = { type: 'lease-lost', id, name, queue, at: this.#runtime.now(), worker: this.#worker } as const
    this.#emitter.emit(event)
    this.#queueEmitter?.emit(event)
  }

  /** A user's callback threw. */
  callbackFailed(record: JobRecord, what: string, cause: unknown): void {
    const message = `${what} failed for job ${record.id}: ${describeError(cause).message}`
    this.#emitter.error(new MillraceError('CALLBACK_FAILED', message, { cause }), record)
  }

  /** A handler does not end: its slot is given up. */
  stuck(record: JobRecord): void {
    const { id, name } = record
    const error = new MillraceError(
      'HANDLER_STUCK',
      `The handler of job ${id} ('${name}') did not end after its timeout; its slot was given up. Make it obey ctx.signal.`,
    )
    this.#emitter.error(error, record)
  }
}

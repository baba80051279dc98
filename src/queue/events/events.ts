// queue/events/events.ts: public events, the logger, and the emitter that calls listeners.
import { queueOfBulk } from '../../job/bulk.js'
import type { BulkAction } from '../../job/bulk.js'
import { MillraceError, isInstance, isMillraceError, quote } from '../../job/errors/errors.js'
import { describeError } from '../../job/errors/failure.js'
import type { ErrorInfo, FinishedState, Time } from '../../job/job.js'
import { decodeJson } from '../../job/values/json.js'
import type { PhaseStatus } from '../../job/memo.js'
import { nearest } from '../../job/values/names.js'
import { invalid } from '../../job/values/options.js'
import type { MissedTimes } from '../../job/schedules/schedule.js'
import { outside } from '../../store/transaction-context.js'
import type { Stop } from '../../store/runtime.js'
import type { StoreEvent, StoreEventType } from '../../job/events.js'
import type { JobDefinitions } from '../define.js'
import type { Narrowed } from './event-types.js'

/** All event types: those that commits cause, and those of this process. */
export type EventType = StoreEventType | 'error' | 'lease-lost'

/** The properties of every event. */
export interface EventBase {
  /** What happened. */
  readonly type: EventType
  /** The job's id; empty if the event does not concern a job. */
  readonly id: string
  /** The queue; for an event of a worker, one of its queues. */
  readonly queue: string
  /** The job's name; empty if the event does not concern a job. */
  readonly name: string
  /** When it happened, by the store's clock (by this process's, for `error` and `lease-lost`). */
  readonly at: Time
}

/** A webhook delivery. */
export interface Delivered {
  /** The URL it was sent to. */
  readonly url: string
  /** The end state that it reports. */
  readonly event: FinishedState
  /** The number of attempts made. */
  readonly attempts: number
}

/** Further properties of events, by type. */
interface EventDetails {
  /** A job became claimable: added, promoted, retried by hand, released, stalled, or returned by a worker. */
  waiting: object
  /** A job that waits for others was added or retried. */
  'waiting-children': object
  /** A job runs later: added with a delay, retried after a failure, or snoozed. */
  delayed: { readonly runAt: Time }
  /** A worker has claimed a job. */
  active: { readonly worker: string; readonly attempt: number }
  /**
   * A value of `ctx.progress` is durable. For a job with phases, `progress` is that of the whole job, and `phase` and
   * `phaseProgress` are those of the current phase.
   */
  progress: { readonly progress: unknown; readonly phase?: string; readonly phaseProgress?: number }
  /** A phase of a job has started or ended: `result` is what it returned, `error` what it threw. */
  phase: {
    readonly phase: string
    readonly status: PhaseStatus
    readonly result?: unknown
    readonly error?: ErrorInfo
  }
  /** The webhook of a job was delivered. */
  'webhook-delivered': Delivered & { readonly webhookSent: true }
  /** The webhook of a job could not be delivered, and is not retried. */
  'webhook-failed': Delivered & { readonly error: ErrorInfo }
  /** A job has completed. */
  completed: { readonly result: unknown; readonly attempt: number }
  /** A job has failed for good. */
  failed: { readonly error: ErrorInfo; readonly attempt: number }
  /** An attempt failed, and another follows; `delayed` comes next, or `waiting` if it may start at once. */
  retrying: { readonly error: ErrorInfo; readonly attempt: number; readonly runAt: Time }
  /** The lease of a worker expired; `waiting` comes next. */
  stalled: { readonly worker: string }
  /** A job was cancelled, with this reason if given; of a job that expired, the `error` is `JOB_EXPIRED`. */
  cancelled: { readonly reason?: string; readonly error?: ErrorInfo }
  /** A job is no longer in the store. */
  removed: object
  /** A finished job has become stale. */
  stale: object
  /**
   * A schedule made no run for a time, or for all times from `since` to `scheduledAt`: because the run before had not
   * ended (`overlap`), the queue was `full`, no worker handled it in time (`late`, with `catchUp: 'none'`), or it was
   * `paused`. `id` is that of the schedule's row, `name` that of its runs.
   */
  'schedule-missed': {
    readonly key: string
    readonly why: MissedTimes['why']
    readonly since: Time
    readonly scheduledAt: Time
  }
  /**
   * A bulk operation has ended: completed, or cancelled by a call. `id` is its id, `refused` counts jobs that it could not
   * change, by the code of the error.
   */
  'operation-ended': {
    readonly state: 'completed' | 'cancelled'
    readonly do: BulkAction
    readonly reason?: string
    readonly by?: string
    readonly done: number
    readonly unchanged: number
    readonly refused: Readonly<Record<string, number>>
  }
  /** The last waiting job of a queue was claimed; it may still be running. */
  drained: object
  /** The queue, or the given name, was paused. */
  paused: object
  /** The queue, or the given name, was resumed. */
  resumed: object
  /** A worker has registered. */
  'worker-started': { readonly worker: string }
  /** A worker has stopped claiming. */
  'worker-stopping': { readonly worker: string }
  /** A worker has stopped and holds nothing any more. */
  'worker-stopped': { readonly worker: string }
  /** An error that no call could reject with: in a listener, in a callback, or in the store while no call waited. */
  error: { readonly error: Error }
  /** A worker found that it lost the lease of a job it runs. */
  'lease-lost': { readonly worker: string }
}

const types: Readonly<Record<EventType, true>> = {
  waiting: true,
  'waiting-children': true,
  delayed: true,
  active: true,
  progress: true,
  phase: true,
  'webhook-delivered': true,
  'webhook-failed': true,
  completed: true,
  failed: true,
  retrying: true,
  stalled: true,
  cancelled: true,
  removed: true,
  stale: true,
  'schedule-missed': true,
  'operation-ended': true,
  drained: true,
  paused: true,
  resumed: true,
  'worker-started': true,
  'worker-stopping': true,
  'worker-stopped': true,
  error: true,
  'lease-lost': true,
}

/** All event types. */
export const eventTypes = Object.keys(types) as readonly EventType[]

/** Throws if the listener would never be called. */
export function checkListener(type: unknown, listener: unknown, known: readonly string[] = eventTypes): void {
  if (typeof listener !== 'function') throw invalid(`on('${String(type)}') needs a function.`)
  checkEventType(type, known)
}

/** Throws if there is no event of this type. */
export function checkEventType(type: unknown, known: readonly string[]): void {
  if (typeof type === 'string' && known.includes(type)) return
  const near = nearest(String(type), known)
  throw invalid(`There is no event '${String(type)}' here` + (near === undefined ? '.' : `; did you mean '${near}'?`))
}

/**
 * Events by type. A mapped type rather than a conditional one, so that a queue of declared jobs is assignable to a
 * queue of any jobs.
 */
type Events<Jobs extends JobDefinitions> = {
  readonly [Type in EventType]: Narrowed<
    Type,
    EventBase & {
      /** What happened. */
      readonly type: Type
    } & EventDetails[Type],
    Jobs
  >
}

/** One event by its type; for declared jobs, discriminated by `name`: `EventOf<'completed', typeof jobs>`. */
export type EventOf<Type extends EventType, Jobs extends JobDefinitions = JobDefinitions> = Events<Jobs>[Type]

/** Any event. */
export type QueueEvent = { [Type in EventType]: EventOf<Type> }[EventType]

/** Receives events of one type. If it returns a promise, a rejection is reported; the promise is not awaited. */
export type Listener<Type extends EventType, Jobs extends JobDefinitions = JobDefinitions> = (
  event: EventOf<Type, Jobs>,
) => unknown

/**
 * Receives errors and warnings that have no listener; with `debug` and `info`, also what happens to jobs. Pino and the
 * console fit.
 */
export interface Logger {
  /** Logs jobs that were added, claimed and completed. Default: not logged. */
  debug?(details: object, message: string): void
  /** Logs jobs that are retried and jobs that failed. Default: not logged. */
  info?(details: object, message: string): void
  /** Logs problems that were handled. */
  warn(details: object, message: string): void
  /** Logs problems that need attention. */
  error(details: object, message: string): void
}

/** Logs warnings and errors to the console. Millrace writes to the console nowhere else. */
const consoleLogger: Logger = {
  // oxlint-disable-next-line no-console
  warn: (details, message) => console.warn(message, details),
  // oxlint-disable-next-line no-console
  error: (details, message) => console.error(message, details),
}

/** The same, of the message alone: one line each. For messages that contain their details. */
export const consoleLines: Logger = {
  // oxlint-disable-next-line no-console
  warn: (_details, message) => console.warn(message),
  // oxlint-disable-next-line no-console
  error: (_details, message) => console.error(message),
}

/** Wraps a logger so that it cannot throw; `false` logs nothing. Throws if the value is not a logger. */
export function safeLogger(logger: Logger | false | undefined): Logger {
  if (logger === false) return { warn: () => {}, error: () => {} }
  const target: Logger = logger === undefined ? consoleLogger : logger
  if (typeof target?.warn !== 'function' || typeof target.error !== 'function') {
    throw invalid(
      `logger must have the methods warn and error, as pino and the console do, or be false; not ${quote(logger)}.`,
    )
  }
  const write =
    (level: keyof Logger) =>
    (details: object, message: string): void => {
      try {
        const returned: unknown = target[level]?.(details, message)
        if (returned instanceof Promise) returned.catch(() => {})
      } catch {
        // There is nowhere left to report the error of a logger.
      }
    }
  return {
    ...(typeof target.debug === 'function' && { debug: write('debug') }),
    ...(typeof target.info === 'function' && { info: write('info') }),
    warn: write('warn'),
    error: write('error'),
  }
}

/**
 * Listeners by type. An error thrown by a listener is emitted as `error`, once, and does not affect other listeners; an
 * `error` event without a listener goes to the logger.
 */
export class Emitter {
  readonly #listeners = new Map<EventType, Set<(event: never) => unknown>>()
  readonly #logger: Logger
  readonly #origin: () => { readonly queue: string; readonly at: Time }
  /** What every line about a job contains besides the job. */
  readonly #jobDetails: object | undefined
  /** Log methods by event type, for job events that are logged even without listeners. */
  readonly #jobLogs: Partial<Record<EventType, (details: object, message: string) => void>> | undefined

  /** With `jobDetails`, also logs job events with these details, as far as the logger has the methods. */
  constructor(logger: Logger, origin: () => { readonly queue: string; readonly at: Time }, jobDetails?: object) {
    this.#logger = logger
    this.#origin = origin
    this.#jobDetails = jobDetails
    const { debug, info } = logger
    if (jobDetails === undefined || (debug === undefined && info === undefined)) return
    this.#jobLogs = {
      ...(debug !== undefined && { active: debug, completed: debug }),
      ...(info !== undefined && { retrying: info, failed: info }),
    }
  }

  /** Whether this type has a listener or is logged. Lets callers avoid creating an event. */
  has(type: EventType): boolean {
    return this.#listeners.has(type) || this.#jobLogs?.[type] !== undefined
  }

  /** The total number of listeners. */
  get size(): number {
    let size = 0
    for (const listeners of this.#listeners.values()) size += listeners.size
    return size
  }

  on<Type extends EventType>(type: Type, listener: Listener<Type>): Stop {
    const listeners = this.#listeners.get(type) ?? new Set()
    this.#listeners.set(type, listeners)
    const wrapper = (event: EventOf<Type>): unknown => listener(event) // so that a listener can be added twice
    listeners.add(wrapper)
    return () => {
      listeners.delete(wrapper)
      if (listeners.size === 0 && this.#listeners.get(type) === listeners) this.#listeners.delete(type)
    }
  }

  emit(event: QueueEvent): void {
    const listeners = this.#listeners.get(event.type)
    if (this.#jobLogs !== undefined) this.#logJob(event)
    if (listeners === undefined) {
      if (event.type === 'error') this.#log(event.error)
      return
    }
    // Listeners run outside of any transaction that the emitting code is inside of.
    outside(() => {
      for (const listener of [...listeners]) {
        try {
          const returned = listener(event as never)
          if (returned instanceof Promise) returned.catch((cause: unknown) => this.#report(event, cause))
        } catch (cause) {
          this.#report(event, cause)
        }
      }
    })
  }

  #logJob({ type, id, name, queue, ...rest }: QueueEvent): void {
    const { attempt, error } = rest as { attempt?: number; error?: ErrorInfo }
    const details = { id, name, queue, attempt, ...this.#jobDetails, ...(error !== undefined && { err: error }) }
    this.#jobLogs?.[type]?.(details, `job ${type === 'active' ? 'claimed' : type}`)
  }

  /** A blocked event loop is a warning, because its jobs run again. */
  #log(error: Error): void {
    const level = isMillraceError(error, 'EVENT_LOOP_BLOCKED') ? 'warn' : 'error'
    this.#logger[level]({ err: error }, describeError(error).message)
  }

  /** Emits an error of this process. The events of a worker carry the `job` that they are about. */
  error(error: unknown, about: { id?: string; name?: string; queue?: string; job?: unknown } = {}): void {
    const origin = this.#origin()
    const { id = '', name = '', queue = origin.queue, job } = about
    const known = isInstance(error, Error) ? error : new Error(describeError(error).message)
    const event = { type: 'error', id, name, queue, at: origin.at, error: known } as const
    this.emit(job === undefined ? event : ({ ...event, job } as typeof event))
  }

  #report(event: QueueEvent, cause: unknown): void {
    const message = describeError(cause).message
    const error = new MillraceError('LISTENER_FAILED', `A listener for '${event.type}' threw: ${message}`, { cause })
    if (event.type === 'error') this.#log(error)
    else this.error(error, event)
  }

  /** Removes all listeners. */
  clear(): void {
    this.#listeners.clear()
  }
}

/**
 * A store's event as users receive it: JSON decoded, without the cursor and absent properties, so that
 * `'worker' in event` works.
 */
export function publicEvent(event: StoreEvent): QueueEvent {
  const { type, id, chain, queue, name, at, attempt, worker, runAt, error, result, progress, about } = event
  if (chain === undefined && about === undefined && error === undefined) {
    // The most frequent events are spelled out: assembling objects costs several times as much.
    if (type === 'completed') {
      return {
        type,
        id,
        queue,
        name,
        at,
        attempt: attempt!,
        result: result === undefined ? undefined : decodeJson(result),
      }
    }
    if (type === 'active') return { type, id, queue, name, at, attempt: attempt!, worker: worker! }
    if (type === 'waiting') return { type, id, queue, name, at }
  }
  const fields: Record<string, unknown> = { type, id, queue, name, at }
  if (type === 'operation-ended') Object.assign(fields, { queue: queueOfBulk(queue), name: '' })
  if (chain !== undefined) fields['chain'] = chain
  if (attempt !== undefined) fields['attempt'] = attempt
  if (worker !== undefined) fields['worker'] = worker
  if (runAt !== undefined) fields['runAt'] = runAt
  else if (type === 'retrying') fields['runAt'] = at // the next attempt may start at once
  if (error !== undefined) {
    if (type === 'cancelled') fields['reason'] = error.message
    if (type !== 'cancelled' || error.code === 'JOB_EXPIRED') fields['error'] = error
  }
  if (about !== undefined) Object.assign(fields, decodeJson(about))
  if (type === 'completed') fields['result'] = result === undefined ? undefined : decodeJson(result)
  if (progress !== undefined) fields['progress'] = decodeJson(progress)
  return fields as unknown as QueueEvent
}

// queue/events/events.ts: events as people see them, and the small emitter that carries them.
import { MillraceError, isInstance, isMillraceError } from '../../job/errors.js'
import { describeError } from '../../job/failure.js'
import type { ErrorInfo, FinishedState, Time } from '../../job/job.js'
import { decodeJson } from '../../job/json.js'
import type { PhaseStatus } from '../../job/memo.js'
import { nearest } from '../../job/names.js'
import { quote } from '../../job/quote.js'
import { outside } from '../../store/transaction-context.js'
import type { Stop } from '../../store/runtime.js'
import type { StoreEvent, StoreEventType } from '../../store/store.js'
import type { JobDefinitions } from '../define.js'
import type { Narrowed } from './event-types.js'

/** Everything that is announced: what commits made true, and what happened in this process. */
export type EventType = StoreEventType | 'error' | 'lease-lost'

/** What every event says. */
export interface EventBase {
  /** What happened. */
  readonly type: EventType
  /** The job's id; empty where the event is not about a job. */
  readonly id: string
  /** The queue; for an event of a worker, one of its queues. */
  readonly queue: string
  /** The job's name; empty where the event is not about a job. */
  readonly name: string
  /** When it happened, by the store's clock (by this process's, for `error` and `lease-lost`). */
  readonly at: Time
}

/** What is said of a delivery. */
export interface Delivered {
  /** Where to. */
  readonly url: string
  /** The end that was to be told. */
  readonly event: FinishedState
  /** How often it was tried. */
  readonly attempts: number
}

/** What events say beside that, by type. */
interface Extras {
  /** A job became claimable: added, promoted, retried by hand, released, stalled, or handed back. */
  waiting: object
  /** A job was added, or retried, that waits for others. */
  'waiting-children': object
  /** A job is to run later: added so, retried after a failure, or snoozed. */
  delayed: { readonly runAt: Time }
  /** A worker has claimed a job. */
  active: { readonly worker: string; readonly attempt: number }
  /** `ctx.progress` is durable. Of a job with phases, it is that of the whole, and `phase` and `phaseProgress` say where it is. */
  progress: { readonly progress: unknown; readonly phase?: string; readonly phaseProgress?: number }
  /** A phase of a job has begun, or has ended: `result` is what it returned, `error` what it threw. */
  phase: {
    readonly phase: string
    readonly status: PhaseStatus
    readonly result?: unknown
    readonly error?: ErrorInfo
  }
  /** The end of a job was told to its webhook. */
  'webhook-delivered': Delivered & { readonly webhookSent: true }
  /** The end of a job could not be told to its webhook, and will not be tried again. */
  'webhook-failed': Delivered & { readonly error: ErrorInfo }
  /** A job has ended well. */
  completed: { readonly result: unknown; readonly attempt: number }
  /** A job has failed for good. */
  failed: { readonly error: ErrorInfo; readonly attempt: number }
  /** An attempt failed, and there will be another; `delayed` follows, or `waiting` where that is to begin at once. */
  retrying: { readonly error: ErrorInfo; readonly attempt: number; readonly runAt: Time }
  /** The lease of a worker ran out; `waiting` follows. */
  stalled: { readonly worker: string }
  /** A job was cancelled; for this reason, if whoever cancelled it gave one. */
  cancelled: { readonly reason?: string }
  /** A job is no longer in the store. */
  removed: object
  /** A finished job has become stale. */
  stale: object
  /** The last waiting job of a queue was claimed; it may still be running. */
  drained: object
  /** The queue, or the name given, was paused. */
  paused: object
  /** The queue, or the name given, was resumed. */
  resumed: object
  /** A worker has registered. */
  'worker-started': { readonly worker: string }
  /** A worker takes no further jobs. */
  'worker-stopping': { readonly worker: string }
  /** A worker has let go of everything. */
  'worker-stopped': { readonly worker: string }
  /** Something went wrong that no call could reject for: a listener, a callback, the store while nobody waited. */
  error: { readonly error: Error }
  /** A worker learned that a job it runs is no longer its own. */
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
  drained: true,
  paused: true,
  resumed: true,
  'worker-started': true,
  'worker-stopping': true,
  'worker-stopped': true,
  error: true,
  'lease-lost': true,
}

/** All types of events. */
export const eventTypes = Object.keys(types) as readonly EventType[]

/** Refuses a listener that would never be called. */
export function checkListener(type: unknown, listener: unknown, known: readonly string[] = eventTypes): void {
  if (typeof listener !== 'function')
    throw new MillraceError('INVALID_OPTION', `on('${String(type)}') needs a function.`)
  checkEventType(type, known)
}

/** Refuses a type of event that is never announced. */
export function checkEventType(type: unknown, known: readonly string[]): void {
  if (typeof type === 'string' && known.includes(type)) return
  const near = nearest(String(type), known)
  throw new MillraceError(
    'INVALID_OPTION',
    `There is no event '${String(type)}' here` + (near === undefined ? '.' : `; did you mean '${near}'?`),
  )
}

/** Events by type. Looked up, and not decided by the type, so that a queue of declared jobs passes for one of any. */
type Events<Jobs extends JobDefinitions> = {
  readonly [Type in EventType]: Narrowed<
    Type,
    EventBase & {
      /** What happened. */
      readonly type: Type
    } & Extras[Type],
    Jobs
  >
}

/** One event by its type; of declared jobs, told apart by `name`: `EventOf<'completed', typeof jobs>`. */
export type EventOf<Type extends EventType, Jobs extends JobDefinitions = JobDefinitions> = Events<Jobs>[Type]

/** Any event. */
export type QueueEvent = { [Type in EventType]: EventOf<Type> }[EventType]

/** Hears events of one type. A promise it returns is watched for rejection, not waited for. */
export type Listener<Type extends EventType, Jobs extends JobDefinitions = JobDefinitions> = (
  event: EventOf<Type, Jobs>,
) => unknown

/**
 * What is written: errors and warnings where nobody listens; and, with a logger that has `debug` and `info`, the life of jobs.
 * Pino fits, and so does the console.
 */
export interface Logger {
  /** For jobs that were added, claimed and completed. Default: not written. */
  debug?(details: object, message: string): void
  /** For jobs that are retried and jobs that failed. Default: not written. */
  info?(details: object, message: string): void
  /** For what went wrong and was dealt with. */
  warn(details: object, message: string): void
  /** For what went wrong and somebody should look at. */
  error(details: object, message: string): void
}

/** Warnings and errors on the console's error stream: the one place where Millrace writes to it. */
const consoleLogger: Logger = {
  // oxlint-disable-next-line no-console
  warn: (details, message) => console.warn(message, details),
  // oxlint-disable-next-line no-console
  error: (details, message) => console.error(message, details),
}

/** Makes a logger that cannot throw; false is silence. Refuses what could not be written to. */
export function safeLogger(logger: Logger | false | undefined): Logger {
  if (logger === false) return { warn: () => {}, error: () => {} }
  const target: Logger = logger === undefined ? consoleLogger : logger
  if (typeof target?.warn !== 'function' || typeof target.error !== 'function') {
    throw new MillraceError(
      'INVALID_OPTION',
      `logger must have the methods warn and error, as pino and the console do, or be false; not ${quote(logger)}.`,
    )
  }
  const write =
    (level: keyof Logger) =>
    (details: object, message: string): void => {
      try {
        const answer: unknown = target[level]?.(details, message)
        if (answer instanceof Promise) answer.catch(() => {})
      } catch {
        // A logger that throws has nobody left to tell.
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
 * Listeners by type. A listener that throws is reported on `error`, once, and harms nobody; an `error` that nobody
 * listens for goes to the logger.
 */
export class Emitter {
  readonly #listeners = new Map<EventType, Set<(event: never) => unknown>>()
  readonly #logger: Logger
  readonly #origin: () => { readonly queue: string; readonly at: Time }
  /** Writes the events that are logged though nobody listens, where they are. */
  readonly #life: Partial<Record<EventType, (details: object, message: string) => void>> | undefined

  /** With `life`, what happens to jobs is logged as well, as far as the logger has the methods. */
  constructor(logger: Logger, origin: () => { readonly queue: string; readonly at: Time }, life = false) {
    this.#logger = logger
    this.#origin = origin
    const { debug, info } = logger
    if (!life || (debug === undefined && info === undefined)) return
    this.#life = {
      ...(debug !== undefined && { active: debug, completed: debug }),
      ...(info !== undefined && { retrying: info, failed: info }),
    }
  }

  /** Whether anybody listens for this type: lets callers save the making of an event. */
  has(type: EventType): boolean {
    return this.#listeners.has(type) || this.#life?.[type] !== undefined
  }

  /** How many listeners there are in all. */
  get size(): number {
    let size = 0
    for (const listeners of this.#listeners.values()) size += listeners.size
    return size
  }

  on<Type extends EventType>(type: Type, listener: Listener<Type>): Stop {
    const listeners = this.#listeners.get(type) ?? new Set()
    this.#listeners.set(type, listeners)
    const own = (event: EventOf<Type>): unknown => listener(event) // so that one function can be added twice
    listeners.add(own)
    return () => {
      listeners.delete(own)
      if (listeners.size === 0 && this.#listeners.get(type) === listeners) this.#listeners.delete(type)
    }
  }

  emit(event: QueueEvent): void {
    const listeners = this.#listeners.get(event.type)
    if (this.#life !== undefined) this.#write(event)
    if (listeners === undefined) {
      if (event.type === 'error') this.#log(event.error)
      return
    }
    // What a listener does is its own, whatever transaction the code is inside of that gave it something to hear.
    outside(() => {
      for (const listener of [...listeners]) {
        try {
          const answer = listener(event as never)
          if (answer instanceof Promise) answer.catch((cause: unknown) => this.#report(event, cause))
        } catch (cause) {
          this.#report(event, cause)
        }
      }
    })
  }

  #write({ type, id, name, queue, ...rest }: QueueEvent): void {
    const { attempt, error } = rest as { attempt?: number; error?: ErrorInfo }
    const details = { id, name, queue, attempt, ...(error !== undefined && { err: error }) }
    this.#life?.[type]?.(details, `job ${type === 'active' ? 'claimed' : type}`)
  }

  /** A blocked event loop is a warning: the jobs it cost run again. */
  #log(error: Error): void {
    const level = isMillraceError(error, 'EVENT_LOOP_BLOCKED') ? 'warn' : 'error'
    this.#logger[level]({ err: error }, describeError(error).message)
  }

  /** Announces an error of this process. */
  error(error: unknown, about: { id?: string; name?: string; queue?: string } = {}): void {
    const origin = this.#origin()
    const { id = '', name = '', queue = origin.queue } = about
    const known = isInstance(error, Error) ? error : new Error(describeError(error).message)
    this.emit({ type: 'error', id, name, queue, at: origin.at, error: known })
  }

  #report(event: QueueEvent, cause: unknown): void {
    const said = describeError(cause).message
    const error = new MillraceError('LISTENER_FAILED', `A listener for '${event.type}' threw: ${said}`, { cause })
    if (event.type === 'error') this.#log(error)
    else this.error(error, { id: event.id, name: event.name, queue: event.queue })
  }

  /** Forgets all listeners. */
  clear(): void {
    this.#listeners.clear()
  }
}

/** A store's event as people see it: JSON parsed, the cursor and what it does not say left out, so that `'worker' in event` tells. */
export function publicEvent(event: StoreEvent): QueueEvent {
  const { type, id, chain, queue, name, at, attempt, worker, runAt, error, result, progress, about } = event
  if (chain === undefined && about === undefined && error === undefined) {
    // Those that there are most of are written out: to put objects together costs several times as much.
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
  const shown: Record<string, unknown> = { type, id, queue, name, at }
  if (chain !== undefined) shown['chain'] = chain
  if (attempt !== undefined) shown['attempt'] = attempt
  if (worker !== undefined) shown['worker'] = worker
  if (runAt !== undefined) shown['runAt'] = runAt
  else if (type === 'retrying') shown['runAt'] = at // the next attempt may begin at once
  if (error !== undefined) {
    if (type === 'cancelled') shown['reason'] = error.message
    else shown['error'] = error
  }
  if (about !== undefined) Object.assign(shown, decodeJson(about))
  if (type === 'completed') shown['result'] = result === undefined ? undefined : decodeJson(result)
  if (progress !== undefined) shown['progress'] = decodeJson(progress)
  return shown as unknown as QueueEvent
}

// job/events.ts: the events that changes announce, and how a change makes them.
import type { CellEvent, Move, NoteEvent } from './change.js'
import type { ErrorInfo, JobRecord, JobState, Time } from './job.js'
import type { JsonText } from './values/json.js'
import { isCancelReason } from './lifecycle.js'

/** The events that a commit announces. */
export type StoreEventType =
  | JobState
  | 'progress'
  | NoteEvent['type']
  | 'retrying'
  | 'stalled'
  | 'stale'
  | 'removed'
  | 'drained'
  | 'paused'
  | 'resumed'
  | 'worker-started'
  | 'worker-stopping'
  | 'worker-stopped'

/** Something that a commit made true. */
export interface StoreEvent {
  /** Its position in the stream. */
  readonly cursor: string
  /** What happened. */
  readonly type: StoreEventType
  /** The job; empty for events of queues and workers. */
  readonly id: string
  /** The job's chain, unless the job is the first of it. */
  readonly chain?: string
  /** The queue. */
  readonly queue: string
  /** The job's name; empty where there is none. */
  readonly name: string
  /** When, by the clock of the store. */
  readonly at: Time
  /** Which attempt: of `active`, `completed`, `failed` and `retrying`. */
  readonly attempt?: number
  /** The worker: of `active`, `stalled` and events of workers. */
  readonly worker?: string
  /** When the job runs next: of `delayed` and `retrying`. */
  readonly runAt?: Time
  /** The result, as JSON: of `completed`. */
  readonly result?: JsonText
  /** The progress, as JSON: of `progress`. */
  readonly progress?: JsonText
  /** Further data: of `progress` with phases, and of the events that only notes announce. */
  readonly about?: JsonText
  /** The error: of `failed` and `retrying`, and of `cancelled` if a reason was given or the job expired. */
  readonly error?: ErrorInfo
}

/** An event before it gets its cursor. */
export type EventDraft = { -readonly [Key in keyof StoreEvent]: StoreEvent[Key] }

type About = Pick<JobRecord, 'id' | 'queue' | 'name'> & { readonly chainId?: string }

/** Creates an event about a job, a queue or a worker. */
export function draft(type: StoreEventType, about: About, now: Time): EventDraft {
  return {
    cursor: '',
    type,
    id: about.id,
    chain: about.chainId === about.id ? undefined : about.chainId,
    queue: about.queue,
    name: about.name,
    at: now,
    attempt: undefined,
    worker: undefined,
    runAt: undefined,
    result: undefined,
    progress: undefined,
    about: undefined,
    error: undefined,
  }
}

/** The event of the state that a job has entered. */
export function entered(job: JobRecord, now: Time): EventDraft {
  const event = draft(job.state, job, now)
  if (job.state === 'active') {
    event.attempt = job.attempt
    event.worker = job.worker
  } else if (job.state === 'completed') {
    event.attempt = job.attempt
    event.result = job.result
  } else if (job.state === 'failed') {
    event.attempt = job.attempt
    event.error = job.error
  } else if (job.state === 'cancelled') {
    if (isCancelReason(job.error)) event.error = job.error
  } else if (job.state === 'delayed') event.runAt = job.runAt
  return event
}

/** The event of the reason why a job was moved; `worker` held its lease before. */
export function reason(
  why: NonNullable<Move['why']>,
  worker: string | undefined,
  after: JobRecord,
  now: Time,
): EventDraft {
  const event = draft(why, after, now)
  if (why === 'retrying') {
    event.error = after.error
    event.runAt = after.runAt
    event.attempt = after.attempt
  } else if (why === 'stalled') event.worker = worker
  return event
}

/** The event that a cell announces. */
export function cellEvent(event: CellEvent, now: Time): EventDraft {
  const draftEvent = draft(event.type, { id: '', queue: event.queue, name: event.name ?? '' }, now)
  draftEvent.worker = event.worker
  return draftEvent
}

/** The event of a claim that took the last waiting job of a queue. */
export function drained(queue: string, now: Time): EventDraft {
  return draft('drained', { id: '', queue, name: '' }, now)
}

/** An event that was stored as JSON, with its absent fields set to undefined again. */
export function storedEvent(event: StoreEvent): EventDraft {
  return { ...draft(event.type, event, event.at), ...event }
}

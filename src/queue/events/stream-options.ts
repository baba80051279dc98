// queue/events/stream-options.ts: the options of an event stream, their checks, and the events that only streams have.
import type { Duration } from '../../job/values/duration.js'
import type { StoreEventType } from '../../job/events.js'
import type { FinishedState, Millis, Time } from '../../job/job.js'
import { checkName, refuseUnknown } from '../../job/values/names.js'
import { flag, invalid, mustBe, positive, whole } from '../../job/values/options.js'
import type { StateCounts } from '../counts.js'
import type { JobField } from '../job.js'
import { checkAbortSignal } from '../operations/abort-signal.js'
import { checkFields } from '../operations/fields.js'
import { checkEventType, eventTypes } from './events.js'

/** The event types of a stream: those that commits cause. Errors of a process are not sent. */
export type StreamEventType = StoreEventType

/** Options of `queue.eventStream`. */
export interface EventStreamOptions {
  /**
   * Begin with an event `snapshot`, and send one after each `gap`. A stream that resumes begins without one, because
   * its reader has received all events before. Default true.
   */
  readonly snapshot?: boolean
  /** The event types to send, at least one. Default: all. */
  readonly events?: readonly StreamEventType[]
  /**
   * Send only the events of this job; the snapshot then contains the job instead of the counts of the queue. Default:
   * all jobs of the queue.
   */
  readonly jobId?: string
  /**
   * With `jobId`: end the stream when the job has finished, was removed or does not exist, with an event `end`. If
   * false, the stream goes on: for a job that is yet to be added, and for what follows its end, as `webhook-delivered`.
   * Default true with `jobId`; not allowed without.
   */
  readonly end?: boolean
  /**
   * Show only these fields of jobs, at least one, in the snapshot and in events, and errors without stacks. `type`,
   * `id` and `at` of events are always sent. Default: everything but the data of the job.
   */
  readonly fields?: readonly JobField[]
  /** Include the job's data in the snapshot; it may be meant for the handler alone. Default false. */
  readonly data?: boolean
  /** Include the counts of the queue in the snapshot. Default: true, and with `jobId` false. */
  readonly counts?: boolean
  /**
   * Resume after the event with this `id`: what a browser sends as `Last-Event-ID`. Empty or null counts as absent.
   * Default: from now on.
   */
  readonly lastEventId?: string | null
  /** How often a waiting reader gets a ping, which keeps its connection open; `false` for none. Default 15 s. */
  readonly ping?: Duration | false
  /** How long a browser that lost its connection waits before it reconnects. Default: as the browser has it, often 3 s. */
  readonly retry?: Duration
  /** Maximum number of events buffered for a slow reader; later events are read from the store again. Default 1000. */
  readonly buffer?: number
  /** Ends the stream when it aborts. Default: none. */
  readonly signal?: AbortSignal
}

/** The data of the event `snapshot`. It may already include the effect of events that follow it. */
export interface StreamSnapshot {
  /** The event's name. */
  readonly type: 'snapshot'
  /** The queue of the stream; absent if `fields` leaves it out. */
  readonly queue?: string
  /** When it was taken, by the clock of the process that took it. */
  readonly at: Time
  /** Job counts by state, if requested. */
  readonly counts?: StateCounts
  /** The requested job, with its data only if requested; null if it does not exist; absent if none was requested. */
  readonly job?: Readonly<Record<string, unknown>> | null
}

/** The data of the event `end`, the last one of a stream that ends with its job. */
export interface StreamEnd {
  /** The event's name. */
  readonly type: 'end'
  /** The job. */
  readonly id: string
  /** When the stream ended, by the clock of the process that sent it. */
  readonly at: Time
  /** How the job ended; `removed` if it does not exist. */
  readonly state: FinishedState | 'removed'
}

/** The options of a stream, parsed. */
export interface ParsedStream {
  readonly snapshot: boolean
  readonly types: ReadonlySet<string> | undefined
  readonly jobId: string | undefined
  /** It ends with its job. */
  readonly ends: boolean
  /** The fields to show; undefined: all but the data. */
  readonly fields: ReadonlySet<JobField> | undefined
  readonly data: boolean
  readonly counts: boolean
  /** The cursor to resume after. */
  readonly from: string | undefined
  /** The reader has received the event `end`. */
  readonly wasEnded: boolean
  readonly ping: Millis | undefined
  readonly retry: Millis | undefined
  readonly buffer: number
  readonly signal: AbortSignal | undefined
}

/** What the id of the event `end` has after the cursor, so that a reader that reconnects after it is known. */
export const END_MARK = '.end'

const PING_EVERY: Millis = 15_000

const streamTypes: readonly string[] = eventTypes.filter((type) => type !== 'error' && type !== 'lease-lost')

const optionNames = [
  'snapshot',
  'events',
  'jobId',
  'end',
  'fields',
  'data',
  'counts',
  'lastEventId',
  'ping',
  'retry',
  'buffer',
  'signal',
] as const satisfies readonly (keyof EventStreamOptions)[]

/** Checks the options and fills in the defaults. `call` begins the messages. */
export function parseStream(options: EventStreamOptions, call: string): ParsedStream {
  refuseUnknown(options, optionNames, call)
  const { snapshot = true, events, jobId, data, lastEventId, ping, retry, buffer = 1000 } = options
  const { end = jobId !== undefined, counts = jobId === undefined } = options
  for (const [field, value] of Object.entries({ snapshot, data, end, counts })) flag(value, `${call}: ${field}`)
  if (events !== undefined && !Array.isArray(events))
    throw mustBe(`${call}: events`, "a list, as in ['completed']", events)
  if (events?.length === 0)
    throw invalid(`${call}: events must name one type at least, or be left out for all, not an array.`)
  for (const type of events ?? []) checkEventType(type, streamTypes)
  if (jobId !== undefined) checkName(jobId, 'job id')
  else if (end) throw invalid(`${call}: end needs a jobId, because a stream of a whole queue does not end.`)
  if (typeof (lastEventId ?? '') !== 'string') throw mustBe(`${call}: lastEventId`, 'a string', lastEventId)
  const wasEnded = lastEventId?.endsWith(END_MARK) === true
  const cursor = wasEnded ? lastEventId.slice(0, -END_MARK.length) : lastEventId
  const fields = options.fields === undefined ? undefined : new Set(checkFields(options.fields, call))
  return {
    snapshot,
    types: events === undefined ? undefined : new Set(events),
    jobId,
    ends: end,
    fields,
    data: data === true || fields?.has('data') === true,
    counts,
    from: cursor || undefined,
    wasEnded,
    ping: ping === false ? undefined : ping === undefined ? PING_EVERY : positive(ping, `${call}: ping`),
    retry: retry === undefined ? undefined : Math.ceil(positive(retry, `${call}: retry`)),
    buffer: whole(buffer, `${call}: buffer`, 1),
    signal: checkAbortSignal(options.signal, call),
  }
}

// queue/events/sse.ts: the events of a queue as server-sent events, for browsers and other HTTP clients.
import type { ReadableStream as WebStream } from 'node:stream/web'
import type { Extras, JobRecord, Time } from '../../job/job.js'
import { checkName, refuseUnknown } from '../../job/names.js'
import { flag, invalid, mustBe, whole } from '../../job/options.js'
import { outside, refuseInside } from '../../store/transaction-context.js'
import type { Stop } from '../../store/runtime.js'
import type { StoreEvent, StoreEventType } from '../../job/events.js'
import { checkAbortSignal } from '../operations/abort-signal.js'
import { countsOf } from '../counts.js'
import type { StateCounts } from '../counts.js'
import type { JobOperations } from '../operations/job-operations.js'
import { checkEventType, eventTypes, publicEvent } from './events.js'
import { isOwnRow } from './subscription.js'
import { Job } from '../job.js'
import { bareUrl } from '../settings/webhook.js'

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
  /** Send only the events of this job; the snapshot then contains the job too. Default: all jobs of the queue. */
  readonly jobId?: string
  /** Include the job's data in the snapshot; it may be meant for the handler alone. Default false. */
  readonly data?: boolean
  /**
   * Resume after the event with this `id`: what a browser sends as `Last-Event-ID`. Empty or null counts as absent.
   * Default: from now on.
   */
  readonly lastEventId?: string | null
  /** Maximum number of events buffered for a slow reader; later events are read from the store again. Default 1000. */
  readonly buffer?: number
  /** Ends the stream when it aborts. Default: none. */
  readonly signal?: AbortSignal
}

/**
 * The events of a queue as bytes: a web stream, for the body of a `Response`, for `Readable.fromWeb` and for
 * `for await`. With DOM types, the global stream and that of `node:stream/web` are two types for the same thing, and
 * this is both.
 */
export type EventStream = ReadableStream<Uint8Array> & WebStream<Uint8Array>

/** The data of the event `snapshot`. It may already include the effect of events that follow it. */
export interface StreamSnapshot {
  /** The event's name. */
  readonly type: 'snapshot'
  /** The queue of the stream. */
  readonly queue: string
  /** When it was taken, by the clock of the process that took it. */
  readonly at: Time
  /** Job counts by state. */
  readonly counts: StateCounts
  /** The requested job, with its data only if requested; null if it does not exist; absent if none was requested. */
  readonly job?: Readonly<Record<string, unknown>> | null
}

/**
 * The headers of a response whose body is an event stream:
 * `new Response(queue.eventStream(), { headers: eventStreamHeaders })`.
 */
export const eventStreamHeaders = Object.freeze({
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no', // otherwise nginx buffers events
})

const PING_EVERY = 15_000
/** Maximum number of characters buffered for a slow reader, however few events they are. */
const MAX_BUFFERED_CHARS = 8 * 1_048_576
/** Maximum number of characters per chunk; a single event may be larger. */
const MAX_CHUNK_CHARS = 1_048_576

const streamTypes: readonly string[] = eventTypes.filter((type) => type !== 'error' && type !== 'lease-lost')
const CALL = 'queue.eventStream'
const optionNames = ['snapshot', 'events', 'jobId', 'data', 'lastEventId', 'buffer', 'signal']

/** Opens a stream. It misses no event that is committed in this process from now on. */
export function eventStream(queue: string, operations: JobOperations, options: EventStreamOptions): EventStream {
  const source = new EventStreamSource(queue, operations, options)
  // No buffer in the web stream: everything buffered is in the source, which counts it.
  return outside(() => new ReadableStream<Uint8Array>(source, { highWaterMark: 0 }))
}

/**
 * The source of one stream. It shares the queue's subscription until it has to resume, after a reconnection or because
 * its reader was slow; from then on it watches the store by itself.
 */
export class EventStreamSource {
  readonly #queue: string
  readonly #operations: JobOperations
  readonly #options: EventStreamOptions
  readonly #types: ReadonlySet<string> | undefined
  readonly #maxEntries: number
  readonly #encoder = new TextEncoder()
  /** What waits to be read. */
  #entries: (string | PendingSnapshot)[] = []
  #bufferedChars = 0
  /** The cursor of the last event received here, and the last cursor sent to the reader. */
  #lastCursor: string | undefined
  #sentCursor: string | undefined
  /** The buffer was full: events after `#lastCursor` are to be read from the store once it is not. */
  #mustResume = false
  #unsubscribe: Stop | undefined
  readonly #cleanups: Stop[] = []
  #stopPing: Stop | undefined
  #ended = false
  /** Set while the reader waits: wakes it. */
  #wake: (() => void) | undefined

  constructor(queue: string, operations: JobOperations, options: EventStreamOptions) {
    refuseUnknown(options, optionNames, CALL)
    const { snapshot, events, jobId, data, lastEventId, buffer = 1000, signal } = options
    flag(snapshot, `${CALL}: snapshot`)
    flag(data, `${CALL}: data`)
    if (events !== undefined && !Array.isArray(events))
      throw mustBe(`${CALL}: events`, "a list, as in ['completed']", events)
    if (events?.length === 0)
      throw invalid(`${CALL}: events must name one type at least, or be left out for all, not an array.`)
    for (const type of events ?? []) checkEventType(type, streamTypes)
    if (jobId !== undefined) checkName(jobId, 'job id')
    if (typeof (lastEventId ?? '') !== 'string') throw mustBe(`${CALL}: lastEventId`, 'a string', lastEventId)
    whole(buffer, `${CALL}: buffer`, 1)
    checkAbortSignal(signal, CALL)
    refuseInside(operations.connection.store, `${CALL}()`)
    this.#queue = queue
    this.#operations = operations
    this.#options = options
    this.#types = events === undefined ? undefined : new Set(events)
    this.#maxEntries = buffer
  }

  /** The number of frames that wait to be read. */
  get waiting(): number {
    return this.#entries.length
  }

  start(controller: ReadableStreamDefaultController<Uint8Array>): void {
    const end = (): void => {
      if (this.#ended) return
      this.cancel()
      controller.close()
    }
    const { signal, lastEventId, snapshot = true } = this.#options
    if (signal?.aborted === true) return end()
    signal?.addEventListener('abort', end)
    this.#cleanups.push(() => signal?.removeEventListener('abort', end), this.#operations.onClose(end))
    if (this.#ended) return
    const from = lastEventId || undefined
    this.#lastCursor = this.#sentCursor = from
    // Subscribe before the snapshot is taken, so that no event is missed in between.
    this.#subscribe(from)
    this.#push(snapshot && from === undefined ? this.#takeSnapshot() : PING) // so that the response begins at once
    this.#armPing()
  }

  async pull(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    try {
      const chunk = await this.#next()
      if (chunk !== undefined) controller.enqueue(this.#encoder.encode(chunk))
    } catch (error) {
      if (this.#ended) return
      this.cancel()
      throw error // the reader receives the error
    }
  }

  /** Releases all resources. */
  cancel(): void {
    this.#ended = true
    this.#unsubscribe?.()
    this.#stopPing?.()
    for (const cleanUp of this.#cleanups.splice(0)) cleanUp()
    this.#entries = []
    this.#wake?.()
  }

  /** The next chunk; waits for it. Undefined when the stream has ended. */
  async #next(): Promise<string | undefined> {
    while (!this.#ended) {
      const first = this.#entries[0]
      if (typeof first === 'string') return this.#takeFrames()
      if (first !== undefined) {
        const frame = await first.snapshot
        this.#entries.shift()
        return this.#ended ? undefined : frame
      }
      if (this.#mustResume) {
        this.#mustResume = false
        this.#subscribe(this.#lastCursor)
      }
      await new Promise<void>((resolve) => (this.#wake = resolve))
      this.#wake = undefined
    }
    return undefined
  }

  /** Joins the frames up to the next snapshot. */
  #takeFrames(): string {
    let text = ''
    let taken = 0
    for (const entry of this.#entries) {
      if (typeof entry !== 'string' || (taken > 0 && text.length + entry.length > MAX_CHUNK_CHARS)) break
      text += entry
      taken++
    }
    this.#entries.splice(0, taken)
    this.#bufferedChars -= text.length
    return text
  }

  /**
   * Uses the shared subscription, or watches the store from a cursor on. Stops the previous watch afterwards, so that
   * the store goes on recording events.
   */
  #subscribe(from: string | undefined): void {
    const previous = this.#unsubscribe
    const { subscription, connection } = this.#operations
    if (from === undefined) this.#unsubscribe = subscription.all((event) => this.#receive(event))
    else {
      this.#unsubscribe = connection.store.watch({ events: true, from }, ({ gap, events }) => {
        if (gap) this.#receive(undefined)
        for (const event of events) {
          if (this.#mustResume) break
          this.#receive(event)
        }
      })
    }
    previous?.()
  }

  /**
   * Accepts no events until the buffer has been read. Keeps a subscription, so that the store goes on recording events.
   */
  #stopBuffering(): void {
    this.#mustResume = true
    const previous = this.#unsubscribe
    this.#unsubscribe = this.#operations.subscription.all(() => {})
    previous?.()
  }

  #receive(event: StoreEvent | undefined): void {
    if (this.#mustResume || this.#ended) return
    if (event !== undefined && !this.#isWanted(event)) this.#lastCursor = event.cursor
    else if (this.#isFull() && this.#lastCursor !== undefined) this.#stopBuffering()
    else if (event === undefined) this.#sendGap()
    else {
      this.#lastCursor = this.#sentCursor = event.cursor
      this.#push(frame(event.type, withoutQuery(publicEvent(event)), event.cursor))
    }
  }

  #isFull(): boolean {
    return this.#entries.length >= this.#maxEntries || this.#bufferedChars >= MAX_BUFFERED_CHARS
  }

  #isWanted(event: StoreEvent): boolean {
    const { type, id, queue } = event
    const { jobId } = this.#options
    if (queue !== this.#queue || isOwnRow(event)) return false
    return (jobId === undefined || id === jobId) && (this.#types?.has(type) ?? true)
  }

  #sendGap(): void {
    const at = this.#operations.connection.runtime.now()
    this.#push(frame('gap', { type: 'gap', queue: this.#queue, at }))
    if (this.#options.snapshot ?? true) this.#push(this.#takeSnapshot())
  }

  #push(entry: string | PendingSnapshot): void {
    this.#entries.push(entry)
    if (typeof entry === 'string') this.#bufferedChars += entry.length
    this.#wake?.()
  }

  #takeSnapshot(): PendingSnapshot {
    const snapshot = this.#snapshot()
    snapshot.catch(() => {}) // the reader receives the error
    return { snapshot }
  }

  async #snapshot(): Promise<string> {
    const { store, runtime, ready } = this.#operations.connection
    await ready()
    const { jobId } = this.#options
    const [[tally], [record]] = await Promise.all([
      store.tally([this.#queue]),
      jobId === undefined ? [] : store.get([jobId]),
    ])
    const job = record?.queue === this.#queue && record.kind !== 'signal' ? this.#publicJob(record) : null
    return frame('snapshot', {
      type: 'snapshot',
      queue: this.#queue,
      at: runtime.now(),
      counts: countsOf(tally, []).total,
      ...(jobId !== undefined && { job }),
    } satisfies StreamSnapshot)
  }

  /** The job without what readers may not be allowed to see. */
  #publicJob(record: JobRecord): Record<string, unknown> {
    const { data, extras, ...rest } = new Job(this.#operations, record).toJSON()
    const { webhook, ...others } = (extras ?? {}) as Extras
    return {
      ...rest,
      ...(this.#options.data === true && record.kind === 'job' && { data }),
      ...(extras !== undefined && { extras: { ...others, ...(webhook && { webhook: withoutQuery(webhook) }) } }),
    }
  }

  /** Pings a waiting reader. A ping carries the current cursor, so that a stream with few events resumes from there. */
  #armPing(): void {
    this.#stopPing = this.#operations.connection.runtime.timer(PING_EVERY, () => {
      if (this.#wake !== undefined && this.#entries.length === 0) {
        this.#push(this.#lastCursor === this.#sentCursor ? PING : `id: ${this.#lastCursor}\n${PING}`)
        this.#sentCursor = this.#lastCursor
      }
      this.#armPing()
    })
  }
}

const PING = ': ping\n\n'

/** A snapshot that is being taken. */
interface PendingSnapshot {
  readonly snapshot: Promise<string>
}

/** The same value with its URL stripped of query and credentials, which readers of the stream need not know. */
function withoutQuery<T extends object>(value: T): T {
  const { url } = value as { url?: unknown }
  return typeof url === 'string' ? { ...value, url: bareUrl(url) } : value
}

/** One event as it is sent. JSON has no line breaks, so its data is one line. */
function frame(type: string, data: object, id?: string): string {
  return `${id === undefined ? '' : `id: ${id}\n`}event: ${type}\ndata: ${JSON.stringify(data)}\n\n`
}

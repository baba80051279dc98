// queue/events/sse.ts: the events of a queue as server-sent events, for browsers and whoever else reads them over HTTP.
import type { ReadableStream as WebStream } from 'node:stream/web'
import { MillraceError } from '../../job/errors.js'
import type { Extras, JobRecord, Time } from '../../job/job.js'
import { checkName, refuseUnknown } from '../../job/names.js'
import { quote } from '../../job/quote.js'
import { outside, refuseInside } from '../../store/transaction-context.js'
import type { Stop } from '../../store/runtime.js'
import type { StoreEvent, StoreEventType } from '../../store/store.js'
import { checkAbortSignal } from '../operations/abort-signal.js'
import { countsOf } from '../counts.js'
import type { StateCounts } from '../counts.js'
import type { JobOperations } from '../operations/job-operations.js'
import { checkEventType, eventTypes, publicEvent } from './events.js'
import { isOwnRow } from './subscription.js'
import { Job } from '../job.js'
import { bareUrl } from '../settings/webhook.js'

/** The events that a stream can carry: what commits make true. What goes wrong in a process stays there. */
export type StreamEventType = StoreEventType

/** What a stream is to tell. */
export interface EventStreamOptions {
  /**
   * Begin with an event `snapshot`, and send one after each `gap`. A stream that resumes does not begin with one: whoever
   * reads it has been told all before. Default true.
   */
  readonly snapshot?: boolean
  /** The types of events to send, one at least. Default: all. */
  readonly events?: readonly StreamEventType[]
  /** Only the events of this job; the snapshot then tells of it as well. Default: all jobs of the queue. */
  readonly jobId?: string
  /** The snapshot shows the job's data, which may be meant for its handler alone. Default false. */
  readonly data?: boolean
  /** Go on after the event with this `id`: what a browser sends as `Last-Event-ID`. Empty or null as if absent. Default: from now on. */
  readonly lastEventId?: string | null
  /** How many events may wait for a slow reader; what comes after them is read from the store again. Default 1000. */
  readonly buffer?: number
  /** Ends the stream when it aborts. Default: none. */
  readonly signal?: AbortSignal
}

/**
 * The events of a queue as bytes: a web stream, for the body of a `Response`, for `Readable.fromWeb` and for `for await`. Where the
 * types of the DOM are on, the global stream and that of `node:stream/web` are two types of one thing, and this is both.
 */
export type EventStream = ReadableStream<Uint8Array> & WebStream<Uint8Array>

/** What the event `snapshot` says. Events that come after it may be contained in it already. */
export interface StreamSnapshot {
  /** As the event is called. */
  readonly type: 'snapshot'
  /** The queue of the stream. */
  readonly queue: string
  /** When it was taken, by the clock of the process that did. */
  readonly at: Time
  /** How many jobs there are in each state. */
  readonly counts: StateCounts
  /** The job asked for, its data only if that was asked for as well; null if there is none; absent if none was asked for. */
  readonly job?: Readonly<Record<string, unknown>> | null
}

/** The headers of an answer whose body is an event stream: `new Response(queue.eventStream(), { headers: eventStreamHeaders })`. */
export const eventStreamHeaders = Object.freeze({
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no', // nginx would hold events back otherwise
})

const PING_EVERY = 15_000
/** Characters that may wait for a slow reader, however few events they are. */
const MOST_WAITING = 8 * 1_048_576
/** Characters that a reader is given at a time; a single event may be larger. */
const MOST_AT_ONCE = 1_048_576

const streamed: readonly string[] = eventTypes.filter((type) => type !== 'error' && type !== 'lease-lost')
const optionNames = ['snapshot', 'events', 'jobId', 'data', 'lastEventId', 'buffer', 'signal']

/** Opens a stream. Nothing that is committed in this process from now on escapes it. */
export function eventStream(queue: string, desk: JobOperations, options: EventStreamOptions): EventStream {
  const outlet = new Outlet(queue, desk, options)
  // Only what is asked for is taken from the outlet: what waits, waits there, where it is counted.
  return outside(() => new ReadableStream<Uint8Array>(outlet, { highWaterMark: 0 }))
}

/**
 * The source of one stream. It hears what the queue hears until it has to resume, after a reconnection or because its
 * reader was slow, and has a watch of its own from then on.
 */
export class Outlet {
  readonly #queue: string
  readonly #desk: JobOperations
  readonly #options: EventStreamOptions
  readonly #types: ReadonlySet<string> | undefined
  readonly #most: number
  readonly #encoder = new TextEncoder()
  /** What waits to be read. */
  #entries: (string | Taking)[] = []
  #waitingChars = 0
  /** The place of the last event that was seen here, and the last place that the reader is told. */
  #last: string | undefined
  #told: string | undefined
  /** There was no room for what came after `#last`: it is to be read from the store when there is. */
  #behind = false
  #unhear: Stop | undefined
  readonly #undo: Stop[] = []
  #stopPing: Stop | undefined
  #over = false
  /** The reader waits, and this tells it that something has come. */
  #wake: (() => void) | undefined

  constructor(queue: string, desk: JobOperations, options: EventStreamOptions) {
    refuseUnknown(options, optionNames, 'queue.eventStream')
    const { snapshot, events, jobId, data, lastEventId, buffer = 1000, signal } = options
    if (snapshot !== undefined && typeof snapshot !== 'boolean') throw bad('snapshot must be true or false', snapshot)
    if (data !== undefined && typeof data !== 'boolean') throw bad('data must be true or false', data)
    if (events !== undefined && !Array.isArray(events)) throw bad("events must be a list, as in ['completed']", events)
    if (events?.length === 0) throw bad('events must name one type at least, or be left out for all', events)
    for (const type of events ?? []) checkEventType(type, streamed)
    if (jobId !== undefined) checkName(jobId, 'job id')
    if (typeof (lastEventId ?? '') !== 'string') throw bad('lastEventId must be a string', lastEventId)
    if (!Number.isSafeInteger(buffer) || buffer < 1) throw bad('buffer must be a whole number from 1 up', buffer)
    checkAbortSignal(signal, 'queue.eventStream')
    refuseInside(desk.connection.store, 'queue.eventStream()')
    this.#queue = queue
    this.#desk = desk
    this.#options = options
    this.#types = events === undefined ? undefined : new Set(events)
    this.#most = buffer
  }

  /** How many frames wait to be read. */
  get waiting(): number {
    return this.#entries.length
  }

  start(controller: ReadableStreamDefaultController<Uint8Array>): void {
    const end = (): void => {
      if (this.#over) return
      this.cancel()
      controller.close()
    }
    const { signal, lastEventId, snapshot = true } = this.#options
    if (signal?.aborted === true) return end()
    signal?.addEventListener('abort', end)
    this.#undo.push(() => signal?.removeEventListener('abort', end), this.#desk.onClose(end))
    if (this.#over) return
    const from = lastEventId || undefined
    this.#last = this.#told = from
    // The ear is open before the snapshot is taken, so that nothing falls between.
    this.#hearFrom(from)
    this.#push(snapshot && from === undefined ? this.#takeSnapshot() : PING) // so that the answer begins at once
    this.#armPing()
  }

  async pull(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    try {
      const chunk = await this.#next()
      if (chunk !== undefined) controller.enqueue(this.#encoder.encode(chunk))
    } catch (error) {
      if (this.#over) return
      this.cancel()
      throw error // whoever reads learns of it
    }
  }

  /** Lets go of everything. */
  cancel(): void {
    this.#over = true
    this.#unhear?.()
    this.#stopPing?.()
    for (const undo of this.#undo.splice(0)) undo()
    this.#entries = []
    this.#wake?.()
  }

  /** What is to be read next; waits for it. Undefined when all is over. */
  async #next(): Promise<string | undefined> {
    while (!this.#over) {
      const first = this.#entries[0]
      if (typeof first === 'string') return this.#takeFrames()
      if (first !== undefined) {
        const frame = await first.snapshot
        this.#entries.shift()
        return this.#over ? undefined : frame
      }
      if (this.#behind) {
        this.#behind = false
        this.#hearFrom(this.#last)
      }
      await new Promise<void>((resolve) => (this.#wake = resolve))
      this.#wake = undefined
    }
    return undefined
  }

  /** Frames up to the next snapshot, as one. */
  #takeFrames(): string {
    let text = ''
    let taken = 0
    for (const entry of this.#entries) {
      if (typeof entry !== 'string' || (taken > 0 && text.length + entry.length > MOST_AT_ONCE)) break
      text += entry
      taken++
    }
    this.#entries.splice(0, taken)
    this.#waitingChars -= text.length
    return text
  }

  /** Listens with everybody else, or from a place on. What was listened to before is let go of after, so that events go on being recorded. */
  #hearFrom(from: string | undefined): void {
    const before = this.#unhear
    const { feed, connection } = this.#desk
    if (from === undefined) this.#unhear = feed.all((event) => this.#hear(event))
    else {
      this.#unhear = connection.store.watch({ events: true, from }, ({ gap, events }) => {
        if (gap) this.#hear(undefined)
        for (const event of events) {
          if (this.#behind) break
          this.#hear(event)
        }
      })
    }
    before?.()
  }

  /** Takes no more until what waits has been read. Somebody still listens, so that events go on being recorded. */
  #fallBehind(): void {
    this.#behind = true
    const before = this.#unhear
    this.#unhear = this.#desk.feed.all(() => {})
    before?.()
  }

  #hear(event: StoreEvent | undefined): void {
    if (this.#behind || this.#over) return
    if (event !== undefined && !this.#isWanted(event)) this.#last = event.cursor
    else if (this.#isFull() && this.#last !== undefined) this.#fallBehind()
    else if (event === undefined) this.#tellGap()
    else {
      this.#last = this.#told = event.cursor
      this.#push(frame(event.type, withoutQuery(publicEvent(event)), event.cursor))
    }
  }

  #isFull(): boolean {
    return this.#entries.length >= this.#most || this.#waitingChars >= MOST_WAITING
  }

  #isWanted(event: StoreEvent): boolean {
    const { type, id, queue } = event
    const { jobId } = this.#options
    if (queue !== this.#queue || isOwnRow(event)) return false
    return (jobId === undefined || id === jobId) && (this.#types?.has(type) ?? true)
  }

  #tellGap(): void {
    const at = this.#desk.connection.runtime.now()
    this.#push(frame('gap', { type: 'gap', queue: this.#queue, at }))
    if (this.#options.snapshot ?? true) this.#push(this.#takeSnapshot())
  }

  #push(entry: string | Taking): void {
    this.#entries.push(entry)
    if (typeof entry === 'string') this.#waitingChars += entry.length
    this.#wake?.()
  }

  #takeSnapshot(): Taking {
    const snapshot = this.#snapshot()
    snapshot.catch(() => {}) // whoever reads it learns of it
    return { snapshot }
  }

  async #snapshot(): Promise<string> {
    const { store, runtime, ready } = this.#desk.connection
    await ready()
    const { jobId } = this.#options
    const [[tally], [record]] = await Promise.all([
      store.tally([this.#queue]),
      jobId === undefined ? [] : store.get([jobId]),
    ])
    const job = record?.queue === this.#queue && record.kind !== 'signal' ? this.#shown(record) : null
    return frame('snapshot', {
      type: 'snapshot',
      queue: this.#queue,
      at: runtime.now(),
      counts: countsOf(tally, []).total,
      ...(jobId !== undefined && { job }),
    } satisfies StreamSnapshot)
  }

  /** The job without what its readers may not be meant to see. */
  #shown(record: JobRecord): Record<string, unknown> {
    const { data, extras, ...rest } = new Job(this.#desk, record).toJSON()
    const { webhook, ...others } = (extras ?? {}) as Extras
    return {
      ...rest,
      ...(this.#options.data === true && { data }),
      ...(extras !== undefined && { extras: { ...others, ...(webhook && { webhook: withoutQuery(webhook) }) } }),
    }
  }

  /** A sign of life for whoever waits. It says how far the stream is, so that one with few events resumes from there. */
  #armPing(): void {
    this.#stopPing = this.#desk.connection.runtime.timer(PING_EVERY, () => {
      if (this.#wake !== undefined && this.#entries.length === 0) {
        this.#push(this.#last === this.#told ? PING : `id: ${this.#last}\n${PING}`)
        this.#told = this.#last
      }
      this.#armPing()
    })
  }
}

const PING = ': ping\n\n'

/** A snapshot that is being taken. */
interface Taking {
  readonly snapshot: Promise<string>
}

/** The same, and of its URL neither query nor credentials: whoever may read the stream need not know what lets one in there. */
function withoutQuery<T extends object>(value: T): T {
  const { url } = value as { url?: unknown }
  return typeof url === 'string' ? { ...value, url: bareUrl(url) } : value
}

/** One event as it is sent. JSON has no line breaks, so that it is one line. */
function frame(type: string, data: object, id?: string): string {
  return `${id === undefined ? '' : `id: ${id}\n`}event: ${type}\ndata: ${JSON.stringify(data)}\n\n`
}

function bad(what: string, value: unknown): MillraceError {
  return new MillraceError('INVALID_OPTION', `queue.eventStream: ${what}, not ${quote(value)}.`)
}

// queue/events/sse.ts: the events of a queue as server-sent events, for browsers and other HTTP clients.
import type { ReadableStream as WebStream } from 'node:stream/web'
import { isFinished } from '../../job/job.js'
import type { JobRecord } from '../../job/job.js'
import { outside, refuseInside } from '../../store/transaction-context.js'
import type { Stop } from '../../store/runtime.js'
import type { QueueTally } from '../../store/tally.js'
import type { StoreEvent } from '../../job/events.js'
import { countsOf } from '../counts.js'
import type { JobOperations } from '../operations/job-operations.js'
import { publicEvent } from './events.js'
import { isPublished } from './subscription.js'
import { shownEvent, shownJob } from './stream-fields.js'
import { END_MARK, parseStream } from './stream-options.js'
import type { EventStreamOptions, ParsedStream, StreamEnd, StreamSnapshot } from './stream-options.js'

/**
 * The events of a queue as bytes: a web stream, for the body of a `Response`, for `Readable.fromWeb` and for
 * `for await`. With DOM types, the global stream and that of `node:stream/web` are two types for the same thing, and
 * this is both.
 */
export type EventStream = ReadableStream<Uint8Array> & WebStream<Uint8Array>

/**
 * The headers of a response whose body is an event stream:
 * `new Response(queue.eventStream(), { headers: eventStreamHeaders })`.
 */
export const eventStreamHeaders = Object.freeze({
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no', // otherwise nginx buffers events
})

/** Maximum number of characters buffered for a slow reader, however few events they are. */
const MAX_BUFFERED_CHARS = 8 * 1_048_576
/** Maximum number of characters per chunk; a single event may be larger. */
const MAX_CHUNK_CHARS = 1_048_576

const CALL = 'queue.eventStream'

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
  readonly #options: ParsedStream
  readonly #encoder = new TextEncoder()
  /** What waits to be read. */
  #entries: (string | PendingRead)[] = []
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
  /** The event `end` is buffered, and nothing comes after it. */
  #closing = false
  /** The job had ended when it was last read, but the event of that has not arrived. */
  #awaitsEnd = false
  /** Set while the reader waits: wakes it. */
  #wake: (() => void) | undefined

  constructor(queue: string, operations: JobOperations, options: EventStreamOptions) {
    this.#options = parseStream(options, CALL)
    refuseInside(operations.connection.store, `${CALL}()`)
    this.#queue = queue
    this.#operations = operations
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
    const { signal, from, snapshot, retry, ends, jobId, wasEnded } = this.#options
    if (signal?.aborted === true) return end()
    signal?.addEventListener('abort', end)
    this.#cleanups.push(() => signal?.removeEventListener('abort', end), this.#operations.onClose(end))
    if (this.#ended) return
    this.#lastCursor = this.#sentCursor = from
    // Subscribe before the snapshot is taken, so that no event is missed in between.
    this.#subscribe(from)
    if (retry !== undefined) this.#push(`retry: ${retry}\n\n`)
    const sends = snapshot && from === undefined
    if (!sends || wasEnded) this.#push(PING) // so that the response begins at once
    if (sends || ends) this.#push(this.#read(sends, from === undefined || wasEnded))
    if (ends) this.#cleanups.push(this.#operations.rereader.add({ jobs: () => [jobId!], receive: this.#reread }))
    this.#armPing()
  }

  async pull(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    try {
      const chunk = await this.#next()
      if (chunk !== undefined) controller.enqueue(this.#encoder.encode(chunk))
      if (this.#ended || !this.#closing || this.#entries.length > 0) return
      this.cancel()
      controller.close()
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
        const { frame, ended } = await first.read
        this.#entries.shift()
        // Events that the buffer had no room for come before the end, and are still to be read.
        if (this.#mustResume) this.#awaitsEnd ||= ended !== undefined
        else if (ended !== undefined) this.#end(ended)
        if (frame !== '') return this.#ended ? undefined : frame
        continue
      }
      if (this.#closing) return undefined
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
    if (this.#mustResume || this.#ended || this.#closing) return
    if (event !== undefined && !this.#isWanted(event)) this.#lastCursor = event.cursor
    else if (this.#isFull() && this.#lastCursor !== undefined) return this.#stopBuffering()
    else if (event === undefined) this.#sendGap()
    else {
      this.#lastCursor = this.#sentCursor = event.cursor
      this.#push(frame(event.type, shownEvent(publicEvent(event), this.#options.fields), event.cursor))
    }
    if (event !== undefined && this.#options.ends && this.#isOfJob(event) && isEnd(event.type)) this.#end(event.type)
  }

  #isFull(): boolean {
    return this.#entries.length >= this.#options.buffer || this.#bufferedChars >= MAX_BUFFERED_CHARS
  }

  #isWanted(event: StoreEvent): boolean {
    const { jobId, types } = this.#options
    if (!isPublished(event, this.#queue)) return false
    return (jobId === undefined || this.#isOfJob(event)) && (types?.has(event.type) ?? true)
  }

  #isOfJob({ id, queue }: StoreEvent): boolean {
    return id === this.#options.jobId && queue === this.#queue
  }

  #sendGap(): void {
    const { snapshot, ends } = this.#options
    this.#push(frame('gap', { type: 'gap', ...this.#shownQueue(), at: this.#now() }))
    if (snapshot || ends) this.#push(this.#read(snapshot))
  }

  /** Sends the event `end`, after what is buffered. */
  #end(state: StreamEnd['state']): void {
    if (this.#closing || this.#ended) return
    this.#closing = true
    const end: StreamEnd = { type: 'end', id: this.#options.jobId!, at: this.#now(), state }
    this.#push(frame('end', end, `${this.#lastCursor ?? ''}${END_MARK}`))
  }

  /**
   * The job was read by the poll that covers for lost events. The event of its end may be on its way, so the stream ends
   * at the second time.
   */
  readonly #reread = (record: JobRecord | undefined): void => {
    if (this.#mustResume) return // the event is read from the store
    const ended = this.#endOf(record)
    if (ended !== undefined && this.#awaitsEnd) this.#end(ended)
    this.#awaitsEnd = ended !== undefined
  }

  #push(entry: string | PendingRead): void {
    this.#entries.push(entry)
    if (typeof entry === 'string') this.#bufferedChars += entry.length
    this.#wake?.()
  }

  /**
   * Reads what a snapshot shows, and whether the job has ended. `sends`: the snapshot is sent, unless the reader knows
   * that the job has ended. `endsNow`: a job that has ended ends the stream now, and not with the event of that. Default
   * true.
   */
  #read(sends: boolean, endsNow = true): PendingRead {
    const read = this.#readNow(sends, endsNow)
    read.catch(() => {}) // the reader receives the error
    return { read }
  }

  async #readNow(sends: boolean, endsNow: boolean): Promise<ReadResult> {
    const { store, ready } = this.#operations.connection
    await ready()
    const { jobId, counts, ends, wasEnded } = this.#options
    const [[tally], [record]] = await Promise.all([
      sends && counts ? store.tally([this.#queue]) : [],
      jobId === undefined ? [] : store.get([jobId]),
    ])
    const ended = ends ? this.#endOf(record) : undefined
    if (!endsNow) this.#awaitsEnd = ended !== undefined
    const isSent = sends && !(wasEnded && ended !== undefined)
    return { frame: isSent ? this.#snapshot(tally, record) : '', ended: endsNow ? ended : undefined }
  }

  #snapshot(tally: QueueTally | undefined, record: JobRecord | undefined): string {
    const { jobId, counts } = this.#options
    const job = this.#isOwn(record) ? shownJob(this.#operations, record, this.#options) : null
    return frame('snapshot', {
      type: 'snapshot',
      ...this.#shownQueue(),
      at: this.#now(),
      ...(counts && { counts: countsOf(tally, []).total }),
      ...(jobId !== undefined && { job }),
    } satisfies StreamSnapshot)
  }

  /** Whether a record is of a job of this queue. */
  #isOwn(record: JobRecord | undefined): record is JobRecord {
    return record?.queue === this.#queue && record.kind !== 'signal'
  }

  /** How a job has ended; undefined if it has not. */
  #endOf(record: JobRecord | undefined): StreamEnd['state'] | undefined {
    if (!this.#isOwn(record)) return 'removed'
    return isFinished(record.state) ? record.state : undefined
  }

  #shownQueue(): { queue?: string } {
    const { fields } = this.#options
    return fields === undefined || fields.has('queue') ? { queue: this.#queue } : {}
  }

  #now(): number {
    return this.#operations.connection.runtime.now()
  }

  /** Pings a waiting reader. A ping carries the current cursor, so that a stream with few events resumes from there. */
  #armPing(): void {
    const { ping } = this.#options
    if (ping === undefined) return
    this.#stopPing = this.#operations.connection.runtime.timer(ping, () => {
      if (this.#wake !== undefined && this.#entries.length === 0) {
        this.#push(this.#lastCursor === this.#sentCursor ? PING : `id: ${this.#lastCursor}\n${PING}`)
        this.#sentCursor = this.#lastCursor
      }
      this.#armPing()
    })
  }
}

const PING = ': ping\n\n'

/** A read of the job or of a snapshot, in the place of what it sends. */
interface PendingRead {
  readonly read: Promise<ReadResult>
}

interface ReadResult {
  /** The frame to send; may be empty. */
  readonly frame: string
  /** How the job has ended, if the stream ends because of that. */
  readonly ended: StreamEnd['state'] | undefined
}

/** Whether an event ends its job. */
function isEnd(type: StoreEvent['type']): type is StreamEnd['state'] {
  return type === 'removed' || isFinished(type as JobRecord['state'])
}

/** One event as it is sent. JSON has no line breaks, so its data is one line. */
function frame(type: string, data: object, id?: string): string {
  return `${id === undefined ? '' : `id: ${id}\n`}event: ${type}\ndata: ${JSON.stringify(data)}\n\n`
}

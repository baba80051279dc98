// stores/http/stream.ts: one stream of notices from a server: read, noticed when it is dead, and resumed.
import type { Millis } from '../../job/job.js'
import { SILENCE, STORE_PATH } from '../../store/wire/protocol.js'
import { watching } from '../../store/wire/wire.js'
import type { Notice } from '../../store/store.js'
import type { Stop } from '../../store/runtime.js'
import { errorOf, unlessAborted } from './calls.js'
import type { Calls } from './calls.js'
import type { Settings } from './options.js'

/** The pause before a stream is opened again, and the longest between two tries. */
const FIRST_PAUSE: Millis = 50
const LONGEST_PAUSE: Millis = 2_000

/** What a stream is about. */
export interface StreamOptions {
  readonly events: boolean
  /** The event to resume after. */
  readonly from: string | undefined
}

/** A stream of notices. It is opened again until it is closed. */
export class NoticeStream {
  readonly #settings: Settings
  readonly #calls: Pick<Calls, 'headers'>
  readonly #events: boolean
  readonly #notify: (notice: Notice) => void
  /** The last event that was received, or the one to resume after. */
  #cursor: string | undefined
  /** Whether it was opened before. */
  #wasOpen = false
  /** Ends the connection. */
  #end: () => void = () => {}
  #stopPause: Stop = () => {}
  #closed = false
  #ready!: Promise<void>
  #settle: () => void = () => {}

  constructor(
    settings: Settings,
    calls: Pick<Calls, 'headers'>,
    { events, from }: StreamOptions,
    notify: (notice: Notice) => void,
  ) {
    this.#settings = settings
    this.#calls = calls
    this.#events = events
    this.#cursor = from
    this.#notify = notify
    this.#await()
    void this.#run()
  }

  /** Resolves when the server is watching, or could not be reached: commits after that are announced, or were `missed`. */
  get ready(): Promise<void> {
    return this.#ready
  }

  close(): void {
    this.#closed = true
    this.#settle()
    this.#stopPause()
    this.#end()
  }

  /** From now on `ready` waits for the stream to be opened. */
  #await(): void {
    this.#ready = new Promise((resolve) => (this.#settle = resolve))
  }

  async #run(): Promise<void> {
    for (let failures = 0; !this.#closed; failures++) {
      let opened = false
      try {
        await this.#read(() => {
          opened = true
          if (this.#wasOpen) this.#resumed()
          this.#wasOpen = true
          this.#settle()
        })
      } catch {
        // It is opened again, whatever ended it: calls report what is wrong with the server.
      }
      if (this.#closed) return
      if (opened) {
        failures = 0
        this.#await()
      } else this.#settle() // commits do not wait for a stream that a server refuses
      const pause = Math.min(FIRST_PAUSE * 2 ** failures, LONGEST_PAUSE)
      await this.#sleep(pause * (0.5 + this.#settings.runtime.random() / 2))
    }
  }

  /** Leases may have been revoked meanwhile, and without a cursor it is not known which events came. */
  #resumed(): void {
    const gap = this.#events && this.#cursor === undefined
    this.#notify({ work: [], due: [], revoked: [], missed: true, events: [], gap })
  }

  #sleep(pause: Millis): Promise<void> {
    return new Promise((resolve) => {
      const stop = this.#settings.runtime.timer(pause, resolve, true)
      this.#stopPause = () => {
        stop()
        resolve()
      }
    })
  }

  /** Reads one connection until it ends. */
  async #read(open: () => void): Promise<void> {
    const { url, fetch, runtime } = this.#settings
    const request = new AbortController()
    let reader: ReadableStreamDefaultReader<Uint8Array> | undefined
    // The fetch of Node now and then misses that a long response was aborted; it does not miss that its body is cancelled.
    const end = (): void => {
      request.abort()
      reader?.cancel().catch(() => {})
    }
    this.#end = end
    let stop: Stop = () => {}
    const alive = (): void => {
      stop()
      stop = runtime.timer(SILENCE, end, true)
    }
    const query = new URLSearchParams()
    if (this.#events) query.set('events', 'true')
    if (this.#cursor !== undefined) query.set('from', this.#cursor)
    alive()
    try {
      const asked = fetch(`${url}${STORE_PATH}/watch?${query.toString()}`, {
        headers: { ...this.#calls.headers, accept: 'text/event-stream' },
        signal: request.signal,
        redirect: 'error',
      })
      const response = await unlessAborted(asked, request.signal)
      if (!response.ok || response.body === null) throw errorOf(response, await response.text())
      const frames = new Frames((event, data) => {
        if (event === 'ready') open()
        else if (event === 'notice') this.#receive(data)
      })
      reader = response.body.getReader() as ReadableStreamDefaultReader<Uint8Array>
      for (;;) {
        const { done, value } = await reader.read()
        if (done || this.#closed) return
        alive()
        frames.write(value)
      }
    } finally {
      stop()
      end()
    }
  }

  #receive(data: string): void {
    const notice = watching.notice.decode(data)
    this.#cursor = notice.events.at(-1)?.cursor ?? this.#cursor
    this.#notify(notice)
  }
}

/** Cuts a stream of server-sent events into its frames. */
class Frames {
  readonly #decoder = new TextDecoder()
  readonly #frame: (event: string, data: string) => void
  /** What was received of the line in progress: kept in parts, because a line may take many chunks. */
  #parts: string[] = []
  #event = 'message'
  #data: string[] = []

  constructor(frame: (event: string, data: string) => void) {
    this.#frame = frame
  }

  write(bytes: Uint8Array): void {
    const text = this.#decoder.decode(bytes, { stream: true })
    let from = 0
    for (let at = text.indexOf('\n'); at !== -1; at = text.indexOf('\n', from)) {
      this.#parts.push(text.slice(from, at))
      from = at + 1
      const line = this.#parts.length === 1 ? this.#parts[0]! : this.#parts.join('')
      this.#parts = []
      this.#line(line.endsWith('\r') ? line.slice(0, -1) : line)
    }
    if (from < text.length) this.#parts.push(text.slice(from))
  }

  #line(line: string): void {
    if (line === '') {
      if (this.#data.length > 0) this.#frame(this.#event, this.#data.join('\n'))
      this.#event = 'message'
      this.#data = []
    } else if (line.startsWith('data:')) this.#data.push(line.slice(line[5] === ' ' ? 6 : 5))
    else if (line.startsWith('event:')) this.#event = line.slice(6).trim()
  }
}

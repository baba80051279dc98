// stores/postgres/wire.ts: the one connection on which this process hears of others' commits; rebuilt when it is lost.
import type { Millis } from '../../job/job.js'
import type { Runtime, Stop } from '../../store/runtime.js'
import type { Call, Driver, Listening } from './connection.js'

/** How often to find out whether anybody is still there. */
const BEAT: Millis = 5_000

/** How long to wait for one's own word to come back, before it is believed that none ever does: behind some poolers. */
const ECHO: Millis = 2_000

/** How long to wait before the next connection is tried, at first and at most. */
const SOON: Millis = 100
const LATE: Millis = 5_000

/** How often to look where nothing is heard. */
const POLL: Millis = 1_000

/** What the wire tells the store. */
export interface WireEvents {
  /** Another process has told something. */
  heard(payload: string): void
  /** Something may have been told that was not heard. */
  look(): void
  /** The same, for the last time: from now on everything is heard. */
  missed(): void
}

/** Listens for as long as it is open. */
export class Wire {
  readonly #driver: Driver
  readonly #channel: string
  readonly #runtime: Runtime
  readonly #events: WireEvents
  readonly #echo: string
  /** Resolves when it listens, or has found that it cannot for now. */
  readonly ready: Promise<void>
  #listening: Listening | undefined
  #closed = false
  #tries = 0
  #stopTimer: Stop | undefined
  #stopPolling: Stop | undefined
  #stopEcho: Stop | undefined

  constructor(driver: Driver, channel: string, runtime: Runtime, events: WireEvents) {
    this.#driver = driver
    this.#channel = channel
    this.#runtime = runtime
    this.#events = events
    this.#echo = `echo ${runtime.id()}`
    this.#poll()
    this.ready = this.#connect()
  }

  /** Stops listening. */
  async close(): Promise<void> {
    this.#closed = true
    this.#stopTimer?.()
    this.#stopPolling?.()
    this.#stopEcho?.()
    await this.#listening?.close()
  }

  async #connect(): Promise<void> {
    try {
      const listening = await this.#driver.listen(this.#channel, {
        heard: (payload) => this.#hear(payload),
        lost: () => this.#lose(),
      })
      if (this.#closed) return await listening.close()
      this.#listening = listening
      this.#tries = 0
      await this.#beat()
    } catch {
      this.#lose()
    }
  }

  /** Says something, to hear it oneself: so that a wire that carries nothing is noticed, whatever the reason. */
  async #beat(): Promise<void> {
    const listening = this.#listening
    if (listening === undefined || this.#closed) return
    this.#stopEcho?.()
    this.#stopEcho = this.#runtime.timer(ECHO, () => this.#poll())
    const call: Call = { name: '', text: 'select pg_notify($1, $2)::text', values: [this.#channel, this.#echo] }
    try {
      await listening.call(call)
    } catch {
      return // it is lost, or the server said no: it is tried again
    } finally {
      if (!this.#closed && this.#listening === listening) {
        this.#stopTimer?.()
        this.#stopTimer = this.#runtime.timer(BEAT, () => void this.#beat())
      }
    }
  }

  #hear(payload: string): void {
    if (payload.startsWith('echo ')) {
      if (payload !== this.#echo) return
      this.#stopEcho?.()
      if (this.#stopPolling !== undefined) {
        this.#stopPolling()
        this.#stopPolling = undefined
        this.#events.missed() // whatever was told between the last look and now
      }
      return
    }
    this.#events.heard(payload)
  }

  #lose(): void {
    if (this.#closed) return
    this.#listening = undefined
    this.#stopTimer?.()
    this.#stopEcho?.()
    this.#poll()
    const delay = Math.min(LATE, SOON * 2 ** this.#tries++) * (0.5 + this.#runtime.random() / 2)
    this.#stopTimer = this.#runtime.timer(delay, () => void this.#connect())
  }

  /** Looks now and then, as long as nothing can be heard. */
  #poll(): void {
    if (this.#stopPolling !== undefined || this.#closed) return
    const again = (): void => {
      this.#stopPolling = this.#runtime.timer(POLL, () => {
        this.#events.look()
        again()
      })
    }
    again()
  }
}

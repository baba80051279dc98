// stores/postgres/events/listen-connection.ts: the connection that receives notifications of commits; reconnects when it is lost.
import type { Millis } from '../../../job/job.js'
import type { Runtime, Stop } from '../../../store/runtime.js'
import type { Call, Driver, ListeningConnection } from '../drivers/driver.js'

/** How often to check that notifications still arrive. */
const CHECK_EVERY: Millis = 5_000

/** How long to wait for an echo before assuming that no notifications arrive, as behind some poolers. */
const ECHO_TIMEOUT: Millis = 2_000

/** Checks that the server still answers on this connection. */
const PROBE: Call = { name: '', text: "select 'listening'", values: [] }

/** The first and the longest delay before the next attempt to connect. */
const FIRST_RETRY: Millis = 100
const MAX_RETRY: Millis = 5_000

/** How often to poll while notifications may not arrive. */
const POLL_EVERY: Millis = 1_000

/** What the connection reports to the store. */
export interface ListenEvents {
  /** A notification arrived. */
  notified(payload: string): void
  /** Notifications may have been missed. */
  look(): void
  /** The same, for the last time: from now on all notifications arrive. */
  missed(): void
}

/** Listens until it is closed. */
export class ListenConnection {
  readonly #driver: Driver
  readonly #channel: string
  readonly #runtime: Runtime
  readonly #events: ListenEvents
  /** Resolves when it listens, or when the first attempt to connect has failed. */
  readonly ready: Promise<void>
  #listening: ListeningConnection | undefined
  #closed = false
  #tries = 0
  /** Whether notifications may have been missed since the last echo arrived. */
  #mayHaveMissed = false
  /** The echo that is awaited. */
  #echo: { readonly payload: string; readonly settle: (arrived: boolean) => void } | undefined
  /** The last call that sends an echo, on another connection; never rejects. */
  #sending: Promise<unknown> = Promise.resolve()
  #stopTimer: Stop | undefined
  #stopPolling: Stop | undefined

  constructor(driver: Driver, channel: string, runtime: Runtime, events: ListenEvents) {
    this.#driver = driver
    this.#channel = channel
    this.#runtime = runtime
    this.#events = events
    this.#poll()
    this.ready = this.#connect()
  }

  /** Stops listening. */
  async close(): Promise<void> {
    this.#closed = true
    this.#stopTimer?.()
    this.#stopPolling?.()
    this.#echo?.settle(false)
    await Promise.all([this.#listening?.close(), this.#sending])
  }

  async #connect(): Promise<void> {
    try {
      const listening = await this.#driver.listen(this.#channel, {
        notified: (payload) => this.#receive(payload),
        lost: () => this.#lose(),
      })
      if (this.#closed) return await listening.close()
      this.#listening = listening
      this.#tries = 0
      void this.#check(listening) // not awaited: callers that wait for `ready` may occupy all connections of a user's pool
    } catch {
      this.#lose()
    }
  }

  /**
   * Sends an echo through another connection and waits for it on this one, to detect a connection that receives nothing,
   * whatever the reason. An echo sent on this connection could arrive where nothing else does, since some poolers forward
   * notifications only while a query runs. For the same reason no query runs here while an echo is awaited.
   */
  async #check(listening: ListeningConnection): Promise<void> {
    const gone = (): boolean => this.#closed || this.#listening !== listening
    if (gone()) return
    const payload = `echo ${this.#runtime.id()}`
    const echo = this.#awaitEcho(payload)
    const call: Call = { name: '', text: 'select pg_notify($1, $2)::text', values: [this.#channel, payload] }
    this.#sending = this.#driver.call(call).catch(() => {}) // then the echo does not arrive, either
    const arrived = await echo
    if (gone()) return
    if (arrived) this.#trust()
    else {
      this.#mayHaveMissed = true
      this.#poll()
      await listening.call(PROBE).catch(() => {}) // a broken connection reports `lost`; an error of the server does not matter
    }
    await this.#sending // so that at most one call waits for a connection of the pool; the call has a timeout
    if (gone()) return
    this.#stopTimer?.()
    this.#stopTimer = this.#runtime.timer(CHECK_EVERY, () => void this.#check(listening))
  }

  /** Whether an echo arrives in time. */
  #awaitEcho(payload: string): Promise<boolean> {
    return new Promise((resolve) => {
      const stop = this.#runtime.timer(ECHO_TIMEOUT, () => this.#echo?.settle(false))
      const settle = (arrived: boolean): void => {
        stop()
        this.#echo = undefined
        resolve(arrived)
      }
      this.#echo = { payload, settle }
    })
  }

  #receive(payload: string): void {
    if (!payload.startsWith('echo ')) this.#events.notified(payload)
    else if (payload === this.#echo?.payload) this.#echo.settle(true)
  }

  /** Stops polling: notifications arrive. */
  #trust(): void {
    this.#stopPolling?.()
    this.#stopPolling = undefined
    if (!this.#mayHaveMissed) return
    this.#mayHaveMissed = false
    this.#events.missed() // for commits between the last poll and now
  }

  #lose(): void {
    if (this.#closed) return
    this.#listening = undefined
    this.#mayHaveMissed = true
    this.#stopTimer?.()
    this.#echo?.settle(false)
    this.#poll()
    const delay = Math.min(MAX_RETRY, FIRST_RETRY * 2 ** this.#tries++) * (0.5 + this.#runtime.random() / 2)
    this.#stopTimer = this.#runtime.timer(delay, () => void this.#connect())
  }

  /** Polls until notifications arrive. */
  #poll(): void {
    if (this.#stopPolling !== undefined || this.#closed) return
    const again = (): void => {
      this.#stopPolling = this.#runtime.timer(POLL_EVERY, () => {
        this.#events.look()
        again()
      })
    }
    again()
  }
}

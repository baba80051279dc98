// stores/postgres/listener.ts: the one connection on which this process hears of others' commits; rebuilt when it is lost.
import type { Millis } from '../../job/job.js'
import type { Runtime, Stop } from '../../store/runtime.js'
import type { Call, Driver, Listening } from './drivers/driver.js'

/** How often to find out whether anything is still heard. */
const BEAT: Millis = 5_000

/** How long to wait for one's own word to come back, before it is believed that none ever does: behind some poolers. */
const ECHO: Millis = 2_000

/** Finds out whether anybody is still there. */
const PROBE: Call = { name: '', text: "select 'listening'", values: [] }

/** How long to wait before the next connection is tried, at first and at most. */
const SOON: Millis = 100
const LATE: Millis = 5_000

/** How often to look where nothing is heard. */
const POLL: Millis = 1_000

/** What the wire tells the store. */
export interface ListenEvents {
  /** Another process has told something. */
  heard(payload: string): void
  /** Something may have been told that was not heard. */
  look(): void
  /** The same, for the last time: from now on everything is heard. */
  missed(): void
}

/** Listens for as long as it is open. */
export class ListenConnection {
  readonly #driver: Driver
  readonly #channel: string
  readonly #runtime: Runtime
  readonly #events: ListenEvents
  /** Resolves when it listens, or has found that it cannot for now. */
  readonly ready: Promise<void>
  #listening: Listening | undefined
  #closed = false
  #tries = 0
  /** Whether something may have been told that was not heard, since it began. */
  #doubt = false
  /** The word that should come back just now, and whom to tell whether it has. */
  #echo: { readonly word: string; readonly settle: (heard: boolean) => void } | undefined
  /** The last word, on its way through another connection; never rejects. */
  #said: Promise<unknown> = Promise.resolve()
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
    await Promise.all([this.#listening?.close(), this.#said])
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
      void this.#beat(listening) // not waited for: all connections of a user's pool may be taken, by who waits for this one
    } catch {
      this.#lose()
    }
  }

  /**
   * Says something through another connection, to hear it on this one: so that a wire that carries nothing is noticed,
   * whatever the reason. Said on this one it might come back where nothing else does, as a pooler passes on what its
   * backend tells while something is asked, and only then. So nothing is asked here while a word is waited for.
   */
  async #beat(listening: Listening): Promise<void> {
    const gone = (): boolean => this.#closed || this.#listening !== listening
    if (gone()) return
    const word = `echo ${this.#runtime.id()}`
    const echo = this.#await(word)
    const call: Call = { name: '', text: 'select pg_notify($1, $2)::text', values: [this.#channel, word] }
    this.#said = this.#driver.call(call).catch(() => {}) // then it does not come back, either
    const heard = await echo
    if (gone()) return
    if (heard) this.#trust()
    else {
      this.#doubt = true
      this.#poll()
      await listening.call(PROBE).catch(() => {}) // it is lost by that, or the server said no
    }
    await this.#said // it has an end, and so no more than one waits for a connection
    if (gone()) return
    this.#stopTimer?.()
    this.#stopTimer = this.#runtime.timer(BEAT, () => void this.#beat(listening))
  }

  /** Whether a word comes back in time. */
  #await(word: string): Promise<boolean> {
    return new Promise((resolve) => {
      const stop = this.#runtime.timer(ECHO, () => this.#echo?.settle(false))
      const settle = (heard: boolean): void => {
        stop()
        this.#echo = undefined
        resolve(heard)
      }
      this.#echo = { word, settle }
    })
  }

  #hear(payload: string): void {
    if (!payload.startsWith('echo ')) this.#events.heard(payload)
    else if (payload === this.#echo?.word) this.#echo.settle(true)
  }

  /** From now on everything is heard. */
  #trust(): void {
    this.#stopPolling?.()
    this.#stopPolling = undefined
    if (!this.#doubt) return
    this.#doubt = false
    this.#events.missed() // whatever was told between the last look and now
  }

  #lose(): void {
    if (this.#closed) return
    this.#listening = undefined
    this.#doubt = true
    this.#stopTimer?.()
    this.#echo?.settle(false)
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

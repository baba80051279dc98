// worker/intake.ts: asks for jobs: one ask for all free slots, when there is reason to think that there are any.
import type { JobRecord, Millis } from '../job/job.js'
import { backoffDelay } from '../job/retry.js'
import type { Connection } from '../store/connection.js'
import type { Stop } from '../store/runtime.js'
import type { Settings } from './options.js'
import { Pace } from './slots.js'
import type { Slots } from './slots.js'

/** What the intake needs of its worker. */
export interface IntakeHost {
  readonly id: string
  readonly queues: readonly string[]
  readonly connection: Connection
  readonly settings: Settings
  readonly slots: Slots
  /** Whether what the last jobs came to is still to be written. */
  behind(): boolean
  /** Jobs were claimed; `asked` is when, by this process's clock. */
  claimed(jobs: readonly JobRecord[], asked: Millis): void
  /** The store failed. */
  failed(error: unknown): void
}

/** Woken by a push, by a slot that ended, or by the poll under them. */
export class Intake {
  readonly #host: IntakeHost
  readonly pace: Pace
  #open = false
  #asking: Promise<void> | undefined
  /** Something happened while we asked: ask again. */
  #again = false
  /** The last ask came back short, and nothing was heard since: asking again would be for nothing. */
  #dry = false
  /** The last ask was not met in full. */
  #short = false
  #failures = 0
  #retry: Stop | undefined
  #poll: Stop | undefined

  constructor(host: IntakeHost) {
    this.#host = host
    this.pace = new Pace(host.connection.runtime.elapsed)
  }

  /** Begins to ask. */
  start(): void {
    if (this.#open) return
    this.#open = true
    this.#dry = false
    this.#armPoll()
    this.wake()
  }

  /** Stops asking; resolves when no answer is outstanding any more. */
  async stop(): Promise<void> {
    this.#open = false
    this.#poll?.()
    this.#retry?.()
    this.#poll = this.#retry = undefined
    await this.#asking
  }

  /** There may be new work. */
  wake(): void {
    this.#dry = false
    this.slotFree()
  }

  /** There may be room for more. */
  slotFree(): void {
    if (!this.#open || this.#retry !== undefined) return
    if (this.#asking !== undefined) {
      this.#again = true
      return
    }
    if (this.#dry || this.#host.behind()) return
    const { slots } = this.#host
    const want = slots.free
    const ahead = this.#ahead()
    if (want + ahead === 0) return
    this.#asking = this.#ask(want, ahead).finally(() => {
      this.#asking = undefined
      if (!this.#again) return
      this.#again = false
      this.slotFree()
    })
  }

  /** Asked for in portions of at least half of what is to be held, so that asks stay few. */
  #ahead(): number {
    const { slots, connection } = this.#host
    const { portion = Infinity, parallel } = connection.store.can
    const { ahead } = slots
    // Where asks go beside the rest, there is another portion under way at any moment.
    const target = Math.min(this.pace.target(connection.asks.trip), parallel === true ? 2 * portion : portion)
    // Others' free slots come first: nothing is leased ahead once the queue has run short.
    return this.#short || ahead > target / 2 ? 0 : Math.min(target - ahead, portion)
  }

  async #ask(want: number, ahead: number): Promise<void> {
    const { connection, id, queues, settings, claimed, failed } = this.#host
    const asked = connection.runtime.elapsed()
    let jobs: readonly JobRecord[]
    try {
      jobs = await connection.asks.ask({ worker: id, queues, handles: settings.handles, want, ahead })
      this.#failures = 0
      this.#short = jobs.length < want + ahead
      this.#dry = jobs.length < want && !this.#again
    } catch (error) {
      this.#later(backoffDelay(settings.reconnect, ++this.#failures, connection.runtime.random))
      return failed(error)
    }
    claimed(jobs, asked)
  }

  #later(delay: Millis): void {
    if (!this.#open) return
    this.#retry = this.#host.connection.runtime.timer(delay, () => {
      this.#retry = undefined
      this.wake()
    })
  }

  #armPoll(): void {
    const { connection, settings } = this.#host
    this.#poll = connection.runtime.timer(settings.pollEvery, () => {
      this.#armPoll()
      this.wake()
    })
  }
}

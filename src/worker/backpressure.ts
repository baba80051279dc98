// worker/backpressure.ts: counts what the store has not acknowledged, and stops claims while that is too much.
import type { Store } from '../store/store.js'

/**
 * Stop claiming while more settlements than this are unacknowledged. The bound is higher where a batch holds more: one
 * batch, or two where the store commits claims in parallel.
 */
const MAX_UNACKNOWLEDGED = 500

/** Stop claiming while unacknowledged settlements and notes take more bytes than this. */
const MAX_UNACKNOWLEDGED_BYTES = 64 * 2 ** 20

/** The unacknowledged settlements and notes of one worker. */
export class Backpressure {
  readonly #limit: number
  #open = 0
  #bytes = 0
  #idle: (() => void)[] = []
  /** Called once when there is no backpressure any more. */
  #resume: (() => void) | undefined

  constructor({ portion = 0, parallel }: Store['can']) {
    this.#limit = Math.max(MAX_UNACKNOWLEDGED, parallel === true ? 2 * portion : portion)
  }

  /** Whether too much is unacknowledged to claim further jobs. */
  get isOn(): boolean {
    return this.#open > this.#limit || this.#bytes > MAX_UNACKNOWLEDGED_BYTES
  }

  /** Whether settlements are unacknowledged. */
  get hasOpen(): boolean {
    return this.#open > 0
  }

  /** Calls back, once, when there is no backpressure any more. */
  whenOver(resume: () => void): void {
    this.#resume = resume
  }

  /** A settlement is about to be sent. */
  opened(): void {
    this.#open++
  }

  /** A settlement was acknowledged, or is not sent any more. `bytes` is its size. */
  closed(bytes: number): void {
    this.#open--
    this.count(-bytes)
    if (this.#open === 0) for (const done of this.#idle.splice(0)) done()
  }

  /** Counts bytes that wait for the store, or (negative) that no longer do. */
  count(bytes: number): void {
    this.#bytes += bytes
    if (this.#resume === undefined || this.isOn) return
    const resume = this.#resume
    this.#resume = undefined
    resume()
  }

  /** Resolves when all settlements that were sent are acknowledged or given up. */
  idle(): Promise<void> {
    return this.#open === 0 ? Promise.resolve() : new Promise((resolve) => this.#idle.push(resolve))
  }
}

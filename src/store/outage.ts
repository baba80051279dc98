// store/outage.ts: tells that a store has failed, once for all that is sent again until it answers.
import { MillraceError } from '../job/errors.js'
import { describeError } from '../job/failure.js'
import type { Millis } from '../job/job.js'
import type { Stop } from './runtime.js'

/** Whether a store answers, as far as its lanes have found out. */
export class Outage {
  readonly #store: { readonly name: string }
  readonly #listeners = new Set<(error: MillraceError) => void>()
  /** Since when it fails, by this process's clock. */
  #since: Millis | undefined

  constructor(store: { readonly name: string }) {
    this.#store = store
  }

  /** Hears when one begins. */
  on(listener: (error: MillraceError) => void): Stop {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  /** A batch got no answer, and will be sent again. */
  failed(error: unknown, now: Millis): void {
    if (this.#since !== undefined) return
    this.#since = now
    const told = new MillraceError(
      'STORE_UNAVAILABLE',
      `The ${this.#store.name} store failed (${describeError(error).message}). What was sent is sent again, and is applied once.`,
      { cause: error },
    )
    for (const listener of [...this.#listeners]) listener(told)
  }

  /** A batch has its answer; one that was sent before the store failed says nothing about now. */
  answered(sent: Millis): void {
    if (this.#since !== undefined && sent >= this.#since) this.#since = undefined
  }
}

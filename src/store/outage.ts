// store/outage.ts: reports that a store has failed, once for all batches that are sent again until it answers.
import { MillraceError } from '../job/errors/errors.js'
import { describeError } from '../job/errors/failure.js'
import type { Millis } from '../job/job.js'
import type { Stop } from './runtime.js'

/** Whether a store answers, as far as its batchers know. */
export class Outage {
  readonly #store: { readonly name: string }
  readonly #listeners = new Set<(error: MillraceError) => void>()
  /** Since when the store fails, by this process's clock. */
  #since: Millis | undefined

  constructor(store: { readonly name: string }) {
    this.#store = store
  }

  /** Calls the listener when an outage begins, and when jobs could not be read. */
  on(listener: (error: MillraceError) => void): Stop {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  /** Records that a batch got no answer and will be sent again. */
  failed(error: unknown, now: Millis): void {
    if (this.#since !== undefined) return
    this.#since = now
    this.#report(
      `The ${this.#store.name} store failed (${describeError(error).message}). What was sent is sent again, and is applied once.`,
      error,
    )
  }

  /** Reports that jobs that callers wait for could not be read, and will be read again. */
  unread(error: unknown): void {
    this.#report(
      `The ${this.#store.name} store failed to read jobs (${describeError(error).message}). They are read again.`,
      error,
    )
  }

  /** Records an answer. The answer to a batch sent before the store failed does not end the outage. */
  answered(sent: Millis): void {
    if (this.#since !== undefined && sent >= this.#since) this.#since = undefined
  }

  #report(message: string, cause: unknown): void {
    const error = new MillraceError('STORE_UNAVAILABLE', message, { cause })
    for (const listener of [...this.#listeners]) listener(error)
  }
}

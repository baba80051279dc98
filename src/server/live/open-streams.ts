// server/live/open-streams.ts: how many streams of events each caller has open.
import { MillraceError } from '../../job/errors/errors.js'

/** Counts the open streams of each caller. */
export class OpenStreams {
  readonly #most: number
  readonly #open = new Map<string, number>()

  constructor(most: number) {
    this.#most = most
  }

  /** Opens one; returns a function that closes it. Throws RATE_LIMITED where the caller has too many. */
  open(caller: string): () => void {
    const count = this.#open.get(caller) ?? 0
    if (count >= this.#most) {
      const message = `'${caller}' has ${count} streams open, and ${this.#most} is the most. Close one first.`
      throw new MillraceError('RATE_LIMITED', message, { details: { retryAfter: 1_000 } })
    }
    this.#open.set(caller, count + 1)
    let closed = false
    return () => {
      if (closed) return
      closed = true
      const left = this.#open.get(caller)! - 1
      if (left === 0) this.#open.delete(caller)
      else this.#open.set(caller, left)
    }
  }
}

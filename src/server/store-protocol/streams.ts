// server/store-protocol/streams.ts: how many streams each token has open.
import { MillraceError } from '../../job/errors/errors.js'

/** Counts the open streams of each caller. */
export class Streams {
  readonly #most: number
  readonly #open = new Map<string, number>()

  constructor(most: number) {
    this.#most = most
  }

  /** Counts one more; the function returned is called when it has ended. Throws SERVER_BUSY where there are too many. */
  begin(caller: string): () => void {
    const open = this.#open.get(caller) ?? 0
    if (open >= this.#most) {
      throw new MillraceError('SERVER_BUSY', `'${caller}' has ${open} streams open, and ${this.#most} is the most.`)
    }
    this.#open.set(caller, open + 1)
    return () => {
      const left = this.#open.get(caller)! - 1
      if (left === 0) this.#open.delete(caller)
      else this.#open.set(caller, left)
    }
  }
}

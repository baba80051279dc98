// server/working/claim-answers.ts: the answers to claims with an `Idempotency-Key`, for a minute: the jobs of an answer that
// was lost on its way are leased, and nobody would know of them.
import type { Millis } from '../../job/job.js'
import type { Runtime } from '../../store/runtime.js'

/** How long an answer is kept. */
const KEPT: Millis = 60_000
/** How many answers are kept, and how many characters of them. */
const MAX_ANSWERS = 1_000
const MAX_CHARACTERS = 16_777_216

interface Kept {
  readonly text: string
  readonly until: Millis
}

/** The answers of a server to claims. */
export class ClaimAnswers {
  readonly #runtime: Pick<Runtime, 'elapsed'>
  /** The oldest first. */
  readonly #kept = new Map<string, Kept>()
  readonly #working = new Map<string, Promise<string>>()
  #characters = 0

  constructor(runtime: Pick<Runtime, 'elapsed'>) {
    this.#runtime = runtime
  }

  /**
   * The answer that was given under the key before, or the one that `answer` makes. One that `keep` does not want, as
   * an empty one, is made again for the next call.
   */
  async once(key: string, answer: () => Promise<{ readonly text: string; readonly keep: boolean }>): Promise<string> {
    this.#expire()
    const kept = this.#kept.get(key)
    if (kept !== undefined) return kept.text
    const working = this.#working.get(key)
    if (working !== undefined) return working
    const made = answer().then(({ text, keep }) => {
      if (keep) this.#keep(key, text)
      return text
    })
    this.#working.set(key, made)
    try {
      return await made
    } finally {
      this.#working.delete(key)
    }
  }

  #keep(key: string, text: string): void {
    this.#kept.set(key, { text, until: this.#runtime.elapsed() + KEPT })
    this.#characters += text.length
    for (const first of this.#kept.keys()) {
      if (this.#kept.size <= MAX_ANSWERS && this.#characters <= MAX_CHARACTERS) break
      this.#drop(first)
    }
  }

  #expire(): void {
    const now = this.#runtime.elapsed()
    for (const [key, { until }] of this.#kept) {
      if (until > now) break
      this.#drop(key)
    }
  }

  #drop(key: string): void {
    this.#characters -= this.#kept.get(key)!.text.length
    this.#kept.delete(key)
  }
}

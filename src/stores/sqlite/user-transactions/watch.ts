// stores/sqlite/user-transactions/watch.ts: waits for transactions of the user's to end, which nobody tells, so that others are woken at once.
import type { Millis } from '../../../job/job.js'
import type { Runtime, Stop } from '../../../store/runtime.js'

/** How often to look, at first and when a transaction has been open for long. */
const FIRST: Millis = 1
const LATER: Millis = 10

/** How long to look at those that do not tell whether they are over; whoever listens looks every second in any case. */
const PATIENCE: Millis = 10_000

/** A transaction that is looked at. */
export interface Watched {
  /** Whether it is over; undefined where nobody can tell. */
  readonly over: boolean | undefined
}

/** Looks after open transactions. */
export class TransactionWatch {
  readonly #runtime: Runtime
  /** Told after each look, and whether one of them has ended. */
  readonly #look: (ended: boolean) => void
  readonly #since = new Map<Watched, Millis>()
  #stop: Stop | undefined
  #deferred = false
  #closed = false

  constructor(runtime: Runtime, look: (ended: boolean) => void) {
    this.#runtime = runtime
    this.#look = look
  }

  /** Looks after a transaction until it is over. */
  keep(one: Watched): void {
    if (this.#closed) return
    if (!this.#since.has(one)) this.#since.set(one, this.#runtime.elapsed())
    if (this.#deferred) return
    // Most are over when the code that runs now is.
    this.#deferred = true
    this.#runtime.defer(() => {
      this.#deferred = false
      this.#stop?.()
      this.#round()
    })
  }

  close(): void {
    this.#closed = true
    this.#stop?.()
    this.#since.clear()
  }

  #round(): void {
    if (this.#closed) return
    const now = this.#runtime.elapsed()
    let ended = false
    let youngest = Infinity
    for (const [one, since] of this.#since) {
      const over = one.over ?? (now - since > PATIENCE || undefined)
      if (over === true) {
        this.#since.delete(one)
        ended = true
      } else youngest = Math.min(youngest, now - since)
    }
    this.#look(ended)
    if (this.#since.size === 0) return
    this.#stop = this.#runtime.timer(Math.min(LATER, FIRST + youngest / 50), () => this.#round())
  }
}

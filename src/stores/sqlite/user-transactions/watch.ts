// stores/sqlite/user-transactions/watch.ts: polls for the end of user transactions, to wake other processes at once.
import type { Millis } from '../../../job/job.js'
import type { Runtime, Stop } from '../../../store/runtime.js'

/** How often to poll: at first, and when a transaction has been open for long. In milliseconds. */
const FIRST_INTERVAL: Millis = 1
const LONGEST_INTERVAL: Millis = 10

/** How long to poll transactions that do not report their end, in milliseconds; listeners poll every second in any case. */
const GIVE_UP_AFTER: Millis = 10_000

/** A transaction to poll. */
export interface WatchedTransaction {
  /** Whether it has ended; undefined if that cannot be detected. */
  readonly over: boolean | undefined
}

/** Polls open transactions. */
export class TransactionWatch {
  readonly #runtime: Runtime
  /** Called after each poll, with whether a transaction has ended. */
  readonly #onCheck: (ended: boolean) => void
  readonly #since = new Map<WatchedTransaction, Millis>()
  #stop: Stop | undefined
  #deferred = false
  #closed = false

  constructor(runtime: Runtime, onCheck: (ended: boolean) => void) {
    this.#runtime = runtime
    this.#onCheck = onCheck
  }

  /** Polls a transaction until it has ended. */
  add(transaction: WatchedTransaction): void {
    if (this.#closed) return
    if (!this.#since.has(transaction)) this.#since.set(transaction, this.#runtime.elapsed())
    if (this.#deferred) return
    // Most transactions end in the current turn of the event loop.
    this.#deferred = true
    this.#runtime.defer(() => {
      this.#deferred = false
      this.#stop?.()
      this.#check()
    })
  }

  close(): void {
    this.#closed = true
    this.#stop?.()
    this.#since.clear()
  }

  #check(): void {
    if (this.#closed) return
    const now = this.#runtime.elapsed()
    let ended = false
    let youngest = Infinity
    for (const [transaction, since] of this.#since) {
      const over = transaction.over ?? (now - since > GIVE_UP_AFTER || undefined)
      if (over === true) {
        this.#since.delete(transaction)
        ended = true
      } else youngest = Math.min(youngest, now - since)
    }
    this.#onCheck(ended)
    if (this.#since.size === 0) return
    this.#stop = this.#runtime.timer(Math.min(LONGEST_INTERVAL, FIRST_INTERVAL + youngest / 50), () => this.#check())
  }
}

// stores/postgres/drivers/transaction-slots.ts: limits how many connections of a pool may be in transactions at once.

/** Connections that transactions leave free: for a batch, for claims, for renewals. */
const KEPT_FREE = 3

/** Counts open transactions, and queues the others, so that batches and renewals find a free connection. */
export class TransactionSlots {
  readonly #limit: number
  #open = 0
  readonly #waiting: (() => void)[] = []

  /** `max`: the number of connections of the pool. */
  constructor(max: number) {
    this.#limit = Math.max(1, max - KEPT_FREE)
  }

  /** Runs work as soon as there is a slot for it. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#open >= this.#limit) await new Promise<void>((resolve) => this.#waiting.push(resolve))
    else this.#open++
    try {
      return await work()
    } finally {
      const next = this.#waiting.shift()
      if (next === undefined) this.#open--
      else next()
    }
  }
}

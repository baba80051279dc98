// stores/postgres/drivers/transaction-slots.ts: how many connections of a pool may be in transactions at once.

/** Connections that transactions leave to the rest: for a batch, for asks, for renewals. */
const KEPT_FREE = 3

/** Transactions that are open, and those that wait for one to end: batches and renewals keep connections for themselves. */
export class TransactionSlots {
  readonly #most: number
  #open = 0
  readonly #turns: (() => void)[] = []

  /** `max`: the connections of the pool. */
  constructor(max: number) {
    this.#most = Math.max(1, max - KEPT_FREE)
  }

  /** Runs work when there is a connection for it. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#open >= this.#most) await new Promise<void>((go) => this.#turns.push(go))
    else this.#open++
    try {
      return await work()
    } finally {
      const next = this.#turns.shift()
      if (next === undefined) this.#open--
      else next()
    }
  }
}

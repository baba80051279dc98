// upkeep/store-clock.ts: the store's clock as this process knows it.
import type { Millis, Time } from '../job/job.js'
import type { Runtime } from '../store/runtime.js'

/** Computes the store's time from the clock of this process and the difference at the store's last answer. */
export class StoreClock {
  readonly #runtime: Runtime
  /** The store's clock minus this process's. */
  #skew: Millis = 0

  constructor(runtime: Runtime) {
    this.#runtime = runtime
  }

  /** The store has just answered with its time. */
  set(now: Time): void {
    this.#skew = now - this.#runtime.now()
  }

  /** The store's time, about. */
  now(): Time {
    return this.#runtime.now() + this.#skew
  }
}

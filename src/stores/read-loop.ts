// stores/read-loop.ts: reads that are made again where they fail, and the waits between, which end at once when a store closes.
import type { Millis } from '../job/job.js'
import type { Runtime } from '../store/runtime.js'

/** How long to wait before a failed read is tried again, at first and at most. */
const SOON: Millis = 50
const LATE: Millis = 5_000

/** The waits of one store. */
export class Waits {
  readonly #runtime: Pick<Runtime, 'timer' | 'defer' | 'random'>
  readonly #ends = new Set<() => void>()
  #closed = false

  constructor(runtime: Pick<Runtime, 'timer' | 'defer' | 'random'>) {
    this.#runtime = runtime
  }

  get closed(): boolean {
    return this.#closed
  }

  /** Waits. Resolves at once where the store is closed, or as soon as it closes. */
  pause(delay: Millis): Promise<void> {
    if (this.#closed) return Promise.resolve()
    return new Promise((resolve) => {
      const end = (): void => {
        this.#ends.delete(end)
        stop()
        resolve()
      }
      this.#ends.add(end)
      const stop = this.#runtime.timer(delay, end)
    })
  }

  /** Waits longer after each failure in a row, up to a bound. */
  backoff(failures: number): Promise<void> {
    return this.pause(Math.min(LATE, SOON * 2 ** Math.min(failures, 10)) * (0.5 + this.#runtime.random() / 2))
  }

  /** Waits for the next turn of the event loop. */
  turn(): Promise<void> {
    return new Promise((resolve) => this.#runtime.defer(resolve))
  }

  /** Ends all waits, and every later one at once. */
  close(): void {
    this.#closed = true
    for (const end of [...this.#ends]) end()
  }
}

/** Reads again and again as long as there is more: one read at a time, and one that fails is made again. */
export class ReadLoop {
  readonly #read: () => Promise<boolean>
  readonly #pauses: Waits
  #running = false
  #wanted = false

  /** `read` answers whether there is more. */
  constructor(read: () => Promise<boolean>, pauses: Waits) {
    this.#read = read
    this.#pauses = pauses
  }

  /** There is something to read. A read under way may not see it, so another follows. */
  want(): void {
    this.#wanted = true
    if (!this.#running) void this.#run()
  }

  async #run(): Promise<void> {
    this.#running = true
    for (let failures = 0; this.#wanted && !this.#pauses.closed;) {
      this.#wanted = false
      try {
        if (await this.#read()) this.#wanted = true
        failures = 0
      } catch {
        this.#wanted = true
        await this.#pauses.backoff(failures++)
      }
    }
    this.#running = false
  }
}

// stores/read-loop.ts: retries failed reads with backoff. Closing the store ends every wait at once.
import type { Millis } from '../job/job.js'
import type { Runtime } from '../store/runtime.js'

/** How long to wait before a failed read is retried: first, and at most. */
const FIRST_BACKOFF: Millis = 50
const LONGEST_BACKOFF: Millis = 5_000

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

  /** Waits. Resolves at once if the store is closed, or as soon as it closes. */
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

  /** Waits longer after each consecutive failure, up to a limit. */
  backoff(failures: number): Promise<void> {
    return this.pause(
      Math.min(LONGEST_BACKOFF, FIRST_BACKOFF * 2 ** Math.min(failures, 10)) * (0.5 + this.#runtime.random() / 2),
    )
  }

  /** Waits for the next turn of the event loop. */
  nextLoopTurn(): Promise<void> {
    return new Promise((resolve) => this.#runtime.defer(resolve))
  }

  /** Ends all waits; later ones end at once. */
  close(): void {
    this.#closed = true
    for (const end of [...this.#ends]) end()
  }
}

/** Reads until there is no more: one read at a time, and a read that fails is retried. */
export class ReadLoop {
  readonly #read: () => Promise<boolean>
  readonly #waits: Waits
  #running = false
  #requested = false

  /** `read` returns whether there is more. */
  constructor(read: () => Promise<boolean>, waits: Waits) {
    this.#read = read
    this.#waits = waits
  }

  /** Requests a read. A read that is running may not see the new data, so another follows it. */
  want(): void {
    this.#requested = true
    if (!this.#running) void this.#run()
  }

  async #run(): Promise<void> {
    this.#running = true
    for (let failures = 0; this.#requested && !this.#waits.closed;) {
      this.#requested = false
      try {
        if (await this.#read()) this.#requested = true
        failures = 0
      } catch {
        this.#requested = true
        await this.#waits.backoff(failures++)
      }
    }
    this.#running = false
  }
}

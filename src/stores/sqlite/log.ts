// stores/sqlite/log.ts: moves the write-ahead log into the database now and then, so that no commit is held up by it.
import type { Runtime } from '../../store/runtime.js'
import type { Statements } from './statements.js'

/** Pages that the log should have when it is moved into the database, a few milliseconds of work; and far too many. */
const PAGES = 1_000
const TOO_LONG = 4_000

/** The log of one file, as one connection fills it. */
export class Log {
  readonly #runtime: Runtime
  /** Commits since it was last moved, and how many there should be in between. */
  #commits = 0
  #after = 200
  #closed = false

  constructor(runtime: Runtime) {
    this.#runtime = runtime
  }

  /** A commit was made; the log is moved in a turn of its own, if it is time. */
  committed(sql: Statements): void {
    if (++this.#commits === this.#after) this.#runtime.defer(() => this.#move(sql))
  }

  close(): void {
    this.#closed = true
  }

  /**
   * SQLite begins the log anew only at a moment when nobody reads it, and with several processes at work there may be
   * none for long: then it is emptied, as soon as that can be done without waiting.
   */
  #move(sql: Statements): void {
    if (this.#closed) return
    const commits = this.#commits
    this.#commits = 0
    try {
      const pages = sql.checkpoint.get()![1] as number
      this.#after = Math.min(1_000, Math.max(1, Math.round((commits * PAGES) / Math.max(1, pages))))
      if (pages > TOO_LONG) sql.emptyLog.get()
    } catch {
      // Somebody is at it; another commit will be luckier.
    }
  }
}

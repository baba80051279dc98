// stores/sqlite/checkpoint.ts: moves the write-ahead log into the database now and then, so that no commit is held up by it.
import { statSync } from 'node:fs'
import type { Runtime } from '../../store/runtime.js'
import type { Statements } from './statements.js'

/** Pages that the log should have grown by when it is moved into the database, a few milliseconds of work. */
const PAGES = 1_000

/** The same for the file in which it is, in bytes; and what is far too much. */
const GROWTH = 4 * 1024 * 1024
const TOO_LONG = 16 * 1024 * 1024

/** The log of one file, as one process fills it. */
export class Checkpointer {
  readonly #file: string
  readonly #sql: Statements
  readonly #runtime: Runtime
  /** Commits since it was last moved, and how many there should be in between. */
  #commits = 0
  #after = 200
  /** How long it was when it was last moved: the file, which stays as it is when the log begins anew, and the log. */
  #bytes = 0
  #pages = 0
  #moves = false
  #closed = false

  constructor(path: string, sql: Statements, runtime: Runtime) {
    this.#file = `${path}-wal`
    this.#sql = sql
    this.#runtime = runtime
  }

  /** A commit was made just now. The log is moved in a turn of its own, if it is time; never throws. */
  committed(): void {
    this.#commits++
    const bytes = sizeOf(this.#file)
    if (bytes > TOO_LONG) return this.#empty()
    if (this.#moves || (this.#commits < this.#after && bytes < this.#bytes + GROWTH)) return
    this.#moves = true
    this.#runtime.defer(() => this.#move())
  }

  close(): void {
    this.#closed = true
  }

  #move(): void {
    this.#moves = false
    if (this.#closed) return
    const pages = this.#ask('checkpoint')
    if (pages === undefined) return
    const grown = pages < this.#pages ? pages : pages - this.#pages // by what all processes have written
    this.#after = Math.min(1_000, Math.max(1, Math.round((this.#commits * PAGES) / Math.max(1, grown))))
    this.#moved(pages)
  }

  /**
   * SQLite begins the log anew only at a moment when all of it was moved and nobody reads it, and with several processes
   * at work there may be none for long. So it is emptied, which needs the lock to write: without waiting, and right after
   * a commit, when that was just let go and whoever else wants it still waits to try again. What is left to move is little.
   */
  #empty(): void {
    const pages = this.#ask('emptyLog')
    if (pages !== undefined) this.#moved(pages)
  }

  /** Moves what can be moved; answers how long the log is now, or nothing where somebody else is at it. */
  #ask(how: 'checkpoint' | 'emptyLog'): number | undefined {
    try {
      const [, pages] = this.#sql[how].get() as [busy: number, pages: number]
      return pages < 0 ? undefined : pages
    } catch {
      return undefined // another commit will be luckier
    }
  }

  #moved(pages: number): void {
    this.#commits = 0
    this.#pages = pages
    this.#bytes = sizeOf(this.#file)
  }
}

/** The length of a file, if it is there. */
function sizeOf(file: string): number {
  return statSync(file, { throwIfNoEntry: false })?.size ?? 0
}

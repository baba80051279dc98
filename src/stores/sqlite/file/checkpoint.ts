// stores/sqlite/file/checkpoint.ts: runs WAL checkpoints between commits, so that no commit waits for one.
import { statSync } from 'node:fs'
import type { Runtime } from '../../../store/runtime.js'
import type { Statements } from '../statements.js'

/** Target growth of the WAL between two checkpoints, in pages: a few milliseconds of work. */
const PAGES_BETWEEN = 1_000

/** Growth of the WAL file that triggers a checkpoint, and size at which the WAL is truncated, in bytes. */
const GROWTH_BYTES = 4 * 1024 * 1024
const TRUNCATE_BYTES = 16 * 1024 * 1024

/** Checkpoints one file for one process. */
export class Checkpointer {
  readonly #file: string
  readonly #sql: Statements
  readonly #runtime: Runtime
  /** Commits since the last checkpoint, and the target number between two checkpoints. */
  #commits = 0
  #commitsBetween = 200
  /**
   * Sizes at the last checkpoint: of the file, which does not shrink when SQLite restarts the WAL, and of the WAL in
   * pages.
   */
  #bytes = 0
  #pages = 0
  #scheduled = false
  #closed = false

  constructor(path: string, sql: Statements, runtime: Runtime) {
    this.#file = `${path}-wal`
    this.#sql = sql
    this.#runtime = runtime
  }

  /** Call after each commit. Schedules a checkpoint in another turn of the event loop if one is due; never throws. */
  afterCommit(): void {
    this.#commits++
    const bytes = sizeOf(this.#file)
    if (bytes > TRUNCATE_BYTES) return this.#truncate()
    if (this.#scheduled || (this.#commits < this.#commitsBetween && bytes < this.#bytes + GROWTH_BYTES)) return
    this.#scheduled = true
    this.#runtime.defer(() => this.#checkpoint())
  }

  close(): void {
    this.#closed = true
  }

  #checkpoint(): void {
    this.#scheduled = false
    if (this.#closed) return
    const pages = this.#run('checkpoint')
    if (pages === undefined) return
    const grown = pages < this.#pages ? pages : pages - this.#pages // by the writes of all processes
    this.#commitsBetween = Math.min(
      1_000,
      Math.max(1, Math.round((this.#commits * PAGES_BETWEEN) / Math.max(1, grown))),
    )
    this.#finished(pages)
  }

  /**
   * SQLite restarts the WAL only when all of it was checkpointed and there are no readers. With several busy processes
   * that may not happen for long, so the WAL is truncated. That needs the write lock: it is tried without waiting,
   * right after a commit, when the lock was just released and other writers still wait for their retry. Little is left
   * to checkpoint then.
   */
  #truncate(): void {
    const pages = this.#run('truncateWal')
    if (pages !== undefined) this.#finished(pages)
  }

  /** Runs a checkpoint. Returns the size of the WAL in pages, or undefined if another connection is busy. */
  #run(statement: 'checkpoint' | 'truncateWal'): number | undefined {
    try {
      const [, pages] = this.#sql[statement].get() as [busy: number, pages: number]
      return pages < 0 ? undefined : pages
    } catch {
      return undefined // a later commit will retry
    }
  }

  #finished(pages: number): void {
    this.#commits = 0
    this.#pages = pages
    this.#bytes = sizeOf(this.#file)
  }
}

/** The size of a file, 0 if it does not exist. */
function sizeOf(file: string): number {
  return statSync(file, { throwIfNoEntry: false })?.size ?? 0
}

// stores/undo-log.ts: rolls back the steps of a group that is refused after some of them were applied.

/** While it is open, every step that changes the rows adds its inverse. */
export class UndoLog {
  /** Whether steps must be recorded. Most groups cannot be refused half-way and need no log. */
  open = false
  readonly #undo: (() => void)[] = []

  /** Records how to undo a step. Check `open` first, because the closure has a cost. */
  add(undo: () => void): void {
    this.#undo.push(undo)
  }

  /** Undoes every step, last one first. */
  rollback(): void {
    this.open = false
    for (let undo = this.#undo.pop(); undo !== undefined; undo = this.#undo.pop()) undo()
  }

  /** Drops the log: the steps stay applied. */
  keep(): void {
    if (!this.open) return
    this.open = false
    this.#undo.length = 0
  }
}

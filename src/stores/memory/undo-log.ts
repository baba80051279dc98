// stores/memory/undo-log.ts: how to take back the steps of a group that turns out to be refused.

/** While it is open, every step that changes the table leaves its inverse here. */
export class UndoLog {
  /** Whether steps are to be written down; most groups cannot be refused half-way and do without. */
  open = false
  readonly #undo: (() => void)[] = []

  /** Writes down how to take a step back. Ask `open` first: the closure is not free. */
  add(undo: () => void): void {
    this.#undo.push(undo)
  }

  /** Takes every step back, the last one first. */
  rollback(): void {
    this.open = false
    for (let undo = this.#undo.pop(); undo !== undefined; undo = this.#undo.pop()) undo()
  }

  /** Forgets the steps: they stand. */
  keep(): void {
    if (!this.open) return
    this.open = false
    this.#undo.length = 0
  }
}

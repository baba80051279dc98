// stores/memory/dedup.ts: dedup keys, each held by a job until the job has finished or until its window is over.
import type { Time } from '../../job/job.js'
import type { UndoLog } from './undo-log.js'
import { BTree } from './btree.js'

/** DedupKeys past their window that one commit clears away, so that they neither pile up nor hold anybody up. */
const SWEPT_AT_ONCE = 16

/** A key that is taken. */
export interface Key {
  readonly key: string
  /** The job that took it; it may have been removed since. */
  readonly id: string
  /** The end of its window; undefined: held until its job has finished. */
  readonly until: Time | undefined
}

/** All dedup keys of a table. */
export class DedupKeys {
  readonly #journal: UndoLog
  readonly #held = new Map<string, Key>()
  /** Those with a window, by its end. */
  readonly #ending = new BTree<Key>((a, b) => a.until! - b.until! || (a.key < b.key ? -1 : a.key > b.key ? 1 : 0))

  constructor(journal: UndoLog) {
    this.#journal = journal
  }

  /** How many keys are stored, those past their window included. */
  get size(): number {
    return this.#held.size
  }

  /** Who holds a key now; nobody, once its window is over. */
  holder(key: string, now: Time): Key | undefined {
    const held = this.#held.get(key)
    return held === undefined || (held.until !== undefined && held.until <= now) ? undefined : held
  }

  /** Gives a free key to a job. */
  take(key: Key): void {
    this.#swap(key.key, key)
  }

  /** Frees the key of a job that has finished or was removed, unless a window holds it for longer. */
  free(key: string, id: string): void {
    const held = this.#held.get(key)
    if (held !== undefined && held.id === id && held.until === undefined) this.#swap(key, undefined)
  }

  /** Clears away some of the keys whose window is over. */
  sweep(now: Time): void {
    for (let left = SWEPT_AT_ONCE; left > 0; left--) {
      const first = this.#ending.min
      if (first === undefined || first.until! > now) return
      this.#ending.delete(first)
      this.#held.delete(first.key)
    }
  }

  /** Every key stored. */
  values(): IterableIterator<Key> {
    return this.#held.values()
  }

  #swap(key: string, next: Key | undefined): void {
    const before = this.#held.get(key)
    if (before?.until !== undefined) this.#ending.delete(before)
    if (next === undefined) this.#held.delete(key)
    else this.#held.set(key, next)
    if (next?.until !== undefined) this.#ending.insert(next)
    if (this.#journal.open) this.#journal.add(() => this.#swap(key, before))
  }
}

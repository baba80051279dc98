// stores/memory/dedup.ts: dedup keys, each taken by a job until the job has finished or until its window is over.
import type { Time } from '../../job/job.js'
import type { UndoLog } from '../undo-log.js'
import { BTree } from './btree.js'

/** Expired keys that one commit removes, so that they neither pile up nor make a commit slow. */
const SWEEP_LIMIT = 16

/** A key that is taken. */
export interface Key {
  readonly key: string
  /** The job that took it, which may have been removed since. */
  readonly id: string
  /** The end of its window; undefined: taken until its job has finished. */
  readonly until: Time | undefined
}

/** All dedup keys of a table. */
export class DedupKeys {
  readonly #undoLog: UndoLog
  readonly #byKey = new Map<string, Key>()
  /** The keys with a window, by its end. */
  readonly #byEnd = new BTree<Key>((a, b) => a.until! - b.until! || (a.key < b.key ? -1 : a.key > b.key ? 1 : 0))

  constructor(undoLog: UndoLog) {
    this.#undoLog = undoLog
  }

  /** The number of keys stored, including expired ones. */
  get size(): number {
    return this.#byKey.size
  }

  /** The key if a job has it now; undefined once its window is over. */
  holder(key: string, now: Time): Key | undefined {
    const existing = this.#byKey.get(key)
    return existing === undefined || (existing.until !== undefined && existing.until <= now) ? undefined : existing
  }

  /** Gives a free key to a job. */
  take(key: Key): void {
    this.#swap(key.key, key)
  }

  /** Frees the key of a job that has finished or was removed, unless its window lasts longer. */
  free(key: string, id: string): void {
    const existing = this.#byKey.get(key)
    if (existing !== undefined && existing.id === id && existing.until === undefined) this.#swap(key, undefined)
  }

  /** Removes some of the expired keys. */
  sweep(now: Time): void {
    for (let left = SWEEP_LIMIT; left > 0; left--) {
      const first = this.#byEnd.min
      if (first === undefined || first.until! > now) return
      this.#byEnd.delete(first)
      this.#byKey.delete(first.key)
    }
  }

  /** All stored keys. */
  values(): IterableIterator<Key> {
    return this.#byKey.values()
  }

  #swap(key: string, next: Key | undefined): void {
    const before = this.#byKey.get(key)
    if (before?.until !== undefined) this.#byEnd.delete(before)
    if (next === undefined) this.#byKey.delete(key)
    else this.#byKey.set(key, next)
    if (next?.until !== undefined) this.#byEnd.insert(next)
    if (this.#undoLog.open) this.#undoLog.add(() => this.#swap(key, before))
  }
}

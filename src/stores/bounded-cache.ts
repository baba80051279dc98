// stores/bounded-cache.ts: a cache that forgets what has not been used for long.

/** Entries that a cache keeps at least, once it has that many: more than any program uses at a time. */
const DEFAULT_SIZE = 10_000

/**
 * Keeps what was used last: at least `size` entries, and twice as many at most at the time of `trim`. Two maps instead of
 * an order of use, so that an entry in use costs one lookup.
 */
export class BoundedCache<Key, Value> {
  readonly #size: number
  #recent = new Map<Key, Value>()
  #older = new Map<Key, Value>()

  constructor(size = DEFAULT_SIZE) {
    this.#size = size
  }

  get size(): number {
    return this.#recent.size + this.#older.size
  }

  get(key: Key): Value | undefined {
    const recent = this.#recent.get(key)
    if (recent !== undefined || this.#older.size === 0) return recent
    const older = this.#older.get(key)
    if (older !== undefined) this.set(key, older)
    return older
  }

  set(key: Key, value: Value): void {
    this.#older.delete(key)
    this.#recent.set(key, value)
  }

  delete(key: Key): void {
    this.#recent.delete(key)
    this.#older.delete(key)
  }

  keys(): readonly Key[] {
    return [...this.#older.keys(), ...this.#recent.keys()]
  }

  clear(): void {
    this.#recent.clear()
    this.#older.clear()
  }

  /** Forgets what has not been used since `size` other entries were. Call it where no entry is relied upon. */
  trim(): void {
    if (this.#recent.size < this.#size) return
    this.#older = this.#recent
    this.#recent = new Map()
  }
}

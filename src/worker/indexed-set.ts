// worker/indexed-set.ts: a set whose members know their place in it.

/** A set of objects, each of which keeps its place in the field named: cheaper than hashing for what comes and goes by the thousand. */
export class IndexedSet<Field extends string, Item extends Record<Field, number>> {
  readonly #field: Field
  readonly #items: Item[] = []

  /** `field` is -1 in an item that is in no bag. */
  constructor(field: Field) {
    this.#field = field
  }

  /** How many there are. */
  get size(): number {
    return this.#items.length
  }

  /** The items, in no order. */
  get items(): readonly Item[] {
    return this.#items
  }

  /** Puts in an item that is in no bag. */
  add(item: Item): void {
    ;(item as Record<Field, number>)[this.#field] = this.#items.length
    this.#items.push(item)
  }

  /** Takes out an item; does nothing if it is not in here. */
  delete(item: Item): void {
    const at = item[this.#field]
    if (this.#items[at] !== item) return
    const last = this.#items.pop()!
    if (last !== item) {
      this.#items[at] = last
      ;(last as Record<Field, number>)[this.#field] = at
    }
    ;(item as Record<Field, number>)[this.#field] = -1
  }

  /** Takes out everything. */
  clear(): void {
    for (const item of this.#items.splice(0)) (item as Record<Field, number>)[this.#field] = -1
  }
}

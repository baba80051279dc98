// worker/indexed-set.ts: a set whose items store their own index in it.

/**
 * A set of objects that each store their index in the named field. Cheaper than hashing for items that are added and
 * deleted by the thousand.
 */
export class IndexedSet<Field extends string, Item extends Record<Field, number>> {
  readonly #field: Field
  readonly #items: Item[] = []

  /** `field` is -1 in an item that is not in the set. */
  constructor(field: Field) {
    this.#field = field
  }

  /** How many items there are. */
  get size(): number {
    return this.#items.length
  }

  /** The items, in no order. */
  get items(): readonly Item[] {
    return this.#items
  }

  /** Adds an item that is not in the set. */
  add(item: Item): void {
    ;(item as Record<Field, number>)[this.#field] = this.#items.length
    this.#items.push(item)
  }

  /** Deletes an item; does nothing if it is not in the set. */
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

  /** Deletes all items. */
  clear(): void {
    for (const item of this.#items.splice(0)) (item as Record<Field, number>)[this.#field] = -1
  }
}

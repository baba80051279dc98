// engine/heap.ts: a binary heap of a few items whose keys grow as they are used: heads of lanes, sorted streams.

/** A binary heap. */
export class Heap<T> {
  readonly #items: T[] = []
  readonly #before: (a: T, b: T) => boolean

  constructor(before: (a: T, b: T) => boolean) {
    this.#before = before
  }

  /** The least item. */
  get top(): T | undefined {
    return this.#items[0]
  }

  /** Adds an item. */
  push(item: T): void {
    const items = this.#items
    const before = this.#before
    let at = items.push(item) - 1
    while (at > 0) {
      const parent = (at - 1) >>> 1
      if (!before(item, items[parent]!)) break
      items[at] = items[parent]!
      at = parent
    }
    items[at] = item
  }

  /** Removes the least item. */
  pop(): void {
    const items = this.#items
    const last = items.pop()
    if (items.length === 0) return
    items[0] = last!
    this.sink()
  }

  /** Moves the top item to its position after its key has grown. */
  sink(): void {
    const items = this.#items
    const before = this.#before
    const item = items[0]!
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child >= items.length) break
      if (child + 1 < items.length && before(items[child + 1]!, items[child]!)) child++
      if (!before(items[child]!, item)) break
      items[at] = items[child]!
      at = child
    }
    items[at] = item
  }
}

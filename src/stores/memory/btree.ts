// stores/memory/btree.ts: an ordered set as a B+tree, fastest at its two ends, where queues are read and written.

/** Entries in a leaf, and children of a branch, before it splits. */
const FAN_OUT = 64

interface Leaf<T> {
  readonly items: T[]
  parent: Branch<T> | undefined
  previous: Leaf<T> | undefined
  next: Leaf<T> | undefined
}

interface Branch<T> {
  readonly children: Tree<T>[]
  /** The least entry below each child; the first is never read and may be out of date. */
  readonly mins: T[]
  parent: Branch<T> | undefined
}

type Tree<T> = Leaf<T> | Branch<T>

function leafOf<T>(items: T[]): Leaf<T> {
  return { items, parent: undefined, previous: undefined, next: undefined }
}

/**
 * An ordered set. `compare` must be a total order in which only an entry and itself are equal, and what it reads of an
 * entry must not change while the entry is in the set. Entries are found by identity.
 */
export class BTree<T> {
  readonly #compare: (a: T, b: T) => number
  #root: Tree<T>
  /** Branches above the leaves. */
  #height = 0
  #head: Leaf<T>
  #tail: Leaf<T>
  #size = 0

  constructor(compare: (a: T, b: T) => number) {
    this.#compare = compare
    this.#head = this.#tail = leafOf([])
    this.#root = this.#head
  }

  /** The number of entries. */
  get size(): number {
    return this.#size
  }

  /** The least entry. */
  get min(): T | undefined {
    return this.#head.items[0]
  }

  /** The greatest entry. */
  get max(): T | undefined {
    const { items } = this.#tail
    return items[items.length - 1]
  }

  /** Adds an entry that is not in the set. */
  insert(entry: T): void {
    const compare = this.#compare
    const tail = this.#tail
    const { length } = tail.items
    this.#size++
    if (length === 0 || compare(tail.items[length - 1]!, entry) < 0) {
      tail.items.push(entry)
      if (length === FAN_OUT) this.#split(tail, length)
      return
    }
    const leaf = this.#leafFor(entry)
    const { items } = leaf
    let low = 0
    let high = items.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if (compare(items[middle]!, entry) < 0) low = middle + 1
      else high = middle
    }
    insertAt(items, low, entry)
    if (items.length > FAN_OUT) this.#split(leaf, low === 0 && leaf === this.#head ? 1 : items.length >>> 1)
  }

  /** Removes an entry; returns false if it is not in the set. */
  delete(entry: T): boolean {
    const leaf = this.#leafFor(entry)
    const { items } = leaf
    const at = items.indexOf(entry)
    if (at === -1) return false
    this.#size--
    removeAt(items, at)
    if (items.length === 0) this.#unlink(leaf)
    else if (at === 0) this.#updateMins(leaf, items[0]!)
    return true
  }

  /** Entries in ascending order, from the first one for which `before` is false; all entries without `before`. */
  *ascend(before?: (entry: T) => boolean): Generator<T, undefined> {
    let leaf: Leaf<T> | undefined = this.#head
    let at = 0
    if (before !== undefined) {
      leaf = this.#lastLeafWith(before)
      at = countWhile(leaf.items, before)
    }
    for (; leaf !== undefined; leaf = leaf.next, at = 0) {
      for (; at < leaf.items.length; at++) yield leaf.items[at]!
    }
  }

  /** Entries in descending order, from the last one for which `before` is true; all entries without `before`. */
  *descend(before?: (entry: T) => boolean): Generator<T, undefined> {
    let leaf: Leaf<T> | undefined = this.#tail
    let left = leaf.items.length
    if (before !== undefined) {
      leaf = this.#lastLeafWith(before)
      left = countWhile(leaf.items, before)
    }
    while (leaf !== undefined) {
      while (left > 0) yield leaf.items[--left]!
      leaf = leaf.previous
      left = leaf === undefined ? 0 : leaf.items.length
    }
  }

  /** The leaf that contains an entry, or where it belongs. */
  #leafFor(entry: T): Leaf<T> {
    const compare = this.#compare
    const head = this.#head
    if (this.#height === 0 || compare(entry, head.items[head.items.length - 1]!) <= 0) return head
    if (compare(entry, this.#tail.items[0]!) >= 0) return this.#tail
    let node = this.#root
    for (let level = this.#height; level > 0; level--) {
      const { children, mins } = node as Branch<T>
      let low = 1
      let high = mins.length
      while (low < high) {
        const middle = (low + high) >>> 1
        if (compare(mins[middle]!, entry) <= 0) low = middle + 1
        else high = middle
      }
      node = children[low - 1]!
    }
    return node as Leaf<T>
  }

  /** The last leaf that starts with an entry for which `before` is true, or else the first leaf. */
  #lastLeafWith(before: (entry: T) => boolean): Leaf<T> {
    let node = this.#root
    for (let level = this.#height; level > 0; level--) {
      const { children, mins } = node as Branch<T>
      node = children[countWhile(mins, before, 1) - 1]!
    }
    return node as Leaf<T>
  }

  /** Updates the least entry of a node in the branches above it. */
  #updateMins(node: Tree<T>, min: T): void {
    if (node === this.#head) return
    for (let child = node, parent = child.parent; parent !== undefined; child = parent, parent = child.parent) {
      const at = parent.children.indexOf(child)
      parent.mins[at] = min
      if (at > 0) return
    }
  }

  /** Moves the entries of a full leaf after the first `cut` into a new leaf to its right. */
  #split(leaf: Leaf<T>, cut: number): void {
    const right = leafOf(leaf.items.splice(cut))
    right.previous = leaf
    right.next = leaf.next
    if (leaf.next === undefined) this.#tail = right
    else leaf.next.previous = right
    leaf.next = right
    this.#attach(leaf, right, right.items[0]!)
  }

  /** Attaches a node to the tree, to the right of its neighbour. */
  #attach(left: Tree<T>, right: Tree<T>, min: T): void {
    const { parent } = left
    if (parent === undefined) {
      const root: Branch<T> = { children: [left, right], mins: [min, min], parent: undefined }
      left.parent = right.parent = root
      this.#root = root
      this.#height++
      return
    }
    right.parent = parent
    const { children, mins } = parent
    const at = children[children.length - 1] === left ? children.length : children.indexOf(left) + 1
    insertAt(children, at, right)
    insertAt(mins, at, min)
    if (children.length <= FAN_OUT) return
    const cut = at === children.length - 1 ? at : at === 1 ? 1 : children.length >>> 1
    const branch: Branch<T> = { children: children.splice(cut), mins: mins.splice(cut), parent: undefined }
    for (const child of branch.children) child.parent = branch
    this.#attach(parent, branch, branch.mins[0]!)
  }

  /** Removes an empty leaf from the tree, and every branch that becomes empty; the last leaf stays. */
  #unlink(leaf: Leaf<T>): void {
    if (this.#height === 0) return
    if (leaf.previous === undefined) this.#head = leaf.next!
    else leaf.previous.next = leaf.next
    if (leaf.next === undefined) this.#tail = leaf.previous!
    else leaf.next.previous = leaf.previous

    let child: Tree<T> = leaf
    let parent = leaf.parent!
    while (parent.children.length === 1 && parent.parent !== undefined) {
      child = parent
      parent = parent.parent
    }
    const at = parent.children.indexOf(child)
    removeAt(parent.children, at)
    removeAt(parent.mins, at)
    if (at === 0) this.#updateMins(parent, parent.mins[0]!)

    while (this.#height > 0 && (this.#root as Branch<T>).children.length === 1) {
      this.#root = (this.#root as Branch<T>).children[0]!
      this.#root.parent = undefined
      this.#height--
    }
  }
}

/** The number of entries from `low` on before the first one for which `holds` is false. */
function countWhile<T>(items: readonly T[], holds: (entry: T) => boolean, low = 0): number {
  let high = items.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (holds(items[middle]!)) low = middle + 1
    else high = middle
  }
  return low
}

function insertAt<T>(items: T[], at: number, item: T): void {
  items.push(item)
  for (let to = items.length - 1; to > at; to--) items[to] = items[to - 1]!
  items[at] = item
}

function removeAt(items: unknown[], at: number): void {
  if (at === 0) {
    items.shift()
    return
  }
  const last = items.length - 1
  for (let to = at; to < last; to++) items[to] = items[to + 1]
  items.pop()
}

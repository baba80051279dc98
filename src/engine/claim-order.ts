// engine/claim-order.ts: the order in which a claim takes jobs, for stores that merge the heads of lanes in this process.
import { Heap } from './heap.js'

/** Compares heads of lanes. */
export interface HeadOrder<Head> {
  /** Within one heap: by priority, order and insertion. */
  beforeInHeap(a: Head, b: Head): boolean
  /** Between heaps, whose order numbers are not comparable: by priority, then by insertion. */
  beforeAcrossHeaps(a: Head, b: Head): boolean
}

/** One heap for all lanes without groups, and one per queue for its lanes with groups. */
export class ClaimOrder<Head, Queue> {
  readonly #order: HeadOrder<Head>
  readonly #plain: Heap<Head>
  #shared: Map<Queue, Heap<Head>> | undefined

  constructor(order: HeadOrder<Head>) {
    this.#order = order
    this.#plain = new Heap(order.beforeInHeap)
  }

  /** The heap for the lanes of a queue, with groups (`shared`) or without. */
  heapOf(queue: Queue, shared: boolean): Heap<Head> {
    if (!shared) return this.#plain
    this.#shared ??= new Map()
    let heap = this.#shared.get(queue)
    if (heap === undefined) this.#shared.set(queue, (heap = new Heap(this.#order.beforeInHeap)))
    return heap
  }

  /** The heap whose head is claimed next. */
  get first(): Heap<Head> | undefined {
    let first = this.#plain.top === undefined ? undefined : this.#plain
    if (this.#shared === undefined) return first
    for (const heap of this.#shared.values()) {
      if (heap.top === undefined) continue
      if (first === undefined || this.#order.beforeAcrossHeaps(heap.top, first.top!)) first = heap
    }
    return first
  }
}

// stores/claim-order.ts: the lines that an ask is answered from, in stores that merge the heads of lanes in this process.
import { Heap } from './heap.js'

/** How heads compare. */
export interface HeadOrder<Head> {
  /** Within a line: by priority, place and insertion. */
  goesFirst(a: Head, b: Head): boolean
  /** Between lines, whose places cannot be compared: by priority, then by insertion. */
  isBefore(a: Head, b: Head): boolean
}

/** One line of all jobs without a group, and one of each queue's that have any. */
export class ClaimOrder<Head, Queue> {
  readonly #order: HeadOrder<Head>
  readonly #plain: Heap<Head>
  #shared: Map<Queue, Heap<Head>> | undefined

  constructor(order: HeadOrder<Head>) {
    this.#order = order
    this.#plain = new Heap(order.goesFirst)
  }

  /** The line of a queue's jobs, with a group or without. */
  of(queue: Queue, shared: boolean): Heap<Head> {
    if (!shared) return this.#plain
    this.#shared ??= new Map()
    let line = this.#shared.get(queue)
    if (line === undefined) this.#shared.set(queue, (line = new Heap(this.#order.goesFirst)))
    return line
  }

  /** The line whose head goes first. */
  get first(): Heap<Head> | undefined {
    let first = this.#plain.top === undefined ? undefined : this.#plain
    if (this.#shared === undefined) return first
    for (const line of this.#shared.values()) {
      if (line.top === undefined) continue
      if (first === undefined || this.#order.isBefore(line.top, first.top!)) first = line
    }
    return first
  }
}

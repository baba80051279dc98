// testing/world/timeline.ts: what is to happen and when, in virtual time: by time first, then in the order of the asking.
import type { Millis } from '../../job/job.js'
import type { Stop } from '../../store/runtime.js'

interface Moment {
  readonly at: Millis
  readonly order: number
  work: (() => void) | undefined
}

/** Lets everything that is under way without waiting for time come to rest. */
export function drain(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

/** A heap of moments, and the time of the one that came last. */
export class Timeline {
  /** Milliseconds since the beginning. */
  time: Millis = 0
  readonly #heap: Moment[] = []
  #order = 0
  #size = 0

  /** How many moments are to come. */
  get size(): number {
    return this.#size
  }

  /** When the next one comes; undefined when there is none. */
  get next(): Millis | undefined {
    while (this.#heap.length > 0 && this.#heap[0]!.work === undefined) this.#pop()
    return this.#heap[0]?.at
  }

  /** Lets `work` happen after `delay`. */
  after(delay: Millis, work: () => void): Stop {
    const moment: Moment = { at: this.time + Math.max(0, delay), order: this.#order++, work }
    this.#push(moment)
    this.#size++
    return () => {
      if (moment.work === undefined) return
      moment.work = undefined
      this.#size--
    }
  }

  /** Moves to the next moment and does its work; false when there is none at or before `limit`. */
  step(limit: Millis): boolean {
    const { next } = this
    if (next === undefined || next > limit) return false
    const { at, work } = this.#heap[0]!
    this.#heap[0]!.work = undefined
    this.#pop()
    this.#size--
    this.time = Math.max(this.time, at)
    work!()
    return true
  }

  #push(moment: Moment): void {
    const heap = this.#heap
    let at = heap.push(moment) - 1
    while (at > 0) {
      const above = (at - 1) >> 1
      if (!before(moment, heap[above]!)) break
      heap[at] = heap[above]!
      at = above
    }
    heap[at] = moment
  }

  #pop(): void {
    const heap = this.#heap
    const last = heap.pop()
    if (last === undefined || heap.length === 0) return
    let at = 0
    for (;;) {
      let below = 2 * at + 1
      if (below >= heap.length) break
      if (below + 1 < heap.length && before(heap[below + 1]!, heap[below]!)) below++
      if (!before(heap[below]!, last)) break
      heap[at] = heap[below]!
      at = below
    }
    heap[at] = last
  }
}

function before(a: Moment, b: Moment): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order)
}

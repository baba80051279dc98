// testing/world/virtual-timers.ts: the timers of virtual time, which fire by time, then in the order of their creation.
import type { Millis } from '../../job/job.js'
import { defer } from '../../store/runtime.js'
import type { Stop } from '../../store/runtime.js'

interface Timer {
  readonly at: Millis
  readonly order: number
  work: (() => void) | undefined
}

/** Runs all pending work that needs no timer: promises and immediates. */
export function drain(): Promise<void> {
  return new Promise(defer)
}

/** A heap of timers, and the current virtual time: that of the timer that fired last. */
export class Timeline {
  /** Milliseconds since the start. */
  time: Millis = 0
  readonly #heap: Timer[] = []
  #order = 0
  #size = 0

  /** How many timers are pending. */
  get size(): number {
    return this.#size
  }

  /** When the next timer fires; undefined: none is pending. */
  get next(): Millis | undefined {
    while (this.#heap.length > 0 && this.#heap[0]!.work === undefined) this.#pop()
    return this.#heap[0]?.at
  }

  /** Runs `work` after `delay`. Returns how to stop that. */
  after(delay: Millis, work: () => void): Stop {
    const timer: Timer = { at: this.time + Math.max(0, delay), order: this.#order++, work }
    this.#push(timer)
    this.#size++
    return () => {
      if (timer.work === undefined) return
      timer.work = undefined
      this.#size--
    }
  }

  /** Moves to the time of the next timer and runs it. Returns false if none is pending at or before `limit`. */
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

  #push(timer: Timer): void {
    const heap = this.#heap
    let at = heap.push(timer) - 1
    while (at > 0) {
      const parent = (at - 1) >> 1
      if (!before(timer, heap[parent]!)) break
      heap[at] = heap[parent]!
      at = parent
    }
    heap[at] = timer
  }

  #pop(): void {
    const heap = this.#heap
    const last = heap.pop()
    if (last === undefined || heap.length === 0) return
    let at = 0
    for (;;) {
      let child = 2 * at + 1
      if (child >= heap.length) break
      if (child + 1 < heap.length && before(heap[child + 1]!, heap[child]!)) child++
      if (!before(heap[child]!, last)) break
      heap[at] = heap[child]!
      at = child
    }
    heap[at] = last
  }
}

function before(a: Timer, b: Timer): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order)
}

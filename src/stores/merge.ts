// stores/merge.ts: merges sorted streams.
import { Heap } from '../engine/heap.js'

interface Stream<T> {
  readonly rest: Iterator<T>
  next: T
}

/** Merges streams that are each sorted by `compare`, and reads no further into any of them than it must. */
export function* merge<T>(streams: Iterable<Iterator<T>>, compare: (a: T, b: T) => number): Generator<T, undefined> {
  const heads = new Heap<Stream<T>>((a, b) => compare(a.next, b.next) < 0)
  for (const rest of streams) {
    const first = rest.next()
    if (!first.done) heads.push({ rest, next: first.value })
  }
  for (let head = heads.top; head !== undefined; head = heads.top) {
    yield head.next
    const following = head.rest.next()
    if (following.done) heads.pop()
    else {
      head.next = following.value
      heads.sink()
    }
  }
}

// stores/memory/ring.ts: keeps the last events, numbered, so that a watcher can resume where it left off.
import type { StoreEvent } from '../../job/events.js'
import type { EventDraft } from '../../job/events.js'
import { eventBytes, PAGE_BYTES, PAGE_EVENTS } from '../event-pages.js'
import type { EventPage } from '../event-pages.js'

/** A sequence of events, bounded in number and in bytes. */
export class Ring {
  readonly #size: number
  readonly #maxBytes: number
  readonly #events: (StoreEvent | undefined)[] = []
  /** The number of the next event; the first is 1. */
  #next = 1
  /** The number of the oldest event kept, or of the next one. */
  #first = 1
  #bytes = 0

  /** Keeps at most `size` events with at most `bytes` in total, but always the last one. */
  constructor(size: number, bytes: number) {
    this.#size = size
    this.#maxBytes = bytes
  }

  /** The number that the next event will get. */
  get next(): number {
    return this.#next
  }

  /** Assigns cursors to events and keeps the last of them. */
  append(drafts: readonly EventDraft[]): void {
    for (const draft of drafts) {
      if (this.#next - this.#first === this.#size) this.#drop()
      draft.cursor = String(this.#next)
      this.#events[this.#next % this.#size] = draft
      this.#bytes += eventBytes(draft)
      this.#next++
      while (this.#bytes > this.#maxBytes && this.#first < this.#next - 1) this.#drop()
    }
  }

  #drop(): void {
    const at = this.#first++ % this.#size
    this.#bytes -= eventBytes(this.#events[at]!)
    this.#events[at] = undefined
  }

  /** Marks that events were not recorded, so that no watcher can resume from before here. */
  skip(): void {
    this.#events.length = 0
    this.#bytes = 0
    this.#first = ++this.#next
  }

  /**
   * A page of the events after a number. A number that was never assigned, or is no longer kept, results in a gap and
   * the oldest events kept.
   */
  page(after: number): EventPage {
    const gap = after + 1 < this.#first || after >= this.#next
    const from = gap ? this.#first : after + 1
    const events: StoreEvent[] = []
    let at = from
    for (let bytes = 0; at < this.#next && at < from + PAGE_EVENTS; at++) {
      const event = this.#events[at % this.#size]!
      bytes += eventBytes(event)
      if (bytes > PAGE_BYTES && at > from) break
      events.push(event)
    }
    return { events, gap, last: at - 1, more: at < this.#next }
  }
}

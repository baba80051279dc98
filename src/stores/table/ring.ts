// stores/table/ring.ts: the last events, numbered, so that a watcher can resume where it left off.
import type { StoreEvent } from '../../store/store.js'
import type { EventDraft } from '../announce.js'

/** What a resuming watcher missed. */
export interface Missed {
  readonly events: readonly StoreEvent[]
  /** Some of what it missed is no longer held. */
  readonly gap: boolean
}

/** A bounded run of events. */
export class Ring {
  readonly #size: number
  readonly #events: StoreEvent[] = []
  /** The number of the next event; the first is 1. */
  #next = 1
  /** The number of the oldest event held, or of the next one. */
  #first = 1

  /** Holds at most `size` events. */
  constructor(size: number) {
    this.#size = size
  }

  /** The number that the next event will get. */
  get next(): number {
    return this.#next
  }

  /** Gives events their cursors and keeps the last of them. */
  append(drafts: readonly EventDraft[]): void {
    for (const draft of drafts) {
      draft.cursor = String(this.#next)
      this.#events[this.#next % this.#size] = draft
      this.#next++
    }
    this.#first = Math.max(this.#first, this.#next - this.#size)
  }

  /** Events went by unrecorded: nobody can resume from before here. */
  skip(): void {
    this.#events.length = 0
    this.#first = ++this.#next
  }

  /** The events after a cursor. One that never was, or is no longer held, means a gap and all that is held. */
  after(cursor: string): Missed {
    const from = /^\d+$/.test(cursor) ? Number(cursor) + 1 : -1
    const gap = from < this.#first || from > this.#next
    const events: StoreEvent[] = []
    for (let at = gap ? this.#first : from; at < this.#next; at++) events.push(this.#events[at % this.#size]!)
    return { events, gap }
  }
}

// stores/listeners.ts: the watchers in one process of a database that several processes share.
import type { Millis } from '../job/job.js'
import type { Stop } from '../store/runtime.js'
import { microtask } from '../store/runtime.js'
import type { Notice, WatchOptions } from '../store/store.js'
import type { StoreEvent } from '../job/events.js'

/** How long commits record events after the last watcher of events has left, so that a watcher that returns can resume. */
export const RECORD_FOR: Millis = 600_000

/** How long a process counts as watching without a heartbeat, and the interval of its heartbeats. */
export const PRESENCE_EXPIRES: Millis = 90_000
export const PRESENCE_EVERY: Millis = 30_000

/** The part of a notice that is not events. */
export type Hints = Pick<Notice, 'work' | 'due' | 'revoked' | 'held' | 'missed'>

export const NO_EVENTS: readonly StoreEvent[] = Object.freeze([])
export const NO_HINTS: Hints = Object.freeze({ work: [], due: [], revoked: [] })

/** Whether there are any hints. */
export function anyHints({ work, due, revoked, held, missed }: Hints): boolean {
  return work.length + due.length + revoked.length > 0 || held !== undefined || missed === true
}

/** A value of `since`: the watcher is reading the events that it missed, and gets no new ones yet. */
export const RESUMING = Infinity

/** A listener with its options. */
export interface Watcher {
  readonly listener: (notice: Notice) => void
  readonly events: boolean
  /** The cursor to resume from. */
  readonly from: string | undefined
  /** Events up to this number are not for this watcher; undefined until the store has announced it to other processes. */
  since: number | undefined
}

/** The watchers of one process. */
export class Listeners {
  readonly #watchers = new Set<Watcher>()

  /** Whether there are any watchers. */
  get any(): boolean {
    return this.#watchers.size > 0
  }

  /** Whether any of them watches events. */
  get anyEvents(): boolean {
    for (const { events } of this.#watchers) if (events) return true
    return false
  }

  /** Whether any of them has not been announced to other processes yet. */
  get anyNew(): boolean {
    for (const { since } of this.#watchers) if (since === undefined) return true
    return false
  }

  /** The watchers that have not been announced yet. */
  fresh(): readonly Watcher[] {
    return [...this.#watchers].filter(({ since }) => since === undefined)
  }

  /** Whether a watcher has not been stopped. */
  has(watcher: Watcher): boolean {
    return this.#watchers.has(watcher)
  }

  /** Adds a listener; `onStop` is called when it is stopped. */
  add({ events = false, from }: WatchOptions, listener: (notice: Notice) => void, onStop: () => void): Stop {
    const watcher: Watcher = { listener, events, from, since: undefined }
    this.#watchers.add(watcher)
    return () => {
      if (this.#watchers.delete(watcher)) onStop()
    }
  }

  /** Removes all watchers. */
  clear(): void {
    this.#watchers.clear()
  }

  /** Notifies all watchers in a microtask: hints go to all, events to those that watch events, from where each started. */
  tell(hints: Hints, events: readonly StoreEvent[], gap: boolean): void {
    const hasHints = anyHints(hints)
    const watchers = [...this.#watchers].filter(({ since }) => since !== undefined || hasHints)
    const first = events.length === 0 ? 0 : Number(events[0]!.cursor)
    const notice: Notice = { ...hints, events, gap }
    const hintsOnly: Notice = { ...hints, events: NO_EVENTS, gap: false }
    microtask(() => {
      for (const watcher of watchers) {
        const { since = RESUMING } = watcher
        if (!watcher.events || since === RESUMING || (events.length === 0 && !gap)) {
          if (hasHints) this.call(watcher, hintsOnly)
        } else if (since < first) this.call(watcher, notice)
        else {
          const rest = events.filter(({ cursor }) => Number(cursor) > since)
          if (hasHints || rest.length > 0 || gap) this.call(watcher, { ...hints, events: rest, gap })
        }
      }
    })
  }

  /** Notifies one watcher. */
  call(watcher: Watcher, notice: Notice): void {
    if (!this.#watchers.has(watcher)) return
    try {
      watcher.listener(notice)
    } catch {
      // Listeners handle their own errors. The others must get this notice all the same.
    }
  }
}

// stores/listeners.ts: those who watch in one process a database that several share, and how they are told.
import type { Millis } from '../job/job.js'
import type { Stop } from '../store/runtime.js'
import type { Notice, StoreEvent, WatchOptions } from '../store/store.js'

/** How long events are recorded after the last watcher of events has left, so that one who comes back can resume. */
export const LINGER: Millis = 600_000

/** How long a process counts as watching without a sign of life, and how often it gives one. */
export const PRESENT_FOR: Millis = 90_000
export const PRESENT_EVERY: Millis = 30_000

/** What is told besides events. */
export type Hints = Pick<Notice, 'work' | 'due' | 'revoked' | 'missed'>

export const NO_EVENTS: readonly StoreEvent[] = Object.freeze([])
export const NO_HINTS: Hints = Object.freeze({ work: [], due: [], revoked: [] })

/** Whether there is anything to hint at. */
export function anyHints({ work, due, revoked, missed }: Hints): boolean {
  return work.length + due.length + revoked.length > 0 || missed === true
}

/** As `since`: it is being told what it missed, and not yet what the others are told. */
export const RESUMING = Infinity

/** Whoever watches. */
export interface Watcher {
  readonly listener: (notice: Notice) => void
  readonly events: boolean
  /** Where it resumes. */
  readonly from: string | undefined
  /** Events up to this number are not for it; undefined until the others know of it. */
  since: number | undefined
}

/** The watchers of one process. */
export class Listeners {
  readonly #watchers = new Set<Watcher>()

  /** Whether anybody watches here. */
  get any(): boolean {
    return this.#watchers.size > 0
  }

  /** Whether anybody watches events here. */
  get anyEvents(): boolean {
    for (const { events } of this.#watchers) if (events) return true
    return false
  }

  /** Whether there are some of whom the others do not know yet. */
  get anyNew(): boolean {
    for (const { since } of this.#watchers) if (since === undefined) return true
    return false
  }

  /** Those. */
  fresh(): readonly Watcher[] {
    return [...this.#watchers].filter(({ since }) => since === undefined)
  }

  /** Whether it has not been stopped. */
  has(watcher: Watcher): boolean {
    return this.#watchers.has(watcher)
  }

  /** Begins to tell a listener; `left` is called when it is stopped. */
  add({ events = false, from }: WatchOptions, listener: (notice: Notice) => void, left: () => void): Stop {
    const watcher: Watcher = { listener, events, from, since: undefined }
    this.#watchers.add(watcher)
    return () => {
      if (this.#watchers.delete(watcher)) left()
    }
  }

  /** Lets all of them go. */
  clear(): void {
    this.#watchers.clear()
  }

  /** Tells all of them, soon: hints to everybody, events to those who watch events, from where they began. */
  tell(hints: Hints, events: readonly StoreEvent[], gap: boolean): void {
    const hinted = anyHints(hints)
    const watchers = [...this.#watchers].filter(({ since }) => since !== undefined || hinted)
    const first = events.length === 0 ? 0 : Number(events[0]!.cursor)
    const notice: Notice = { ...hints, events, gap }
    const hintsOnly: Notice = { ...hints, events: NO_EVENTS, gap: false }
    queueMicrotask(() => {
      for (const watcher of watchers) {
        const { since = RESUMING } = watcher
        if (!watcher.events || since === RESUMING || (events.length === 0 && !gap)) {
          if (hinted) this.call(watcher, hintsOnly)
        } else if (since < first) this.call(watcher, notice)
        else {
          const rest = events.filter(({ cursor }) => Number(cursor) > since)
          if (hinted || rest.length > 0 || gap) this.call(watcher, { ...hints, events: rest, gap })
        }
      }
    })
  }

  /** Tells one of them. */
  call(watcher: Watcher, notice: Notice): void {
    if (!this.#watchers.has(watcher)) return
    try {
      watcher.listener(notice)
    } catch {
      // A listener answers for itself; the others must hear of the commit all the same.
    }
  }
}

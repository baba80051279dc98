// stores/table/watchers.ts: who is told what after a commit. Nobody is called inside one, nor after being stopped.
import type { Millis, Time } from '../../job/job.js'
import type { Stop } from '../../store/runtime.js'
import type { Notice, StoreEvent, WatchOptions } from '../../store/store.js'
import type { News } from './news.js'
import { Ring } from './ring.js'

/** How long events are recorded after the last watcher of events has left, so that one who comes back can resume. */
const LINGER: Millis = 600_000

const NO_EVENTS: readonly StoreEvent[] = Object.freeze([])

interface Watcher {
  readonly listener: (notice: Notice) => void
  readonly events: boolean
  /** Events before this number are not for it. */
  readonly since: number
}

/** All watchers of a store, and the events that they can resume from. */
export class Watchers {
  readonly #watchers = new Set<Watcher>()
  readonly #ring: Ring
  readonly #now: () => Time
  #recorders = 0
  #lastLeft: Time = -Infinity
  /** Commits went by since the last event recorded, and nobody knows what they had to tell. */
  #unrecorded = false

  /** Keeps at most `ring` events for those who resume. */
  constructor(ring: number, now: () => Time) {
    this.#ring = new Ring(ring)
    this.#now = now
  }

  /** Whether a commit made now should record its events. */
  recording(now: Time): boolean {
    return this.#recorders > 0 || now < this.#lastLeft + LINGER
  }

  /** Begins to tell a listener about commits. */
  watch({ events = false, from }: WatchOptions, listener: (notice: Notice) => void): Stop {
    if (events) {
      if (this.#unrecorded) this.#skip()
      this.#recorders++
    }
    const watcher: Watcher = { listener, events, since: this.#ring.next }
    this.#watchers.add(watcher)
    if (events && from !== undefined) {
      const missed = this.#ring.after(from)
      const notice: Notice = { work: [], due: [], revoked: [], ...missed }
      if (missed.gap || missed.events.length > 0) queueMicrotask(() => this.#call(watcher, notice))
    }
    return () => this.#stop(watcher)
  }

  /** Tells what a commit has to tell, soon. */
  publish(news: News): void {
    if (!news.recording) this.#unrecorded = true
    if (news.events.length > 0 && this.#unrecorded) this.#skip()
    const first = this.#ring.next
    this.#ring.append(news.events)
    if (this.#watchers.size === 0) return
    const work = news.workHints()
    const due = news.dueHints()
    const { revoked, events } = news
    const hints = work.length + due.length + revoked.length > 0
    if (!hints && events.length === 0) return
    const hinted: Notice = { work, due, revoked, events: NO_EVENTS, gap: false }
    const told: Notice = { ...hinted, events }
    queueMicrotask(() => {
      for (const watcher of this.#watchers) {
        if (watcher.events && watcher.since <= first) this.#call(watcher, told)
        else if (hints) this.#call(watcher, hinted)
      }
    })
  }

  /** Lets all of them go. */
  close(): void {
    this.#watchers.clear()
  }

  #stop(watcher: Watcher): void {
    if (!this.#watchers.delete(watcher) || !watcher.events) return
    this.#recorders--
    if (this.#recorders === 0) this.#lastLeft = this.#now()
  }

  #skip(): void {
    this.#ring.skip()
    this.#unrecorded = false
  }

  #call(watcher: Watcher, notice: Notice): void {
    if (!this.#watchers.has(watcher)) return
    try {
      watcher.listener(notice)
    } catch {
      // A listener answers for itself; the others must hear of the commit all the same.
    }
  }
}

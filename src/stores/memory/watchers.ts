// stores/memory/watchers.ts: who is told what after a commit. Nobody is called inside one, nor after being stopped.
import type { Millis, Time } from '../../job/job.js'
import type { Runtime, Stop } from '../../store/runtime.js'
import type { Notice, StoreEvent, WatchOptions } from '../../store/store.js'
import { resumeAfter } from '../event-pages.js'
import type { Notices } from './notices.js'
import type { Ring } from './ring.js'

/** How long events are recorded after the last watcher of events has left, so that one who comes back can resume. */
const LINGER: Millis = 600_000

const NO_EVENTS: readonly StoreEvent[] = Object.freeze([])

interface Watcher {
  readonly listener: (notice: Notice) => void
  readonly events: boolean
  /** Events before this number are not for it; no event is while it is being told what it missed. */
  since: number
}

/** All watchers of a store, and the events that they can resume from. */
export class Watchers {
  readonly #watchers = new Set<Watcher>()
  readonly #ring: Ring
  readonly #runtime: Pick<Runtime, 'now' | 'defer'>
  #recorders = 0
  #lastLeft: Time = -Infinity
  /** Commits went by since the last event recorded, and nobody knows what they had to tell. */
  #unrecorded = false

  /** `ring` keeps events for those who resume. */
  constructor(ring: Ring, runtime: Pick<Runtime, 'now' | 'defer'>) {
    this.#ring = ring
    this.#runtime = runtime
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
    const resumes = events && from !== undefined
    const watcher: Watcher = { listener, events, since: resumes ? Infinity : this.#ring.next }
    this.#watchers.add(watcher)
    if (resumes) this.#runtime.defer(() => this.#resume(watcher, resumeAfter(from)))
    return () => this.#stop(watcher)
  }

  /** Tells a watcher what it missed, a page in each turn of the event loop, until it has caught up with the others. */
  #resume(watcher: Watcher, after: number): void {
    if (!this.#watchers.has(watcher)) return
    const { events, gap, last, more } = this.#ring.page(after)
    if (more) this.#runtime.defer(() => this.#resume(watcher, last))
    else watcher.since = last + 1
    if (gap || events.length > 0) this.#call(watcher, { work: [], due: [], revoked: [], events, gap })
  }

  /** Tells what a commit has to tell, soon. */
  publish(news: Notices): void {
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
    if (this.#recorders === 0) this.#lastLeft = this.#runtime.now()
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

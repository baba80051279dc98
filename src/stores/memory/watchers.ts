// stores/memory/watchers.ts: publishes notices after a commit, never inside one, and never to a listener that was stopped.
import type { Time } from '../../job/job.js'
import type { Runtime, Stop } from '../../store/runtime.js'
import { microtask } from '../../store/runtime.js'
import type { Notice, WatchOptions } from '../../store/store.js'
import { resumeAfter } from '../event-pages.js'
import { NO_EVENTS, RECORD_FOR } from '../listeners.js'
import type { Notices } from '../../engine/notices.js'
import type { Ring } from './ring.js'

interface Watcher {
  readonly listener: (notice: Notice) => void
  readonly events: boolean
  /** Events before this number are not for this watcher; Infinity while it reads the events that it missed. */
  since: number
}

/** All watchers of a store, and the events that they can resume from. */
export class Watchers {
  readonly #watchers = new Set<Watcher>()
  readonly #ring: Ring
  readonly #runtime: Pick<Runtime, 'now' | 'defer'>
  #eventWatchers = 0
  #lastEventWatcherLeft: Time = -Infinity
  /** Commits were made without recording their events since the last recorded event. */
  #unrecorded = false

  /** `ring` keeps events for watchers that resume. */
  constructor(ring: Ring, runtime: Pick<Runtime, 'now' | 'defer'>) {
    this.#ring = ring
    this.#runtime = runtime
  }

  /** Whether a commit made now should record its events. */
  recording(now: Time): boolean {
    return this.#eventWatchers > 0 || now < this.#lastEventWatcherLeft + RECORD_FOR
  }

  /** Adds a listener. */
  watch({ events = false, from }: WatchOptions, listener: (notice: Notice) => void): Stop {
    if (events) {
      if (this.#unrecorded) this.#skip()
      this.#eventWatchers++
    }
    const resumes = events && from !== undefined
    const watcher: Watcher = { listener, events, since: resumes ? Infinity : this.#ring.next }
    this.#watchers.add(watcher)
    if (resumes) this.#runtime.defer(() => this.#resume(watcher, resumeAfter(from)))
    return () => this.#stop(watcher)
  }

  /** Sends a watcher the events that it missed, one page per turn of the event loop, until it has caught up. */
  #resume(watcher: Watcher, after: number): void {
    if (!this.#watchers.has(watcher)) return
    const { events, gap, last, more } = this.#ring.page(after)
    if (more) this.#runtime.defer(() => this.#resume(watcher, last))
    else watcher.since = last + 1
    if (gap || events.length > 0) this.#notify(watcher, { work: [], due: [], revoked: [], events, gap })
  }

  /** Publishes the notices of a commit in a microtask. */
  publish(notices: Notices): void {
    if (!notices.recording) this.#unrecorded = true
    if (notices.events.length > 0 && this.#unrecorded) this.#skip()
    const first = this.#ring.next
    this.#ring.append(notices.events)
    if (this.#watchers.size === 0) return
    const work = [...notices.work]
    const due = Array.from(notices.due, ([queue, at]) => ({ queue, at }))
    const { revoked, held, events } = notices
    const hasHints = notices.hints
    if (!hasHints && events.length === 0) return
    const hintsOnly: Notice = { work, due, revoked, ...(held.length > 0 && { held }), events: NO_EVENTS, gap: false }
    const withEvents: Notice = { ...hintsOnly, events }
    microtask(() => {
      for (const watcher of this.#watchers) {
        if (watcher.events && watcher.since <= first) this.#notify(watcher, withEvents)
        else if (hasHints) this.#notify(watcher, hintsOnly)
      }
    })
  }

  /** Removes all watchers. */
  close(): void {
    this.#watchers.clear()
  }

  #stop(watcher: Watcher): void {
    if (!this.#watchers.delete(watcher) || !watcher.events) return
    this.#eventWatchers--
    if (this.#eventWatchers === 0) this.#lastEventWatcherLeft = this.#runtime.now()
  }

  #skip(): void {
    this.#ring.skip()
    this.#unrecorded = false
  }

  #notify(watcher: Watcher, notice: Notice): void {
    if (!this.#watchers.has(watcher)) return
    try {
      watcher.listener(notice)
    } catch {
      // Listeners handle their own errors. The others must get this notice all the same.
    }
  }
}

// stores/postgres/feed.ts: who is told what after a commit, through this process or another on the same database.
import type { Millis } from '../../job/job.js'
import type { Stop } from '../../store/runtime.js'
import type { Notice, StoreEvent, WatchOptions } from '../../store/store.js'
import { anyHints, LINGER, Listeners, NO_EVENTS, NO_HINTS, PRESENT_FOR } from '../listeners.js'
import type { Hints, Watcher } from '../listeners.js'
import type { Told } from './events.js'

/** What the feed asks the database. */
export interface FeedSource {
  /** Says who watches here; answers where the stream is. */
  announce(present: Millis, events: Millis): Promise<{ readonly event: number; readonly floor: number }>
  /** The events after a number, from the oldest on that are held. */
  events(after: number): Promise<Told>
}

/** The watchers of one process. */
export class Feed {
  readonly #source: FeedSource
  readonly #listeners = new Listeners()
  /** The last event that was told here. */
  #position: number | undefined
  /** The last look that was begun; another is begun when it has ended. */
  #turn: Promise<void> = Promise.resolve()
  #looking = false
  #announcing: Promise<void> | undefined

  constructor(source: FeedSource) {
    this.#source = source
  }

  /** Whether anybody watches here. */
  get watched(): boolean {
    return this.#listeners.any
  }

  /** Whether the others have to be told who watches here before the next commit. */
  get isNew(): boolean {
    return this.#listeners.anyNew
  }

  /** Begins to tell a listener about commits. */
  watch(options: WatchOptions, listener: (notice: Notice) => void, left: () => void): Stop {
    return this.#listeners.add(options, listener, left)
  }

  /** Lets all of them go. */
  close(): void {
    this.#listeners.clear()
  }

  /** Tells the others who watches here, and finds out where new watchers begin; one at a time. */
  async announce(): Promise<void> {
    while (this.#announcing !== undefined) await this.#announcing.catch(() => {})
    this.#announcing = this.#announce()
    try {
      await this.#announcing
    } finally {
      this.#announcing = undefined
    }
  }

  async #announce(): Promise<void> {
    const fresh = this.#listeners.fresh()
    const events = this.#listeners.anyEvents
    const { event, floor } = await this.#source.announce(
      this.watched ? PRESENT_FOR : 0,
      events ? PRESENT_FOR + LINGER : 0,
    )
    if (events && (this.#position === undefined || fresh.some((watcher) => watcher.events))) {
      // Whatever has come to light until now belongs before the newcomers.
      this.#position ??= event
      await this.#inTurn()
    }
    if (!events) this.#position = undefined
    else if (this.#position === undefined) this.#position = event
    if (this.#position !== undefined && this.#position < floor) {
      this.#position = event // it slept, and nothing was recorded for it meanwhile
      this.#listeners.tell(NO_HINTS, NO_EVENTS, true)
    }
    const resuming = fresh.filter((watcher) => watcher.events && watcher.from !== undefined)
    for (const watcher of fresh) if (!resuming.includes(watcher)) watcher.since = this.#position ?? event
    for (const watcher of resuming) await this.#inTurn(() => this.#resume(watcher, watcher.from!, event))
  }

  /** Tells a watcher that resumes what it has missed; in turn, so that nothing newer is told before. */
  async #resume(watcher: Watcher, from: string, event: number): Promise<void> {
    const upTo = this.#position ?? event
    const after = /^\d+$/.test(from) ? Number(from) : -1
    const since = after > upTo ? -1 : after
    const { gap, events: told } = await this.#source.events(since)
    watcher.since = upTo // one that could not be told stays new, and is told the next time
    const events = told.filter(({ cursor }) => Number(cursor) <= upTo && Number(cursor) > since)
    if (gap || events.length > 0) queueMicrotask(() => this.#listeners.call(watcher, { ...NO_HINTS, events, gap }))
  }

  /** Tells what a commit through this process had to tell, soon. */
  publish(hints: Hints, events: number): void {
    if (!this.watched) return
    if (anyHints(hints)) this.#listeners.tell(hints, NO_EVENTS, false)
    if (events > 0) this.look()
  }

  /** Reads the events that have come to light, and passes them on; soon. */
  look(): void {
    if (this.#position === undefined || this.#looking) return
    this.#looking = true // one that has not begun will see what there is to see now
    this.#inTurn().catch(() => {}) // it is looked at again in a while
  }

  /** Reads from the stream one after the other, since all that is told depends on where it is. */
  #inTurn(work: () => Promise<void> = () => this.#look()): Promise<void> {
    const turn = this.#turn.then(work, work)
    this.#turn = turn.catch(() => {})
    return turn
  }

  async #look(): Promise<void> {
    this.#looking = false
    if (this.#position !== undefined) await this.#read(this.#position)
  }

  async #read(after: number): Promise<void> {
    const { last, gap, events: told } = await this.#source.events(after)
    const since = after > last ? -1 : after // of another stream, where that has begun anew
    const events = isAfter(told[0], since) ? told : told.filter((event) => isAfter(event, since))
    this.#position = gap ? last : Math.max(last, after)
    if (events.length > 0 || gap) this.#listeners.tell(NO_HINTS, events, gap)
  }
}

function isAfter(event: StoreEvent | undefined, number: number): boolean {
  return event === undefined || Number(event.cursor) > number
}

// stores/postgres/events.ts: who is told what after a commit, through this process or another on the same database.
import type { Millis } from '../../job/job.js'
import type { Stop } from '../../store/runtime.js'
import type { Notice, WatchOptions } from '../../store/store.js'
import type { EventPage } from '../event-pages.js'
import { anyHints, LINGER, Listeners, NO_EVENTS, NO_HINTS, PRESENT_FOR } from '../listeners.js'
import type { Hints, Watcher } from '../listeners.js'
import { ReadLoop } from '../read-loop.js'
import type { Waits } from '../read-loop.js'
import { Resuming } from '../resume.js'

/** How often to look whether commits under way have ended, at first and at most; and how often before others are let go on. */
const LOOK_SOON: Millis = 5
const LOOK_LATE: Millis = 250
const LOOKS = 10

/** Where the stream is. */
export interface Announced {
  readonly event: number
  /** Commits under way may not know that somebody watches here. */
  readonly fresh: boolean
  /** Nobody else watched events: what such commits do not record is recorded for nobody. */
  readonly first: boolean
}

/** What the feed asks the database. */
export interface FeedSource {
  /** Records who watches here. */
  announce(present: Millis, events: Millis): Promise<Announced>
  /** The commits under way, or those of a list that still are; and the last event then. */
  underWay(among?: readonly string[]): Promise<{ readonly event: number; readonly commits: readonly string[] }>
  /** A page of the events after a number. */
  events(after: number): Promise<EventPage>
  /** Records that events are missing before here, for all who read or resume. */
  skip(): Promise<void>
  /** Commits that did not know of the watchers here have ended late: whatever they had to tell besides events is lost. */
  overdue(): void
}

/** The watchers of one process. */
export class EventFeed {
  readonly #source: FeedSource
  readonly #pauses: Waits
  readonly #listeners = new Listeners()
  readonly #resuming: Resuming
  readonly #reading: ReadLoop
  /** The last event that was told here. */
  #position: number | undefined
  #announcing: Promise<void> | undefined
  /** Commits that were under way when watching began have not been waited for yet. */
  #owed: Pick<Announced, 'first'> | undefined

  constructor(source: FeedSource, pauses: Waits) {
    this.#source = source
    this.#pauses = pauses
    const pages = { page: (after: number) => source.events(after), position: () => this.#position }
    this.#resuming = new Resuming(this.#listeners, pages, pauses)
    this.#reading = new ReadLoop(() => this.#read(), pauses)
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
    this.#position = undefined
  }

  /** Resolves when the others know of everybody who watches here; all who wait for that wait for one call. */
  async known(): Promise<void> {
    while (this.isNew) await (this.#announcing ?? this.announce())
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
    const said = await this.#source.announce(this.watched ? PRESENT_FOR : 0, events ? PRESENT_FOR + LINGER : 0)
    if (said.fresh) this.#owed = { first: said.first || this.#owed?.first === true }
    const event = this.#owed === undefined ? said.event : await this.#settled(this.#owed, fresh)
    if (!events) this.#position = undefined
    else this.#position ??= event
    for (const watcher of fresh) {
      if (watcher.events && watcher.from !== undefined) this.#resuming.begin(watcher, watcher.from)
      else watcher.since = event
    }
    if (this.#position !== undefined && this.#position < event) this.look()
  }

  /**
   * Waits for the commits that were under way when watching began: they looked who watches before that, and may record
   * nothing. Those that take too long are waited for in the background, and then there is a gap. Returns the last event.
   */
  async #settled({ first }: Pick<Announced, 'first'>, fresh: readonly Watcher[]): Promise<number> {
    let { event, commits } = await this.#source.underWay()
    for (let looks = 0; commits.length > 0 && looks < LOOKS; looks++) {
      await this.#pauses.pause(Math.min(LOOK_LATE, LOOK_SOON * 2 ** looks))
      ;({ event, commits } = await this.#source.underWay(commits))
    }
    this.#owed = undefined
    if (commits.length > 0) void this.#outlast(commits, first, fresh)
    return event
  }

  async #outlast(under: readonly string[], first: boolean, fresh: readonly Watcher[]): Promise<void> {
    let commits = under
    for (let skipped = false, failures = 0; commits.length > 0 || !skipped;) {
      await this.#pauses.pause(LOOK_LATE)
      if (this.#pauses.closed) return
      try {
        if (commits.length > 0) ({ commits } = await this.#source.underWay(commits))
        else {
          if (first) await this.#source.skip()
          skipped = true
        }
        failures = 0
      } catch {
        await this.#pauses.backoff(failures++)
      }
    }
    if (!first) {
      // The others have been told everything: it is a gap for those alone who began meanwhile.
      for (const watcher of fresh) {
        if (watcher.events) this.#listeners.call(watcher, { ...NO_HINTS, events: NO_EVENTS, gap: true })
      }
    }
    this.#source.overdue()
  }

  /** Tells what a commit through this process had to tell, soon. */
  publish(hints: Hints, events: number): void {
    if (!this.watched) return
    if (anyHints(hints)) this.#listeners.tell(hints, NO_EVENTS, false)
    if (events > 0) this.look()
  }

  /** Reads the events that have come to light, and passes them on; soon. */
  look(): void {
    if (this.#position !== undefined) this.#reading.want()
  }

  /** Reads and tells a page; answers whether there is more. */
  async #read(): Promise<boolean> {
    const after = this.#position
    if (after === undefined) return false
    const { events, gap, last, more } = await this.#source.events(after)
    if (this.#position !== after) return true // everybody left, and somebody came
    this.#position = last
    if (events.length > 0 || gap) this.#listeners.tell(NO_HINTS, events, gap)
    return more
  }
}

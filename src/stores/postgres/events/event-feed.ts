// stores/postgres/events/event-feed.ts: delivers notices of commits, by any process on the database, to listeners.
import type { Millis } from '../../../job/job.js'
import type { Stop } from '../../../store/runtime.js'
import type { Notice, WatchOptions } from '../../../store/store.js'
import type { EventPage } from '../../event-pages.js'
import { anyHints, RECORD_FOR, Listeners, NO_EVENTS, NO_HINTS, PRESENCE_EXPIRES } from '../../listeners.js'
import type { Hints, Watcher } from '../../listeners.js'
import { ReadLoop } from '../../read-loop.js'
import type { Waits } from '../../read-loop.js'
import { Resuming } from '../../resume.js'

/** The first and longest delay between checks whether commits under way have ended, and the number of checks. */
const FIRST_CHECK: Millis = 5
const CHECK_EVERY: Millis = 250
const CHECKS = 10

/** The answer to an announcement: `event` is the last event of the stream. */
export interface CommitNotice {
  readonly event: number
  /** Commits under way may not know that this process watches. */
  readonly fresh: boolean
  /** No other process watched events, so that events that such commits do not record are lost for all. */
  readonly first: boolean
}

/** What the feed reads from and writes to the database. */
export interface FeedSource {
  /** Records for how long this process watches, and for how long it watches events. */
  announce(present: Millis, events: Millis): Promise<CommitNotice>
  /** The commits under way, or those of a list that still are, and the last event at that time. */
  underWay(among?: readonly string[]): Promise<{ readonly event: number; readonly commits: readonly string[] }>
  /** A page of the events after a number. */
  events(after: number): Promise<EventPage>
  /** Records a gap at the current position, for all who read or resume. */
  skip(): Promise<void>
  /** Commits that did not know of the watchers here have ended late: their hints are lost. */
  overdue(): void
}

/** The watchers of one process. */
export class EventFeed {
  readonly #source: FeedSource
  readonly #waits: Waits
  readonly #listeners = new Listeners()
  readonly #resuming: Resuming
  readonly #reading: ReadLoop
  /** The last event that was delivered here. */
  #position: number | undefined
  #announcing: Promise<void> | undefined
  /** Set until the commits that were under way when watching began have been waited for. */
  #unsettled: Pick<CommitNotice, 'first'> | undefined

  constructor(source: FeedSource, waits: Waits) {
    this.#source = source
    this.#waits = waits
    const pages = { page: (after: number) => source.events(after), position: () => this.#position }
    this.#resuming = new Resuming(this.#listeners, pages, waits)
    this.#reading = new ReadLoop(() => this.#read(), waits)
  }

  /** Whether this process has watchers. */
  get watched(): boolean {
    return this.#listeners.any
  }

  /** Whether a new watcher must be announced before the next commit. */
  get isNew(): boolean {
    return this.#listeners.anyNew
  }

  /** Adds a listener for notices of commits; `left` is called when it stops. */
  watch(options: WatchOptions, listener: (notice: Notice) => void, left: () => void): Stop {
    return this.#listeners.add(options, listener, left)
  }

  /** Removes all listeners. */
  close(): void {
    this.#listeners.clear()
    this.#position = undefined
  }

  /** Resolves when every watcher here is announced; concurrent callers share one call. */
  async known(): Promise<void> {
    while (this.isNew) await (this.#announcing ?? this.announce())
  }

  /** Announces the watchers of this process, and sets the position at which new watchers begin; one call at a time. */
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
    const announced = await this.#source.announce(
      this.watched ? PRESENCE_EXPIRES : 0,
      events ? PRESENCE_EXPIRES + RECORD_FOR : 0,
    )
    if (announced.fresh) this.#unsettled = { first: announced.first || this.#unsettled?.first === true }
    const event = this.#unsettled === undefined ? announced.event : await this.#settle(this.#unsettled, fresh)
    if (!events) this.#position = undefined
    else this.#position ??= event
    for (const watcher of fresh) {
      if (watcher.events && watcher.from !== undefined) this.#resuming.begin(watcher, watcher.from)
      else watcher.since = event
    }
    if (this.#position !== undefined && this.#position < event) this.look()
  }

  /**
   * Waits for the commits that were under way when watching began: they read the list of watchers before that, and may
   * record no events. Commits that take too long are waited for in the background, and a gap is reported when they end.
   * Returns the last event.
   */
  async #settle({ first }: Pick<CommitNotice, 'first'>, fresh: readonly Watcher[]): Promise<number> {
    let { event, commits } = await this.#source.underWay()
    for (let checks = 0; commits.length > 0 && checks < CHECKS; checks++) {
      await this.#waits.pause(Math.min(CHECK_EVERY, FIRST_CHECK * 2 ** checks))
      ;({ event, commits } = await this.#source.underWay(commits))
    }
    this.#unsettled = undefined
    if (commits.length > 0) void this.#awaitLate(commits, first, fresh)
    return event
  }

  /** Waits for late commits to end, then reports a gap: to all if this process was the first to watch, else to `fresh`. */
  async #awaitLate(late: readonly string[], first: boolean, fresh: readonly Watcher[]): Promise<void> {
    let commits = late
    for (let skipped = false, failures = 0; commits.length > 0 || !skipped;) {
      await this.#waits.pause(CHECK_EVERY)
      if (this.#waits.closed) return
      try {
        if (commits.length > 0) ({ commits } = await this.#source.underWay(commits))
        else {
          if (first) await this.#source.skip()
          skipped = true
        }
        failures = 0
      } catch {
        await this.#waits.backoff(failures++)
      }
    }
    if (!first) {
      // Other watchers had everything recorded for them: only those that began meanwhile have a gap.
      for (const watcher of fresh) {
        if (watcher.events) this.#listeners.call(watcher, { ...NO_HINTS, events: NO_EVENTS, gap: true })
      }
    }
    this.#source.overdue()
  }

  /** Publishes the hints of a commit, and reads its events soon. */
  publish(hints: Hints, events: number): void {
    if (!this.watched) return
    if (anyHints(hints)) this.#listeners.tell(hints, NO_EVENTS, false)
    if (events > 0) this.look()
  }

  /** Reads and delivers new events soon. */
  look(): void {
    if (this.#position !== undefined) this.#reading.want()
  }

  /** Reads and delivers a page; returns whether there is more. */
  async #read(): Promise<boolean> {
    const after = this.#position
    if (after === undefined) return false
    const { events, gap, last, more } = await this.#source.events(after)
    if (this.#position !== after) return true // all watchers left, and a new one came
    this.#position = last
    if (events.length > 0 || gap) this.#listeners.tell(NO_HINTS, events, gap)
    return more
  }
}

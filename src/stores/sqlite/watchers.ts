// stores/sqlite/watchers.ts: publishes notices to the watchers of this handle and of other handles on the same file.
import type { Time } from '../../job/job.js'
import type { Stop } from '../../store/runtime.js'
import type { Notice, Revoked, WatchOptions } from '../../store/store.js'
import type { StoreEvent } from '../../job/events.js'
import type { HoldEnd } from '../../job/holds.js'
import { storedEvent } from '../../job/events.js'
import type { EventDraft } from '../../job/events.js'
import { eventBytes, PAGE_BYTES, PAGE_EVENTS } from '../event-pages.js'
import type { EventPage } from '../event-pages.js'
import { anyHints, RECORD_FOR, Listeners, NO_EVENTS, PRESENCE_EXPIRES } from '../listeners.js'
import type { Hints } from '../listeners.js'
import type { Waits } from '../read-loop.js'
import { Resuming } from '../resume.js'
import type { Cache } from './cache.js'
import type { Notices } from '../../engine/notices.js'
import type { SqliteWorkspace } from './workspace.js'

/** Notices kept for handles that read slowly, and notices read at a time. */
const NOTICES_KEPT = 1_000
const NOTICES_READ = 200

/** Approximate number of bytes of events per row; the events of a commit take several rows if they are larger. */
const ROW_BYTES = PAGE_BYTES / 4

/** How many events are kept. */
export interface RingBounds {
  readonly ring: number
  readonly ringBytes: number
}

/** How the feed reads outside of transactions. */
export interface FeedReads {
  /** Makes the store call `readNotices` soon, and retries it if it fails. */
  readSoon(): void
  /** Reads a page of events, as `page` does. */
  page(after: number): Promise<EventPage>
  readonly waits: Waits
}

/** The watchers of one handle. */
export class EventFeed {
  /** Identifies this handle among all handles on the file. */
  readonly #id: string
  readonly #bounds: RingBounds
  readonly #reads: FeedReads | undefined
  readonly #listeners = new Listeners()
  readonly #resumeReader: Resuming | undefined
  /** The last event that was published here, and the last notice of another handle that was read. */
  #position: number | undefined
  #notice: number | undefined
  /** Until when this handle is announced to the others as watching, and as watching events. */
  #announced = { until: -Infinity, eventsUntil: -Infinity }

  /** Without `reads`, there can be no watchers. */
  constructor(id: string, bounds: RingBounds, reads?: FeedReads) {
    this.#id = id
    this.#bounds = bounds
    this.#reads = reads
    if (reads === undefined) return
    const source = { page: (after: number) => reads.page(after), position: () => this.#position }
    this.#resumeReader = new Resuming(this.#listeners, source, reads.waits)
  }

  /** Whether there are any watchers. */
  get watched(): boolean {
    return this.#listeners.any
  }

  /** Whether new watchers must be announced to other handles before the next commit. */
  get isNew(): boolean {
    return this.#listeners.anyNew
  }

  /** Adds a listener, which gets notices from the next transaction on. */
  watch(options: WatchOptions, listener: (notice: Notice) => void, onStop: () => void): Stop {
    return this.#listeners.add(options, listener, onStop)
  }

  /** Removes all watchers. */
  close(): void {
    this.#listeners.clear()
  }

  /**
   * Announces the watchers here to other handles, inside a transaction of its own, and sets where new watchers start.
   * Returns a function to call once that is durable.
   */
  announce(cache: Cache, now: Time): () => void {
    const { sql } = cache
    const events = this.#listeners.anyEvents
    const until = this.watched ? now + PRESENCE_EXPIRES : now
    const announced = {
      until,
      eventsUntil: events ? until + RECORD_FOR : Math.min(this.#announced.eventsUntil, now + RECORD_FOR),
    }
    if (events && cache.numbers.unrecorded > 0) {
      this.#skipUnrecorded(cache)
      for (const what of ['event', 'floor', 'unrecorded'] as const) sql.setNumber.run(what, cache.numbers[what])
    }
    sql.dropPeers.run(now)
    sql.setPeer.run(this.#id, announced.until, Math.max(announced.eventsUntil, 0))
    cache.forgetPeers()
    const { event, notice } = cache.numbers
    const newWatchers = this.#listeners.fresh()
    return () => {
      this.#announced = announced
      this.#notice = this.watched ? (this.#notice ?? notice) : undefined
      if (events) this.#position ??= event
      // The process may have slept, or its clock was set, and nothing was recorded for it meanwhile: the read finds the gap.
      if (this.#position !== undefined && this.#position < event) this.#reads?.readSoon()
      for (const watcher of newWatchers) {
        if (watcher.events && watcher.from !== undefined) this.#resumeReader?.begin(watcher, watcher.from)
        else watcher.since = event
      }
      if (!events) this.#position = undefined
    }
  }

  /** Marks that events were not recorded, so that no watcher can resume from before here. */
  #skipUnrecorded({ sql, numbers }: Cache): void {
    sql.dropEvents.run(numbers.event)
    numbers.event++
    numbers.floor = numbers.event
    numbers.unrecorded = 0
  }

  /** A page of the events after a number, or of the oldest events kept. Call it within a snapshot. */
  page({ sql, numbers }: Cache, after: number): EventPage {
    const { event, floor } = numbers
    const gap = after < floor || after > event
    const since = gap ? floor : after
    const events: StoreEvent[] = []
    for (let last = since, bytes = 0; ;) {
      const row = sql.eventsAfter.get(last)
      if (row === undefined) return { events, gap, last: event, more: false }
      const [end, body] = row as [number, string]
      bytes += body.length
      if (last > since && (bytes > PAGE_BYTES || end > since + PAGE_EVENTS)) return { events, gap, last, more: true }
      for (const event of JSON.parse(body) as StoreEvent[]) {
        if (Number(event.cursor) > since) events.push(storedEvent(event))
      }
      last = end
    }
  }

  /** Whether a commit made now should record its events. */
  recording(cache: Cache, now: Time): boolean {
    return this.#listeners.anyEvents || cache.peers.some(({ eventsUntil }) => eventsUntil > now)
  }

  /**
   * Writes the notices of a commit to the file, for other handles and for watchers that resume. Returns whether to wake
   * them.
   */
  record({ cache, sql, numbers, now }: SqliteWorkspace, notices: Notices): boolean {
    if (!notices.recording) numbers.unrecorded = 1
    else if (notices.events.length > 0) {
      if (numbers.unrecorded > 0) this.#skipUnrecorded(cache)
      for (const chunk of chunks(notices.events)) {
        for (const event of chunk) event.cursor = String(++numbers.event)
        const body = JSON.stringify(chunk)
        sql.addEvents.run(numbers.event, numbers.bytes, body)
        numbers.bytes += body.length
      }
      this.#trim(cache)
    }
    if (!cache.peers.some(({ id, until }) => id !== this.#id && until > now)) return false
    if (notices.hints) {
      sql.addNotice.run(++numbers.notice, this.#id, JSON.stringify(hintsOf(notices)))
      sql.dropNotices.run(numbers.notice - NOTICES_KEPT)
    }
    return notices.any
  }

  /**
   * Drops the oldest events, row by row, but never the last row. The file stores the floor, because other handles may
   * keep more or fewer events.
   */
  #trim({ sql, numbers }: Cache): void {
    const { ring, ringBytes } = this.#bounds
    for (;;) {
      const [last, start] = sql.eventRowAfter.get(numbers.floor) as [number, number]
      if (last === numbers.event || (last > numbers.event - ring && numbers.bytes - start <= ringBytes)) break
      numbers.floor = last
    }
    sql.dropEvents.run(numbers.floor)
  }

  /** Publishes the notices of a commit through this handle to the watchers here. */
  publish(notices: Notices): void {
    if (!this.watched || !notices.any) return
    const hints = hintsOf(notices)
    const first = notices.events[0]
    if (first !== undefined && Number(first.cursor) - 1 === this.#position) {
      this.#position = Number(notices.events.at(-1)!.cursor)
      this.#listeners.tell(hints, notices.events, false)
      return
    }
    // Other handles may have recorded events before these, which must be published first.
    if (first !== undefined) this.#reads?.readSoon()
    this.#listeners.tell(hints, NO_EVENTS, false)
  }

  /**
   * Reads a page of the notices of other handles, and publishes it here. Call it within a snapshot. Returns whether
   * there was anything.
   */
  readNotices(cache: Cache): boolean {
    if (this.#notice === undefined) return false
    const work = new Set<string>()
    const due: Hints['due'][number][] = []
    const revoked: Revoked[] = []
    const held: HoldEnd[] = []
    const notices = cache.sql.noticesAfter.all(this.#notice, NOTICES_READ) as [number, string, string][]
    const missed = notices.length > 0 && notices[0]![0] > this.#notice + 1 // it read too slowly
    for (const [number, origin, body] of notices) {
      this.#notice = number
      if (origin === this.#id) continue
      const hints = JSON.parse(body) as Hints
      for (const queue of hints.work) work.add(queue)
      due.push(...hints.due)
      revoked.push(...hints.revoked)
      if (hints.held !== undefined) held.push(...hints.held)
    }
    const page = this.#position === undefined ? undefined : this.page(cache, this.#position)
    if (page !== undefined) this.#position = page.last
    if (page?.more === true || notices.length === NOTICES_READ) this.#reads?.readSoon()
    const { events = NO_EVENTS, gap = false } = page ?? {}
    const hints: Hints = { work: [...work], due, revoked, ...(held.length > 0 && { held }), ...(missed && { missed }) }
    const found = anyHints(hints) || events.length > 0 || gap
    if (found) this.#listeners.tell(hints, events, gap)
    return found
  }
}

/** Splits the events of a commit into rows that pages can be made of; most commits need one row. */
function* chunks(events: readonly EventDraft[]): Generator<readonly EventDraft[]> {
  let from = 0
  let bytes = 0
  for (const [at, event] of events.entries()) {
    bytes += eventBytes(event)
    if (bytes <= ROW_BYTES || at === from) continue
    yield events.slice(from, at)
    from = at
    bytes = eventBytes(event)
  }
  yield from === 0 ? events : events.slice(from)
}

function hintsOf(notices: Notices): Hints {
  return {
    work: [...notices.work],
    due: Array.from(notices.due, ([queue, at]) => ({ queue, at })),
    revoked: notices.revoked,
    ...(notices.held.length > 0 && { held: notices.held }),
  }
}

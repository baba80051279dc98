// stores/sqlite/events.ts: who is told what after a commit, through this handle or another on the same file.
import type { Time } from '../../job/job.js'
import type { Stop } from '../../store/runtime.js'
import type { Notice, Revoked, StoreEvent, WatchOptions } from '../../store/store.js'
import { storedEvent } from '../event-drafts.js'
import type { EventDraft } from '../event-drafts.js'
import { eventBytes, PAGE_BYTES, PAGE_EVENTS } from '../event-pages.js'
import type { EventPage } from '../event-pages.js'
import { anyHints, LINGER, Listeners, NO_EVENTS, PRESENT_FOR } from '../listeners.js'
import type { Hints } from '../listeners.js'
import type { Waits } from '../read-loop.js'
import { Resuming } from '../resume.js'
import type { Cache } from './cache.js'
import type { Notices } from './notices.js'
import type { Transaction } from './transaction.js'

/** Notices kept for handles that are slow to read them, and read at a time. */
const NOTICES = 1_000
const PAGE_NOTICES = 200

/** Bytes of events in a row, about: what a commit has to tell takes several where it is more. */
const ROW_BYTES = PAGE_BYTES / 4

/** What bounds the events that are kept. */
export interface RingBounds {
  readonly ring: number
  readonly ringBytes: number
}

/** How the feed reads when it is not in the middle of a transaction. */
export interface FeedReads {
  /** Has the store call `look` soon, and again where that fails. */
  soon(): void
  /** Reads a page of events, as `page` does. */
  page(after: number): Promise<EventPage>
  readonly pauses: Waits
}

/** The watchers of one handle. */
export class EventFeed {
  /** This handle among those on the file. */
  readonly #id: string
  readonly #bounds: RingBounds
  readonly #reads: FeedReads | undefined
  readonly #listeners = new Listeners()
  readonly #resuming: Resuming | undefined
  /** The last event that was told here, and the last notice of another handle that was read. */
  #position: number | undefined
  #notice: number | undefined
  /** Whether this handle is known to the others as watching, and as watching events. */
  #known = { until: -Infinity, eventsUntil: -Infinity }

  /** Without `reads`, nobody can watch here. */
  constructor(id: string, bounds: RingBounds, reads?: FeedReads) {
    this.#id = id
    this.#bounds = bounds
    this.#reads = reads
    if (reads === undefined) return
    const source = { page: (after: number) => reads.page(after), position: () => this.#position }
    this.#resuming = new Resuming(this.#listeners, source, reads.pauses)
  }

  /** Whether anybody watches here. */
  get watched(): boolean {
    return this.#listeners.any
  }

  /** Whether the others have to be told who watches here before the next commit. */
  get isNew(): boolean {
    return this.#listeners.anyNew
  }

  /** Begins to tell a listener about commits, from the next transaction on. */
  watch(options: WatchOptions, listener: (notice: Notice) => void, left: () => void): Stop {
    return this.#listeners.add(options, listener, left)
  }

  /** Lets all of them go. */
  close(): void {
    this.#listeners.clear()
  }

  /**
   * Tells the other handles, inside a transaction of its own, who watches here; finds out where new watchers begin.
   * Answers what to do once that is durable.
   */
  announce(ground: Cache, now: Time): () => void {
    const { sql } = ground
    const events = this.#listeners.anyEvents
    const until = this.watched ? now + PRESENT_FOR : now
    const known = { until, eventsUntil: events ? until + LINGER : Math.min(this.#known.eventsUntil, now + LINGER) }
    if (events && ground.numbers.unrecorded > 0) {
      this.#skip(ground)
      for (const what of ['event', 'floor', 'unrecorded'] as const) sql.setNumber.run(what, ground.numbers[what])
    }
    sql.dropPeers.run(now)
    sql.setPeer.run(this.#id, known.until, Math.max(known.eventsUntil, 0))
    ground.forgetPeers()
    const { event, notice } = ground.numbers
    const fresh = this.#listeners.fresh()
    return () => {
      this.#known = known
      this.#notice = this.watched ? (this.#notice ?? notice) : undefined
      if (events) this.#position ??= event
      // It may have slept, or its clock was set, and nothing was recorded for it meanwhile: the look finds the gap.
      if (this.#position !== undefined && this.#position < event) this.#reads?.soon()
      for (const watcher of fresh) {
        if (watcher.events && watcher.from !== undefined) this.#resuming?.begin(watcher, watcher.from)
        else watcher.since = event
      }
      if (!events) this.#position = undefined
    }
  }

  /** Events have gone by unrecorded: nobody can resume from before here. */
  #skip({ sql, numbers }: Cache): void {
    sql.dropEvents.run(numbers.event)
    numbers.event++
    numbers.floor = numbers.event
    numbers.unrecorded = 0
  }

  /** A page of the events after a number, from the oldest on that are held; within a snapshot. */
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
      for (const told of JSON.parse(body) as StoreEvent[]) {
        if (Number(told.cursor) > since) events.push(storedEvent(told))
      }
      last = end
    }
  }

  /** Whether a commit made now should record its events. */
  recording(ground: Cache, now: Time): boolean {
    return this.#listeners.anyEvents || ground.peers.some(({ eventsUntil }) => eventsUntil > now)
  }

  /** Writes what a commit has to tell into the file, for other handles and for those who resume. Tells whether to wake them. */
  record({ ground, sql, numbers, news, now }: Transaction): boolean {
    if (!news.recording) numbers.unrecorded = 1
    else if (news.events.length > 0) {
      if (numbers.unrecorded > 0) this.#skip(ground)
      for (const part of parts(news.events)) {
        for (const event of part) event.cursor = String(++numbers.event)
        const body = JSON.stringify(part)
        sql.addEvents.run(numbers.event, numbers.bytes, body)
        numbers.bytes += body.length
      }
      this.#trim(ground)
    }
    if (!ground.peers.some(({ id, until }) => id !== this.#id && until > now)) return false
    if (news.hints) {
      sql.addNotice.run(++numbers.notice, this.#id, JSON.stringify(hintsOf(news)))
      sql.dropNotices.run(numbers.notice - NOTICES)
    }
    return news.any
  }

  /**
   * Drops the oldest events, by row; the last is held in any case. The floor is kept in the file, because
   * others on it may hold more or fewer.
   */
  #trim({ sql, numbers }: Cache): void {
    const { ring, ringBytes } = this.#bounds
    for (;;) {
      const [last, start] = sql.heldAfter.get(numbers.floor) as [number, number]
      if (last === numbers.event || (last > numbers.event - ring && numbers.bytes - start <= ringBytes)) break
      numbers.floor = last
    }
    sql.dropEvents.run(numbers.floor)
  }

  /** Tells the watchers here what a commit through this handle had to tell, soon. */
  publish(news: Notices): void {
    if (!this.watched || !news.any) return
    const hints = hintsOf(news)
    const first = news.events[0]
    if (first !== undefined && Number(first.cursor) - 1 === this.#position) {
      this.#position = Number(news.events.at(-1)!.cursor)
      this.#listeners.tell(hints, news.events, false)
      return
    }
    // Others may have told something before this, which has to come first.
    if (first !== undefined) this.#reads?.soon()
    this.#listeners.tell(hints, NO_EVENTS, false)
  }

  /** Reads a page of what other handles have told since, and passes it on; within a snapshot. Tells whether there was anything. */
  look(ground: Cache): boolean {
    if (this.#notice === undefined) return false
    const work = new Set<string>()
    const due: Hints['due'][number][] = []
    const revoked: Revoked[] = []
    const notices = ground.sql.noticesAfter.all(this.#notice, PAGE_NOTICES) as [number, string, string][]
    const missed = notices.length > 0 && notices[0]![0] > this.#notice + 1 // it was so slow that some are gone
    for (const [n, origin, body] of notices) {
      this.#notice = n
      if (origin === this.#id) continue
      const told = JSON.parse(body) as Hints
      for (const queue of told.work) work.add(queue)
      due.push(...told.due)
      revoked.push(...told.revoked)
    }
    const page = this.#position === undefined ? undefined : this.page(ground, this.#position)
    if (page !== undefined) this.#position = page.last
    if (page?.more === true || notices.length === PAGE_NOTICES) this.#reads?.soon()
    const { events = NO_EVENTS, gap = false } = page ?? {}
    const told: Hints = { work: [...work], due, revoked, ...(missed && { missed }) }
    const any = anyHints(told) || events.length > 0 || gap
    if (any) this.#listeners.tell(told, events, gap)
    return any
  }
}

/** The events of a commit in rows that pages can be made of; most are small enough for one. */
function* parts(events: readonly EventDraft[]): Generator<readonly EventDraft[]> {
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

function hintsOf(news: Notices): Hints {
  return {
    work: [...news.work],
    due: Array.from(news.due, ([queue, at]) => ({ queue, at })),
    revoked: news.revoked,
  }
}

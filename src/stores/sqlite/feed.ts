// stores/sqlite/feed.ts: who is told what after a commit, through this handle or another on the same file.
import type { Time } from '../../job/job.js'
import type { Stop } from '../../store/runtime.js'
import type { Notice, Revoked, StoreEvent, WatchOptions } from '../../store/store.js'
import { storedEvent } from '../announce.js'
import { anyHints, LINGER, Listeners, NO_EVENTS, NO_HINTS, PRESENT_FOR } from '../listeners.js'
import type { Hints, Watcher } from '../listeners.js'
import type { Ground } from './ground.js'
import type { News } from './news.js'
import type { Transaction } from './transaction.js'

/** Notices kept for handles that are slow to read them. */
const NOTICES = 1_000

/** The watchers of one handle. */
export class Feed {
  /** This handle among those on the file. */
  readonly #id: string
  readonly #ring: number
  readonly #listeners = new Listeners()
  /** The last event that was told here, and the last notice of another handle that was read. */
  #position: number | undefined
  #notice: number | undefined
  /** Whether this handle is known to the others as watching, and as watching events. */
  #known = { until: -Infinity, eventsUntil: -Infinity }

  constructor(id: string, ring: number) {
    this.#id = id
    this.#ring = ring
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
  announce(ground: Ground, now: Time): () => void {
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
    const { event, floor, notice } = ground.numbers
    const fresh = this.#listeners.fresh()
    const missed = fresh.map((watcher) => this.#missed(ground, watcher))
    return () => {
      this.#known = known
      this.#notice = this.watched ? (this.#notice ?? notice) : undefined
      if (events) this.#position ??= event
      if (this.#position !== undefined && this.#position < floor) {
        this.#position = event // it slept, or its clock was set: nothing was recorded for it meanwhile
        this.#listeners.tell(NO_HINTS, NO_EVENTS, true)
      }
      for (const [at, watcher] of fresh.entries()) {
        watcher.since = event
        const told = missed[at]
        if (told !== undefined) queueMicrotask(() => this.#listeners.call(watcher, told))
      }
      if (!events) this.#position = undefined
    }
  }

  /** Events have gone by unrecorded: nobody can resume from before here. */
  #skip({ sql, numbers }: Ground): void {
    sql.dropEvents.run(numbers.event)
    numbers.event++
    numbers.floor = numbers.event
    numbers.unrecorded = 0
  }

  /** What a watcher that resumes has missed. */
  #missed(ground: Ground, { events, from }: Watcher): Notice | undefined {
    if (!events || from === undefined) return undefined
    const { event } = ground.numbers
    const first = this.#firstHeld(ground)
    const after = /^\d+$/.test(from) ? Number(from) : -1
    const gap = after < first - 1 || after > event
    const held = this.#read(ground, gap ? first - 1 : after)
    return gap || held.length > 0 ? { ...NO_HINTS, events: held, gap } : undefined
  }

  #firstHeld({ numbers }: Ground): number {
    return numbers.floor + 1
  }

  /** The events after one that are held. */
  #read({ sql }: Ground, after: number): StoreEvent[] {
    const events = sql.eventsAfter.all(after).flatMap(([, body]) => JSON.parse(body as string) as StoreEvent[])
    return events.filter(({ cursor }) => Number(cursor) > after).map(storedEvent)
  }

  /** Whether a commit made now should record its events. */
  recording(ground: Ground, now: Time): boolean {
    return this.#listeners.anyEvents || ground.peers.some(({ eventsUntil }) => eventsUntil > now)
  }

  /** Writes what a commit has to tell into the file, for other handles and for those who resume. Tells whether to wake them. */
  record({ ground, sql, numbers, news, now }: Transaction): boolean {
    if (!news.recording) numbers.unrecorded = 1
    else if (news.events.length > 0) {
      if (numbers.unrecorded > 0) this.#skip(ground)
      for (const event of news.events) event.cursor = String(++numbers.event)
      sql.addEvents.run(numbers.event, JSON.stringify(news.events))
      // Kept in the file, because others on it may hold more or fewer.
      numbers.floor = Math.max(numbers.floor, numbers.event - this.#ring)
      sql.dropEvents.run(numbers.floor)
    }
    if (!ground.peers.some(({ id, until }) => id !== this.#id && until > now)) return false
    if (news.hints) {
      sql.addNotice.run(++numbers.notice, this.#id, JSON.stringify(hintsOf(news)))
      sql.dropNotices.run(numbers.notice - NOTICES)
    }
    return news.any
  }

  /** Tells the watchers here what a commit through this handle had to tell, soon. */
  publish(ground: Ground, news: News): void {
    if (!this.watched || !news.any) return
    const hints = hintsOf(news)
    const first = news.events[0]
    if (first === undefined || this.#position === undefined) return this.#listeners.tell(hints, NO_EVENTS, false)
    // Others may have told something before this, which has to come first.
    if (Number(first.cursor) !== this.#position + 1) this.look(ground, hints)
    else {
      this.#position = Number(news.events.at(-1)!.cursor)
      this.#listeners.tell(hints, news.events, false)
    }
  }

  /** Reads what other handles have told since, and passes it on. Tells whether there was anything. */
  look(ground: Ground, hints: Hints = NO_HINTS): boolean {
    if (this.#notice === undefined) return false
    const work = new Set(hints.work)
    const due = [...hints.due]
    const revoked: Revoked[] = [...hints.revoked]
    const notices = ground.sql.noticesAfter.all(this.#notice) as [number, string, string][]
    const missed = notices.length > 0 && notices[0]![0] > this.#notice + 1 // it was so slow that some are gone
    for (const [n, origin, body] of notices) {
      this.#notice = n
      if (origin === this.#id) continue
      const told = JSON.parse(body) as Hints
      for (const queue of told.work) work.add(queue)
      due.push(...told.due)
      revoked.push(...told.revoked)
    }
    let events = NO_EVENTS
    let gap = false
    if (this.#position !== undefined) {
      gap = this.#position < this.#firstHeld(ground) - 1
      events = this.#read(ground, gap ? this.#firstHeld(ground) - 1 : this.#position)
      const last = events.at(-1)
      if (last !== undefined) this.#position = Number(last.cursor)
      else if (gap) this.#position = ground.numbers.event
    }
    const told: Hints = { work: [...work], due, revoked, ...(missed && { missed }) }
    const any = anyHints(told) || events.length > 0 || gap
    if (any) this.#listeners.tell(told, events, gap)
    return any
  }
}

function hintsOf(news: News): Hints {
  return {
    work: [...news.work],
    due: Array.from(news.due, ([queue, at]) => ({ queue, at })),
    revoked: news.revoked,
  }
}

// stores/resume.ts: sends a subscriber that resumes the events it missed, page by page, until it has caught up.
import type { EventPage } from './event-pages.js'
import { resumeAfter } from './event-pages.js'
import type { Listeners, Watcher } from './listeners.js'
import { NO_EVENTS, NO_HINTS, RESUMING } from './listeners.js'
import type { Waits } from './read-loop.js'

/** Consecutive failures after which a subscriber gets a gap instead of the events it missed. */
const MAX_TRIES = 5

/** Where pages come from. */
export interface ResumeSource {
  /** Reads the events after a number. */
  page(after: number): Promise<EventPage>
  /** The last event that was published to the other subscribers. */
  position(): number | undefined
}

/** The subscribers of one process that resume. */
export class Resuming {
  readonly #listeners: Listeners
  readonly #source: ResumeSource
  readonly #waits: Waits

  constructor(listeners: Listeners, source: ResumeSource, waits: Waits) {
    this.#listeners = listeners
    this.#source = source
    this.#waits = waits
  }

  /**
   * Starts to send a subscriber the events it missed. No caller waits for this, and a failure affects no other
   * subscriber.
   */
  begin(watcher: Watcher, from: string): void {
    watcher.since = RESUMING
    void this.#resume(watcher, resumeAfter(from))
  }

  async #resume(watcher: Watcher, from: number): Promise<void> {
    let at = from
    for (let failures = 0; ;) {
      // Also before the first page: a subscriber that resumes again at once must not block the event loop.
      await this.#waits.nextLoopTurn()
      if (!this.#listeners.has(watcher)) return
      let page: EventPage
      try {
        page = await this.#source.page(at)
        failures = 0
      } catch {
        failures++
        if (failures < MAX_TRIES) {
          await this.#waits.backoff(failures)
          continue
        }
        page = { events: NO_EVENTS, gap: true, last: this.#source.position() ?? at, more: false }
      }
      at = page.last
      const { events, gap } = page
      if (gap || events.length > 0) this.#listeners.call(watcher, { ...NO_HINTS, events, gap })
      // From here on it gets events with the others. No event can come between this check and the next one.
      if (!page.more && at >= (this.#source.position() ?? at)) {
        watcher.since = at
        return
      }
    }
  }
}

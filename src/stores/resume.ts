// stores/resume.ts: gives a subscriber that resumes what it missed, page by page, until it has caught up with the others.
import type { EventPage } from './event-pages.js'
import { resumeAfter } from './event-pages.js'
import type { Listeners, Watcher } from './listeners.js'
import { NO_EVENTS, NO_HINTS, RESUMING } from './listeners.js'
import type { Waits } from './read-loop.js'

/** Failures in a row after which a subscriber is told of a gap in place of what it missed. */
const TRIES = 5

/** Where pages come from. */
export interface ResumeSource {
  /** The events after a number. */
  page(after: number): Promise<EventPage>
  /** The last event that the other subscribers were told. */
  position(): number | undefined
}

/** The subscribers of one process that resume. */
export class Resuming {
  readonly #listeners: Listeners
  readonly #source: ResumeSource
  readonly #pauses: Waits

  constructor(listeners: Listeners, source: ResumeSource, pauses: Waits) {
    this.#listeners = listeners
    this.#source = source
    this.#pauses = pauses
  }

  /** Begins to tell a subscriber what it missed; nobody waits for that, and where it fails nobody else is concerned. */
  begin(watcher: Watcher, from: string): void {
    watcher.since = RESUMING
    void this.#resume(watcher, resumeAfter(from))
  }

  async #resume(watcher: Watcher, from: number): Promise<void> {
    let at = from
    for (let failures = 0; ;) {
      // Also before the first page: a reader that comes back for more at once must not hold up the event loop.
      await this.#pauses.turn()
      if (!this.#listeners.has(watcher)) return
      let page: EventPage
      try {
        page = await this.#source.page(at)
        failures = 0
      } catch {
        failures++
        if (failures < TRIES) {
          await this.#pauses.backoff(failures)
          continue
        }
        page = { events: NO_EVENTS, gap: true, last: this.#source.position() ?? at, more: false }
      }
      at = page.last
      const { events, gap } = page
      if (gap || events.length > 0) this.#listeners.call(watcher, { ...NO_HINTS, events, gap })
      // From here on it is told with the others: nothing can come between this look and the next event.
      if (!page.more && at >= (this.#source.position() ?? at)) {
        watcher.since = at
        return
      }
    }
  }
}

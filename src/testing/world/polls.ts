// testing/world/polls.ts: polls in virtual time, of which a clock skips those that would find nothing.
import type { Millis } from '../../job/job.js'
import type { Runtime, Stop } from '../../store/runtime.js'

interface Poll {
  /** When it would fire if none were skipped from here on. */
  at: Millis
  readonly delay: Millis
  /** How often something else had happened when it was armed. */
  readonly armed: number
  readonly work: (late: Millis) => void
  readonly slack: () => Millis
}

/**
 * The pending polls of a virtual clock. After everything else that happens, each poll fires at its time; if nothing else
 * happens from then on, those that follow are skipped, apart from the last one before the next timer. So a reader of
 * the store then finds it as if all of them had fired, heartbeats included.
 */
export class Polls {
  readonly #pending = new Set<Poll>()
  /** Counts what happens besides polls. */
  #happened = 0

  /**
   * Something else happens at this time: the next of each poll is not skipped. Those before it were, so the next one is
   * not late for them.
   */
  happens(now: Millis): void {
    for (const poll of this.#pending) {
      if (this.#isSkipped(poll)) poll.at += Math.max(0, Math.floor((now - poll.at) / poll.delay)) * poll.delay
    }
    this.#happened++
  }

  /** Adds a poll, at virtual time `now`. */
  add(now: Millis, ...[delay, work, slack]: Parameters<NonNullable<Runtime['poll']>>): Stop {
    const wait = Math.max(0, Math.ceil(delay))
    const poll: Poll = { at: now + wait, delay: wait, armed: this.#happened, work, slack }
    this.#pending.add(poll)
    return () => void this.#pending.delete(poll)
  }

  /** When the next poll fires that is not skipped, if nothing else happens before `limit`. */
  next(limit: Millis): Millis | undefined {
    return this.#first(limit)?.at
  }

  /** Fires that poll, at virtual time `now`. */
  fire(limit: Millis, now: Millis): void {
    const first = this.#first(limit)
    if (first === undefined) return
    this.#pending.delete(first.poll)
    first.poll.work(Math.max(0, now - first.at))
  }

  #first(limit: Millis): { readonly poll: Poll; readonly at: Millis } | undefined {
    let end = limit
    for (const poll of this.#pending) end = Math.min(end, poll.at + (this.#isSkipped(poll) ? poll.slack() : 0))
    let first: { readonly poll: Poll; readonly at: Millis } | undefined
    for (const poll of this.#pending) {
      const skipped = this.#isSkipped(poll) ? Math.max(0, Math.floor((end - poll.at) / poll.delay)) : 0
      const at = poll.at + skipped * poll.delay
      if (first === undefined || at < first.at) first = { poll, at }
    }
    return first
  }

  #isSkipped({ armed, delay }: Poll): boolean {
    return armed === this.#happened && delay > 0
  }
}

// worker/prefetch.ts: how many jobs to prefetch, by how fast jobs end here and by how many groups share the queue.
import type { JobRecord, Millis } from '../job/job.js'

/** Prefetched jobs should start within about this long. */
const START_WITHIN: Millis = 100
/** How many round trips to the store the prefetched jobs should last for: the one in flight, and the claim after it. */
const ROUND_TRIPS = 3
/** The most jobs that are ever prefetched. */
const MAX_PREFETCH = 4000

/** Measures how fast jobs end here, to decide how many to prefetch. */
export class Prefetch {
  readonly #elapsed: () => Millis
  #ended = 0
  #since: Millis
  /** Jobs per millisecond. */
  #rate = 0

  constructor(elapsed: () => Millis) {
    this.#elapsed = elapsed
    this.#since = elapsed()
  }

  /** Counts a job that has ended. */
  ended(): void {
    this.#ended++
  }

  /** How many jobs to prefetch: as many as start during the next claim. `trip` is how long recent claims took. */
  target(trip: Millis): number {
    const now = this.#elapsed()
    const span = now - this.#since
    if (span >= 1 && this.#ended > 0) {
      const rate = this.#ended / span
      this.#rate = this.#rate === 0 ? rate : (this.#rate + rate) / 2
      this.#ended = 0
      this.#since = now
    } else if (this.#ended === 0) {
      this.#since = now
    }
    return Math.min(MAX_PREFETCH, Math.floor(this.#rate * Math.min(START_WITHIN, ROUND_TRIPS * trip)))
  }

  /** Discards the measurements: jobs have become slower. */
  reset(): void {
    this.#rate = 0
    this.#ended = 0
  }
}

/**
 * Follows the groups of claimed jobs. Groups take turns, so a round is over when a group appears again. Until one has,
 * the round may hold more.
 */
export class GroupRound {
  readonly #seen = new Set<string>()
  /** Jobs without a group, in the current round. */
  #others = 0
  #last = 0

  /** About how many jobs a round holds; Infinity if jobs have no groups. */
  size = Infinity

  /** Jobs were claimed, in this order. */
  claimed(jobs: readonly JobRecord[]): void {
    for (const { group } of jobs) {
      if (group === undefined) this.#others++
      else if (!this.#seen.has(group)) this.#seen.add(group)
      else this.#begin(group)
    }
    if (this.#seen.size === 0) this.#others = 0
    else this.size = Math.max(this.#last, 2 * (this.#seen.size + this.#others))
  }

  #begin(first: string): void {
    this.#last = this.#seen.size + this.#others
    this.#seen.clear()
    this.#seen.add(first)
    this.#others = 0
  }
}

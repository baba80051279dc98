// worker/group-round.ts: how many jobs a round of all groups holds, by those that were claimed.
import type { JobRecord } from '../job/job.js'

/**
 * Follows whose jobs come, one after the other. Groups take turns, so that a round is over when one of them comes again. As long
 * as none has, it may hold more.
 */
export class GroupRound {
  readonly #seen = new Set<string>()
  /** Jobs without a group in between. */
  #others = 0
  #last = 0

  /** About as many jobs as a round holds; no bound where jobs have no groups. */
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

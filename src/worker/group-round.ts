// worker/group-round.ts: estimates how many jobs one round of all groups holds, from the jobs claimed.
import type { JobRecord } from '../job/job.js'

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

// stores/sqlite/expired-heads.ts: how far claims have read each lane and found none but expired jobs, so that the next
// ones start there. Cached as long as no other connection writes.
import type { JobRecord, Time } from '../../job/job.js'
import { BoundedCache } from '../bounded-cache.js'

/** The position of a job in its lane. */
export type Position = readonly [priority: number, ord: number, seq: number]

/** Before all jobs of a lane. */
export const START: Position = [-Infinity, -Infinity, -Infinity]

/** One claim of so many looks whether the first jobs of a lane have expired: most lanes have no such jobs. */
const LOOKS = 16

interface Head {
  /** The jobs up to here had expired at `at`. */
  to: Position
  at: Time
  claims: number
}

/** The lanes that were claimed from. */
export class ExpiredHeads {
  readonly #lanes = new BoundedCache<number, Head>()

  /** Where to begin a claim, and whether to look if jobs after that have expired. */
  open(lane: number, now: Time): { readonly from: Position; readonly looks: boolean } {
    let head = this.#lanes.get(lane)
    if (head === undefined) {
      this.#lanes.trim()
      this.#lanes.set(lane, (head = { to: START, at: now, claims: 0 }))
    }
    const looks = head.claims++ % LOOKS === 0 || head.to !== START
    return { from: head.at <= now ? head.to : START, looks }
  }

  /** All jobs up to this position have expired. */
  passed(lane: number, to: Position, now: Time): void {
    const head = this.#lanes.get(lane)
    if (head !== undefined) [head.to, head.at] = [to, now]
  }

  /** Call when a job waits in a lane that did not, or that was changed: it may not have expired. */
  waits(lane: number, { priority, ord }: Pick<JobRecord, 'priority' | 'ord'>): void {
    const head = this.#lanes.get(lane)
    if (head === undefined || head.to === START) return
    if (priority < head.to[0] || (priority === head.to[0] && ord <= head.to[1])) head.to = START
  }
}

// stores/sqlite/counters.ts: collects the changes that a commit makes to counters, and writes them once at its end.
import { jobStates } from '../../job/job.js'
import type { JobState } from '../../job/job.js'
import type { Lifetime } from '../../store/tally.js'
import type { Value } from './file/driver.js'
import type { Statements } from './statements.js'

/** What is counted in a lane: jobs by state, leases that lost their job, and schedules. */
const laneCounters = [...jobStates, 'orphaned', 'schedule'] as const

type LaneCounter = (typeof laneCounters)[number]

const indexOf = Object.fromEntries(laneCounters.map((what, index) => [what, index])) as Record<LaneCounter, number>

/** The lifetime counters of a queue. */
type LifetimeCounter = keyof Lifetime

/** Changes to counters that have not been written yet. */
export class Counters {
  #lanes = new Map<number, number[]>()
  #queues = new Map<number, Map<LifetimeCounter, number>>()
  readonly #store: Value[] = []

  /** Counts something in a lane. */
  lane(lane: number, what: LaneCounter, by: number): void {
    let counters = this.#lanes.get(lane)
    if (counters === undefined) this.#lanes.set(lane, (counters = laneCounters.map(() => 0)))
    counters[indexOf[what]]! += by
  }

  /** Counts a job that went from one state to another. */
  moved(lane: number, from: JobState, to: JobState): void {
    if (from === to) return
    this.lane(lane, from, -1)
    this.lane(lane, to, 1)
  }

  /** Adds to a lifetime counter of a queue. */
  lifetime(queue: number, what: LifetimeCounter, by = 1): void {
    let counters = this.#queues.get(queue)
    if (counters === undefined) this.#queues.set(queue, (counters = new Map()))
    counters.set(what, (counters.get(what) ?? 0) + by)
  }

  /** Adds to a number of the whole store; `by` may be negative. */
  store(what: string, by: number): void {
    this.#store.push('store', 0, what, by)
  }

  /** Writes the changes since the last flush. */
  flush(sql: Statements): void {
    const values = this.#store.splice(0)
    for (const [lane, counters] of this.#lanes) {
      for (let index = 0; index < counters.length; index++) {
        if (counters[index] !== 0) values.push('lane', lane, laneCounters[index]!, counters[index]!)
      }
    }
    for (const [queue, counters] of this.#queues) {
      for (const [what, by] of counters) values.push('queue', queue, what, by)
    }
    this.#lanes.clear()
    this.#queues.clear()
    const statements = [sql.count1, sql.count2, sql.count3, sql.count4]
    for (let at = 0; at < values.length; at += 16) {
      const chunk = values.slice(at, at + 16)
      statements[chunk.length / 4 - 1]!.run(...chunk)
    }
  }

  /** Returns a function that restores the current changes. */
  mark(): () => void {
    const lanes = new Map(Array.from(this.#lanes, ([lane, counters]) => [lane, [...counters]]))
    const queues = new Map(Array.from(this.#queues, ([queue, counters]) => [queue, new Map(counters)]))
    return () => {
      this.#lanes = lanes
      this.#queues = queues
    }
  }
}

// stores/sqlite/counters.ts: what a commit does to the counters, gathered and written once at its end.
import { jobStates } from '../../job/job.js'
import type { JobState } from '../../job/job.js'
import type { Lifetime } from '../../store/store.js'
import type { Value } from './driver.js'
import type { Statements } from './statements.js'

/** What is counted in a lane besides jobs by state: leases that lost their job, and schedules. */
const laneCounters = [...jobStates, 'orphaned', 'schedule'] as const

type LaneCounter = (typeof laneCounters)[number]

const placeOf = Object.fromEntries(laneCounters.map((what, place) => [what, place])) as Record<LaneCounter, number>

/** What has happened in a queue. */
type Happening = keyof Lifetime

/** Counters on their way into the file. */
export class Counters {
  #lanes = new Map<number, number[]>()
  #queues = new Map<number, Map<Happening, number>>()
  readonly #store: Value[] = []

  /** Counters something in a lane. */
  lane(lane: number, what: LaneCounter, by: number): void {
    let counters = this.#lanes.get(lane)
    if (counters === undefined) this.#lanes.set(lane, (counters = laneCounters.map(() => 0)))
    counters[placeOf[what]]! += by
  }

  /** A job went from one state to another. */
  moved(lane: number, from: JobState, to: JobState): void {
    if (from === to) return
    this.lane(lane, from, -1)
    this.lane(lane, to, 1)
  }

  /** Something happened in a queue. */
  happened(queue: number, what: Happening, by = 1): void {
    let happenings = this.#queues.get(queue)
    if (happenings === undefined) this.#queues.set(queue, (happenings = new Map()))
    happenings.set(what, (happenings.get(what) ?? 0) + by)
  }

  /** A number of the whole store has gone up, or down. */
  store(what: string, by: number): void {
    this.#store.push('store', 0, what, by)
  }

  /** Writes what has been counted since the last time. */
  flush(sql: Statements): void {
    const values = this.#store.splice(0)
    for (const [lane, counters] of this.#lanes) {
      for (let place = 0; place < counters.length; place++) {
        if (counters[place] !== 0) values.push('lane', lane, laneCounters[place]!, counters[place]!)
      }
    }
    for (const [queue, happenings] of this.#queues) {
      for (const [what, by] of happenings) values.push('queue', queue, what, by)
    }
    this.#lanes.clear()
    this.#queues.clear()
    const statements = [sql.count1, sql.count2, sql.count3, sql.count4]
    for (let at = 0; at < values.length; at += 16) {
      const some = values.slice(at, at + 16)
      statements[some.length / 4 - 1]!.run(...some)
    }
  }

  /** How to come back to what is counted now. */
  mark(): () => void {
    const lanes = new Map(Array.from(this.#lanes, ([lane, counters]) => [lane, [...counters]]))
    const queues = new Map(Array.from(this.#queues, ([queue, happenings]) => [queue, new Map(happenings)]))
    return () => {
      this.#lanes = lanes
      this.#queues = queues
    }
  }
}

// queue/counts.ts: job counts by queue, name and state, which the store maintains: reading them scans no jobs.
import { jobStates } from '../job/job.js'
import type { JobState } from '../job/job.js'
import { isReserved } from '../job/values/names.js'
import { invalid } from '../job/values/options.js'
import { connect } from '../store/connection.js'
import type { Store } from '../store/store.js'
import type { QueueTally } from '../store/tally.js'
import { sessionFor } from '../store/session.js'

/** Job counts by state. */
export type StateCounts = Readonly<Record<JobState, number>>

/** Job counts of a queue by state: in total and by name. */
export interface QueueCounts<Name extends string = string> {
  /** All names together. */
  readonly total: StateCounts
  /** By name. A name without jobs has zeros if it is declared, and is absent otherwise. */
  readonly names: Readonly<Record<Name, StateCounts>>
}

/** Options of `counts`. */
export interface CountOptions {
  /** `state`: totals only. `name`: totals and counts by name. Default `state`. */
  readonly by?: 'state' | 'name'
}

/** The store's tally as counts, with zeros for states without jobs. */
export function countsOf(tally: QueueTally | undefined, declared: readonly string[]): QueueCounts {
  const total = zeros()
  const names: Record<string, StateCounts> = Object.create(null)
  for (const name of declared) names[name] = zeros()
  for (const [name, states] of Object.entries(tally?.names ?? {})) {
    const own = zeros()
    for (const state of jobStates) {
      own[state] = states[state] ?? 0
      total[state] += own[state]
    }
    names[name] = own
  }
  return { total, names: { ...names } }
}

function zeros(): Record<JobState, number> {
  return Object.fromEntries(jobStates.map((state) => [state, 0])) as Record<JobState, number>
}

/**
 * Job counts of a whole store in one call, by the name of each queue that was ever used.
 *
 * ```ts
 * const { emails } = await storeCounts(store)
 * emails?.total.waiting
 * ```
 */
export async function storeCounts(store: Store): Promise<Readonly<Record<string, QueueCounts>>> {
  if (typeof store?.tally !== 'function') {
    throw invalid("storeCounts: give it a store, as in storeCounts(sqlite('jobs.db')).")
  }
  const tallies = await sessionFor(connect(store))().tally()
  const own = tallies.filter(({ queue }) => !isReserved(queue))
  return Object.fromEntries(own.map((tally) => [tally.queue, countsOf(tally, [])]))
}

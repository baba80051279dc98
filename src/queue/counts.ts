// queue/counts.ts: how many jobs there are, by queue, name and state. Kept by the store as jobs change: nothing is counted.
import { MillraceError } from '../job/errors.js'
import { jobStates } from '../job/job.js'
import type { JobState } from '../job/job.js'
import { isReserved } from '../job/names.js'
import { connect } from '../store/connection.js'
import type { QueueTally, Store } from '../store/store.js'
import { sessionFor } from '../store/session.js'

/** How many jobs there are in each state. */
export type StateCounts = Readonly<Record<JobState, number>>

/** How many jobs a queue holds in each state: in all, and of each name. */
export interface QueueCounts<Name extends string = string> {
  /** Of all names. */
  readonly total: StateCounts
  /** By name. One without jobs has zeros if it was declared, and is absent otherwise. */
  readonly names: Readonly<Record<Name, StateCounts>>
}

/** How to count. */
export interface CountOptions {
  /** `state`: in all. `name`: in all, and of each name. Default `state`. */
  readonly by?: 'state' | 'name'
}

/** What a store keeps count of, with zeros where there is nothing. */
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
 * How many jobs there are in a store, in one call: of each queue that was ever used, by its name, in all and of each name.
 *
 * ```ts
 * const { emails } = await storeCounts(store)
 * emails?.total.waiting
 * ```
 */
export async function storeCounts(store: Store): Promise<Readonly<Record<string, QueueCounts>>> {
  if (typeof store?.tally !== 'function') {
    throw new MillraceError('INVALID_OPTION', "storeCounts: give it a store, as in storeCounts(sqlite('jobs.db')).")
  }
  const tallies = await sessionFor(connect(store))().tally()
  const own = tallies.filter(({ queue }) => !isReserved(queue))
  return Object.fromEntries(own.map((tally) => [tally.queue, countsOf(tally, [])]))
}

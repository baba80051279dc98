// stores/sqlite/sweeps.ts: removes what no job needs any more, a little at a time: programs may use any number of groups
// and priorities.
import type { Time } from '../../job/job.js'
import type { Cache } from './cache.js'

/** How many are checked for removal whenever a new one appears. */
const SWEEP_LIMIT = 4

/** Removes some rates of a queue whose tokens have all returned, in rotation. */
export function sweepRates({ sql, sweptRates }: Cache, queue: number, now: Time): void {
  const rates = sql.ratesAfter.all(queue, sweptRates.get(queue) ?? '', SWEEP_LIMIT) as [string, Time][]
  for (const [key, until] of rates) if (until <= now) sql.dropRate.run(queue, key)
  sweptRates.set(queue, rates.length < SWEEP_LIMIT ? '' : rates.at(-1)![0])
}

/** Removes the turns of some priorities of a queue that no job needs, in rotation. */
export function sweepTurns({ sql, sweptTurns, groups }: Cache, queue: number): void {
  const found = sql.turnsAfter.all(queue, sweptTurns.get(queue) ?? '', SWEEP_LIMIT) as [string][]
  for (const [priority] of found) {
    if (sql.needsTurn.get(queue, Number(priority))![0] === 1) continue
    sql.dropTurn.run(queue, priority)
    groups.forgetTurn(queue, priority)
  }
  sweptTurns.set(queue, found.length < SWEEP_LIMIT ? '' : found.at(-1)![0])
}

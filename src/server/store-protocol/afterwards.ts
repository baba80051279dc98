// server/store-protocol/afterwards.ts: what a server does after the batches of remote stores, because they leave it to the
// server: expects the ends of leases, notes jobs that ended, for retention by count, and folds counts over time.
import type { Millis } from '../../job/job.js'
import type { Batch, Receipt } from '../../store/batch.js'
import type { Connection } from '../../store/connection.js'
import { foldSeries } from '../../store/series/series-cells.js'
import type { SeriesStore } from '../../store/series/series-cells.js'
import type { ServerUpkeep } from '../upkeep.js'
import { queueOfFreshCounts } from './cell-scope.js'
import type { HeldJobs } from './held-jobs.js'

/** How often the counts of a queue are folded, at most. */
const FOLD_EVERY: Millis = 60_000
/** The most queues of which that is remembered. */
const MAX_QUEUES = 10_000

/** What a server does after a batch. */
export class Afterwards {
  readonly #connection: Connection
  readonly #upkeep: Pick<ServerUpkeep, 'expect' | 'keepLast'>
  readonly #held: HeldJobs
  /** When the counts of a queue were folded last. */
  readonly #folded = new Map<string, Millis>()

  constructor(connection: Connection, upkeep: Pick<ServerUpkeep, 'expect' | 'keepLast'>, held: HeldJobs) {
    this.#connection = connection
    this.#upkeep = upkeep
    this.#held = held
  }

  /** A batch was applied. */
  committed({ groups }: Batch, receipt: Receipt): void {
    for (const jobs of receipt.asks) for (const { queue, leaseUntil } of jobs) this.#upkeep.expect(queue, leaseUntil!)
    for (let at = 0; at < groups.length; at++) {
      if (receipt.groups[at]?.ok !== true) continue // a receipt may be that of another batch of the same number
      for (const change of groups[at]!) {
        if (change.kind === 'put') this.#counted(change.key)
        else if (change.kind === 'move' && (change.to === 'completed' || change.to === 'failed')) {
          const job = this.#held.find(change.id, change.fence)
          if (job?.keep !== undefined) this.#upkeep.keepLast.ended(job, change.to)
        }
      }
    }
  }

  /** New counts of a queue were written. */
  #counted(key: string): void {
    const queue = key.startsWith('series:') ? queueOfFreshCounts(key) : undefined
    if (queue === undefined) return
    const now = this.#connection.runtime.elapsed()
    if (now - (this.#folded.get(queue) ?? -Infinity) < FOLD_EVERY) return
    this.#folded.delete(queue)
    this.#folded.set(queue, now)
    if (this.#folded.size > MAX_QUEUES) this.#folded.delete(this.#folded.keys().next().value!)
    const { store, renewals } = this.#connection
    const cells: SeriesStore = {
      details: (query) => store.details(query),
      commit: (group) => renewals.commit(group),
    }
    foldSeries(cells, queue).catch(() => this.#folded.delete(queue)) // with the next counts
  }
}

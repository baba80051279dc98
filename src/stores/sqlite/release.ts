// stores/sqlite/release.ts: a chain has ended; whoever waits for it is counted down, or told that it ended badly.
import type { Release } from '../../job/change.js'
import { isFinished } from '../../job/job.js'
import type { JobState } from '../../job/job.js'
import { told } from '../apply.js'
import { movedColumns } from './rows.js'
import type { Transaction } from './transaction.js'

/** Ends the wait for a chain. Does nothing while the chain has an unfinished job. */
export function release(tx: Transaction, { chain, outcome }: Release): void {
  const { sql, ground } = tx
  if (!ground.openEdges) return
  const edges = sql.openEdgesOn.all(chain)
  if (edges.length === 0 || !hasEnded(tx, chain)) return
  ground.openEdges = undefined
  for (const [dependent, place] of edges as [number, number][]) {
    sql.turnEdge.run(outcome === 'completed' ? 'ended' : 'broken', dependent, place)
    const found = ground.bySeq(dependent)
    const after = told(found.job, outcome, tx, tx.now)
    sql.move.run(...movedColumns(after), dependent)
    tx.placed(found.lane, after, found.job.state, found.job.dueAt)
  }
}

function hasEnded({ sql }: Transaction, chain: string): boolean {
  return sql.chainJobs.all(chain).every(([, , state]) => isFinished(state as JobState))
}

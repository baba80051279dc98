// stores/sqlite/release.ts: a chain has ended; whoever waits for it is counted down, or notifyDependent that it ended badly.
import type { Release } from '../../job/change.js'
import type { EdgeState, FinishedState, JobState } from '../../job/job.js'
import { concerns, edgeTo, notifyDependent } from '../apply.js'
import { chainEnd, textOf } from './edges.js'
import { movedColumns, nullable } from './rows.js'
import type { Transaction } from './transaction.js'

type Awaiting = [dependent: number, place: number, edge: EdgeState, pending: number, state: JobState]

/** Ends the wait for a chain. Does nothing while the chain has an unfinished job. */
export function release(tx: Transaction, { chain, outcome }: Release): void {
  const { sql, ground } = tx
  if (!ground.openEdges) return
  const edges = (sql.openEdgesOn.all(chain) as Awaiting[]).filter(([, , edge]) => concerns(edge, outcome))
  const last = edges.length === 0 ? undefined : chainEnd(tx, chain)
  if (last === undefined) return
  ground.openEdges = undefined
  // The last one may be the one whose removal is the end.
  const asTold = last !== 'gone' && last.state === outcome
  const end = edgeTo(asTold ? last : { state: outcome, result: undefined, error: undefined })
  for (const [dependent, place, edge, pending, state] of edges) {
    sql.turnEdge.run(end.state, nullable(end.result), textOf(end.error), dependent, place)
    if (edge === 'closed') continue
    if (outcome === 'completed' && edge === 'open' && (pending > 1 || state !== 'waiting-children')) {
      sql.countDown.run(dependent, 1) // and nothing else becomes of it
    } else tell(tx, dependent, edge, outcome)
  }
}

function tell(tx: Transaction, dependent: number, edge: EdgeState, outcome: FinishedState): void {
  const { sql, ground } = tx
  const found = ground.lightBySeq(dependent)
  const broken = edge === 'broken' && sql.anyBroken.get(dependent) !== undefined
  const after = notifyDependent(found.job, outcome, edge, broken, tx, tx.now)
  sql.move.run(...movedColumns(after), dependent)
  tx.placed(found.lane, after, found.job.state, found.job.dueAt)
}

/** Tells the dependents of all jobs that were completed since it was last asked, each of which is a chain by itself. */
export function releaseEnded(tx: Transaction): void {
  const { sql, ground, ended } = tx
  if (ended.length === 0) return
  const chains = ended.splice(0)
  if (!ground.openEdges) return
  const ids = JSON.stringify(chains)
  const awaiting = sql.openEdgesOnAll.all(ids) as [
    dependent: number,
    edge: EdgeState,
    pending: number,
    state: JobState,
  ][]
  if (awaiting.length === 0) return
  if (awaiting.some(([, edge]) => edge !== 'open') || sql.anyContinued.get(ids) !== undefined) {
    for (const chain of chains) release(tx, { kind: 'release', chain, outcome: 'completed' })
    return
  }
  sql.endEdges.run(ids)
  ground.openEdges = undefined
  // How many of each, in the order in which each met its last one.
  const counts = new Map<number, { count: number; pending: number; state: JobState }>()
  for (const [dependent, , pending, state] of awaiting) {
    const count = (counts.get(dependent)?.count ?? 0) + 1
    counts.delete(dependent)
    counts.set(dependent, { count, pending, state })
  }
  for (const [dependent, { count, pending, state }] of counts) {
    const goesOn = pending === count && state === 'waiting-children'
    if (!goesOn) sql.countDown.run(dependent, count)
    else {
      if (count > 1) sql.countDown.run(dependent, count - 1)
      tell(tx, dependent, 'open', 'completed')
    }
  }
}

// stores/sqlite/release.ts: releases the dependents of a chain that has ended: counts them down, or marks them as broken.
import type { Release } from '../../job/change.js'
import type { EdgeState, FinishedState, JobState } from '../../job/job.js'
import { affects, edgeTo, notifyDependent } from '../../job/apply.js'
import { chainEnd, textOf } from './edges.js'
import { movedColumns, nullable } from './rows.js'
import type { Transaction } from './transaction.js'

type AffectedEdge = [dependent: number, position: number, edge: EdgeState, pending: number, state: JobState]

/** Releases the dependents of a chain. Does nothing while the chain has an unfinished job. */
export function release(tx: Transaction, { chain, outcome }: Release): void {
  const { sql, cache } = tx
  if (!cache.openEdges) return
  const edges = (sql.openEdgesOn.all(chain) as AffectedEdge[]).filter(([, , edge]) => affects(edge, outcome))
  const last = edges.length === 0 ? undefined : chainEnd(tx, chain)
  if (last === undefined) return
  cache.openEdges = undefined
  // The chain may have ended by the removal of its last job.
  const chainHasOutcome = last !== 'gone' && last.state === outcome
  const end = edgeTo(chainHasOutcome ? last : { state: outcome, result: undefined, error: undefined })
  for (const [dependent, position, edge, pending, state] of edges) {
    sql.setEdge.run(end.state, nullable(end.result), textOf(end.error), dependent, position)
    if (edge === 'closed') continue
    if (outcome === 'completed' && edge === 'open' && (pending > 1 || state !== 'waiting-children')) {
      sql.countDown.run(dependent, 1) // nothing else changes
    } else releaseDependent(tx, dependent, edge, outcome)
  }
}

function releaseDependent(tx: Transaction, dependent: number, edge: EdgeState, outcome: FinishedState): void {
  const { sql, cache } = tx
  const found = cache.lightBySeq(dependent)
  const broken = edge === 'broken' && sql.anyBroken.get(dependent) !== undefined
  const after = notifyDependent(found.job, outcome, edge, broken, tx, tx.now)
  sql.move.run(...movedColumns(after), dependent)
  tx.jobChanged(found.lane, after, found.job.state, found.job.dueAt)
}

/** Releases the dependents of all jobs that were completed since the last call, each of which is a chain by itself. */
export function releaseEnded(tx: Transaction): void {
  const { sql, cache, endedChains } = tx
  if (endedChains.length === 0) return
  const chains = endedChains.splice(0)
  if (!cache.openEdges) return
  const ids = JSON.stringify(chains)
  const affected = sql.openEdgesOnAll.all(ids) as [
    dependent: number,
    edge: EdgeState,
    pending: number,
    state: JobState,
  ][]
  if (affected.length === 0) return
  if (affected.some(([, edge]) => edge !== 'open') || sql.anyContinued.get(ids) !== undefined) {
    for (const chain of chains) release(tx, { kind: 'release', chain, outcome: 'completed' })
    return
  }
  sql.endEdges.run(ids)
  cache.openEdges = undefined
  // Edges per dependent, in the order in which each dependent reached its last one.
  const counts = new Map<number, { count: number; pending: number; state: JobState }>()
  for (const [dependent, , pending, state] of affected) {
    const count = (counts.get(dependent)?.count ?? 0) + 1
    counts.delete(dependent)
    counts.set(dependent, { count, pending, state })
  }
  for (const [dependent, { count, pending, state }] of counts) {
    const isReleased = pending === count && state === 'waiting-children'
    if (!isReleased) sql.countDown.run(dependent, count)
    else {
      if (count > 1) sql.countDown.run(dependent, count - 1)
      releaseDependent(tx, dependent, 'open', 'completed')
    }
  }
}

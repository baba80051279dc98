// engine/release.ts: releases the dependents of a chain that has ended: counts them down, or marks them as broken.
import { affects, edgeTo, notifyDependent, onlyCountsDown } from '../job/apply.js'
import type { Release } from '../job/change.js'
import type { EdgeState, FinishedState } from '../job/job.js'
import type { Commit, Stored } from './workspace.js'

/** Releases the dependents of a chain. Does nothing while the chain has an unfinished job. */
export function release(commit: Commit, { chain, outcome }: Release): void {
  const { workspace } = commit
  const edges = workspace.edgesOn(chain)
  if (edges.length === 0) return
  const affected = edges.filter(({ state }) => affects(state, outcome))
  const last = affected.length === 0 ? undefined : workspace.chainState(chain)
  if (last === undefined) return
  // The chain may have ended by the removal of its last job.
  const hasOutcome = last !== 'gone' && last.state === outcome
  const end = edgeTo(hasOutcome ? last : { state: outcome, result: undefined, error: undefined })
  for (const edge of affected) {
    const { state } = edge
    workspace.setEdge(edge, end)
    if (state === 'closed') continue
    if (onlyCountsDown(outcome, state, edge)) workspace.countDown(edge)
    else releaseDependent(commit, workspace.dependentOf(edge), outcome, state)
  }
}

/** Applies the end of a chain to a dependent, whose edge was in state `from`. */
export function releaseDependent(
  { workspace, notices, now }: Commit,
  row: Stored,
  outcome: FinishedState,
  from: EdgeState,
): void {
  const { state, dueAt } = row.job
  const broken = from === 'broken' && workspace.anyBroken(row)
  const after = notifyDependent(row.job, outcome, from, broken, workspace.orders, now)
  workspace.write(row, after)
  notices.jobChanged(after, state, dueAt)
}

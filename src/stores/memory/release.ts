// stores/memory/release.ts: releases the dependents of a chain that has ended: counts them down, or marks them as broken.
import type { Release } from '../../job/change.js'
import { isFinished } from '../../job/job.js'
import type { EdgeState, FinishedState } from '../../job/job.js'
import { affects, edgeTo, notifyDependent } from '../../job/apply.js'
import type { ChainEnd, ChainState } from '../../job/apply.js'
import type { Notices } from './notices.js'
import { chainEnd } from './row.js'
import type { Row } from './row.js'
import { replace } from './table.js'
import type { Table } from './table.js'

/** Releases the dependents of a chain. Does nothing while the chain has an unfinished job. */
export function release(table: Table, { chain, outcome }: Release, notices: Notices): void {
  const edges = table.edges.on(chain)
  if (edges === undefined || !hasEnded(table, chain)) return
  const end = edgeTo(endOf(table, chain, outcome))
  const affected = [...edges].filter(({ state }) => affects(state, outcome))
  // A running job may add edges late. Dependents are released in insertion order all the same.
  if (affected.length > 1) affected.sort((a, b) => seqOf(table, a.dependent) - seqOf(table, b.dependent))
  for (const edge of affected) {
    const { state, dependent } = edge
    table.edges.setState(edge, end)
    const row = table.rows.get(dependent)
    if (row !== undefined && state !== 'closed') releaseDependent(table, row, outcome, state, notices)
  }
}

function seqOf(table: Table, id: string): number {
  return table.rows.get(id)?.seq ?? 0
}

/** The last job of the chain, unless the chain ended by the removal of that job. */
function endOf(table: Table, chain: string, outcome: FinishedState): ChainEnd {
  const row = table.chains.get(chain)?.rows.max ?? table.rows.get(chain)
  const end = row?.job.chainId === chain ? chainEnd(row) : undefined
  return end?.state === outcome ? end : { state: outcome, result: undefined, error: undefined }
}

/** The state of a chain. */
export function chainState(table: Table, chain: string): ChainState {
  const row = table.chains.get(chain)?.rows.max ?? table.rows.get(chain)
  return row?.job.chainId === chain ? chainEnd(row) : 'gone'
}

function hasEnded(table: Table, chain: string): boolean {
  const joined = table.chains.get(chain)
  if (joined !== undefined) return joined.unfinished === 0
  const only = table.rows.get(chain)
  return only === undefined || only.job.chainId !== chain || isFinished(only.job.state)
}

function releaseDependent(table: Table, row: Row, outcome: FinishedState, edge: EdgeState, notices: Notices): void {
  const before = row.job
  const { state: from, dueAt: due } = before
  replace(
    table,
    row,
    notifyDependent(before, outcome, edge, table.edges.anyBroken(before.id), table.orders, notices.now),
  )
  notices.jobChanged(row, from, due)
}

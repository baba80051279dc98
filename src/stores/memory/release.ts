// stores/memory/release.ts: a chain has ended; whoever waits for it is counted down, or notifyDependent that it ended badly.
import type { Release } from '../../job/change.js'
import { isFinished } from '../../job/job.js'
import type { EdgeState, FinishedState } from '../../job/job.js'
import { concerns, edgeTo, notifyDependent } from '../apply.js'
import type { ChainEnd, ChainState } from '../apply.js'
import type { Notices } from './notices.js'
import { chainEnd } from './row.js'
import type { Row } from './row.js'
import { replace } from './table.js'
import type { Table } from './table.js'

/** Ends the wait for a chain. Does nothing while the chain has an unfinished job. */
export function release(table: Table, { chain, outcome }: Release, news: Notices): void {
  const edges = table.edges.on(chain)
  if (edges === undefined || !hasEnded(table, chain)) return
  const end = edgeTo(endOf(table, chain, outcome))
  const notifyDependent = [...edges].filter(({ state }) => concerns(state, outcome))
  // A running job takes on edges late; those who wait are notifyDependent in the order of their insertion all the same.
  if (notifyDependent.length > 1)
    notifyDependent.sort((a, b) => placeOf(table, a.dependent) - placeOf(table, b.dependent))
  for (const edge of notifyDependent) {
    const { state, dependent } = edge
    table.edges.turn(edge, end)
    const row = table.rows.get(dependent)
    if (row !== undefined && state !== 'closed') tellDependent(table, row, outcome, state, news)
  }
}

function placeOf(table: Table, id: string): number {
  return table.rows.get(id)?.seq ?? 0
}

/** The last job of the chain, unless it is the one whose removal is the end. */
function endOf(table: Table, chain: string, outcome: FinishedState): ChainEnd {
  const row = table.chains.get(chain)?.rows.max ?? table.rows.get(chain)
  const end = row?.job.chainId === chain ? chainEnd(row) : undefined
  return end?.state === outcome ? end : { state: outcome, result: undefined, error: undefined }
}

/** How a chain stands. */
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

function tellDependent(table: Table, row: Row, outcome: FinishedState, edge: EdgeState, news: Notices): void {
  const before = row.job
  const { state: from, dueAt: due } = before
  replace(table, row, notifyDependent(before, outcome, edge, table.edges.anyBroken(before.id), table.places, news.now))
  news.placed(row, from, due)
}

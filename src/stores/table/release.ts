// stores/table/release.ts: a chain has ended; whoever waits for it is counted down, or told that it ended badly.
import type { Release } from '../../job/change.js'
import { isFinished } from '../../job/job.js'
import type { FinishedState } from '../../job/job.js'
import { told } from '../apply.js'
import type { News } from './news.js'
import type { Row } from './row.js'
import { replace } from './table.js'
import type { Table } from './table.js'

/** Ends the wait for a chain. Does nothing while the chain has an unfinished job. */
export function release(table: Table, { chain, outcome }: Release, news: News): void {
  const edges = table.edges.on(chain)
  if (edges === undefined || !hasEnded(table, chain)) return
  for (const edge of edges) {
    if (edge.state !== 'open') continue
    table.edges.turn(edge, outcome === 'completed' ? 'ended' : 'broken')
    const row = table.rows.get(edge.dependent)
    if (row !== undefined) tellDependent(table, row, outcome, news)
  }
}

function hasEnded(table: Table, chain: string): boolean {
  const joined = table.chains.get(chain)
  if (joined !== undefined) return joined.unfinished === 0
  const only = table.rows.get(chain)
  return only === undefined || only.job.chainId !== chain || isFinished(only.job.state)
}

function tellDependent(table: Table, row: Row, outcome: FinishedState, news: News): void {
  const before = row.job
  const { state: from, dueAt: due } = before
  replace(table, row, told(before, outcome, table.places, news.now))
  news.placed(row, from, due)
}

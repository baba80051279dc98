// stores/table/release.ts: a chain has ended; whoever waits for it is counted down, or told that it ended badly.
import type { Release } from '../../job/change.js'
import { isFinished } from '../../job/job.js'
import type { FinishedState } from '../../job/job.js'
import { dueAt, released } from '../../job/lifecycle.js'
import type { News } from './news.js'
import { copyOf } from '../../job/record.js'
import type { Row } from './row.js'
import { nextOrd, replace } from './table.js'
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
  const waits = from === 'waiting-children'
  const job = copyOf(before)
  if (outcome !== 'completed') {
    job.brokenAt = news.now // kept in whatever state it is: a later retry looks at it
    if (waits) job.fence++
  } else {
    job.pending--
    if (waits && job.pending === 0) {
      job.fence++
      job.state = released(job.runAt, news.now)
      if (job.state === 'waiting') {
        job.runAt = undefined
        job.ord = nextOrd(table, before.ord < 0)
      }
    }
  }
  job.dueAt = dueAt(job)
  replace(table, row, job)
  news.placed(row, from, due)
}

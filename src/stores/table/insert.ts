// stores/table/insert.ts: adds a job with its edges.
import type { Insert, NewEdge } from '../../job/change.js'
import type { EdgeState } from '../../job/job.js'
import type { Refused } from '../../store/store.js'
import { born, edgeTo } from '../apply.js'
import type { EdgeRow } from './edges.js'
import type { News } from './news.js'
import { chainEnd } from './row.js'
import type { Row } from './row.js'
import { add, laneOf } from './table.js'
import type { Table } from './table.js'
import { duplicate, missing } from '../verdicts.js'

/** Adds a job and answers its row, or says why not; nothing is written before all is known to be well. */
export function insert(table: Table, { job, edges }: Insert, news: News): Row | Refused {
  const standing = table.rows.get(job.id)
  if (standing !== undefined) return duplicate(job.id, standing.job)
  const { now } = news
  if (job.dedup !== undefined) {
    const key = table.keys.holder(job.dedup.key, now)
    if (key !== undefined) return duplicate(key.id, table.rows.get(key.id)?.job)
  }
  const found = edges.length === 0 ? undefined : edgesOf(table, job.id, edges)
  if (typeof found === 'string') return missing(found)
  if (job.kind === 'job') {
    const queue = table.queues.get(job.queue)
    if (queue !== undefined && queue.backlog >= queue.backlogLimit) return { ok: false, why: 'full', id: job.id }
  }

  const row: Row = {
    seq: table.seq++,
    job: born(job, found?.map(stateOf), table.places, table.highestFence, now),
    lane: laneOf(table, job.queue, job.name, job.version),
    chain: undefined,
  }
  add(table, row)
  if (found !== undefined) table.edges.add(job.id, found)
  if (job.dedup !== undefined) {
    const { key, window } = job.dedup
    table.keys.take({ key, id: job.id, until: window === undefined ? undefined : now + window })
  }
  if (job.kind === 'job') count(table, row)
  news.placed(row, undefined, undefined)
  return row
}

const stateOf = ({ state }: EdgeRow): EdgeState => state

function count(table: Table, row: Row): void {
  const { lifetime } = row.lane.name.queue
  lifetime.added++
  if (table.journal.open) table.journal.add(() => void lifetime.added--)
}

/** The edges of a new job, one for each chain, each in the state that its chain gives it; or the id that is missing. */
function edgesOf(table: Table, dependent: string, edges: readonly NewEdge[]): readonly EdgeRow[] | string {
  const byChain = new Map<string, EdgeRow>()
  for (const { on, policy } of edges) {
    const dependency = table.rows.get(on)
    if (dependency === undefined) return on
    const chain = dependency.job.chainId
    if (byChain.has(chain)) continue
    byChain.set(chain, { dependent, chain, policy, state: edgeTo(chainEnd(dependency)) })
  }
  return [...byChain.values()]
}

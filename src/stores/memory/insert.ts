// stores/memory/insert.ts: adds a job with its edges.
import type { Insert, NewEdge, NewJob } from '../../job/change.js'
import type { Edge, EdgeState } from '../../job/job.js'
import type { Refused } from '../../store/store.js'
import { copyOf } from '../../job/record.js'
import { createRecord, edgeTo } from '../../job/apply.js'
import type { EdgeRow } from './edges.js'
import { groupIn } from './groups.js'
import type { Notices } from './notices.js'
import { chainEnd } from './row.js'
import type { Row } from './row.js'
import { add, laneOf, queueOf } from './table.js'
import type { Table } from './table.js'
import { duplicate, missing } from '../verdicts.js'

/** Adds a job and returns its row, or returns why it is refused. Nothing is written before all checks have passed. */
export function insert(table: Table, { job, edges }: Insert, notices: Notices): Row | Refused {
  const existing = table.rows.get(job.id)
  if (existing !== undefined) return duplicate(job.id, existing.job)
  const { now } = notices
  if (job.dedup !== undefined) {
    const key = table.keys.holder(job.dedup.key, now)
    if (key !== undefined) return duplicate(key.id, table.rows.get(key.id)?.job)
  }
  const found = edges.length === 0 ? undefined : edgesOf(table, job.id, edges, [])
  if (typeof found === 'string') return missing(found)
  if (job.kind === 'job') {
    const full = isFull(table, job)
    if (full !== undefined) return full
  }
  const shared = job.group !== undefined

  const row: Row = {
    seq: table.seq++,
    job: createRecord(job, found?.map(stateOf), table.orders, table.highestFence, now),
    lane: laneOf(table, job.queue, job.name, job.version, shared),
    group: shared ? groupIn(queueOf(table, job.queue), job.group) : undefined,
    chain: undefined,
  }
  add(table, row)
  if (found !== undefined) table.edges.add(job.id, found)
  if (job.dedup !== undefined) {
    const { key, window } = job.dedup
    table.keys.take({ key, id: job.id, until: window === undefined ? undefined : now + window })
  }
  if (job.kind === 'job') countAdded(table, row)
  notices.jobChanged(row, undefined, undefined)
  return row
}

/** Refuses a job if the backlog of its queue or of its group is full. */
function isFull(table: Table, { id, queue: queueName, group }: NewJob): Refused | undefined {
  const queue = table.queues.get(queueName)
  if (queue === undefined) return undefined
  if (queue.backlog >= queue.backlogLimit) return { ok: false, change: 0, why: 'full', id }
  if (group === undefined || !queue.bounds.groupBacklogs) return undefined
  const maxBacklog = queue.bounds.group(group)?.backlog ?? Infinity
  const backlog = queue.groups.get(group)?.backlog
  if ((backlog?.size ?? 0) < maxBacklog) return undefined
  const oldest = backlog?.min
  return oldest === undefined
    ? { ok: false, change: 0, why: 'full', id }
    : { ok: false, change: 0, why: 'full', id, job: copyOf(oldest.job) }
}

const stateOf = ({ state }: EdgeRow): EdgeState => state

function countAdded(table: Table, row: Row): void {
  const { lifetime } = row.lane.name.queue
  lifetime.added++
  if (table.journal.open) table.journal.add(() => void lifetime.added--)
}

/**
 * Creates the new edges of a job beside its existing ones, one per chain, each in the state that follows from its
 * chain. Returns the id of a job that is missing, if there is one.
 */
export function edgesOf(
  table: Table,
  dependent: string,
  edges: readonly NewEdge[],
  existing: readonly Edge[],
): readonly EdgeRow[] | string {
  const byChain = new Map<string, EdgeRow>()
  const known = new Set(existing.map(({ chain }) => chain))
  for (const { on, policy } of edges) {
    const dependency = table.rows.get(on)
    if (dependency === undefined) return on
    const { chainId: chain, name } = dependency.job
    if (known.has(chain)) continue
    known.add(chain)
    byChain.set(chain, { dependent, chain, name, policy, ...edgeTo(chainEnd(dependency)) })
  }
  return [...byChain.values()]
}

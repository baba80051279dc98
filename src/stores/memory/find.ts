// stores/memory/find.ts: finds jobs, page by page, in insertion order.
import { jobStates } from '../../job/job.js'
import type { JobRecord } from '../../job/job.js'
import { bytesOfRecord, READ_BYTES } from '../../store/read-pages.js'
import type { Page, Query } from '../../store/store.js'
import { merge } from '../merge.js'
import { copyOf } from '../../job/record.js'
import { listed } from './row.js'
import type { QueueRow, Row } from './row.js'
import type { BTree } from './btree.js'
import type { Table } from './table.js'

/** Default number of jobs in a page. */
const PAGE_SIZE = 100

/** One page of the jobs that match. Its cursor is the insertion number of its last job. */
export function find(table: Table, query: Query): Page<JobRecord> {
  const { limit = PAGE_SIZE, bytes: maxBytes = READ_BYTES } = query
  const items: JobRecord[] = []
  let bytes = 0
  let last: Row | undefined
  for (const row of candidates(table, query)) {
    if (!matches(row.job, query)) continue
    if (items.length >= limit || (bytes >= maxBytes && last !== undefined))
      return last === undefined ? { items } : { items, cursor: String(last.seq) }
    items.push(copyOf(row.job))
    bytes += bytesOfRecord(row.job)
    last = row
  }
  return { items }
}

function matches(job: JobRecord, { queue, states, names, chain, parent, group, kind }: Query): boolean {
  return (
    (queue === undefined || job.queue === queue) &&
    (states === undefined || states.includes(job.state)) &&
    (names === undefined || names.includes(job.name)) &&
    (chain === undefined || job.chainId === chain) &&
    (parent === undefined || job.parentId === parent) &&
    (group === undefined || job.group === group) &&
    (kind === undefined || job.kind === kind)
  )
}

/** Rows after the cursor, in order, from the narrowest index that contains all matches. */
function candidates(table: Table, query: Query): Iterable<Row> {
  if (query.chain !== undefined) return ordered(chainRows(table, query.chain), query)
  if (query.parent !== undefined) {
    const rows = table.children.get(query.parent)
    return rows === undefined ? [] : page(rows, query)
  }
  const queues = query.queue === undefined ? table.queues.values() : [table.queues.get(query.queue)]
  const streams: Iterator<Row>[] = []
  if (query.group !== undefined) {
    for (const queue of queues) {
      const rows = queue?.groups.get(query.group)?.rows
      if (rows !== undefined) streams.push(page(rows, query))
    }
    return merged(streams, query)
  }
  for (const queue of queues) {
    if (queue !== undefined) for (const rows of listings(queue, query)) streams.push(page(rows, query))
  }
  return merged(streams, query)
}

function merged(streams: Iterator<Row>[], { order }: Query): Iterable<Row> {
  return merge(streams, order === 'newest' ? (a, b) => b.seq - a.seq : (a, b) => a.seq - b.seq)
}

function listings(queue: QueueRow, { states, kind }: Query): BTree<Row>[] {
  const found =
    kind !== undefined && kind !== 'job' ? [] : [...new Set(states ?? jobStates)].map((state) => listed(queue, state))
  if (kind !== 'job') found.push(queue.schedules)
  return found.filter((rows) => rows.size > 0)
}

function page(rows: BTree<Row>, { cursor, order }: Query): Generator<Row, undefined> {
  if (cursor === undefined) return order === 'newest' ? rows.descend() : rows.ascend()
  const seq = Number(cursor)
  return order === 'newest' ? rows.descend((row) => row.seq < seq) : rows.ascend((row) => row.seq <= seq)
}

function chainRows(table: Table, id: string): Row[] {
  const chain = table.chains.get(id)
  if (chain !== undefined) return [...chain.rows.ascend()]
  const only = table.rows.get(id)
  return only === undefined || only.job.chainId !== id ? [] : [only]
}

function ordered(rows: readonly Row[], { cursor, order }: Query): Row[] {
  if (order === 'newest') {
    const before = cursor === undefined ? Infinity : Number(cursor)
    return rows.filter((row) => row.seq < before).toSorted((a, b) => b.seq - a.seq)
  }
  const after = cursor === undefined ? -1 : Number(cursor)
  return rows.filter((row) => row.seq > after).toSorted((a, b) => a.seq - b.seq)
}

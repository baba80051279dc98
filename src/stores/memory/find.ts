// stores/memory/find.ts: finds jobs, page by page, in insertion order.
import type { JobRecord } from '../../job/job.js'
import { bytesOfRecord, isFiltered, READ_BYTES } from '../../store/read-pages.js'
import type { Page, Query } from '../../store/store.js'
import { merge } from '../merge.js'
import { findFiltered } from './find-filtered.js'
import { matches } from '../../store/matches.js'
import { copyOf } from '../../job/record.js'
import { chainRows, listings, ordered, PAGE_SIZE } from './row-lists.js'
import type { Row } from './row.js'
import type { BTree } from './btree.js'
import type { Table } from './table.js'

/** One page of the jobs that match. Its cursor is the insertion number of its last job. */
export function find(table: Table, query: Query): Page<JobRecord> {
  if (isFiltered(query)) return findFiltered(table, query)
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

function page(rows: BTree<Row>, { cursor, order }: Query): Generator<Row, undefined> {
  if (cursor === undefined) return order === 'newest' ? rows.descend() : rows.ascend()
  const seq = Number(cursor)
  return order === 'newest' ? rows.descend((row) => row.seq < seq) : rows.ascend((row) => row.seq <= seq)
}

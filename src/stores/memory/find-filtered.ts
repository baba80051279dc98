// stores/memory/find-filtered.ts: pages of filtered queries: from the narrowest index that holds all matches, at most so many
// rows a page.
import type { JobRecord } from '../../job/job.js'
import { copyOf } from '../../job/record.js'
import { addedWithin, bytesOfRecord, READ_BYTES, ROWS_LOOKED } from '../../store/read-pages.js'
import type { Page, Query } from '../../store/store.js'
import { merge } from '../merge.js'
import type { BTree } from './btree.js'
import { matchesFiltered } from '../../store/matches.js'
import { chainRows, listings, ordered, PAGE_SIZE } from './row-lists.js'
import { bySeq } from './row.js'
import type { QueueRow, Row } from './row.js'
import type { Table } from './table.js'

/** One page. Its cursor is the insertion number of the last row looked at; by the time of the end, after that time. */
export function findFiltered(table: Table, query: Query): Page<JobRecord> {
  const { bytes: maxBytes = READ_BYTES } = query
  const limit = query.count === true ? Infinity : (query.limit ?? PAGE_SIZE)
  const items: JobRecord[] = []
  let bytes = 0
  let count = 0
  let looked = 0
  let last: Row | undefined
  const page = (cursor?: string): Page<JobRecord> => ({
    items,
    ...(cursor !== undefined && { cursor }),
    ...(query.count === true && { count }),
  })
  for (const row of candidates(table, query)) {
    if (row === last) continue // it has several of the tags
    if (looked === ROWS_LOOKED) return page(cursorAt(last!, query))
    if (matchesFiltered(row.job, query)) {
      if (count >= limit || (bytes >= maxBytes && count > 0)) return page(cursorAt(last!, query))
      count++
      if (query.count !== true) {
        items.push(copyOf(row.job))
        bytes += bytesOfRecord(row.job)
      }
    }
    looked++
    last = row
  }
  return page()
}

function cursorAt({ seq, job }: Row, { order }: Query): string {
  return order === 'finished' ? `${job.finishedAt!}.${seq}` : String(seq)
}

/** Rows after the cursor, in the order of the query. */
function candidates(table: Table, query: Query): Iterable<Row> {
  const queues = query.queue === undefined ? [...table.queues.values()] : [table.queues.get(query.queue)]
  const known = queues.filter((queue) => queue !== undefined)
  if (query.order === 'finished') {
    const lists = known.map(({ name }) => table.find.ended.get(name)).filter((rows) => rows !== undefined)
    return merge(
      lists.map((rows) => endedBefore(rows, query)),
      (a, b) => byEnd(b, a),
    )
  }
  if (query.chain !== undefined) return ordered(chainRows(table, query.chain), query)
  const lists = listsOf(table, known, query).filter((rows) => rows !== undefined)
  const compare = query.order === 'newest' ? (a: Row, b: Row) => bySeq(b, a) : bySeq
  return merge(
    lists.map((rows) => addedIn(rows, query)),
    compare,
  )
}

function listsOf(
  { find, children }: Table,
  queues: readonly QueueRow[],
  query: Query,
): readonly (BTree<Row> | undefined)[] {
  const { tags, anyTag, fingerprint, errorCode, parent, group } = query
  if (parent !== undefined) return [children.get(parent)]
  return queues.flatMap((queue) => {
    if (tags !== undefined) {
      const all = tags.map((tag) => find.tags.rows(queue.name, tag))
      return [all.reduce((a, b) => ((b?.size ?? 0) < (a?.size ?? 0) ? b : a))]
    }
    if (anyTag !== undefined) return anyTag.map((tag) => find.tags.rows(queue.name, tag))
    if (fingerprint !== undefined) return [find.fingerprints.rows(queue.name, fingerprint)]
    if (errorCode !== undefined) return [find.codes.rows(queue.name, errorCode)]
    if (group !== undefined) return [queue.groups.get(group)?.rows]
    return listings(queue, query)
  })
}

/** The rows of a list after the cursor, and within the times of the query. */
function* addedIn(rows: BTree<Row>, query: Query): Generator<Row, undefined> {
  const { cursor } = query
  const { from = -Infinity, to = Infinity } = addedWithin(query)
  if (query.order === 'newest') {
    const before = cursor === undefined ? Infinity : Number(cursor)
    for (const row of rows.descend(({ seq, job }) => seq < before && job.createdAt < to)) {
      if (row.job.createdAt < from) return
      yield row
    }
  } else {
    const after = cursor === undefined ? -1 : Number(cursor)
    for (const row of rows.ascend(({ seq, job }) => seq <= after || job.createdAt < from)) {
      if (row.job.createdAt >= to) return
      yield row
    }
  }
}

/** Rows by their end, the last first, after the cursor and within the time of the end that is asked for. */
function* endedBefore(rows: BTree<Row>, { cursor, finished }: Query): Generator<Row, undefined> {
  const [at = Infinity, seq = Infinity] = cursor === undefined ? [] : cursor.split('.').map(Number)
  const { from = -Infinity, to = Infinity } = finished ?? {}
  const isBefore = (row: Row): boolean => {
    const end = row.job.finishedAt!
    return end < to && (end < at || (end === at && row.seq < seq))
  }
  for (const row of rows.descend(isBefore)) {
    if (row.job.finishedAt! < from) return
    yield row
  }
}

function byEnd(a: Row, b: Row): number {
  return a.job.finishedAt! - b.job.finishedAt! || a.seq - b.seq
}

// stores/memory/row-lists.ts: the lists of rows that a query reads.
import { jobStates } from '../../job/job.js'
import type { Query } from '../../store/store.js'
import type { BTree } from './btree.js'
import { listed } from './row.js'
import type { QueueRow, Row } from './row.js'
import type { Table } from './table.js'

/** Default number of jobs in a page. */
export const PAGE_SIZE = 100

/** The lists of a queue that hold the jobs of a query: one for each state, and the schedules. */
export function listings(queue: QueueRow, { states, kind }: Query): BTree<Row>[] {
  const found =
    kind !== undefined && kind !== 'job' ? [] : [...new Set(states ?? jobStates)].map((state) => listed(queue, state))
  if (kind !== 'job') found.push(queue.schedules)
  return found.filter((rows) => rows.size > 0)
}

/** The rows of a chain, in the order of the chain. */
export function chainRows(table: Table, id: string): Row[] {
  const chain = table.chains.get(id)
  if (chain !== undefined) return [...chain.rows.ascend()]
  const only = table.rows.get(id)
  return only === undefined || only.job.chainId !== id ? [] : [only]
}

/** Rows after the cursor, in the order of a query. */
export function ordered(rows: readonly Row[], { cursor, order }: Query): Row[] {
  if (order === 'newest') {
    const before = cursor === undefined ? Infinity : Number(cursor)
    return rows.filter((row) => row.seq < before).toSorted((a, b) => b.seq - a.seq)
  }
  const after = cursor === undefined ? -1 : Number(cursor)
  return rows.filter((row) => row.seq > after).toSorted((a, b) => a.seq - b.seq)
}

// stores/memory/groups.ts: the indexes and counters of each group in a queue.
import { isClaimable, isLeased } from '../../job/job.js'
import type { GroupRow, QueueRow, Row } from './row.js'
import { isBacklog } from '../../job/limits.js'
import { bySeq } from './row.js'
import { BTree } from './btree.js'
import { WaitingRows } from './waiting-rows.js'

/**
 * The group of this name, or a new one. A new group is not registered in its queue before a row or a lease is added to
 * it.
 */
export function groupIn(queue: QueueRow, name: string): GroupRow {
  return (
    queue.groups.get(name) ?? {
      name,
      queue,
      rows: new BTree(bySeq),
      backlog: new BTree(bySeq),
      waiting: new Map(),
      leases: 0,
    }
  )
}

/** Adds a row to its group. */
export function joinGroup(row: Row): void {
  const { group } = row
  if (group === undefined) return
  addGroup(group)
  group.rows.insert(row)
  enterGroupIndexes(row)
}

/** Removes a row from its group. */
export function leaveGroup(row: Row): void {
  const { group } = row
  if (group === undefined) return
  leaveGroupIndexes(row)
  group.rows.delete(row)
  dropIfUnused(group)
}

/** Adds a row to the indexes of its group that fit its state and order. */
export function enterGroupIndexes(row: Row): void {
  const { group, job, lane } = row
  if (group === undefined || job.kind !== 'job') return
  if (isBacklog(job.state)) group.backlog.insert(row)
  if (isLeased(job.state)) group.leases++
  if (!isClaimable(job.state)) return
  const laneRows = group.waiting.get(lane)
  if (laneRows !== undefined) return laneRows.insert(row)
  const newRows = new WaitingRows<Row>()
  newRows.insert(row)
  group.waiting.set(lane, newRows)
}

/** Removes a row from the indexes of its group that fit its state and order. */
export function leaveGroupIndexes(row: Row): void {
  const { group, job, lane } = row
  if (group === undefined || job.kind !== 'job') return
  if (isBacklog(job.state)) group.backlog.delete(row)
  if (isLeased(job.state)) group.leases--
  if (!isClaimable(job.state)) return
  const laneRows = group.waiting.get(lane)!
  laneRows.delete(row)
  if (laneRows.size === 0) group.waiting.delete(lane)
}

/** Counts a lease without a job: 1 more or 1 less. */
export function countGroupLease(group: GroupRow | undefined, by: 1 | -1): void {
  if (group === undefined) return
  addGroup(group)
  group.leases += by
  dropIfUnused(group)
}

/** The highest order among the waiting jobs of a group within a priority. */
export function lastTurn(group: GroupRow, priority: number): number | undefined {
  let last: number | undefined
  for (const laneRows of group.waiting.values()) {
    const [row] = laneRows.descend((each) => each.job.priority <= priority)
    if (row?.job.priority === priority && (last === undefined || row.job.ord > last)) last = row.job.ord
  }
  return last
}

/** Priorities that are checked for removal whenever a new priority appears. */
const SWEEP_LIMIT = 4

/** Records that jobs up to this turn were claimed from a queue. */
export function advanceTurn(queue: QueueRow, priority: number, turn: number): void {
  const { come: turns } = queue
  const before = turns.get(priority)
  if (turn <= (before ?? 0)) return
  if (before === undefined) forgetTurns(queue)
  turns.set(priority, turn)
}

/**
 * Forgets the turns of some priorities that no job needs any more, in rotation: programs may use any number of
 * priorities.
 */
function forgetTurns(queue: QueueRow): void {
  const { come: turns } = queue
  for (const [priority, turn] of [...turns].slice(0, SWEEP_LIMIT)) {
    turns.delete(priority)
    if (needsTurn(queue, priority)) turns.set(priority, turn)
  }
}

/** Whether a job with a group waits within a priority, or may return to its old order there. */
function needsTurn({ ready, leased }: QueueRow, priority: number): boolean {
  for (const { shared, rows } of ready) {
    if (!shared) continue
    const [row] = rows.descend(({ job }) => job.priority <= priority)
    if (row?.job.priority === priority) return true
  }
  for (const { group, job } of leased.ascend()) if (group !== undefined && job.priority === priority) return true
  return false
}

function addGroup(group: GroupRow): void {
  group.queue.groups.set(group.name, group)
}

function dropIfUnused(group: GroupRow): void {
  if (group.rows.size === 0 && group.leases === 0) group.queue.groups.delete(group.name)
}

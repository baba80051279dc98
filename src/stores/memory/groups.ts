// stores/memory/groups.ts: what a queue knows about each group in it.
import type { Grouped, Queued, Row } from './row.js'
import { byPlace, bySeq, isBacklog } from './row.js'
import { BTree } from './btree.js'

/** The group of this name, made if need be. It is found by others once something hangs on it. */
export function groupIn(queue: Queued, name: string): Grouped {
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

/** Hangs a row on its group. */
export function joinGroup(row: Row): void {
  const { group } = row
  if (group === undefined) return
  keep(group)
  group.rows.insert(row)
  arrive(row)
}

/** Takes a row from its group. */
export function leaveGroup(row: Row): void {
  const { group } = row
  if (group === undefined) return
  depart(row)
  group.rows.delete(row)
  forget(group)
}

/** Enters a row where its state and place belong. */
export function arrive(row: Row): void {
  const { group, job, lane } = row
  if (group === undefined || job.kind !== 'job') return
  if (isBacklog(job.state)) group.backlog.insert(row)
  if (job.state === 'active') group.leases++
  if (job.state !== 'waiting') return
  const line = group.waiting.get(lane)
  if (line !== undefined) return line.insert(row)
  const first = new BTree(byPlace)
  first.insert(row)
  group.waiting.set(lane, first)
}

/** Takes a row from where its state and place belonged. */
export function depart(row: Row): void {
  const { group, job, lane } = row
  if (group === undefined || job.kind !== 'job') return
  if (isBacklog(job.state)) group.backlog.delete(row)
  if (job.state === 'active') group.leases--
  if (job.state !== 'waiting') return
  const line = group.waiting.get(lane)!
  line.delete(row)
  if (line.size === 0) group.waiting.delete(lane)
}

/** Counts a lease without a job, more (1) or less (-1). */
export function countGroupLease(group: Grouped | undefined, by: 1 | -1): void {
  if (group === undefined) return
  keep(group)
  group.leases += by
  forget(group)
}

/** The highest place of those that wait within a priority. */
export function lastTurn(group: Grouped, priority: number): number | undefined {
  let last: number | undefined
  for (const line of group.waiting.values()) {
    const [row] = line.descend((each) => each.job.priority <= priority)
    if (row?.job.priority === priority && (last === undefined || row.job.ord > last)) last = row.job.ord
  }
  return last
}

/** Priorities that are looked at for each that is new, whether they can be forgotten. */
const SWEPT = 4

/** Jobs up to this turn were claimed from a queue. */
export function came(queue: Queued, priority: number, turn: number): void {
  const { come } = queue
  const before = come.get(priority)
  if (turn <= (before ?? 0)) return
  if (before === undefined) forgetTurns(queue)
  come.set(priority, turn)
}

/** Forgets the turns of some priorities, going round, that no job can go by any more: programs may have any number of them. */
function forgetTurns(queue: Queued): void {
  const { come } = queue
  for (const [priority, turn] of [...come].slice(0, SWEPT)) {
    come.delete(priority)
    if (goesByTurn(queue, priority)) come.set(priority, turn)
  }
}

/** Whether a job with a group waits within a priority, or may be given back to its old place there. */
function goesByTurn({ ready, leased }: Queued, priority: number): boolean {
  for (const { shared, rows } of ready) {
    if (!shared) continue
    const [row] = rows.descend(({ job }) => job.priority <= priority)
    if (row?.job.priority === priority) return true
  }
  for (const { group, job } of leased.ascend()) if (group !== undefined && job.priority === priority) return true
  return false
}

function keep(group: Grouped): void {
  group.queue.groups.set(group.name, group)
}

function forget(group: Grouped): void {
  if (group.rows.size === 0 && group.leases === 0) group.queue.groups.delete(group.name)
}

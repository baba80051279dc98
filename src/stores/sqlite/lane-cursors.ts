// stores/sqlite/lane-cursors.ts: how far a claim has read each lane.
import type { Millis } from '../../job/job.js'
import type { Heap } from '../../engine/heap.js'
import type { HeadOrder, ClaimOrder } from '../../engine/claim-order.js'
import type { SqlRow } from './driver.js'
import type { QueueUsage, Limits } from './limits.js'
import type { Lane } from './rows.js'
import type { Transaction } from './transaction.js'

/** Jobs of groups at their limits that are skipped one by one before each group is read by itself. */
const MAX_SKIPS = 64

/** Jobs read at once: where some may be skipped, and of one group. */
const READ_SOME = 16
const READ_FEW = 4

/** The position of a job in its lane. */
type Position = readonly [priority: number, ord: number, seq: number]

const START: Position = [-Infinity, -Infinity, -Infinity]

/** A lane, or one group in it, that has jobs to claim: how far it has been read, and the lease that its jobs get. */
export interface Head {
  readonly lane: Lane
  readonly usage: QueueUsage
  readonly lease: Millis
  /** The group of these jobs, if each group is read by itself. */
  readonly group: string | undefined
  /** Groups to skip for another reason than a limit. */
  readonly dropped: Set<string>
  /** Jobs that were read; empty for a group that has not been first yet. */
  rows: readonly SqlRow[]
  at: number
  /** There may be more jobs after those that were read; `last` is the position of the last one read. */
  more: boolean
  last: Position
  /** The position of the first job. */
  position: Position
  skipped: number
}

export const headOrder: HeadOrder<Head> = {
  beforeInHeap({ position: a }, { position: b }) {
    return a[0] < b[0] || (a[0] === b[0] && (a[1] < b[1] || (a[1] === b[1] && a[2] < b[2])))
  },
  beforeAcrossHeaps({ position: a }, { position: b }) {
    return a[0] < b[0] || (a[0] === b[0] && a[2] < b[2])
  },
}

/** The group of the first job, if groups are limited. */
export function groupOf({ lane, usage, group, rows, at }: Head): string | undefined {
  if (!lane.shared || !usage.bounds.groupsLimited) return undefined
  return group ?? (rows[at]![15] as string | null) ?? undefined
}

/** Adds a lane to its heap, with its first `size` jobs read. */
export function addLane(
  tx: Transaction,
  claimOrder: ClaimOrder<Head, number>,
  { lane, usage, lease }: Pick<Head, 'lane' | 'usage' | 'lease'>,
  size: number,
): void {
  const head = newHead({ lane, usage, lease }, undefined, START, START)
  if (readMore(tx, head, size)) claimOrder.heapOf(lane.queue, lane.shared).push(head)
}

function newHead(
  { lane, usage, lease }: Pick<Head, 'lane' | 'usage' | 'lease'>,
  group: string | undefined,
  last: Position,
  position: Position,
): Head {
  return { lane, usage, lease, group, dropped: new Set(), rows: [], at: 0, more: true, last, position, skipped: 0 }
}

/** Reads the first jobs of a group that has become first. */
export function readFirst(tx: Transaction, head: Head): void {
  if (head.rows.length === 0) readMore(tx, head, READ_FEW)
}

/** Moves on to the next job of a head. Reads up to `size` more jobs if needed; none if `size` is 0. */
export function advance(tx: Transaction, heap: Heap<Head>, head: Head, size: number): void {
  head.at++
  if (head.at < head.rows.length) {
    head.position = positionOf(head.rows[head.at]!)
    heap.sink()
  } else if (head.more && size > 0 && readMore(tx, head, head.group === undefined ? size : READ_FEW)) heap.sink()
  else heap.pop()
}

/**
 * Skips the first job of a heap because of its group. After many skips each group is read by itself: groups at their
 * limits are then not read at all, however many jobs they have.
 */
export function skip(tx: Transaction, heap: Heap<Head>, head: Head, limits: Limits): void {
  if (head.group !== undefined) return heap.pop()
  if (++head.skipped < MAX_SKIPS) return advance(tx, heap, head, READ_SOME)
  const { lane, usage, position, dropped } = head
  heap.pop()
  const heads = tx.sql.groupHeads.all(lane.queue, lane.id, ...position) as [string, number, number, number][]
  for (const [group, ...first] of heads) {
    if (dropped.has(group) || limits.isGroupAtLimit(usage, group)) continue
    heap.push(newHead(head, group, position, first))
  }
}

function positionOf(row: SqlRow): Position {
  return [row[2] as number, row[3] as number, row[0] as number]
}

/** Reads on in a lane, or in one group of it. Returns whether there was anything. */
function readMore({ sql }: Transaction, head: Head, size: number): boolean {
  const { lane, group, last } = head
  head.rows =
    group !== undefined
      ? sql.groupHead.all(lane.queue, group, lane.id, ...last, size)
      : lane.shared
        ? sql.sharedHead.all(lane.id, ...last, size)
        : sql.laneHead.all(lane.id, last[0], last[1], size)
  head.at = 0
  head.more = head.rows.length === size
  if (head.rows.length === 0) return false
  head.position = positionOf(head.rows[0]!)
  head.last = positionOf(head.rows.at(-1)!)
  return true
}

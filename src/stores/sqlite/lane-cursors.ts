// stores/sqlite/lane-cursors.ts: how far each lane in the lines of an ask has been read.
import type { Millis } from '../../job/job.js'
import type { Heap } from '../heap.js'
import type { HeadOrder, ClaimOrder } from '../claim-order.js'
import type { SqlRow } from './driver.js'
import type { Asked, Limits } from './limits.js'
import type { Lane } from './rows.js'
import type { Transaction } from './transaction.js'

/** Jobs of groups at their bounds that are passed over one by one before each group is read by itself. */
const SKIPS = 64

/** Jobs read at once where some may be passed over, or of one group. */
const SOME = 16
const FEW = 4

/** Where a job stands in its lane. */
type Place = readonly [priority: number, ord: number, seq: number]

const START: Place = [-Infinity, -Infinity, -Infinity]

/** A lane that can give, or one group in it, how far it has been read, and the lease that its jobs are given. */
export interface Head {
  readonly lane: Lane
  readonly asked: Asked
  readonly lease: Millis
  /** Whose jobs these are, where each group is read by itself. */
  readonly group: string | undefined
  /** Groups that give no more, for another reason than a bound. */
  readonly dropped: Set<string>
  /** Jobs read; none of a group that has not come first yet. */
  rows: readonly SqlRow[]
  at: number
  /** There may be more than was read, after this place. */
  more: boolean
  last: Place
  /** The place of the first job. */
  place: Place
  skipped: number
}

/** How heads compare. */
export const order: HeadOrder<Head> = {
  goesFirst({ place: a }, { place: b }) {
    return a[0] < b[0] || (a[0] === b[0] && (a[1] < b[1] || (a[1] === b[1] && a[2] < b[2])))
  },
  isBefore({ place: a }, { place: b }) {
    return a[0] < b[0] || (a[0] === b[0] && a[2] < b[2])
  },
}

/** Whose the first job is, where that matters to claims. */
export function groupOf({ lane, asked, group, rows, at }: Head): string | undefined {
  if (!lane.shared || !asked.bounds.groupsLimited) return undefined
  return group ?? (rows[at]![14] as string | null) ?? undefined
}

/** Puts a lane into its line, with so many of its jobs read. */
export function open(
  tx: Transaction,
  lines: ClaimOrder<Head, number>,
  { lane, asked, lease }: Pick<Head, 'lane' | 'asked' | 'lease'>,
  size: number,
): void {
  const head = newHead({ lane, asked, lease }, undefined, START, START)
  if (read(tx, head, size)) lines.of(lane.queue, lane.shared).push(head)
}

function newHead(
  { lane, asked, lease }: Pick<Head, 'lane' | 'asked' | 'lease'>,
  group: string | undefined,
  last: Place,
  place: Place,
): Head {
  return { lane, asked, lease, group, dropped: new Set(), rows: [], at: 0, more: true, last, place, skipped: 0 }
}

/** Reads the first jobs of a group that has come first. */
export function fill(tx: Transaction, head: Head): void {
  if (head.rows.length === 0) read(tx, head, FEW)
}

/** Goes on behind the first job of a line; reads on, so many jobs at a time, unless that is nothing. */
export function next(tx: Transaction, line: Heap<Head>, head: Head, size: number): void {
  head.at++
  if (head.at < head.rows.length) {
    head.place = placeOf(head.rows[head.at]!)
    line.sink()
  } else if (head.more && size > 0 && read(tx, head, head.group === undefined ? size : FEW)) line.sink()
  else line.pop()
}

/**
 * Passes over the first job of a line, because of its group. Where that happens often, each group is read by itself from
 * there on: those at their bounds are not read at all, however many jobs they have.
 */
export function skip(tx: Transaction, line: Heap<Head>, head: Head, limits: Limits): void {
  if (head.group !== undefined) return line.pop()
  if (++head.skipped < SKIPS) return next(tx, line, head, SOME)
  const { lane, asked, place, dropped } = head
  line.pop()
  const heads = tx.sql.groupHeads.all(lane.queue, lane.id, ...place) as [string, number, number, number][]
  for (const [group, ...first] of heads) {
    if (dropped.has(group) || limits.isGroupAtLimit(asked, group)) continue
    line.push(newHead(head, group, place, first))
  }
}

function placeOf(row: SqlRow): Place {
  return [row[2] as number, row[3] as number, row[0] as number]
}

/** Reads on in a lane, or in one group of it; tells whether there was anything. */
function read({ sql }: Transaction, head: Head, size: number): boolean {
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
  head.place = placeOf(head.rows[0]!)
  head.last = placeOf(head.rows.at(-1)!)
  return true
}

// stores/memory/claim.ts: claims jobs by merging the heads of the lanes that a worker handles.
import type { JobRecord, Millis, Time } from '../../job/job.js'
import { claimed, mayLeaseAhead } from '../../job/lifecycle.js'
import { bytesOfRecord, READ_BYTES } from '../../store/read-pages.js'
import type { Ask, Handled } from '../../store/store.js'
import { handlersOf } from '../handlers.js'
import type { Handlers } from '../handlers.js'
import type { Heap } from '../heap.js'
import { ClaimOrder } from '../claim-order.js'
import type { HeadOrder } from '../claim-order.js'
import { NO_JOBS } from '../verdicts.js'
import { advanceTurn } from './groups.js'
import { Limits, isLimited } from './limits.js'
import type { Notices } from './notices.js'
import { isPaused } from './row.js'
import type { GroupRow, Lane, QueueRow, Row } from './row.js'
import type { BTree } from './btree.js'
import { replace } from './table.js'
import type { Table } from './table.js'

/** A lane, or one group in it, that has jobs to claim: its first job, and the lease that its jobs get. */
interface Head {
  readonly lane: Lane
  readonly rows: BTree<Row>
  /** The group of these jobs, if groups are limited. */
  readonly group: GroupRow | undefined
  readonly lease: Millis
  row: Row
}

const headOrder: HeadOrder<Head> = {
  beforeInHeap({ row: a }, { row: b }) {
    if (a.job.priority !== b.job.priority) return a.job.priority < b.job.priority
    return a.job.ord < b.job.ord || (a.job.ord === b.job.ord && a.seq < b.seq)
  },
  beforeAcrossHeaps({ row: a }, { row: b }) {
    return a.job.priority < b.job.priority || (a.job.priority === b.job.priority && a.seq < b.seq)
  },
}

/** The result of a claim. */
export interface Claimed {
  readonly jobs: readonly JobRecord[]
  /** When to claim again: a rate lets more through then, or (now) the answer was full. */
  readonly again: Time | undefined
}

const NOTHING_CLAIMED: Claimed = Object.freeze({ jobs: NO_JOBS, again: undefined })

/** Claims jobs for a worker: first the jobs to start at once, then the jobs to lease ahead. */
export function claim(table: Table, ask: Ask, notices: Notices): Claimed {
  if (ask.want <= 0 && ask.ahead <= 0) return NOTHING_CLAIMED
  const claimOrder = new ClaimOrder<Head, QueueRow>(headOrder)
  let handlers = table.handlers.get(ask.handles)
  if (handlers === undefined) table.handlers.set(ask.handles, (handlers = handlersOf(ask.handles)))
  for (const [index, name] of ask.queues.entries()) {
    const queue = table.queues.get(name)
    if (queue !== undefined && ask.queues.indexOf(name) === index) collectLanes(claimOrder, queue, handlers)
  }

  const jobs: JobRecord[] = []
  const limits = new Limits(notices.now)
  let bytes = 0
  const isFull = (): boolean => bytes >= READ_BYTES
  const claimHead = (heap: Heap<Head>, head: Head, ahead: boolean): void => {
    const job = claimFirst(table, heap, head, ask.worker, ahead, limits, notices)
    jobs.push(job)
    bytes += bytesOfRecord(job)
  }
  for (
    let heap = claimOrder.first;
    heap !== undefined && jobs.length < ask.want && !isFull();
    heap = claimOrder.first
  ) {
    const head = heap.top!
    if (limits.isReached(head.lane.name, head.group)) heap.pop()
    else claimHead(heap, head, false)
  }
  const maxJobs = jobs.length + ask.ahead
  for (
    let heap = ask.ahead > 0 ? claimOrder.first : undefined;
    heap !== undefined && jobs.length < maxJobs && !isFull();
    heap = claimOrder.first
  ) {
    const head = heap.top!
    if (isLimited(head.lane.name, head.group) || !mayLeaseAhead(head.row.job)) heap.pop()
    else claimHead(heap, head, true)
  }
  limits.write()
  const isCut = isFull() && jobs.length < Math.max(0, ask.want) + Math.max(0, ask.ahead)
  return { jobs, again: isCut ? notices.now : limits.again }
}

/**
 * Collects the lanes of a queue that have jobs to claim. Paused lanes and lanes at their limit are skipped without
 * reading their jobs.
 */
function collectLanes(claimOrder: ClaimOrder<Head, QueueRow>, queue: QueueRow, handlers: Handlers): void {
  if (queue.paused || queue.leases >= queue.limit) return
  if (handlers.has(undefined) || queue.ready.size <= handlers.size) {
    for (const lane of queue.ready) {
      addHeads(claimOrder, lane, handlers.get(lane.name.name) ?? handlers.get(undefined))
    }
    return
  }
  for (const [name, handled] of handlers) {
    const lanes = queue.names.get(name!)?.lanes
    if (lanes !== undefined) for (const lane of lanes.values()) addHeads(claimOrder, lane, handled)
  }
}

function addHeads(claimOrder: ClaimOrder<Head, QueueRow>, lane: Lane, handlers: readonly Handled[] | undefined): void {
  const { name, version, rows } = lane
  if (handlers === undefined || isPaused(name) || name.leases >= name.limit || rows.size === 0) return
  for (const { versions, lease } of handlers) {
    if (versions !== undefined && !versions.includes(version)) continue
    const heap = claimOrder.heapOf(name.queue, lane.shared)
    if (!lane.shared || !name.queue.bounds.groupsLimited) {
      heap.push({ lane, rows, group: undefined, lease, row: rows.min! })
      return
    }
    for (const group of name.queue.groups.values()) {
      const waiting = group.waiting.get(lane)
      if (waiting !== undefined) heap.push({ lane, rows: waiting, group, lease, row: waiting.min! })
    }
    return
  }
}

/** Claims the first job of a head, and moves the head on to its next job. */
function claimFirst(
  table: Table,
  heap: Heap<Head>,
  head: Head,
  worker: string,
  ahead: boolean,
  limits: Limits,
  notices: Notices,
): JobRecord {
  const { row, lane, lease } = head
  const { queue } = lane.name
  const before = row.job
  const { dueAt: due, priority, ord } = before
  const job = claimed(before, { worker, lease, ahead, now: notices.now })
  replace(table, row, job)
  if (lane.shared) advanceTurn(queue, priority, ord)
  limits.countClaim(lane.name, head.group)
  notices.jobChanged(row, 'waiting', due)
  notices.addClaimed(queue)
  const next = head.rows.min
  if (next === undefined) heap.pop()
  else {
    head.row = next
    heap.sink()
  }
  return job
}

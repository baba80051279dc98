// engine/claim.ts: claims jobs by merging the heads of the lanes that a worker handles.
import type { JobRecord, Millis, Time } from '../job/job.js'
import { claimed, mayLeaseAhead } from '../job/lifecycle.js'
import { bytesOfRecord, READ_BYTES } from '../store/read-pages.js'
import type { Ask } from '../store/store.js'
import { ClaimOrder } from './claim-order.js'
import type { HeadOrder } from './claim-order.js'
import { handlerFor, handlersOf } from './handler-index.js'
import type { Heap } from './heap.js'
import { isGroupLimited, isLimited, Limits } from './limits.js'
import type { QueueUsage } from './limits.js'
import { NO_JOBS } from './verdicts.js'
import type { ClaimCommit, LaneCursor, ReadyLane } from './workspace.js'

/** A lane, or a group in it, that has jobs to claim, and the lease that its jobs get. */
interface Head {
  readonly lane: ReadyLane
  readonly usage: QueueUsage
  readonly lease: Millis
  /** Groups whose first job may not be leased ahead, and so keeps back those after it. */
  readonly keptBack: Set<string> | undefined
  readonly cursor: LaneCursor
}

const headOrder: HeadOrder<Head> = {
  beforeInHeap({ cursor: a }, { cursor: b }) {
    if (a.priority !== b.priority) return a.priority < b.priority
    return a.ord < b.ord || (a.ord === b.ord && a.seq < b.seq)
  },
  beforeAcrossHeaps({ cursor: a }, { cursor: b }) {
    return a.priority < b.priority || (a.priority === b.priority && a.seq < b.seq)
  },
}

/** The result of a claim. */
export interface Claimed {
  readonly jobs: readonly JobRecord[]
  /** When to claim again: a rate lets more through then, a hold ends, or (now) the answer was full. */
  readonly again: Time | undefined
}

const NOTHING_CLAIMED: Claimed = Object.freeze({ jobs: NO_JOBS, again: undefined })

/** Claims jobs for a worker: first the jobs to start at once, then the jobs to lease ahead. */
export function claim(commit: ClaimCommit, ask: Ask): Claimed {
  const wanted = Math.max(0, ask.want) + Math.max(0, ask.ahead)
  if (wanted === 0) return NOTHING_CLAIMED
  const { workspace, now, notices } = commit
  const limits = new Limits(workspace, now)
  const order = openLanes(commit, ask, wanted, limits)
  const jobs: JobRecord[] = []
  let bytes = 0
  const isFull = (): boolean => bytes >= READ_BYTES

  const claimFirst = (heap: Heap<Head>, head: Head, group: string | undefined, ahead: boolean): void => {
    const { lane, usage, lease, cursor } = head
    const row = cursor.read()
    const { dueAt, priority, ord } = row.job
    const job = claimed(row.job, { worker: ask.worker, lease, ahead, now })
    workspace.claim(row, job)
    if (lane.shared) workspace.advanceTurn(usage.queue, priority, ord)
    notices.jobChanged(job, 'waiting', dueAt)
    notices.addClaimed(usage.queue)
    limits.countClaim(usage, lane.name, group)
    jobs.push(job)
    bytes += bytesOfRecord(job)
    if (cursor.next(jobs.length < wanted)) heap.sink()
    else heap.pop()
  }

  for (let heap = order.first; heap !== undefined && jobs.length < ask.want && !isFull(); heap = order.first) {
    const head = heap.top!
    const group = groupOf(head)
    const reached = limits.reached(head.usage, head.lane.name, group)
    if (reached === undefined) claimFirst(heap, head, group, false)
    else if (reached === 'lane') heap.pop()
    else skip(heap, head, limits)
  }
  for (let heap = order.first; heap !== undefined && jobs.length < wanted && !isFull(); heap = order.first) {
    const head = heap.top!
    const group = groupOf(head)
    if (isLimited(head.usage, head.lane.name, head.lane.shared)) heap.pop()
    else if (group !== undefined && (head.keptBack!.has(group) || isGroupLimited(head.usage.bounds, group))) {
      skip(heap, head, limits)
    } else if (group !== undefined && limits.isGroupHeld(head.usage, group)) skip(heap, head, limits)
    else if (mayLeaseAhead(head.cursor.limits)) claimFirst(heap, head, group, true)
    else if (group === undefined) heap.pop()
    else {
      head.keptBack!.add(group)
      skip(heap, head, limits)
    }
  }
  limits.write()
  const isCut = isFull() && jobs.length < wanted
  return { jobs, again: isCut ? now : limits.again }
}

/**
 * Opens the lanes that have jobs to claim. Paused lanes and lanes at their limit are skipped without reading their
 * jobs.
 */
function openLanes({ workspace }: ClaimCommit, ask: Ask, wanted: number, limits: Limits): ClaimOrder<Head, string> {
  const handlers = handlersOf(ask.handles)
  const found: Omit<Head, 'cursor' | 'keptBack'>[] = []
  for (const [index, queue] of ask.queues.entries()) {
    if (ask.queues.indexOf(queue) !== index) continue
    const usage = limits.usageOf(queue)
    if (usage === undefined) continue
    for (const lane of workspace.readyLanes(queue, handlers)) {
      const handled = handlerFor(handlers, lane.name, lane.version)
      if (handled === undefined || usage.bounds.pausedNames.has(lane.name) || limits.isAtLimit(usage, lane.name)) {
        continue
      }
      if (usage.held !== undefined && limits.isHeld(usage, lane.name)) continue
      found.push({ lane, usage, lease: handled.lease })
    }
  }
  const size = found.length === 1 ? wanted : Math.min(wanted, Math.ceil((2 * wanted) / found.length) + 4)
  const order = new ClaimOrder<Head, string>(headOrder)
  for (const { lane, usage, lease } of found) {
    const heap = order.heapOf(usage.queue, lane.shared)
    const byGroup = lane.shared && (usage.bounds.groupsLimited || (usage.held?.groups.size ?? 0) > 0)
    const keptBack = byGroup ? new Set<string>() : undefined
    for (const cursor of workspace.openLane(lane, size, byGroup)) heap.push({ lane, usage, lease, keptBack, cursor })
  }
  return order
}

/** The group of the first job, if groups are limited. */
function groupOf({ keptBack, cursor }: Head): string | undefined {
  return keptBack === undefined ? undefined : cursor.group
}

/** Skips the first job of a heap because of its group. */
function skip(heap: Heap<Head>, head: Head, limits: Limits): void {
  const { usage, keptBack } = head
  const cursors = head.cursor.skip((group) => keptBack!.has(group) || limits.isGroupAtLimit(usage, group))
  if (cursors[0] === head.cursor) return heap.sink()
  heap.pop()
  for (const cursor of cursors) heap.push({ ...head, cursor })
}

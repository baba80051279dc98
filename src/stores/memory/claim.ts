// stores/memory/claim.ts: answers asks, by merging the heads of the lanes that a worker handles.
import type { JobRecord, Millis, Time } from '../../job/job.js'
import { claimed, mayLeaseAhead } from '../../job/lifecycle.js'
import type { Ask, Handled } from '../../store/store.js'
import { handlersOf } from '../handlers.js'
import type { Handlers } from '../handlers.js'
import type { Heap } from '../heap.js'
import { ClaimOrder } from '../claim-order.js'
import type { HeadOrder } from '../claim-order.js'
import { NO_JOBS } from '../verdicts.js'
import { came } from './groups.js'
import { Limits, isLimited } from './limits.js'
import type { Notices } from './notices.js'
import { isPaused } from './row.js'
import type { Grouped, Lane, Queued, Row } from './row.js'
import type { BTree } from './btree.js'
import { replace } from './table.js'
import type { Table } from './table.js'

/** A lane that can give, or one group in it, its first job, and the lease that its jobs are given. */
interface Head {
  readonly lane: Lane
  readonly rows: BTree<Row>
  /** Whose jobs these are, where groups are bounded. */
  readonly group: Grouped | undefined
  readonly lease: Millis
  row: Row
}

/** How heads compare. */
const order: HeadOrder<Head> = {
  goesFirst({ row: a }, { row: b }) {
    if (a.job.priority !== b.job.priority) return a.job.priority < b.job.priority
    return a.job.ord < b.job.ord || (a.job.ord === b.job.ord && a.seq < b.seq)
  },
  isBefore({ row: a }, { row: b }) {
    return a.job.priority < b.job.priority || (a.job.priority === b.job.priority && a.seq < b.seq)
  },
}

/** What an ask came to. */
export interface Claimed {
  readonly jobs: readonly JobRecord[]
  /** When a rate that held some back lets more through. */
  readonly again: Time | undefined
}

const NOTHING: Claimed = Object.freeze({ jobs: NO_JOBS, again: undefined })

/** Claims jobs for a worker: those to start at once, then those leased ahead. */
export function claim(table: Table, ask: Ask, news: Notices): Claimed {
  if (ask.want <= 0 && ask.ahead <= 0) return NOTHING
  const lines = new ClaimOrder<Head, Queued>(order)
  let handlers = table.handlers.get(ask.handles)
  if (handlers === undefined) table.handlers.set(ask.handles, (handlers = handlersOf(ask.handles)))
  for (const [index, name] of ask.queues.entries()) {
    const queue = table.queues.get(name)
    if (queue !== undefined && ask.queues.indexOf(name) === index) gather(lines, queue, handlers)
  }

  const jobs: JobRecord[] = []
  const limits = new Limits(news.now)
  for (let line = lines.first; line !== undefined && jobs.length < ask.want; line = lines.first) {
    const head = line.top!
    if (limits.isReached(head.lane.name, head.group)) line.pop()
    else jobs.push(take(table, line, head, ask.worker, false, limits, news))
  }
  const most = jobs.length + ask.ahead
  for (
    let line = ask.ahead > 0 ? lines.first : undefined;
    line !== undefined && jobs.length < most;
    line = lines.first
  ) {
    const head = line.top!
    if (isLimited(head.lane.name, head.group) || !mayLeaseAhead(head.row.job)) line.pop()
    else jobs.push(take(table, line, head, ask.worker, true, limits, news))
  }
  limits.write()
  return { jobs, again: limits.again }
}

/** Collects the lanes of a queue that can give. What is paused or at its limit is passed over, its jobs unread. */
function gather(lines: ClaimOrder<Head, Queued>, queue: Queued, handlers: Handlers): void {
  if (queue.paused || queue.leases >= queue.limit) return
  if (handlers.has(undefined) || queue.ready.size <= handlers.size) {
    for (const lane of queue.ready) {
      offer(lines, lane, handlers.get(lane.name.name) ?? handlers.get(undefined))
    }
    return
  }
  for (const [name, handled] of handlers) {
    const lanes = queue.names.get(name!)?.lanes
    if (lanes !== undefined) for (const lane of lanes.values()) offer(lines, lane, handled)
  }
}

function offer(lines: ClaimOrder<Head, Queued>, lane: Lane, handlers: readonly Handled[] | undefined): void {
  const { name, version, rows } = lane
  if (handlers === undefined || isPaused(name) || name.leases >= name.limit || rows.size === 0) return
  for (const { versions, lease } of handlers) {
    if (versions !== undefined && !versions.includes(version)) continue
    const line = lines.of(name.queue, lane.shared)
    if (!lane.shared || !name.queue.bounds.groupsLimited) {
      line.push({ lane, rows, group: undefined, lease, row: rows.min! })
      return
    }
    for (const group of name.queue.groups.values()) {
      const waiting = group.waiting.get(lane)
      if (waiting !== undefined) line.push({ lane, rows: waiting, group, lease, row: waiting.min! })
    }
    return
  }
}

/** Claims the first job of a head, which then stands behind its next one. */
function take(
  table: Table,
  line: Heap<Head>,
  head: Head,
  worker: string,
  ahead: boolean,
  limits: Limits,
  news: Notices,
): JobRecord {
  const { row, lane, lease } = head
  const { queue } = lane.name
  const before = row.job
  const { dueAt: due, priority, ord } = before
  const job = claimed(before, { worker, lease, ahead, now: news.now })
  replace(table, row, job)
  if (lane.shared) came(queue, priority, ord)
  limits.took(lane.name, head.group)
  news.placed(row, 'waiting', due)
  news.claimed(queue)
  const next = head.rows.min
  if (next === undefined) line.pop()
  else {
    head.row = next
    line.sink()
  }
  return job
}

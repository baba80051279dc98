// stores/table/claim.ts: answers asks, by merging the heads of the lanes that a worker handles.
import type { JobRecord, Millis } from '../../job/job.js'
import { claimed, mayLeaseAhead } from '../../job/lifecycle.js'
import type { Ask, Handled } from '../../store/store.js'
import { handlersOf } from '../handlers.js'
import type { Handlers } from '../handlers.js'
import { Heap } from '../heap.js'
import type { News } from './news.js'
import { isAtLimit, isLimited, isPaused } from './row.js'
import type { Lane, Queued, Row } from './row.js'
import { replace } from './table.js'
import type { Table } from './table.js'
import { NO_JOBS } from '../verdicts.js'

/** A lane that can give, its first job, and the lease that its jobs are given. */
interface Head {
  readonly lane: Lane
  readonly lease: Millis
  row: Row
}

function goesFirst({ row: { job: a } }: Head, { row: { job: b } }: Head): boolean {
  return a.priority < b.priority || (a.priority === b.priority && a.ord < b.ord)
}

/** Claims jobs for a worker: those to start at once, then those leased ahead. */
export function claim(table: Table, ask: Ask, news: News): readonly JobRecord[] {
  if (ask.want <= 0 && ask.ahead <= 0) return NO_JOBS
  const heads = new Heap<Head>(goesFirst)
  let handlers = table.handlers.get(ask.handles)
  if (handlers === undefined) table.handlers.set(ask.handles, (handlers = handlersOf(ask.handles)))
  for (const [index, name] of ask.queues.entries()) {
    const queue = table.queues.get(name)
    if (queue !== undefined && ask.queues.indexOf(name) === index) gather(heads, queue, handlers)
  }
  if (heads.top === undefined) return NO_JOBS

  const jobs: JobRecord[] = []
  for (let head = heads.top; head !== undefined && jobs.length < ask.want; head = heads.top) {
    if (isAtLimit(head.lane.name)) heads.pop()
    else jobs.push(take(table, heads, head, ask.worker, false, news))
  }
  const most = jobs.length + ask.ahead
  for (let head = heads.top; head !== undefined && jobs.length < most; head = heads.top) {
    if (isLimited(head.lane.name) || !mayLeaseAhead(head.row.job)) heads.pop()
    else jobs.push(take(table, heads, head, ask.worker, true, news))
  }
  return jobs
}

/** Collects the lanes of a queue that can give. What is paused or at its limit is passed over, its jobs unread. */
function gather(heads: Heap<Head>, queue: Queued, handlers: Handlers): void {
  if (queue.paused || queue.leases >= queue.limit) return
  if (handlers.has(undefined) || queue.ready.size <= handlers.size) {
    for (const lane of queue.ready) {
      offer(heads, lane, handlers.get(lane.name.name) ?? handlers.get(undefined))
    }
    return
  }
  for (const [name, handled] of handlers) {
    const lanes = queue.names.get(name!)?.lanes
    if (lanes !== undefined) for (const lane of lanes.values()) offer(heads, lane, handled)
  }
}

function offer(heads: Heap<Head>, lane: Lane, handlers: readonly Handled[] | undefined): void {
  if (handlers === undefined || isPaused(lane.name) || isAtLimit(lane.name)) return
  for (const { versions, lease } of handlers) {
    if (versions !== undefined && !versions.includes(lane.version)) continue
    const row = lane.rows.min
    if (row !== undefined) heads.push({ lane, lease, row })
    return
  }
}

/** Claims the first job of a lane, which then stands behind its next one. */
function take(table: Table, heads: Heap<Head>, head: Head, worker: string, ahead: boolean, news: News): JobRecord {
  const { row, lane, lease } = head
  const before = row.job
  const due = before.dueAt
  const job = claimed(before, { worker, lease, ahead, now: news.now })
  replace(table, row, job)
  news.placed(row, 'waiting', due)
  news.claimed(lane.name.queue)
  const next = lane.rows.min
  if (next === undefined) heads.pop()
  else {
    head.row = next
    heads.sink()
  }
  return job
}

// stores/sqlite/claim.ts: claims jobs by merging the heads of the lanes that a worker handles.
import type { JobRecord, Millis, Time } from '../../job/job.js'
import { claimed, mayLeaseAhead } from '../../job/lifecycle.js'
import { bytesOfRecord, READ_BYTES } from '../../store/read-pages.js'
import type { Ask } from '../../store/store.js'
import { handlerFor, handlersOf } from '../../engine/handlers.js'
import type { Heap } from '../../engine/heap.js'
import { ClaimOrder } from '../../engine/claim-order.js'
import { NO_JOBS } from '../../engine/verdicts.js'
import { readFirst, groupOf, advance, addLane, headOrder, skip } from './lane-cursors.js'
import type { Head } from './lane-cursors.js'
import { usageOf, isAtLimit, isGroupLimited, isLimited, Limits } from './limits.js'
import type { Lane } from './rows.js'
import { writeTo } from './ranges.js'
import type { Transaction } from './transaction.js'

/** Maximum number of leased jobs to track; more than any worker leases. */
const MAX_LEASED = 20_000

/** Claimed jobs with the same lease, which are written together. */
interface SameLease {
  readonly lease: Millis
  readonly ahead: boolean
  readonly seqs: number[]
}

/** Claimed jobs, and their numbers. */
export interface Claimed {
  readonly jobs: readonly JobRecord[]
  readonly seqs: readonly number[]
  /** When to claim again: a rate lets more through then, or (now) the answer was full. */
  readonly again: Time | undefined
}

const NOTHING_CLAIMED: Claimed = Object.freeze({ jobs: NO_JOBS, seqs: Object.freeze([]), again: undefined })

/** Claims jobs for a worker: first the jobs to start at once, then the jobs to lease ahead. */
export function claim(tx: Transaction, ask: Ask): Claimed {
  const wanted = Math.max(0, ask.want) + Math.max(0, ask.ahead)
  if (wanted === 0) return NOTHING_CLAIMED
  tx.counts.flush(tx.sql)
  const lanes = collectLanes(tx, ask)
  if (lanes.length === 0) return NOTHING_CLAIMED
  const size = lanes.length === 1 ? wanted : Math.min(wanted, Math.ceil((2 * wanted) / lanes.length) + 4)
  const claimOrder = new ClaimOrder<Head, number>(headOrder)
  for (const head of lanes) addLane(tx, claimOrder, head, size)

  const jobs: JobRecord[] = []
  const seqs: number[] = []
  const leases: SameLease[] = []
  const limits = new Limits(tx)
  let bytes = 0
  const isFull = (): boolean => bytes >= READ_BYTES
  const claimHead = (heap: Heap<Head>, head: Head, ahead: boolean): void => {
    const group = groupOf(head)
    const job = claimFirst(tx, head, ask.worker, ahead, leases)
    seqs.push(head.rows[head.at]![0] as number)
    jobs.push(job)
    bytes += bytesOfRecord(job)
    limits.countClaim(head.usage, head.lane, group)
    advance(tx, heap, head, jobs.length < wanted ? size : 0)
  }
  for (
    let heap = claimOrder.first;
    heap !== undefined && jobs.length < ask.want && !isFull();
    heap = claimOrder.first
  ) {
    const head = heap.top!
    const reached = limits.reached(head.usage, head.lane, groupOf(head))
    if (reached === undefined) {
      readFirst(tx, head)
      claimHead(heap, head, false)
    } else if (reached === 'lane') heap.pop()
    else skip(tx, heap, head, limits)
  }
  for (let heap = claimOrder.first; heap !== undefined && jobs.length < wanted && !isFull(); heap = claimOrder.first) {
    const head = heap.top!
    const group = groupOf(head)
    if (isLimited(head.usage, head.lane)) heap.pop()
    else if (group !== undefined && (head.dropped.has(group) || isGroupLimited(head.usage, group))) {
      skip(tx, heap, head, limits)
    } else {
      readFirst(tx, head)
      if (mayLeaseAhead(peek(head))) claimHead(heap, head, true)
      else if (group === undefined) heap.pop()
      else {
        head.dropped.add(group)
        skip(tx, heap, head, limits)
      }
    }
  }
  for (const { lease, ahead, seqs: claimedSeqs } of leases) {
    writeTo(
      claimedSeqs,
      { range: tx.sql.claimRange, many: tx.sql.claimMany },
      ask.worker,
      tx.now + lease,
      Number(ahead),
      tx.now,
    )
  }
  limits.write()
  const isCut = isFull() && jobs.length < wanted
  return { jobs, seqs, again: isCut ? tx.now : limits.again }
}

/**
 * Collects the lanes that have jobs to claim. Paused lanes and lanes at their limit are skipped without reading their
 * jobs.
 */
function collectLanes(tx: Transaction, ask: Ask): readonly Pick<Head, 'lane' | 'usage' | 'lease'>[] {
  const handlers = handlersOf(ask.handles)
  const lanes: Pick<Head, 'lane' | 'usage' | 'lease'>[] = []
  for (const name of new Set(ask.queues)) {
    const usage = usageOf(tx, name)
    if (usage === undefined) continue
    for (const [id] of tx.sql.readyLanes.all(usage.queue)) {
      const lane = tx.cache.lane(id as number)
      const handled = handlerFor(handlers, lane.name, lane.version)
      if (handled === undefined || usage.bounds.pausedNames.has(lane.name) || isAtLimit(usage, lane)) continue
      lanes.push({ lane, usage, lease: handled.lease })
    }
  }
  return lanes
}

/** The fields that decide whether the first job of a lane may be leased ahead. */
function peek({ rows, at }: Head): Pick<JobRecord, 'attempts' | 'stalls'> {
  const row = rows[at]!
  return { attempts: row[6] === null ? Infinity : (row[6] as number), stalls: row[7] as number }
}

/** Claims the first job of a lane. */
function claimFirst(tx: Transaction, head: Head, worker: string, ahead: boolean, leases: SameLease[]): JobRecord {
  const row = head.rows[head.at]!
  const { lane, lease, usage } = head
  const seq = row[0] as number
  const before = row[12] === 0 ? tx.cache.newRecord(row, lane) : tx.cache.bySeq(seq).job
  const job = claimed(before, { worker, lease, ahead, now: tx.now })
  const same = leases.find((each) => each.lease === lease && each.ahead === ahead)
  if (same === undefined) leases.push({ lease, ahead, seqs: [seq] })
  else same.seqs.push(seq)
  trackLeased(tx, { seq, lane, job })
  if (lane.shared) tx.advanceTurn(lane.queue, job.priority, job.ord)
  tx.claimedQueues.set(usage.queue, usage.name)
  tx.jobChanged(lane, job, 'waiting', before.dueAt)
  return job
}

/** A job whose text takes more than this is tracked without its payload, or not at all: a settlement needs none of it. */
const LIGHT = 2_000

/** Tracks a claimed job, so that its settlement need not read it. */
function trackLeased({ leased }: Transaction, found: { seq: number; lane: Lane; job: JobRecord }): void {
  if (bytesOfRecord(found.job) > LIGHT) {
    const job = { ...found.job, data: undefined, memo: undefined, progress: undefined }
    if (bytesOfRecord(job) > LIGHT) return void leased.delete(job.id)
    found = { ...found, job }
  }
  if (leased.size >= MAX_LEASED)
    for (const oldest of leased.keys()) {
      leased.delete(oldest)
      break
    }
  leased.set(found.job.id, found)
}

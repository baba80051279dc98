// stores/sqlite/claim.ts: answers asks, by merging the heads of the lanes that a worker handles.
import type { JobRecord, Millis, Time } from '../../job/job.js'
import { claimed, mayLeaseAhead } from '../../job/lifecycle.js'
import { bytesOfRecord } from '../../store/read-pages.js'
import type { Ask } from '../../store/store.js'
import { handlerFor, handlersOf } from '../handlers.js'
import type { Heap } from '../heap.js'
import { ClaimOrder } from '../claim-order.js'
import { NO_JOBS } from '../verdicts.js'
import { fill, groupOf, next, open, order, skip } from './lane-cursors.js'
import type { Head } from './lane-cursors.js'
import { askedOf, isAtLimit, isGroupLimited, isLimited, Limits } from './limits.js'
import { freshOf } from './rows.js'
import type { Lane } from './rows.js'
import { writeTo } from './ranges.js'
import type { Transaction } from './transaction.js'

/** Jobs tracked as held at most; more than any worker leases. */
const HELD = 20_000

/** Jobs taken so far that are written alike. */
interface Taken {
  readonly lease: Millis
  readonly ahead: boolean
  readonly seqs: number[]
}

/** Jobs claimed, and their numbers. */
export interface Claimed {
  readonly jobs: readonly JobRecord[]
  readonly seqs: readonly number[]
  /** When a rate that held some back lets more through. */
  readonly again: Time | undefined
}

const NOTHING: Claimed = Object.freeze({ jobs: NO_JOBS, seqs: Object.freeze([]), again: undefined })

/** Claims jobs for a worker: those to start at once, then those leased ahead. */
export function claim(tx: Transaction, ask: Ask): Claimed {
  const wanted = Math.max(0, ask.want) + Math.max(0, ask.ahead)
  if (wanted === 0) return NOTHING
  tx.counts.flush(tx.sql)
  const lanes = gather(tx, ask)
  if (lanes.length === 0) return NOTHING
  const size = lanes.length === 1 ? wanted : Math.min(wanted, Math.ceil((2 * wanted) / lanes.length) + 4)
  const lines = new ClaimOrder<Head, number>(order)
  for (const head of lanes) open(tx, lines, head, size)

  const jobs: JobRecord[] = []
  const seqs: number[] = []
  const alike: Taken[] = []
  const limits = new Limits(tx)
  const take = (line: Heap<Head>, head: Head, ahead: boolean): void => {
    const group = groupOf(head)
    seqs.push(head.rows[head.at]![0] as number)
    jobs.push(takeFirst(tx, head, ask.worker, ahead, alike))
    limits.took(head.asked, head.lane, group)
    next(tx, line, head, jobs.length < wanted ? size : 0)
  }
  for (let line = lines.first; line !== undefined && jobs.length < ask.want; line = lines.first) {
    const head = line.top!
    const reached = limits.reached(head.asked, head.lane, groupOf(head))
    if (reached === undefined) {
      fill(tx, head)
      take(line, head, false)
    } else if (reached === 'lane') line.pop()
    else skip(tx, line, head, limits)
  }
  for (let line = lines.first; line !== undefined && jobs.length < wanted; line = lines.first) {
    const head = line.top!
    const group = groupOf(head)
    if (isLimited(head.asked, head.lane)) line.pop()
    else if (group !== undefined && (head.dropped.has(group) || isGroupLimited(head.asked, group))) {
      skip(tx, line, head, limits)
    } else {
      fill(tx, head)
      if (mayLeaseAhead(peek(head))) take(line, head, true)
      else if (group === undefined) line.pop()
      else {
        head.dropped.add(group)
        skip(tx, line, head, limits)
      }
    }
  }
  for (const { lease, ahead, seqs: taken } of alike) {
    writeTo(taken, { run: tx.sql.claimRun, many: tx.sql.claimMany }, ask.worker, tx.now + lease, Number(ahead), tx.now)
  }
  limits.write()
  return { jobs, seqs, again: limits.again }
}

/** Collects the lanes that can give. What is paused or at its limit is passed over, its jobs unread. */
function gather(tx: Transaction, ask: Ask): readonly Pick<Head, 'lane' | 'asked' | 'lease'>[] {
  const handlers = handlersOf(ask.handles)
  const lanes: Pick<Head, 'lane' | 'asked' | 'lease'>[] = []
  for (const name of new Set(ask.queues)) {
    const asked = askedOf(tx, name)
    if (asked === undefined) continue
    for (const [id] of tx.sql.readyLanes.all(asked.queue)) {
      const lane = tx.ground.lane(id as number)
      const handled = handlerFor(handlers, lane.name, lane.version)
      if (handled === undefined || asked.bounds.pausedNames.has(lane.name) || isAtLimit(asked, lane)) continue
      lanes.push({ lane, asked, lease: handled.lease })
    }
  }
  return lanes
}

/** What decides whether the first job of a lane may be leased ahead. */
function peek({ rows, at }: Head): Pick<JobRecord, 'attempts' | 'stalls'> {
  const row = rows[at]!
  return { attempts: row[6] === null ? Infinity : (row[6] as number), stalls: row[7] as number }
}

/** Claims the first job of a lane. */
function takeFirst(tx: Transaction, head: Head, worker: string, ahead: boolean, taken: Taken[]): JobRecord {
  const row = head.rows[head.at]!
  const { lane, lease, asked } = head
  const seq = row[0] as number
  const before = row[12] === 0 ? freshOf(row, lane, tx.ground.settings) : tx.ground.bySeq(seq).job
  const job = claimed(before, { worker, lease, ahead, now: tx.now })
  const alike = taken.find((each) => each.lease === lease && each.ahead === ahead)
  if (alike === undefined) taken.push({ lease, ahead, seqs: [seq] })
  else alike.seqs.push(seq)
  hold(tx, { seq, lane, job })
  if (lane.shared) tx.came(lane.queue, job.priority, job.ord)
  tx.claimed.set(asked.queue, asked.name)
  tx.placed(lane, job, 'waiting', before.dueAt)
  return job
}

/** A job whose text takes more than this is held without its payload, or not at all: a settlement needs none of it. */
const LIGHT = 2_000

/** Tracks a claimed job, so that its settlement need not read it. */
function hold({ held }: Transaction, found: { seq: number; lane: Lane; job: JobRecord }): void {
  if (bytesOfRecord(found.job) > LIGHT) {
    const job = { ...found.job, data: undefined, memo: undefined, progress: undefined }
    if (bytesOfRecord(job) > LIGHT) return void held.delete(job.id)
    found = { ...found, job }
  }
  if (held.size >= HELD)
    for (const oldest of held.keys()) {
      held.delete(oldest)
      break
    }
  held.set(found.job.id, found)
}

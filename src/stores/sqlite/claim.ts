// stores/sqlite/claim.ts: answers asks, by merging the heads of the lanes that a worker handles.
import type { JobRecord, Millis } from '../../job/job.js'
import { claimed, mayLeaseAhead } from '../../job/lifecycle.js'
import type { Ask } from '../../store/store.js'
import type { Bounds } from '../bounds.js'
import { handlerFor, handlersOf } from '../handlers.js'
import { Heap } from '../heap.js'
import { NO_JOBS } from '../verdicts.js'
import type { SqlRow } from './driver.js'
import { freshOf } from './rows.js'
import type { Lane } from './rows.js'
import { writeTo } from './runs.js'
import type { Transaction } from './transaction.js'

/** Jobs tracked as held at most; more than any worker leases. */
const HELD = 20_000

/** A queue that is asked: its bounds, and the leases that count against them. */
interface Asked {
  readonly queue: number
  readonly name: string
  readonly bounds: Bounds
  leases: number
  readonly leasesByName: Map<string, number>
}

/** A lane that can give, how far it has been read, and the lease that its jobs are given. */
interface Head {
  readonly lane: Lane
  readonly asked: Asked
  readonly lease: Millis
  rows: readonly SqlRow[]
  at: number
  /** There may be more than was read. */
  more: boolean
}

/** Jobs taken so far that are written alike. */
interface Taken {
  readonly lease: Millis
  readonly ahead: boolean
  readonly seqs: number[]
}

const place = ({ rows, at }: Head): readonly [priority: number, ord: number] => {
  const row = rows[at]!
  return [row[2] as number, row[3] as number]
}

function goesFirst(a: Head, b: Head): boolean {
  const [priority, ord] = place(a)
  const [otherPriority, otherOrd] = place(b)
  return priority < otherPriority || (priority === otherPriority && ord < otherOrd)
}

/** Jobs claimed, and their numbers. */
export interface Claimed {
  readonly jobs: readonly JobRecord[]
  readonly seqs: readonly number[]
}

const NOTHING: Claimed = Object.freeze({ jobs: NO_JOBS, seqs: Object.freeze([]) })

/** Claims jobs for a worker: those to start at once, then those leased ahead. */
export function claim(tx: Transaction, ask: Ask): Claimed {
  const wanted = Math.max(0, ask.want) + Math.max(0, ask.ahead)
  if (wanted === 0) return NOTHING
  tx.counts.flush(tx.sql)
  const lanes = gather(tx, ask)
  if (lanes.length === 0) return NOTHING
  const size = lanes.length === 1 ? wanted : Math.min(wanted, Math.ceil((2 * wanted) / lanes.length) + 4)
  const heads = new Heap<Head>(goesFirst)
  for (const head of lanes) if (read(tx, head, size)) heads.push(head)

  const jobs: JobRecord[] = []
  const seqs: number[] = []
  const alike: Taken[] = []
  const take = (head: Head, ahead: boolean): void => {
    seqs.push(head.rows[head.at]![0] as number)
    jobs.push(takeFirst(tx, head, ask.worker, ahead, alike))
    if (head.at < head.rows.length || (head.more && jobs.length < wanted && read(tx, head, size))) heads.sink()
    else heads.pop()
  }
  for (let head = heads.top; head !== undefined && jobs.length < ask.want; head = heads.top) {
    if (isAtLimit(head)) heads.pop()
    else take(head, false)
  }
  for (let head = heads.top; head !== undefined && jobs.length < wanted; head = heads.top) {
    if (isLimited(head) || !mayLeaseAhead(peek(head))) heads.pop()
    else take(head, true)
  }
  for (const { lease, ahead, seqs: taken } of alike) {
    writeTo(taken, { run: tx.sql.claimRun, many: tx.sql.claimMany }, ask.worker, tx.now + lease, Number(ahead), tx.now)
  }
  return { jobs, seqs }
}

/** Collects the lanes that can give. What is paused or at its limit is passed over, its jobs unread. */
function gather(tx: Transaction, ask: Ask): readonly Head[] {
  const handlers = handlersOf(ask.handles)
  const heads: Head[] = []
  for (const name of new Set(ask.queues)) {
    const queue = tx.ground.queue(name)
    if (queue === undefined) continue
    const bounds = tx.ground.bounds(name)
    if (bounds.paused) continue
    const asked: Asked = { queue, name, bounds, leases: 0, leasesByName: new Map() }
    if (bounds.limited) {
      for (const [of, leases] of tx.sql.leasesIn.all(queue) as [string, number][]) {
        asked.leases += leases
        asked.leasesByName.set(of, leases)
      }
      if (asked.leases >= bounds.limit) continue
    }
    for (const [id] of tx.sql.readyLanes.all(queue)) {
      const lane = tx.ground.lane(id as number)
      const handled = handlerFor(handlers, lane.name, lane.version)
      if (handled === undefined || bounds.pausedNames.has(lane.name)) continue
      const head: Head = { lane, asked, lease: handled.lease, rows: [], at: 0, more: true }
      if (!isAtLimit(head)) heads.push(head)
    }
  }
  return heads
}

/** Reads on in a lane; tells whether there was anything. */
function read(tx: Transaction, head: Head, size: number): boolean {
  const last = head.rows.at(-1)
  const [priority, ord] = last === undefined ? [-Infinity, -Infinity] : [last[2] as number, last[3] as number]
  head.rows = tx.sql.laneHead.all(head.lane.id, priority, ord, size)
  head.at = 0
  head.more = head.rows.length === size
  return head.rows.length > 0
}

function isLimited({ asked: { bounds }, lane }: Head): boolean {
  return bounds.limited && (bounds.limit !== Infinity || bounds.limitedNames.has(lane.name))
}

function isAtLimit({ asked: { bounds, leases, leasesByName }, lane }: Head): boolean {
  if (!bounds.limited) return false
  return (
    leases >= bounds.limit || (leasesByName.get(lane.name) ?? 0) >= (bounds.limitedNames.get(lane.name) ?? Infinity)
  )
}

/** What decides whether the first job of a lane may be leased ahead. */
function peek({ rows, at }: Head): Pick<JobRecord, 'attempts' | 'stalls'> {
  const row = rows[at]!
  return { attempts: row[6] === null ? Infinity : (row[6] as number), stalls: row[7] as number }
}

/** Claims the first job of a lane. */
function takeFirst(tx: Transaction, head: Head, worker: string, ahead: boolean, taken: Taken[]): JobRecord {
  const row = head.rows[head.at++]!
  const { lane, lease, asked } = head
  const seq = row[0] as number
  const before = row[12] === 0 ? freshOf(row, lane, tx.ground.settings) : tx.ground.bySeq(seq).job
  const job = claimed(before, { worker, lease, ahead, now: tx.now })
  const alike = taken.find((each) => each.lease === lease && each.ahead === ahead)
  if (alike === undefined) taken.push({ lease, ahead, seqs: [seq] })
  else alike.seqs.push(seq)
  hold(tx, { seq, lane, job })
  if (asked.bounds.limited) {
    asked.leases++
    asked.leasesByName.set(lane.name, (asked.leasesByName.get(lane.name) ?? 0) + 1)
  }
  tx.claimed.set(asked.queue, asked.name)
  tx.placed(lane, job, 'waiting', before.dueAt)
  return job
}

function hold({ held }: Transaction, found: { seq: number; lane: Lane; job: JobRecord }): void {
  if (held.size >= HELD)
    for (const oldest of held.keys()) {
      held.delete(oldest)
      break
    }
  held.set(found.job.id, found)
}

// stores/sqlite/insert.ts: adds jobs with their edges; many alike in one statement.
import type { Insert, NewJob } from '../../job/change.js'
import type { JobRecord } from '../../job/job.js'
import type { Refused } from '../../store/store.js'
import { createRecord } from '../apply.js'
import { isAlike, settingsOf } from '../job-settings.js'
import { duplicate, missing } from '../verdicts.js'
import type { Value } from './driver.js'
import { addEdges, newEdges } from './edges.js'
import { isConstraint } from './errors.js'
import { keyHolder, takeKey } from './dedup.js'
import { isBulky, nullable } from './rows.js'
import type { Lane } from './rows.js'
import { RUNS } from './sql.js'
import type { Transaction } from './transaction.js'

/** Adds a job and answers its record, or says why not; nothing is written before all is known to be well. */
export function insert(tx: Transaction, { job, edges }: Insert): JobRecord | Refused {
  const { ground, now } = tx
  // Where nothing else can refuse it, the index of ids does; elsewhere the id has to be asked for first.
  const asked = job.dedup !== undefined || edges.length > 0 || isBounded(tx, job)
  const standing = asked ? ground.byId(job.id) : undefined
  if (standing !== undefined) return duplicate(job.id, standing.job)
  if (job.dedup !== undefined) {
    const holder = keyHolder(tx, job.dedup.key)
    if (holder !== undefined) return duplicate(holder, ground.byId(holder)?.job)
  }
  const found = edges.length === 0 ? undefined : newEdges(tx, job.id, edges, [])
  if (typeof found === 'string') return missing(found)
  const full = job.kind === 'job' && isBounded(tx, job) ? isFull(tx, job) : undefined
  if (full !== undefined) return full

  const lane = ground.laneOf(job)
  const record = createRecord(
    job,
    found?.map(({ state }) => state),
    tx,
    tx.numbers.fence,
    now,
  )
  const seq = record.group === undefined ? numberOf(record) : tx.next(false)
  try {
    write(tx, seq, lane, record)
  } catch (error) {
    if (isConstraint(error)) return duplicate(job.id, ground.byId(job.id)!.job)
    throw error
  }
  if (found !== undefined) addEdges(tx, seq, found, 0)
  if (job.dedup !== undefined) {
    const { key, window } = job.dedup
    takeKey(tx, key, job.id, window === undefined ? undefined : now + window)
  }
  added(tx, lane, record)
  return record
}

/** The number of a new job without a group, from which its place was made. */
function numberOf({ ord }: JobRecord): number {
  return ord < 0 ? -1 - ord : ord
}

function added(tx: Transaction, lane: Lane, record: JobRecord): void {
  tx.placed(lane, record, undefined, undefined)
  if (record.kind === 'job') tx.counts.happened(lane.queue, 'added')
}

/** Whether there is a bound on the backlog of a job's queue, or of some group if it has one. */
function isBounded({ ground }: Transaction, { queue, group }: NewJob): boolean {
  const { backlog, groupsFull } = ground.bounds(queue)
  return backlog !== Infinity || (groupsFull && group !== undefined)
}

/** Whether there is no room for a job, in its queue or for its group. */
function isFull({ sql, ground, counts }: Transaction, { id, queue, group }: NewJob): Refused | undefined {
  const bounds = ground.bounds(queue)
  const of = ground.queue(queue)
  if (bounds.backlog !== Infinity) {
    counts.flush(sql)
    const backlog = of === undefined ? 0 : (sql.backlogIn.get(of)![0] as number)
    if (backlog >= bounds.backlog) return { ok: false, why: 'full', id }
  }
  const most = (group === undefined ? undefined : bounds.group(group)?.backlog) ?? Infinity
  if (most === Infinity || of === undefined || ground.groups.backlog(of, group!) < most) return undefined
  const oldest = sql.oldestOfGroup.get(of, group!)![0] as number | null
  return oldest === null
    ? { ok: false, why: 'full', id }
    : { ok: false, why: 'full', id, job: ground.bySeq(oldest).job }
}

function write({ sql }: Transaction, seq: number, lane: Lane, job: JobRecord): void {
  const bulky = isBulky(job.data)
  sql.insertJob.run(
    seq,
    job.id,
    lane.queue,
    lane.id,
    job.kind,
    job.state,
    job.priority,
    job.ord,
    job.fence,
    bounded(job.attempts),
    nullable(job.runAt),
    nullable(job.brokenAt),
    nullable(job.dueAt),
    job.chainId === job.id ? null : job.chainId,
    job.chainIndex,
    nullable(job.parentId),
    job.pending,
    job.createdAt,
    Number(job.chainId !== job.id || job.chainIndex !== 0 || job.pending > 0),
    Number(bulky),
    bulky ? null : nullable(job.data),
    settingsOf(job),
    job.dedup === undefined ? null : JSON.stringify(job.dedup),
    nullable(job.group),
  )
  if (bulky) sql.insertBody.run(seq, job.data!)
}

function bounded(attempts: number): number | null {
  return attempts === Infinity ? null : attempts
}

/** Whether nothing is special about a new job: it waits, and nobody has to be asked about it. */
export function isPlain({ job, edges }: Insert): boolean {
  return (
    edges.length === 0 &&
    job.state === 'waiting' &&
    job.kind === 'job' &&
    job.dedup === undefined &&
    job.parentId === undefined &&
    job.chainId === job.id &&
    job.chainIndex === 0
  )
}

/** Whether two plain jobs differ in no more than id, data, and which group they have. */
export function isSame(a: NewJob, b: NewJob): boolean {
  return isAlike(a, b) && isBulky(a.data) === isBulky(b.data) && (a.group === undefined) === (b.group === undefined)
}

/**
 * Adds plain jobs that are alike, many at a time, and answers their records in order: as many as could be added so. The
 * first one left is to be added by itself: it may have a name that is taken.
 */
export function insertAlike(tx: Transaction, jobs: readonly NewJob[]): readonly JobRecord[] {
  const records: JobRecord[] = []
  const first = jobs[0]!
  if (isBounded(tx, first)) return records
  const lane = tx.ground.laneOf(first)
  if (lane.shared) {
    tx.ground.groups.learn(
      lane.queue,
      jobs.map(({ group }) => group!),
      first.priority,
    )
  }
  for (const run of RUNS) {
    while (jobs.length - records.length >= run.rows) {
      const some = jobs.slice(records.length, records.length + run.rows)
      const written = lane.shared ? writeShared(tx, lane, some, run) : writeAlike(tx, lane, some, run)
      if (written === undefined) break
      for (const record of written) records.push(record)
    }
  }
  if (records.length === 0) return records
  if (tx.news.recording) for (const record of records) tx.news.placed(record, undefined, undefined)
  tx.counts.lane(lane.id, 'waiting', records.length)
  tx.counts.happened(lane.queue, 'added', records.length)
  tx.work(lane)
  return records
}

type Run = (typeof RUNS)[number]

/** Writes jobs alike in one statement; undefined where it cannot be done, for an id that is taken takes all of them back. */
function writeAlike(tx: Transaction, lane: Lane, jobs: readonly NewJob[], run: Run): JobRecord[] | undefined {
  const first = jobs[0]!
  const { priority, lifo, attempts } = first
  const from = tx.numbers.number + 1
  const bulky = isBulky(first.data)
  const values: Value[] = [
    from,
    lane.queue,
    lane.id,
    priority,
    lifo ? -1 : 1,
    tx.numbers.fence,
    bounded(attempts),
    tx.now,
    settingsOf(first),
    Number(bulky),
  ]
  for (const { id, data } of jobs) values.push(id, bulky ? null : nullable(data))
  try {
    tx.sql[run.insertJobs].run(...values)
  } catch (error) {
    if (isConstraint(error)) return undefined
    throw error
  }
  if (bulky) for (const [at, { data }] of jobs.entries()) tx.sql.insertBody.run(from + at, data!)
  return jobs.map((job) => createRecord(job, undefined, tx, tx.numbers.fence, tx.now))
}

/** The same for jobs with groups, each of which has its turn. */
function writeShared(tx: Transaction, lane: Lane, jobs: readonly NewJob[], run: Run): JobRecord[] | undefined {
  const { groups } = tx.ground
  const first = jobs[0]!
  const from = tx.numbers.number + 1
  const bulky = isBulky(first.data)
  const { fence } = tx.numbers
  const values: Value[] = [from, lane.queue, lane.id, first.priority, fence, bounded(first.attempts), tx.now]
  values.push(settingsOf(first), Number(bulky))
  const records: JobRecord[] = []
  for (const job of jobs) {
    const record = createRecord(job, undefined, tx, fence, tx.now)
    groups.placed(lane.queue, record, undefined) // so that the next of its group has the next turn
    records.push(record)
    values.push(job.id, bulky ? null : nullable(job.data), job.group!, record.ord)
  }
  try {
    tx.sql[run.insertShared].run(...values)
  } catch (error) {
    for (const { group } of jobs) groups.forget(lane.queue, group!)
    if (isConstraint(error)) return undefined
    throw error
  }
  tx.numbers.number += jobs.length
  if (bulky) for (const [at, { data }] of jobs.entries()) tx.sql.insertBody.run(from + at, data!)
  return records
}

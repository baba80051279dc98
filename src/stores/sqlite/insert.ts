// stores/sqlite/insert.ts: adds jobs with their edges; equal plain jobs many at a time in one statement.
import type { Insert, NewJob } from '../../job/change.js'
import type { JobRecord } from '../../job/job.js'
import type { Refused } from '../../store/store.js'
import { createRecord } from '../../job/apply.js'
import { hasEqualSettings, settingsOf } from '../job-settings.js'
import { duplicate, missing } from '../../engine/verdicts.js'
import type { Value } from './driver.js'
import { addEdges, newEdges } from './edges.js'
import { isConstraint } from './errors.js'
import { keyHolder, takeKey } from './dedup.js'
import { isBulky, nullable } from './rows.js'
import type { Lane } from './rows.js'
import { INSERT_SIZES } from './sql.js'
import type { Transaction } from './transaction.js'

/** Adds a job and returns its record, or returns why it is refused. Nothing is written before all checks have passed. */
export function insert(tx: Transaction, { job, edges }: Insert): JobRecord | Refused {
  const { cache, now } = tx
  // If nothing else can refuse the job, the unique index of ids does. Otherwise the id must be checked first.
  const checksId = job.dedup !== undefined || edges.length > 0 || isBounded(tx, job)
  const existing = checksId ? cache.byId(job.id) : undefined
  if (existing !== undefined) return duplicate(job.id, existing.job)
  if (job.dedup !== undefined) {
    const holder = keyHolder(tx, job.dedup.key)
    if (holder !== undefined) return duplicate(holder, cache.byId(holder)?.job)
  }
  const found = edges.length === 0 ? undefined : newEdges(tx, job.id, edges, [])
  if (typeof found === 'string') return missing(found)
  const full = job.kind === 'job' && isBounded(tx, job) ? isFull(tx, job) : undefined
  if (full !== undefined) return full

  const lane = cache.laneOf(job)
  const record = createRecord(
    job,
    found?.map(({ state }) => state),
    tx,
    tx.numbers.fence,
    now,
  )
  const seq = record.group === undefined ? seqOf(record) : tx.next(false)
  try {
    write(tx, seq, lane, record)
  } catch (error) {
    if (isConstraint(error)) return duplicate(job.id, cache.byId(job.id)!.job)
    throw error
  }
  if (found !== undefined) addEdges(tx, seq, found, 0)
  if (job.dedup !== undefined) {
    const { key, window } = job.dedup
    takeKey(tx, key, job.id, window === undefined ? undefined : now + window)
  }
  countAdded(tx, lane, record)
  return record
}

/** The insertion number of a new job without a group, from which its order was derived. */
function seqOf({ ord }: JobRecord): number {
  return ord < 0 ? -1 - ord : ord
}

function countAdded(tx: Transaction, lane: Lane, record: JobRecord): void {
  tx.jobChanged(lane, record, undefined, undefined)
  if (record.kind === 'job') tx.counts.lifetime(lane.queue, 'added')
}

/** Whether there is a limit on the backlog of a job's queue, or of some group if the job has one. */
function isBounded({ cache }: Transaction, { queue, group }: NewJob): boolean {
  const { backlog, groupBacklogs } = cache.bounds(queue)
  return backlog !== Infinity || (groupBacklogs && group !== undefined)
}

/** Refuses a job if the backlog of its queue or of its group is full. */
function isFull({ sql, cache, counts }: Transaction, { id, queue, group }: NewJob): Refused | undefined {
  const bounds = cache.bounds(queue)
  const queueId = cache.queue(queue)
  if (bounds.backlog !== Infinity) {
    counts.flush(sql)
    const backlog = queueId === undefined ? 0 : (sql.backlogIn.get(queueId)![0] as number)
    if (backlog >= bounds.backlog) return { ok: false, change: 0, why: 'full', id }
  }
  const maxBacklog = (group === undefined ? undefined : bounds.group(group)?.backlog) ?? Infinity
  if (maxBacklog === Infinity || queueId === undefined || cache.groups.backlog(queueId, group!) < maxBacklog)
    return undefined
  const oldest = sql.oldestOfGroup.get(queueId, group!)![0] as number | null
  return oldest === null
    ? { ok: false, change: 0, why: 'full', id }
    : { ok: false, change: 0, why: 'full', id, job: cache.bySeq(oldest).job }
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

/** Whether a new job is plain: it waits, and needs no further checks. */
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

/** Whether two plain jobs differ only in id, data and group. */
export function canWriteTogether(a: NewJob, b: NewJob): boolean {
  return (
    hasEqualSettings(a, b) && isBulky(a.data) === isBulky(b.data) && (a.group === undefined) === (b.group === undefined)
  )
}

/**
 * Adds equal plain jobs, many at a time, and returns the records of those that could be added so, in order. The first
 * job that is left must be added by itself: its id may be taken.
 */
export function insertEqual(tx: Transaction, jobs: readonly NewJob[]): readonly JobRecord[] {
  const records: JobRecord[] = []
  const first = jobs[0]!
  if (isBounded(tx, first)) return records
  const lane = tx.cache.laneOf(first)
  if (lane.shared) {
    tx.cache.groups.load(
      lane.queue,
      jobs.map(({ group }) => group!),
      first.priority,
    )
  }
  for (const size of INSERT_SIZES) {
    while (jobs.length - records.length >= size.rows) {
      const chunk = jobs.slice(records.length, records.length + size.rows)
      const written = lane.shared ? writeShared(tx, lane, chunk, size) : writeEqual(tx, lane, chunk, size)
      if (written === undefined) break
      for (const record of written) records.push(record)
    }
  }
  if (records.length === 0) return records
  if (tx.notices.recording) for (const record of records) tx.notices.jobChanged(record, undefined, undefined)
  tx.counts.lane(lane.id, 'waiting', records.length)
  tx.counts.lifetime(lane.queue, 'added', records.length)
  tx.addWork(lane)
  return records
}

type InsertSize = (typeof INSERT_SIZES)[number]

/** Writes equal jobs in one statement. Returns undefined if an id is taken, which rolls back all of them. */
function writeEqual(tx: Transaction, lane: Lane, jobs: readonly NewJob[], size: InsertSize): JobRecord[] | undefined {
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
    tx.sql[size.insertJobs].run(...values)
  } catch (error) {
    if (isConstraint(error)) return undefined
    throw error
  }
  if (bulky) for (const [at, { data }] of jobs.entries()) tx.sql.insertBody.run(from + at, data!)
  return jobs.map((job) => createRecord(job, undefined, tx, tx.numbers.fence, tx.now))
}

/** Writes equal jobs with groups in one statement, each with its fair order. */
function writeShared(tx: Transaction, lane: Lane, jobs: readonly NewJob[], size: InsertSize): JobRecord[] | undefined {
  const { groups } = tx.cache
  const first = jobs[0]!
  const from = tx.numbers.number + 1
  const bulky = isBulky(first.data)
  const { fence } = tx.numbers
  const values: Value[] = [from, lane.queue, lane.id, first.priority, fence, bounded(first.attempts), tx.now]
  values.push(settingsOf(first), Number(bulky))
  const records: JobRecord[] = []
  for (const job of jobs) {
    const record = createRecord(job, undefined, tx, fence, tx.now)
    groups.jobChanged(lane.queue, record, undefined) // so that the next job of its group gets the next turn
    records.push(record)
    values.push(job.id, bulky ? null : nullable(job.data), job.group!, record.ord)
  }
  try {
    tx.sql[size.insertShared].run(...values)
  } catch (error) {
    for (const { group } of jobs) groups.forget(lane.queue, group!)
    if (isConstraint(error)) return undefined
    throw error
  }
  tx.numbers.number += jobs.length
  if (bulky) for (const [at, { data }] of jobs.entries()) tx.sql.insertBody.run(from + at, data!)
  return records
}

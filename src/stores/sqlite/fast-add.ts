// stores/sqlite/fast-add.ts: the fast path for plain jobs that are equal but for id, data and group: many in one statement.
import { createRecord } from '../../job/apply.js'
import type { Change, Insert, NewJob } from '../../job/change.js'
import type { JobRecord } from '../../job/job.js'
import { isBounded } from '../../engine/insert.js'
import type { Commit } from '../../engine/workspace.js'
import { hasEqualSettings, settingsOf } from '../job-settings.js'
import type { Value } from './file/driver.js'
import { isConstraint } from './file/errors.js'
import { isBulky, nullable } from './rows.js'
import type { Lane } from './rows.js'
import { INSERT_SIZES } from './statement-texts.js'
import type { SqliteWorkspace } from './workspace.js'

type InsertSize = (typeof INSERT_SIZES)[number]

/** The plain and equal new jobs among `count` changes, from the first on. */
export function equalNewJobs(count: number, change: (at: number) => Change | undefined): readonly NewJob[] {
  const jobs: NewJob[] = []
  for (let at = 0; at < count; at++) {
    const next = change(at)
    if (next?.kind !== 'insert' || !isPlain(next)) break
    if (jobs.length > 0 && !canWriteTogether(jobs[0]!, next.job)) break
    jobs.push(next.job)
  }
  return jobs
}

/** Whether a new job is plain: it waits, and needs no further checks. */
function isPlain({ job, edges }: Insert): boolean {
  return (
    edges.length === 0 &&
    job.state === 'waiting' &&
    job.kind === 'job' &&
    job.dedup === undefined &&
    job.expires === undefined &&
    job.parentId === undefined &&
    job.chainId === job.id &&
    job.chainIndex === 0 &&
    job.extras?.tags === undefined
  )
}

/** Whether two plain jobs differ only in id, data and group. */
function canWriteTogether(a: NewJob, b: NewJob): boolean {
  return (
    hasEqualSettings(a, b) && isBulky(a.data) === isBulky(b.data) && (a.group === undefined) === (b.group === undefined)
  )
}

/**
 * Adds equal plain jobs, many at a time, and returns the records of those that could be added so, in order. The first
 * job that is left must be added by itself: its id may be taken.
 */
export function addTogether(
  workspace: SqliteWorkspace,
  { notices }: Commit,
  jobs: readonly NewJob[],
): readonly JobRecord[] {
  const { cache, counts } = workspace
  const records: JobRecord[] = []
  const first = jobs[0]!
  if (isBounded(first, cache.bounds(first.queue))) return records
  const lane = cache.laneOf(first)
  if (lane.shared) {
    const groups = jobs.map(({ group }) => group!)
    cache.groups.load(lane.queue, groups, first.priority)
  }
  for (const size of INSERT_SIZES) {
    while (jobs.length - records.length >= size.rows) {
      const chunk = jobs.slice(records.length, records.length + size.rows)
      const written = (lane.shared ? writeShared : writeEqual)(workspace, lane, chunk, size)
      if (written === undefined) break
      for (const record of written) records.push(record)
    }
  }
  if (records.length === 0) return records
  for (const record of records) cache.expired.waits(lane.id, record)
  if (notices.recording) for (const record of records) notices.jobChanged(record, undefined, undefined)
  else notices.jobWaits(lane.queueName, lane.name)
  counts.lane(lane.id, 'waiting', records.length)
  counts.lifetime(lane.queue, 'added', records.length)
  return records
}

/** Writes equal jobs in one statement. Returns undefined if an id is taken, which rolls back all of them. */
function writeEqual(
  workspace: SqliteWorkspace,
  lane: Lane,
  jobs: readonly NewJob[],
  size: InsertSize,
): JobRecord[] | undefined {
  const { sql, numbers, now } = workspace
  const first = jobs[0]!
  const from = numbers.number + 1
  const bulky = isBulky(first.data)
  const values: Value[] = [
    from,
    lane.queue,
    lane.id,
    first.priority,
    first.lifo ? -1 : 1,
    numbers.fence,
    attemptsOf(first),
    now,
    settingsOf(first),
    Number(bulky),
  ]
  for (const { id, data } of jobs) values.push(id, bulky ? null : nullable(data))
  try {
    sql[size.insertJobs].run(...values)
  } catch (error) {
    if (isConstraint(error)) return undefined
    throw error
  }
  if (bulky) for (const [at, { data }] of jobs.entries()) sql.insertBody.run(from + at, data!)
  return jobs.map((job) => createRecord(job, undefined, workspace, numbers.fence, now))
}

/** Writes equal jobs with groups in one statement, each with its fair order. */
function writeShared(
  workspace: SqliteWorkspace,
  lane: Lane,
  jobs: readonly NewJob[],
  size: InsertSize,
): JobRecord[] | undefined {
  const { sql, numbers, now, cache } = workspace
  const { groups } = cache
  const first = jobs[0]!
  const from = numbers.number + 1
  const bulky = isBulky(first.data)
  const values: Value[] = [from, lane.queue, lane.id, first.priority, numbers.fence, attemptsOf(first), now]
  values.push(settingsOf(first), Number(bulky))
  const records: JobRecord[] = []
  for (const job of jobs) {
    const record = createRecord(job, undefined, workspace, numbers.fence, now)
    groups.jobChanged(lane.queue, record, undefined) // so that the next job of its group gets the next turn
    records.push(record)
    values.push(job.id, bulky ? null : nullable(job.data), job.group!, record.ord)
  }
  try {
    sql[size.insertShared].run(...values)
  } catch (error) {
    for (const { group } of jobs) groups.forget(lane.queue, group!)
    if (isConstraint(error)) return undefined
    throw error
  }
  numbers.number += jobs.length
  if (bulky) for (const [at, { data }] of jobs.entries()) sql.insertBody.run(from + at, data!)
  return records
}

function attemptsOf({ attempts }: NewJob): number | null {
  return attempts === Infinity ? null : attempts
}

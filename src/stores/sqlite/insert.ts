// stores/sqlite/insert.ts: adds jobs with their edges; many alike in one statement.
import type { Insert, NewEdge, NewJob } from '../../job/change.js'
import { isFinished } from '../../job/job.js'
import type { Edge, FinishedState, JobRecord, JobState } from '../../job/job.js'
import type { Refused } from '../../store/store.js'
import { born, edgeTo } from '../apply.js'
import { isAlike, settingsOf } from '../settings.js'
import { duplicate, missing } from '../verdicts.js'
import type { Value } from './driver.js'
import { isConstraint } from './failures.js'
import { keyHolder, takeKey } from './keys.js'
import { isBulky, nullable } from './rows.js'
import type { Lane } from './rows.js'
import { RUNS } from './sql.js'
import type { Transaction } from './transaction.js'

/** Adds a job and answers its record, or says why not; nothing is written before all is known to be well. */
export function insert(tx: Transaction, { job, edges }: Insert): JobRecord | Refused {
  const { sql, ground, now } = tx
  // Where nothing else can refuse it, the index of ids does; elsewhere the id has to be asked for first.
  const asked = job.dedup !== undefined || edges.length > 0 || ground.bounds(job.queue).backlog !== Infinity
  const standing = asked ? ground.byId(job.id) : undefined
  if (standing !== undefined) return duplicate(job.id, standing.job)
  if (job.dedup !== undefined) {
    const holder = keyHolder(tx, job.dedup.key)
    if (holder !== undefined) return duplicate(holder, ground.byId(holder)?.job)
  }
  const found = edges.length === 0 ? undefined : edgesOf(tx, job.id, edges)
  if (typeof found === 'string') return missing(found)
  if (job.kind === 'job' && isFull(tx, job.queue)) return { ok: false, why: 'full', id: job.id }

  const lane = ground.laneOf(job.queue, job.name, job.version)
  const record = born(
    job,
    found?.map(({ state }) => state),
    tx,
    tx.numbers.fence,
    now,
  )
  const seq = numberOf(record)
  try {
    write(tx, seq, lane, record)
  } catch (error) {
    if (isConstraint(error)) return duplicate(job.id, ground.byId(job.id)!.job)
    throw error
  }
  if (found !== undefined) {
    for (const [place, { chain, policy, state }] of found.entries()) {
      sql.addEdge.run(seq, place, chain, policy, state)
      if (state === 'open') ground.openEdges = true
    }
  }
  if (job.dedup !== undefined) {
    const { key, window } = job.dedup
    takeKey(tx, key, job.id, window === undefined ? undefined : now + window)
  }
  added(tx, lane, record)
  return record
}

/** The number of a new job, from which its place was made. */
function numberOf({ ord }: JobRecord): number {
  return ord < 0 ? -1 - ord : ord
}

function added(tx: Transaction, lane: Lane, record: JobRecord): void {
  tx.placed(lane, record, undefined, undefined)
  if (record.kind === 'job') tx.counts.happened(lane.queue, 'added')
}

function isFull(tx: Transaction, queue: string): boolean {
  const { backlog } = tx.ground.bounds(queue)
  const id = tx.ground.queue(queue)
  if (backlog === Infinity) return false
  tx.counts.flush(tx.sql)
  return (id === undefined ? 0 : (tx.sql.backlogIn.get(id)![0] as number)) >= backlog
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
    Number(job.chainId !== job.id || job.chainIndex !== 0 || job.parentId !== undefined || job.pending > 0),
    Number(bulky),
    bulky ? null : nullable(job.data),
    settingsOf(job),
    job.dedup === undefined ? null : JSON.stringify(job.dedup),
  )
  if (bulky) sql.insertBody.run(seq, job.data!)
}

function bounded(attempts: number): number | null {
  return attempts === Infinity ? null : attempts
}

/** The edges of a new job, one for each chain, each in the state that its chain gives it; or the id that is missing. */
function edgesOf(tx: Transaction, dependent: string, edges: readonly NewEdge[]): readonly Edge[] | string {
  const byChain = new Map<string, Edge>()
  for (const { on, policy } of edges) {
    const chain = tx.sql.chainOf.get(on)?.[0] as string | undefined
    if (chain === undefined) return on
    if (byChain.has(chain)) continue
    byChain.set(chain, { dependent, chain, policy, state: edgeTo(chainEnd(tx, chain)) })
  }
  return [...byChain.values()]
}

/** How a chain ended: as its last job did; undefined while one of its jobs is unfinished. */
function chainEnd({ sql }: Transaction, chain: string): FinishedState | undefined {
  let last: { readonly index: number; readonly seq: number; readonly state: FinishedState } | undefined
  for (const [seq, index, state] of sql.chainJobs.all(chain) as [number, number, JobState][]) {
    if (!isFinished(state)) return undefined
    if (last === undefined || index > last.index || (index === last.index && seq > last.seq))
      last = { index, seq, state }
  }
  return last?.state
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

/** Whether two plain jobs differ in no more than id and data. */
export function isSame(a: NewJob, b: NewJob): boolean {
  return isAlike(a, b) && isBulky(a.data) === isBulky(b.data)
}

/**
 * Adds plain jobs that are alike, many at a time, and answers their records in order: as many as could be added so. The
 * first one left is to be added by itself: it may have a name that is taken.
 */
export function insertAlike(tx: Transaction, jobs: readonly NewJob[]): readonly JobRecord[] {
  const records: JobRecord[] = []
  const first = jobs[0]!
  if (tx.ground.bounds(first.queue).backlog !== Infinity) return records
  const lane = tx.ground.laneOf(first.queue, first.name, first.version)
  for (const run of RUNS) {
    while (jobs.length - records.length >= run.rows) {
      const some = jobs.slice(records.length, records.length + run.rows)
      if (!writeAlike(tx, lane, some, run)) break
      for (const job of some) records.push(born(job, undefined, tx, tx.numbers.fence, tx.now))
    }
  }
  if (records.length === 0) return records
  if (tx.news.recording) for (const record of records) tx.news.placed(record, undefined, undefined)
  tx.counts.lane(lane.id, 'waiting', records.length)
  tx.counts.happened(lane.queue, 'added', records.length)
  tx.work(lane)
  return records
}

/** Writes jobs alike in one statement; tells whether it could be done, for an id that is taken takes all of them back. */
function writeAlike(tx: Transaction, lane: Lane, jobs: readonly NewJob[], run: (typeof RUNS)[number]): boolean {
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
    if (isConstraint(error)) return false
    throw error
  }
  if (bulky) for (const [at, { data }] of jobs.entries()) tx.sql.insertBody.run(from + at, data!)
  return true
}

// stores/table/move.ts: takes a job to another state, fenced.
import type { Move } from '../../job/change.js'
import { ERRORS_KEPT, isFinished } from '../../job/job.js'
import type { AttemptError, ErrorInfo, JobRecord, JobState, Time } from '../../job/job.js'
import { dueAt, released } from '../../job/lifecycle.js'
import type { Refused, Revoked } from '../../store/store.js'
import { momentOf } from './insert.js'
import type { News } from './news.js'
import { copyOf } from '../../job/record.js'
import type { Row } from './row.js'
import { drop, nextOrd, replace } from './table.js'
import type { Table } from './table.js'
import { duplicate, fenced, missing } from './verdict.js'

/** Whether a job's lease has run out, so that it may be taken from its holder. */
function leaseIsOver(job: JobRecord, now: Time): boolean {
  return job.state === 'active' && job.leaseUntil !== undefined && job.leaseUntil <= now
}

/** Whether a change made for `fence`, and for the lease if `held`, may be applied to a job. */
export function mayChange(job: JobRecord, fence: number, held: boolean, now: Time): boolean {
  return (
    job.fence === fence && (!held || (job.state === 'active' && job.leaseUntil !== undefined && job.leaseUntil > now))
  )
}

/** Moves a job, or says why not; nothing is written before all is known to be well. */
export function move(table: Table, change: Move, news: News): Refused | undefined {
  const row = table.rows.get(change.id)
  if (row === undefined) return missing(change.id)
  const before = row.job
  const { state: from, dueAt: due, fence, worker, leaseUntil, dedup } = before
  const { now } = news
  if (!mayChange(before, change.fence, change.held, now)) return fenced(before)
  if (change.reaps === true && !leaseIsOver(before, now)) return fenced(before)

  const { to } = change
  const revives = to !== 'removed' && isFinished(from) && !isFinished(to)
  if (revives && dedup !== undefined) {
    const holder = table.keys.holder(dedup.key, now)
    if (holder !== undefined && holder.id !== change.id) return duplicate(holder.id, table.rows.get(holder.id))
    if (holder === undefined && dedup.window === undefined) {
      table.keys.take({ key: dedup.key, id: change.id, until: undefined })
    }
  }

  if (to === 'removed') remove(table, row, news)
  else {
    replace(table, row, moved(table, before, to, change, now))
    if (change.why !== undefined) tellWhy(change.why, worker, row.job, news)
    news.placed(row, from, due)
    count(table, row, from, change.why)
  }
  if (dedup !== undefined && (to === 'removed' || isFinished(to))) table.keys.free(dedup.key, change.id)
  if (from === 'active' && !change.held && to !== 'active') {
    takeAway(table, row, { fence, worker, leaseUntil }, to, news)
  }
  return undefined
}

/** What a move makes of a record. */
function moved(
  table: Table,
  before: JobRecord,
  wanted: JobState,
  { set, place, closesBroken }: Move,
  now: Time,
): JobRecord {
  const job = copyOf(before)
  job.fence++
  if (set.attempt !== undefined) job.attempt = set.attempt
  if (set.stalls !== undefined) job.stalls = set.stalls
  if (set.data !== undefined) job.data = set.data ?? undefined
  if (set.priority !== undefined) job.priority = set.priority
  if (set.run !== undefined) job.runAt = set.run === null ? undefined : momentOf(set.run, now)
  if (set.error === null) job.error = undefined
  else if (set.error !== undefined) {
    job.error = set.error
    job.errors = remembered(before, set.error, now)
  }
  if (closesBroken) {
    job.pending -= table.edges.closeBroken(before.id)
    job.brokenAt = undefined
  }

  // Its last dependency may have ended since the move was decided; then nothing would ever wake it.
  const goesOn = wanted === 'waiting-children' && job.pending === 0
  const to = goesOn ? released(job.runAt, now) : wanted
  job.state = to
  const enters = before.state !== to
  if (to === 'waiting') {
    job.runAt = undefined
    if (enters && (place === 'new' || goesOn)) job.ord = nextOrd(table, before.ord < 0)
  }
  if (to !== 'active') {
    job.leaseUntil = undefined
    job.ahead = false
    if (!isFinished(to)) job.worker = undefined
  }

  if (enters && isFinished(before.state)) {
    job.finishedAt = job.staleAt = job.deleteAt = job.result = undefined
    job.stale = false
  }
  if (enters && isFinished(to)) job.finishedAt = now
  if (set.result !== undefined) job.result = set.result
  if (set.staleIn !== undefined) job.staleAt = now + set.staleIn
  if (set.deleteIn !== undefined) job.deleteAt = now + set.deleteIn
  if (set.stale) job.stale = true
  job.dueAt = dueAt(job)
  return job
}

/** The history of errors with one more, made in the attempt that this move ends. */
function remembered(job: JobRecord, error: ErrorInfo, now: Time): readonly AttemptError[] {
  const entry: AttemptError = { ...error, fence: job.fence, attempt: job.attempt, at: now }
  return [...job.errors.slice(1 - ERRORS_KEPT), entry]
}

function remove(table: Table, row: Row, news: News): void {
  const { job } = row
  if (job.fence > table.highestFence) table.highestFence = job.fence
  drop(table, row)
  table.edges.drop(job.id)
  const logs = table.logs.get(job.id)
  if (logs !== undefined) {
    table.logs.delete(job.id)
    if (table.journal.open) table.journal.add(() => void table.logs.set(job.id, logs))
  }
  if (job.state === 'active') news.credited(row.lane.name.queue)
  news.tell('removed', job)
}

function tellWhy(why: NonNullable<Move['why']>, worker: string | undefined, after: JobRecord, news: News): void {
  if (!news.recording) return
  if (why === 'retrying') news.tell(why, after, { error: after.error, runAt: after.runAt, attempt: after.attempt })
  else if (why === 'stalled') news.tell(why, after, { worker })
  else news.tell(why, after)
}

function count(table: Table, row: Row, from: JobState, why: Move['why']): void {
  if (row.job.kind !== 'job') return
  const { lifetime } = row.lane.name.queue
  const { state } = row.job
  const ended = state !== from && isFinished(state) ? state : undefined
  const also = why === 'retrying' ? 'retried' : why === 'stalled' ? 'stalled' : undefined
  if (ended !== undefined) lifetime[ended]++
  if (also !== undefined) lifetime[also]++
  if (!table.journal.open) return
  table.journal.add(() => {
    if (ended !== undefined) lifetime[ended]--
    if (also !== undefined) lifetime[also]--
  })
}

/** What a worker had of a job before it was taken away. */
type Holding = Pick<JobRecord, 'fence' | 'worker' | 'leaseUntil'>

/** Somebody else moved a job that was being worked on: its handler is told, and counts until its lease is over. */
function takeAway(table: Table, row: Row, before: Holding, to: Move['to'], news: News): void {
  const { id } = row.job
  const runs = before.leaseUntil !== undefined && before.leaseUntil > news.now
  if (runs) table.orphans.add(id, before.fence, row.lane.name, before.leaseUntil)
  if (before.worker === undefined) return
  news.revoke({ id, fence: before.fence, worker: before.worker, reason: reasonFor(to, runs) })
}

function reasonFor(to: Move['to'], runs: boolean): Revoked['reason'] {
  if (to === 'removed' || to === 'cancelled') return to
  if (to === 'completed' || (to === 'failed' && runs)) return 'completed-elsewhere'
  return 'lease-lost'
}

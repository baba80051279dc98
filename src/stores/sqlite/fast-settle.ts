// stores/sqlite/fast-settle.ts: the fast path for lease holders: what they do to jobs that were claimed through this
// connection is written without reading the jobs.
import type { Move, Note } from '../../job/change.js'
import type { Time } from '../../job/job.js'
import type { Draft } from '../../job/record.js'
import type { LeasedRows } from '../../engine/workspace.js'
import { bytesOfRecord } from '../../store/read-pages.js'
import { movedColumns, nullable } from './rows.js'
import type { Found } from './rows.js'
import type { Statements } from './statements.js'

/** Maximum number of leased jobs to track; more than any worker leases. */
const MAX_LEASED = 20_000

/** A job whose text takes more than this is tracked without its payload, or not at all: a settlement needs none of it. */
const LIGHT = 2_000

/** Leased jobs by id, as they were claimed. They outlive the commit that claimed them. */
export type LeasedById = Map<string, Found>

/** The leased jobs during one commit. */
export class LeasedJobs implements LeasedRows {
  readonly #byId: LeasedById
  readonly #sql: Statements
  readonly #now: Time
  readonly #afterWrite: (row: Found, after: Draft, set: Move['set']) => void

  /** `afterWrite` writes what the columns of a move do not hold. */
  constructor(
    byId: LeasedById,
    sql: Statements,
    now: Time,
    afterWrite: (row: Found, after: Draft, set: Move['set']) => void,
  ) {
    this.#byId = byId
    this.#sql = sql
    this.#now = now
    this.#afterWrite = afterWrite
  }

  find(id: string, fence: number): Found | undefined {
    const found = this.#byId.get(id)
    return found?.job.fence === fence ? found : undefined
  }

  /** Tracks a claimed job. */
  add(found: Found): void {
    let { job } = found
    if (bytesOfRecord(job) > LIGHT) {
      job = { ...job, data: undefined, memo: undefined, progress: undefined }
      if (bytesOfRecord(job) > LIGHT) return this.forget(job.id)
    }
    if (this.#byId.size >= MAX_LEASED) {
      for (const oldest of this.#byId.keys()) {
        this.#byId.delete(oldest)
        break
      }
    }
    this.#byId.set(job.id, job === found.job ? found : { ...found, job })
  }

  forget(id: string): void {
    this.#byId.delete(id)
  }

  settle(row: Found, after: Draft, change: Move): boolean {
    const [sql, now] = [this.#sql, this.#now]
    const { seq, job } = row
    const { changes } = isPlainCompletion(change)
      ? sql.completeHeld.run(now, nullable(after.result), seq, job.fence)
      : sql.moveHeld.run(...movedColumns(after), seq, job.fence, now)
    if (Number(changes) === 0) return false
    if (after.state !== 'active') this.forget(job.id)
    this.#afterWrite(row, after, change.set)
    return true
  }

  note({ seq, job }: Found, { memo, progress }: Note): boolean {
    const { changes } = this.#sql.noteHeld.run(nullable(memo), nullable(progress), seq, job.fence, this.#now)
    return Number(changes) === 1
  }
}

/** Whether a settlement only completes its job, with or without a result. */
export function isPlainCompletion({ to, held, set, why, closesBroken }: Move): boolean {
  if (to !== 'completed' || !held || why !== undefined || closesBroken) return false
  return (
    set.staleIn === undefined &&
    set.deleteIn === undefined &&
    set.attempt === undefined &&
    set.stalls === undefined &&
    set.run === undefined &&
    set.data === undefined &&
    set.priority === undefined &&
    set.error === undefined &&
    set.memo === undefined &&
    set.stale === undefined
  )
}

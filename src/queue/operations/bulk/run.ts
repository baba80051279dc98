// queue/operations/bulk/run.ts: works on a bulk operation page by page. Each page's changes and the progress are one
// commit, fenced by the operation's row: whatever dies, nothing is done twice and nothing is counted twice.
import { advanceBulk, finishBulk, isBulk, readBulkProgress, SAMPLES_KEPT, takeBulk } from '../../../job/bulk.js'
import type { BulkAction, BulkProgress, BulkRefusal } from '../../../job/bulk.js'
import type { ErrorCode } from '../../../job/errors/errors.js'
import { isFinished } from '../../../job/job.js'
import type { JobRecord, Millis, Time } from '../../../job/job.js'
import { isDenied } from '../../../job/lifecycle.js'
import type { Connection } from '../../../store/connection.js'
import { matchesFiltered } from '../../../store/matches.js'
import { runSteps } from '../../../store/maybe-sync.js'
import { sleep } from '../../../store/runtime.js'
import { sessionFor } from '../../../store/session.js'
import type { Session } from '../../../store/session.js'
import type { Group, Refused, Verdict } from '../../../store/store.js'
import { cancelChildren, removeDependents } from '../cascade.js'
import { dependentsFirst, prepare, refusedByStore } from './prepare.js'
import type { Prepared } from './prepare.js'
import { readSpec } from './spec.js'
import type { BulkSpec } from './spec.js'

/** The most jobs, and about the most bytes of them, that one commit changes. */
const PAGE = 100
const PAGE_BYTES = 2 * 2 ** 20

/** How often a page is decided again because others changed its jobs; the same for one that a transaction has locked. */
const MAX_TRIES = 40

/** The longest pause before a locked job is tried again. */
const LONGEST_PAUSE: Millis = 250

/** Refusals because of another job, which may be one of those that are changed. */
const repeated: Readonly<Record<BulkAction, readonly ErrorCode[]>> = {
  cancel: [],
  retry: ['DEPENDENCY_FAILED'],
  promote: [],
  remove: ['JOB_HAS_DEPENDENTS', 'JOB_ENDS_CHAIN'],
  update: [],
}

/** An operation that has visited all of its jobs. */
export interface EndedOperation extends Pick<BulkSpec, 'do' | 'reason' | 'by'> {
  readonly id: string
  /** The queue of its jobs. */
  readonly queue: string
  readonly progress: BulkProgress
}

/** What a run needs. */
export interface BulkRunner {
  readonly connection: Connection
  /** How long a run that is silent keeps the operation to itself. */
  readonly lease: Millis
  /** The store's time, about. */
  now(): Time
  /** Whether to leave the rest to others. */
  stopped(): boolean
  /** Receives an operation that this run has ended, once that is durable. */
  readonly ended?: ((operation: EndedOperation) => void) | undefined
}

/**
 * Takes over an operation if it is due, and works on it until it ends, is paused or must wait for its rate. Does
 * nothing if another process has it.
 */
export async function runBulk(runner: BulkRunner, row: JobRecord): Promise<void> {
  if (!isBulk(row) || row.dueAt === undefined || row.dueAt > runner.now()) return
  const decision = takeBulk(row, runner.lease)
  if (isDenied(decision)) return
  const verdict = await runner.connection.main.tryCommit(decision)
  if (verdict.ok) await new BulkRun(runner, { ...row, fence: row.fence + 1 }).run()
}

/** Works on an operation that the caller has inserted to begin later, as if it had been taken over. */
export function continueBulk(runner: BulkRunner, row: JobRecord): Promise<void> {
  return new BulkRun(runner, row).run()
}

class BulkRun {
  readonly #runner: BulkRunner
  readonly #session: Session
  readonly #spec: BulkSpec
  /** The jobs that matched when it began were added, and had finished, by then. */
  readonly #began: Time
  #row: JobRecord
  #progress: BulkProgress
  /** When the row was last written, by the runtime's own clock. */
  #written: Millis
  /** Another process has it, or it was paused or ended. */
  #lost = false

  constructor(runner: BulkRunner, row: JobRecord) {
    this.#runner = runner
    this.#session = sessionFor(runner.connection)()
    this.#spec = readSpec(row)
    this.#began = row.createdAt
    this.#row = row
    this.#progress = readBulkProgress(row)
    this.#written = runner.connection.runtime.elapsed()
  }

  async run(): Promise<void> {
    await this.#cascade()
    while (!this.#lost) {
      if (this.#runner.stopped()) return this.#release(0)
      const room = this.#room()
      if (typeof room === 'object') return this.#release(room.wait)
      await this.#renew()
      if (await this.#page(room)) return
    }
  }

  /** How many jobs the rate lets through now, or how long to wait for it. */
  #room(): number | { readonly wait: Millis } {
    const { rate } = this.#spec
    const { spent } = this.#progress
    if (rate === undefined || spent === undefined) return Math.min(PAGE, rate?.max ?? PAGE)
    // Never longer than a period, whatever the clock of the run before was.
    const wait = Math.min(rate.per, spent.at + rate.per - this.#runner.now())
    if (wait <= 0) {
      this.#progress = omit(this.#progress, 'spent')
      return Math.min(PAGE, rate.max)
    }
    const left = rate.max - spent.jobs
    return left > 0 ? Math.min(PAGE, left) : { wait }
  }

  /** Works on the next page; returns whether it was the last one. */
  async #page(room: number): Promise<boolean> {
    const { cursor, visited = [], pass } = this.#progress
    const found = await this.#session.find({
      ...this.#spec.query,
      ...(pass > 1 && { order: 'newest' as const }),
      limit: this.#limit(room),
      bytes: PAGE_BYTES,
      ...(cursor !== undefined && { cursor }),
    })
    const known = new Set(visited)
    const jobs = found.items.filter((job) => this.#matched(job) && !known.has(job.id))
    const rest = visited.filter((id) => !found.items.some((job) => job.id === id))
    await this.#work(jobs, (left) => ({
      ...omit(this.#progress, 'visited'),
      // The last page, and one of which jobs are left, may be read again.
      ...(left.length === 0 && found.cursor !== undefined
        ? { cursor: found.cursor, ...(rest.length > 0 && { visited: rest }) }
        : { visited: [...visited, ...jobs.filter((job) => !left.includes(job.id)).map(({ id }) => id)] }),
    }))
    if (this.#lost) return true
    const isLast = found.cursor === undefined || this.#isBehind(found.items)
    return isLast && this.#passEnded()
  }

  /** New data is written for each job, so a commit must not hold too many. */
  #limit(room: number): number {
    const bytes = Math.max(0, ...(this.#spec.edits ?? []).map(({ edit }) => edit.data?.length ?? 0))
    return Math.max(1, Math.min(room, Math.floor(PAGE_BYTES / (bytes + 1))))
  }

  /** Whether a job that matches now did so when the operation began, as far as its times show. */
  #matched({ createdAt, finishedAt, state }: JobRecord): boolean {
    return createdAt <= this.#began && !(isFinished(state) && (finishedAt ?? 0) > this.#began)
  }

  /** Whether the rest of the jobs was added later. They are read in the order of their insertion, or nearly so. */
  #isBehind(jobs: readonly JobRecord[]): boolean {
    const inOrder = this.#progress.pass === 1 && (this.#spec.query.order ?? 'oldest') === 'oldest'
    return inOrder && jobs.length > 0 && jobs.every(({ createdAt }) => createdAt > this.#began)
  }

  /**
   * Changes the jobs of a page; `advance` returns the progress for jobs that are left. A job that cannot change together
   * with the others, because one change is refused after the other, goes with the next commit.
   */
  async #work(jobs: readonly JobRecord[], advance: (left: readonly string[]) => BulkProgress): Promise<void> {
    let left = jobs
    let locked = 0
    while (left.length > 0 && !this.#lost) {
      const later = await this.#commit(left, advance)
      left = later.jobs
      if (left.length === 0 || this.#lost) break
      if (later.progressed) locked = 0
      else if (++locked >= MAX_TRIES) return this.#giveUp(left, advance)
      else {
        await this.#write(this.#progress, this.#runner.lease)
        await sleep(this.#runner.connection.runtime, Math.min(5 * 2 ** locked, LONGEST_PAUSE))
      }
      left = await this.#reread(left)
    }
    if (jobs.length === 0) this.#progress = advance([])
  }

  /** Changes as many of these jobs as can be changed together; returns the others. */
  async #commit(
    jobs: readonly JobRecord[],
    advance: (left: readonly string[]) => BulkProgress,
  ): Promise<{ readonly jobs: readonly JobRecord[]; readonly progressed: boolean }> {
    if (this.#spec.do === 'remove' && this.#spec.cascade === true) {
      await runSteps(
        removeDependents(
          this.#session,
          jobs.map(({ id }) => id),
        ),
      )
    }
    let now = jobs
    let isOrdered = false
    const later: JobRecord[] = []
    const refused = new Map<string, BulkRefusal>()
    for (let tries = 0; ; tries++) {
      const tried = now.filter(({ id }) => !refused.has(id) && !later.some((job) => job.id === id))
      const prepared = await runSteps(prepare(this.#session, this.#spec, tried, this.#progress.done))
      const progress = this.#counted(advance(later.map(({ id }) => id)), {
        ...prepared,
        refused: [...prepared.refused, ...refused.values()],
      })
      const verdict = await this.#send(progress, prepared)
      if (verdict === undefined) {
        await this.#cascade()
        return { jobs: later, progressed: later.length < jobs.length }
      }
      const job = jobOf(prepared, verdict.change)
      if (job === undefined) return { jobs: [], progressed: false } // the row itself was refused
      if (verdict.why === 'duplicate' || verdict.why === 'broken') refused.set(job.id, refusedByStore(job, verdict))
      else if (verdict.why === 'busy' || tries >= MAX_TRIES) later.push(job)
      else {
        const current = await this.#reread(now)
        // Unchanged in the store: another change of the same group has moved it.
        const conflicts = current.some(({ id, fence }) => id === job.id && fence === job.fence)
        if (conflicts && isOrdered) later.push(job)
        now = conflicts ? await runSteps(dependentsFirst(this.#session, current)) : current
        isOrdered ||= conflicts
      }
    }
  }

  /** Counts jobs as refused that other callers never let go of. */
  async #giveUp(jobs: readonly JobRecord[], advance: (left: readonly string[]) => BulkProgress): Promise<void> {
    const refused = jobs.map((job) => refusedByStore(job, { ok: false, why: 'busy', change: 0, id: job.id }))
    await this.#write(this.#counted(advance([]), { changes: [], refused, unchanged: 0 }), this.#runner.lease)
  }

  /** The progress with these jobs counted. */
  #counted(progress: BulkProgress, { changes, refused, unchanged }: Prepared): BulkProgress {
    const codes: Record<string, number> = { ...progress.refused }
    for (const { code } of refused) codes[code] = (codes[code] ?? 0) + 1
    const { spent } = progress
    const jobs = (spent?.jobs ?? 0) + changes.length
    const cascades = this.#spec.do === 'cancel' && this.#spec.cascade === true
    return {
      ...progress,
      done: progress.done + changes.length,
      doneInPass: progress.doneInPass + changes.length,
      unchanged: progress.unchanged + unchanged,
      refused: codes,
      samples: [...progress.samples, ...refused].slice(0, SAMPLES_KEPT),
      ...(this.#spec.rate !== undefined && changes.length > 0 && { spent: { jobs, at: this.#runner.now() } }),
      ...(cascades && { cascading: changes.map(({ job }) => job.id) }),
    }
  }

  /** Commits changes together with the progress; returns the refusal, if they were refused. */
  async #send(progress: BulkProgress, { changes }: Prepared): Promise<Refused | undefined> {
    const group: Group = [
      advanceBulk(this.#row, progress, this.#runner.lease),
      ...changes.flatMap(({ group: own }) => own),
    ]
    return this.#apply(group, progress)
  }

  /** Writes the progress alone. */
  async #write(progress: BulkProgress, dueIn: Millis): Promise<void> {
    await this.#apply([advanceBulk(this.#row, progress, dueIn)], progress)
  }

  async #apply(group: Group, progress: BulkProgress): Promise<Refused | undefined> {
    for (let tries = 1; ; tries++) {
      const verdict: Verdict = await this.#runner.connection.main.tryCommit(group)
      if (verdict.ok) {
        this.#row = { ...this.#row, fence: this.#row.fence + 1, result: JSON.stringify(progress) }
        this.#progress = progress
        this.#written = this.#runner.connection.runtime.elapsed()
        return undefined
      }
      if (verdict.change > 0) return verdict
      if (verdict.why !== 'busy' || tries >= MAX_TRIES) {
        this.#lost = true
        return verdict
      }
      await sleep(this.#runner.connection.runtime, Math.min(5 * 2 ** tries, LONGEST_PAUSE))
    }
  }

  /** Cancels the children of jobs that were cancelled. Repeating it changes nothing, so a crash in between costs nothing. */
  async #cascade(): Promise<void> {
    const { cascading } = this.#progress
    if (cascading === undefined || this.#lost) return
    for (const id of cascading) await runSteps(cancelChildren(this.#session, id, this.#spec.reason))
    this.#progress = omit(this.#progress, 'cascading')
  }

  /** Pages without a job to change are not written, so now and then the row is. */
  async #renew(): Promise<void> {
    const silent = this.#runner.connection.runtime.elapsed() - this.#written
    if (silent > this.#runner.lease / 3) await this.#write(this.#progress, this.#runner.lease)
  }

  /** Lets another process continue it after a while. */
  async #release(wait: Millis): Promise<void> {
    await this.#write(this.#progress, wait)
  }

  /**
   * The last page was read. Goes over the jobs again as long as that helps, where some were refused because of others
   * that have been changed since. Returns whether it was the last pass; then the operation has ended.
   */
  async #passEnded(): Promise<boolean> {
    const { refused, doneInPass, pass } = this.#progress
    const again = repeated[this.#spec.do]
    if (doneInPass > 0 && again.some((code) => refused[code] !== undefined)) {
      // All that was refused is visited again, and counted anew. Newest first: a job that waits for its own children
      // was added before them.
      const { cursor: _cursor, visited: _visited, ...rest } = this.#progress
      await this.#write({ ...rest, pass: pass + 1, doneInPass: 0, refused: {}, samples: [] }, this.#runner.lease)
      return false
    }
    const { cursor: _cursor, visited: _visited, spent: _spent, ...result } = this.#progress
    const refusal = await this.#apply(finishBulk(this.#row, result), result)
    if (refusal === undefined) {
      const { do: action, reason, by, query } = this.#spec
      const { id } = this.#row
      this.#runner.ended?.({ id, queue: query.queue!, do: action, reason, by, progress: result })
    }
    return true
  }

  async #reread(jobs: readonly JobRecord[]): Promise<readonly JobRecord[]> {
    const records = await this.#session.getAll(jobs.map(({ id }) => id))
    return records.filter(
      (job): job is JobRecord => job !== undefined && this.#matched(job) && matchesFiltered(job, this.#spec.query),
    )
  }
}

/** The job that a change of the group belongs to; undefined: the row itself. */
function jobOf({ changes }: Prepared, change: number): JobRecord | undefined {
  let from = 1
  for (const { job, group } of changes) {
    if (change >= from && change < from + group.length) return job
    from += group.length
  }
  return undefined
}

function omit<T extends object, Key extends keyof T>(value: T, key: Key): Omit<T, Key> {
  const { [key]: _, ...rest } = value
  return rest
}

// store/series/series.ts: counts what a process does to jobs, by queue, name and minute, and writes the counts to the store.
import type { Insert, Put } from '../../job/change.js'
import type { JobHeader, JobRecord, Millis, Time } from '../../job/job.js'
import { isReserved } from '../../job/values/names.js'
import { count, countMove, countsFor, countWait, seriesSteps, stretchOf } from '../../job/series.js'
import type { Counts, CountsByName } from '../../job/series.js'
import { waitOf } from '../../job/waits.js'
import type { Batch, Group, Receipt, Verdict } from '../batch.js'
import type { Runtime, Stop } from '../runtime.js'
import { foldSeries, freshPut } from './series-cells.js'
import type { SeriesStore } from './series-cells.js'
import { outside } from '../transaction-context.js'
import type { Evidence } from '../transaction-context.js'

/** How long after the first count the counts are written. A process that is killed loses no more than that. */
const FLUSH_EVERY: Millis = 10_000

/** How long rows are kept, by default. */
const KEEP: Millis = 30 * seriesSteps.day

/** A process folds with its first write where so many counts wait: processes that end soon would never fold otherwise. */
const MANY_FRESH = 20

/** Rows that are kept in the process while the store fails; beyond that, later counts are dropped. */
const MAX_UNWRITTEN = 10_000

/** The counter of one process and store. Counting costs a few additions for each job, and writes are few. */
export class SeriesRecorder {
  readonly #runtime: Runtime
  readonly #store: SeriesStore
  readonly #folds: boolean
  /** By queue and minute. */
  #fresh = new Map<string, Map<number, CountsByName>>()
  /** Written, without an answer; sent again as they are. */
  #unsure: Put[] = []
  #unwritten = 0
  /** The counts that were used last: most jobs in a row are of one queue and name. */
  #last: { queue: string; name: string; minute: number; counts: Counts } | undefined
  readonly #kept = new Map<string, Millis | false>()
  readonly #foldedAt = new Map<string, Millis>()
  /** The store's time, as of the last commit. */
  #now: Time
  #minute: number
  #timer: Stop | undefined
  #writing: Promise<void> = Promise.resolve()

  /** `store` is written to beside the batches of jobs. `folds`: whether this process also folds what was counted. */
  constructor(runtime: Runtime, store: SeriesStore, folds = true) {
    this.#runtime = runtime
    this.#store = store
    this.#folds = folds
    this.#now = runtime.now()
    this.#minute = stretchOf(this.#now, 'minute')
  }

  /** Sets how long rows of a queue are kept, or that nothing is counted of it here. */
  keep(queue: string, keep: Millis | false): void {
    this.#kept.set(queue, keep)
    this.#last = undefined
  }

  /** How long rows of a queue are kept; false: nothing is counted of it here. */
  kept(queue: string): Millis | false {
    return this.#kept.get(queue) ?? KEEP
  }

  /** A batch was applied: counts the jobs that it added and claimed, and those that it dropped for others. */
  committed(batch: Batch, receipt: Receipt): void {
    this.#seen(receipt.now)
    const { groups } = batch
    for (let at = 0; at < groups.length; at++) {
      if (!receipt.groups[at]!.ok) continue
      for (const change of groups[at]!) {
        if (change.kind === 'insert') this.#added(change)
        else if (change.kind === 'move' && change.dropped !== undefined) this.#dropped(change.dropped)
      }
    }
    for (const jobs of receipt.asks) for (const job of jobs) this.#claimed(job)
  }

  /**
   * Groups were applied in a transaction: returns what to count once it is known to be committed, and the job that
   * proves it. Undefined: nothing. Holds no data of jobs, because a transaction may be open for long.
   */
  applied(
    verdicts: readonly Verdict[],
    now: Time,
  ): { readonly count: () => void; readonly evidence: Evidence } | undefined {
    this.#seen(now)
    const jobs = verdicts
      .flatMap((verdict) => (verdict.ok ? verdict.inserted : []))
      .filter(({ kind, queue }) => kind === 'job' && !isReserved(queue) && this.kept(queue) !== false)
      .map(({ id, queue, name, createdAt }) => ({ id, queue, name, createdAt }))
    const [first] = jobs
    if (first === undefined) return undefined
    const bytes = jobs.reduce((sum, { id, queue, name }) => sum + id.length + queue.length + name.length, 0)
    return {
      count: () => {
        for (const { queue, name } of jobs) this.#countAdded(queue, name)
      },
      evidence: { ...first, duplicate: false, jobs: jobs.length, bytes },
    }
  }

  #seen(now: Time): void {
    this.#now = now
    this.#minute = stretchOf(now, 'minute')
  }

  #added({ job }: Insert): void {
    if (job.kind === 'job') this.#countAdded(job.queue, job.name)
  }

  #countAdded(queue: string, name: string): void {
    const counts = this.#countsOf(queue, name)
    if (counts !== undefined) count(counts, 'added')
  }

  #dropped({ queue, name }: { readonly queue: string; readonly name: string }): void {
    const counts = this.#countsOf(queue, name)
    if (counts !== undefined) count(counts, 'cancelled')
  }

  #claimed(job: JobRecord): void {
    const counts = this.#countsOf(job.queue, job.name)
    if (counts !== undefined) countWait(counts, waitOf(job))
  }

  /** A group that changed this job was applied; `job` is as it was before. */
  changed(job: JobHeader, group: Group): void {
    if (job.kind !== 'job') return
    for (const change of group) {
      if (change.kind !== 'move' || change.id !== job.id) continue
      const counts = this.#countsOf(job.queue, job.name)
      if (counts !== undefined) countMove(counts, job, change, Math.max(this.#now, job.startedAt ?? 0))
    }
  }

  #countsOf(queue: string, name: string): Counts | undefined {
    const minute = this.#minute
    const last = this.#last
    if (last !== undefined && last.minute === minute && last.queue === queue && last.name === name) return last.counts
    if (isReserved(queue) || this.#kept.get(queue) === false) return undefined
    let minutes = this.#fresh.get(queue)
    if (minutes === undefined) this.#fresh.set(queue, (minutes = new Map()))
    let names = minutes.get(minute)
    if (names === undefined) {
      if (this.#unwritten >= MAX_UNWRITTEN) return undefined
      this.#unwritten++
      minutes.set(minute, (names = new Map()))
    }
    const counts = countsFor(names, name)
    this.#last = { queue, name, minute, counts }
    this.#arm()
    return counts
  }

  #arm(): void {
    // A process that has nothing else to do may end before: closing its queues and workers writes the counts.
    this.#timer ??= outside(() => this.#runtime.timer(FLUSH_EVERY, () => void this.flush(), true))
  }

  /** Writes what was counted until now. Never rejects: what could not be written is written later. */
  flush(): Promise<void> {
    this.#timer?.()
    this.#timer = undefined
    this.#writing = this.#writing.then(() => outside(() => this.#write())).catch(() => this.#arm())
    return this.#writing
  }

  async #write(): Promise<void> {
    const queues = [...this.#fresh.keys()]
    for (const [queue, minutes] of this.#fresh) {
      for (const [minute, counts] of minutes) this.#unsure.push(freshPut(queue, minute, this.#runtime.id(), counts))
    }
    this.#fresh = new Map()
    this.#last = undefined
    while (this.#unsure.length > 0) {
      // Each in a group of its own: one that was applied without an answer is refused, because its key is new.
      const puts = this.#unsure.slice(0, 100)
      await Promise.all(puts.map((put) => this.#store.commit([put])))
      this.#unsure = this.#unsure.slice(puts.length)
      this.#unwritten = this.#unsure.length
    }
    if (this.#folds) for (const queue of queues) await this.#fold(queue)
  }

  /** Folds once a minute, and at first if others have left much behind. */
  async #fold(queue: string): Promise<void> {
    const last = this.#foldedAt.get(queue)
    const now = this.#runtime.elapsed()
    if (last !== undefined && now - last < seriesSteps.minute) return
    this.#foldedAt.set(queue, now)
    await foldSeries(this.#store, queue, last === undefined ? MANY_FRESH : 1)
  }
}

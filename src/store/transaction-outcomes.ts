// store/transaction-outcomes.ts: finds out which user transactions were committed, by the jobs added in them.
import { isMillraceError } from '../job/errors/errors.js'
import type { JobRecord, Millis, Time } from '../job/job.js'
import { outside } from './transaction-context.js'
import type { AfterCommit, Evidence } from './transaction-context.js'
import type { Runtime, Stop } from './runtime.js'
import type { Store } from './store.js'

/** When to look for the first time, and the longest pause between two reads while a transaction is young. */
const FIRST_PAUSE: Millis = 5
const LONGEST_PAUSE: Millis = 1_000

/** The pause after a read, as a fraction of the time waited already: while a transaction is young, and later. */
const GROWTH = 1 / 4
const LATER_GROWTH = 1 / 8

/** How long a transaction is young. For that long, the process is kept alive to look for its jobs. */
const YOUNG: Millis = 30_000

/** The most jobs whose reports are held, and their bytes; beyond that the oldest are dropped. One call may be larger. */
const HELD_JOBS = 10_000
const HELD_BYTES = 8 * 2 ** 20

/** Jobs read at a time: a read returns their data as well. */
const PORTION = 20

/** A job to look for, and what to report once it is found. */
interface SoughtJob {
  readonly id: string
  readonly queue: string
  readonly createdAt: Time
  readonly since: Millis
  next: Millis
  jobs: number
  bytes: number
  readonly reports: (() => void)[]
}

/**
 * Holds the reports of user transactions, because no store learns how such a transaction ends, until a job added there is
 * seen outside of it: by a read, or by a claim of this process. One timer and one read at a time for a store.
 */
export class TransactionOutcomes implements AfterCommit {
  readonly #store: Store
  readonly #runtime: Runtime
  readonly #idle: boolean
  readonly #sought = new Map<string, SoughtJob>()
  #jobs = 0
  #bytes = 0
  #timer: { readonly at: Millis; readonly background: boolean; readonly stop: Stop } | undefined
  #looking: Promise<void> | undefined

  /** `idle`: no report is worth keeping a process alive for. Default false. */
  constructor(store: Store, runtime: Runtime, idle = false) {
    this.#store = store
    this.#runtime = runtime
    this.#idle = idle
  }

  /** Reports once the job is found; at once where there is none to look for. */
  afterCommit(report: () => void, evidence?: Evidence): void {
    if (evidence === undefined) return report()
    const { id, queue, createdAt, duplicate, jobs, bytes } = evidence
    const known = this.#sought.get(id)
    if (duplicate && known?.createdAt === createdAt) {
      known.reports.push(report)
      known.jobs += jobs
      known.bytes += bytes
    } else {
      // Another job of the same id could be added, so the earlier one was not committed.
      if (known !== undefined) this.#drop(known)
      const since = this.#runtime.elapsed()
      this.#sought.set(id, { id, queue, createdAt, since, next: since + FIRST_PAUSE, jobs, bytes, reports: [report] })
    }
    this.#jobs += jobs
    this.#bytes += bytes
    for (const oldest of this.#sought.values()) {
      if ((this.#jobs <= HELD_JOBS && this.#bytes <= HELD_BYTES) || oldest.id === id) break
      this.#drop(oldest)
    }
    this.#arm(this.#runtime.elapsed() + FIRST_PAUSE, this.#idle)
  }

  /** A claim received these jobs, so the transactions that added them were committed. */
  claimed(jobs: readonly JobRecord[]): void {
    if (this.#sought.size === 0) return
    for (const job of jobs) {
      const one = this.#sought.get(job.id)
      if (one?.createdAt === job.createdAt) outside(() => this.#report(one))
    }
  }

  /** Called when a queue closes: looks a last time for its jobs, and drops the reports of those not found. */
  async leave(queue: string): Promise<void> {
    if (this.#sought.size === 0) return
    await this.#looking
    const own = [...this.#sought.values()].filter((one) => one.queue === queue)
    await this.#look(own)
    for (const one of own) this.#drop(one)
    if (this.#sought.size > 0) return
    this.#timer?.stop()
    this.#timer = undefined
  }

  #drop(one: SoughtJob): void {
    if (this.#sought.get(one.id) !== one) return
    this.#sought.delete(one.id)
    this.#jobs -= one.jobs
    this.#bytes -= one.bytes
  }

  #report(one: SoughtJob): void {
    this.#drop(one)
    for (const report of one.reports) runReport(report)
  }

  /**
   * Makes sure that the next read is at that time at the latest. `background`: a process that has nothing else to do may
   * end before it.
   */
  #arm(latest: Millis, background: boolean): void {
    const armed = this.#timer
    if (this.#looking !== undefined) return
    if (armed !== undefined && armed.at <= latest && (background || !armed.background)) return
    armed?.stop()
    const at = Math.min(latest, armed?.at ?? latest)
    const delay = Math.max(0, at - this.#runtime.elapsed())
    const stop = outside(() => this.#runtime.timer(delay, () => this.#round(), background))
    this.#timer = { at, background, stop }
  }

  #round(): void {
    this.#timer = undefined
    const now = this.#runtime.elapsed()
    const due = [...this.#sought.values()].filter(({ next }) => next <= now)
    this.#looking = this.#look(due).finally(() => {
      this.#looking = undefined
      if (this.#sought.size === 0) return
      const later = this.#runtime.elapsed()
      let next = Infinity
      let background = true
      for (const one of this.#sought.values()) {
        next = Math.min(next, one.next)
        if (!this.#idle && later - one.since < YOUNG) background = false
      }
      this.#arm(next, background)
    })
  }

  async #look(due: readonly SoughtJob[]): Promise<void> {
    for (let at = 0; at < due.length; at += PORTION) await this.#lookFor(due.slice(at, at + PORTION))
  }

  async #lookFor(some: readonly SoughtJob[]): Promise<void> {
    let found: Awaited<ReturnType<Store['get']>> = []
    try {
      found = await this.#store.get(some.map(({ id }) => id))
    } catch (error) {
      if (isMillraceError(error, 'STORE_CLOSED')) return some.forEach((one) => this.#drop(one))
      // Tried again later, as if nothing had been found.
    }
    const now = this.#runtime.elapsed()
    for (const [at, one] of some.entries()) {
      if (this.#sought.get(one.id) !== one) continue
      if (found[at]?.createdAt === one.createdAt) this.#report(one)
      else one.next = now + pauseAfter(now - one.since)
    }
  }
}

function pauseAfter(waited: Millis): Millis {
  if (waited >= YOUNG) return waited * LATER_GROWTH
  return Math.min(LONGEST_PAUSE, Math.max(FIRST_PAUSE, waited * GROWTH))
}

function runReport(report: () => void): void {
  try {
    report()
  } catch {
    // A report that throws has no caller left, and must not keep the others back.
  }
}

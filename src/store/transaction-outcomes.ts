// store/transaction-outcomes.ts: finds out which user transactions were committed, by looking for the jobs added in
// them.
import { isMillraceError } from '../job/errors.js'
import type { Millis, Time } from '../job/job.js'
import { outside } from './transaction-context.js'
import type { AfterCommit, Evidence } from './transaction-context.js'
import type { Runtime, Stop } from './runtime.js'
import type { Store } from './store.js'

/** When to look for the first time, and the longest pause between two reads. */
const FIRST_PAUSE: Millis = 5
const LONGEST_PAUSE: Millis = 1_000

/** The pause after a read, as a fraction of the time waited already. */
const GROWTH = 1 / 4

/** How long to look for a job. A job not found by then counts as rolled back. */
const GIVE_UP_AFTER: Millis = 30_000

/**
 * The most jobs whose reports are held, each an id and two names; beyond that the oldest are dropped. One call may be
 * larger.
 */
const HELD_JOBS = 10_000

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
  readonly reports: (() => void)[]
}

/**
 * Holds the reports of user transactions until a read outside of them finds a job added there, because no store learns
 * how such a transaction ends. One timer and one read at a time for a store.
 */
export class TransactionOutcomes implements AfterCommit {
  readonly #store: Store
  readonly #runtime: Runtime
  readonly #sought = new Map<string, SoughtJob>()
  #jobs = 0
  #timer: { readonly at: Millis; readonly stop: Stop } | undefined
  #looking: Promise<void> | undefined

  constructor(store: Store, runtime: Runtime) {
    this.#store = store
    this.#runtime = runtime
  }

  /** Reports once the job is found; at once where there is none to look for. */
  afterCommit(report: () => void, evidence?: Evidence): void {
    if (evidence === undefined) return report()
    const { id, queue, createdAt, duplicate, jobs } = evidence
    const known = this.#sought.get(id)
    if (duplicate && known?.createdAt === createdAt) {
      known.reports.push(report)
      known.jobs += jobs
    } else {
      // Another job of the same id could be added, so the earlier one was not committed.
      if (known !== undefined) this.#drop(known)
      const since = this.#runtime.elapsed()
      this.#sought.set(id, { id, queue, createdAt, since, next: since + FIRST_PAUSE, jobs, reports: [report] })
    }
    this.#jobs += jobs
    for (const oldest of this.#sought.values()) {
      if (this.#jobs <= HELD_JOBS || oldest.id === id) break
      this.#drop(oldest)
    }
    this.#arm(this.#runtime.elapsed() + FIRST_PAUSE)
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
  }

  /** Makes sure that the next read is at that time at the latest. */
  #arm(at: Millis): void {
    if (this.#looking !== undefined || (this.#timer?.at ?? Infinity) <= at) return
    this.#timer?.stop()
    const delay = Math.max(0, at - this.#runtime.elapsed())
    const stop = outside(() => this.#runtime.timer(delay, () => this.#round()))
    this.#timer = { at, stop }
  }

  #round(): void {
    this.#timer = undefined
    const now = this.#runtime.elapsed()
    const due = [...this.#sought.values()].filter(({ next }) => next <= now)
    this.#looking = this.#look(due).finally(() => {
      this.#looking = undefined
      let next = Infinity
      for (const one of this.#sought.values()) next = Math.min(next, one.next)
      if (this.#sought.size > 0) this.#arm(next)
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
      const job = found[at]
      if (job?.createdAt === one.createdAt) {
        this.#drop(one)
        for (const report of one.reports) runReport(report)
      } else if (now - one.since >= GIVE_UP_AFTER) this.#drop(one)
      else one.next = now + Math.min(LONGEST_PAUSE, Math.max(FIRST_PAUSE, (now - one.since) * GROWTH))
    }
  }
}

function runReport(report: () => void): void {
  try {
    report()
  } catch {
    // A report that throws has no caller left, and must not keep the others back.
  }
}

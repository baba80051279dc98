// store/transaction-outcomes.ts: learns which of the users' own transactions were committed, by looking for the jobs added in them.
import { isMillraceError } from '../job/errors.js'
import type { Millis, Time } from '../job/job.js'
import { outside } from './transaction-context.js'
import type { AfterCommit, Evidence } from './transaction-context.js'
import type { Runtime, Stop } from './runtime.js'
import type { Store } from './store.js'

/** When to look for the first time, and the longest pause between two looks. */
const FIRST: Millis = 5
const LONGEST: Millis = 1_000

/** The pause after a look, as a part of the time waited already. */
const GROWTH = 1 / 4

/** How long to look for a job. One that was not seen by then counts as rolled back. */
const PATIENCE: Millis = 30_000

/** The jobs whose reports are held at most, each an id and two names; then the oldest are dropped. One call may be larger. */
const HELD_JOBS = 10_000

/** Jobs read at a time: they come with their data. */
const PORTION = 20

/** A job that is looked for, and what to report once it is seen. */
interface Sought {
  readonly id: string
  readonly queue: string
  readonly createdAt: Time
  readonly since: Millis
  next: Millis
  jobs: number
  readonly reports: (() => void)[]
}

/**
 * Holds what is to be reported of users' own transactions, of whose end no store is told, until a read outside of them finds a
 * job that was added there. One timer and one read at a time for a store.
 */
export class TransactionOutcomes implements AfterCommit {
  readonly #store: Store
  readonly #runtime: Runtime
  readonly #sought = new Map<string, Sought>()
  #jobs = 0
  #timer: { readonly at: Millis; readonly stop: Stop } | undefined
  #looking: Promise<void> | undefined

  constructor(store: Store, runtime: Runtime) {
    this.#store = store
    this.#runtime = runtime
  }

  /** Reports once the job is seen; at once where there is none to look for. */
  afterCommit(report: () => void, evidence?: Evidence): void {
    if (evidence === undefined) return report()
    const { id, queue, createdAt, duplicate, jobs } = evidence
    const known = this.#sought.get(id)
    if (duplicate && known?.createdAt === createdAt) {
      known.reports.push(report)
      known.jobs += jobs
    } else {
      // Where another one of its id could be added, the one before was not committed.
      if (known !== undefined) this.#forget(known)
      const since = this.#runtime.elapsed()
      this.#sought.set(id, { id, queue, createdAt, since, next: since + FIRST, jobs, reports: [report] })
    }
    this.#jobs += jobs
    for (const oldest of this.#sought.values()) {
      if (this.#jobs <= HELD_JOBS || oldest.id === id) break
      this.#forget(oldest)
    }
    this.#arm(this.#runtime.elapsed() + FIRST)
  }

  /** A queue is closed: looks a last time for its jobs, and drops the reports of those that are not there. */
  async leave(queue: string): Promise<void> {
    if (this.#sought.size === 0) return
    await this.#looking
    const own = [...this.#sought.values()].filter((one) => one.queue === queue)
    await this.#look(own)
    for (const one of own) this.#forget(one)
    if (this.#sought.size > 0) return
    this.#timer?.stop()
    this.#timer = undefined
  }

  #forget(one: Sought): void {
    if (this.#sought.get(one.id) !== one) return
    this.#sought.delete(one.id)
    this.#jobs -= one.jobs
  }

  /** Looks at that time at the latest. */
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

  async #look(due: readonly Sought[]): Promise<void> {
    for (let at = 0; at < due.length; at += PORTION) await this.#lookFor(due.slice(at, at + PORTION))
  }

  async #lookFor(some: readonly Sought[]): Promise<void> {
    let found: Awaited<ReturnType<Store['get']>> = []
    try {
      found = await this.#store.get(some.map(({ id }) => id))
    } catch (error) {
      if (isMillraceError(error, 'STORE_CLOSED')) return some.forEach((one) => this.#forget(one))
      // It is looked at again, as if nothing had been found.
    }
    const now = this.#runtime.elapsed()
    for (const [at, one] of some.entries()) {
      if (this.#sought.get(one.id) !== one) continue
      const job = found[at]
      if (job?.createdAt === one.createdAt) {
        this.#forget(one)
        for (const report of one.reports) reported(report)
      } else if (now - one.since >= PATIENCE) this.#forget(one)
      else one.next = now + Math.min(LONGEST, Math.max(FIRST, (now - one.since) * GROWTH))
    }
  }
}

function reported(report: () => void): void {
  try {
    report()
  } catch {
    // One that fails has no caller left, and is no reason to withhold the others.
  }
}

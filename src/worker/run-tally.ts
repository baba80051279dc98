// worker/run-tally.ts: counts what a run of a worker starts and how that ends, and bounds how much it claims.
import type { Processed } from '../queue/instrumentation.js'

/** What a run of a worker did: how many jobs it started, and how these ended. */
export interface RunReport {
  /** Why it ended: drained, the date of `until`, `maxJobs`, its signal, or `worker.close()`. */
  readonly ended: 'drained' | 'date' | 'max-jobs' | 'signal' | 'closed'
  /** Jobs started: the sum of the counts below. A job that the run retried counts for each attempt. */
  readonly started: number
  /** Jobs completed. */
  readonly completed: number
  /** Jobs failed for good. */
  readonly failed: number
  /** Failed attempts of jobs that are tried again, in this run or later. */
  readonly retrying: number
  /** Jobs that were snoozed or held, or sleep. */
  readonly snoozed: number
  /** Jobs that wait for their children or for a signal. */
  readonly waiting: number
  /** Jobs that `worker.close()` interrupted and returned to the queue. */
  readonly interrupted: number
  /** Jobs that were cancelled or ended elsewhere while they ran, or whose lease was lost. */
  readonly lost: number
}

/** Counts what a worker starts and how that ends, for the run in progress, if there is one. */
export class RunTally {
  #maxJobs = Infinity
  #started = 0
  #counts: Record<Processed['outcome'], number> | undefined
  /** Called when the last job that the run may start has started. */
  #full: () => void = () => {}
  #changed: () => void = () => {}

  /** A run begins that starts so many jobs at most. */
  begin(maxJobs: number, full: () => void): void {
    this.#maxJobs = maxJobs
    this.#started = 0
    this.#full = full
    this.#counts = { completed: 0, failed: 0, retrying: 0, snoozed: 0, 'waiting-children': 0, interrupted: 0 }
  }

  /** The run has ended. */
  end(): void {
    this.#maxJobs = Infinity
    this.#counts = undefined
    this.#full = this.#changed = () => {}
  }

  /** How many more jobs may be claimed, if so many are claimed and have not started. */
  room(unstarted: number): number {
    return Math.max(0, this.#maxJobs - this.#started - unstarted)
  }

  /** How many jobs the run has started. */
  get started(): number {
    return this.#started
  }

  /** A handler starts. */
  starts(): void {
    if (this.#counts === undefined) return
    this.#started++
    if (this.#started >= this.#maxJobs) this.#full()
  }

  /** The settlement of a job that had started is durable. */
  settled(outcome: Processed['outcome']): void {
    if (this.#counts !== undefined) this.#counts[outcome]++
  }

  /** A claim or a settlement was answered: the worker may have nothing to do now. */
  changed(): void {
    this.#changed()
  }

  /** Resolves at the next change. */
  nextChange(): Promise<void> {
    return new Promise((resolve) => (this.#changed = resolve))
  }

  /** What the run did until now. */
  report(ended: RunReport['ended']): RunReport {
    const { 'waiting-children': waiting, ...counts } = this.#counts!
    const known = Object.values(counts).reduce((sum, each) => sum + each, waiting)
    return { ended, started: this.#started, ...counts, waiting, lost: this.#started - known }
  }
}

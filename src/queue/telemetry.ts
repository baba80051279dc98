// queue/telemetry.ts: what queues and workers tell of what they do, to whoever measures it and to the log.
import type { ErrorInfo, JobRecord } from '../job/job.js'
import { isScheduleId } from '../job/schedule.js'
import { openTransaction } from '../store/transaction-context.js'
import type { AfterCommit, Evidence } from '../store/transaction-context.js'
import type { Connection } from '../store/connection.js'
import type { Stop } from '../store/runtime.js'
import type { Store, Tx } from '../store/store.js'
import type { Logger } from './events/events.js'
import type { Job } from './job.js'

/** How the processing of a job ended, once that is durable. */
export interface Processed {
  /** What became of the job. */
  readonly outcome: 'completed' | 'failed' | 'retrying' | 'snoozed' | 'waiting-children' | 'interrupted'
  /** What it failed with, where it failed. */
  readonly error?: ErrorInfo
}

/** One run of a handler, as it is measured. */
export interface Processing {
  /** Runs the handler inside what is measured. */
  run<T>(work: () => T): T
  /** The handler has ended. */
  handled(): void
  /** What it came to is durable. */
  ended(end: Processed): void
  /** The job is no longer this worker's: what it came to counts for nothing. */
  lost(reason: string): void
}

/** Who measures queues and workers. Made by `telemetry()`, and given to them as `telemetry`. */
export interface Telemetry {
  /** The trace that the calling code is part of, as W3C's `traceparent`; undefined: none. */
  trace(): string | undefined
  /** @internal Measures an add; what it added is counted now, or when the transaction that it is part of was committed. */
  send<T extends Job | readonly Job[]>(
    about: { readonly queue: string; readonly count: number; readonly within: AfterCommit | undefined },
    work: () => Promise<T>,
  ): Promise<T>
  /** @internal Measures a run of a handler, from now on. */
  process(job: JobRecord): Processing
  /** @internal Measures how many jobs there are in a store, until it is stopped. */
  observe(store: Store): Stop
}

/** Tells of what a queue adds. Made only where somebody wants to know. */
export class Reporter {
  readonly #queue: string
  readonly #connection: Connection
  readonly #telemetry: Telemetry | undefined
  readonly #debug: Logger['debug']

  constructor(queue: string, connection: Connection, telemetry: Telemetry | undefined, debug: Logger['debug']) {
    this.#queue = queue
    this.#connection = connection
    this.#telemetry = telemetry
    this.#debug = debug
  }

  /** Adds jobs, and tells of it once it is durable: of nothing that was rolled back. */
  sending<T extends Job | readonly Job[]>(count: number, tx: Tx, work: () => Promise<T>): Promise<T> {
    const { store, outcomes } = this.#connection
    const open = openTransaction(store)
    if (tx !== undefined && open?.tx !== tx) return this.#within(outcomes, count, work)
    if (open !== undefined) return this.#within(open, count, work)
    const sent = this.#send(count, work)
    if (this.#debug === undefined) return sent
    return sent.then((added) => {
      this.#lines(jobsIn(added))()
      return added
    })
  }

  #send<T extends Job | readonly Job[]>(count: number, work: () => Promise<T>, within?: AfterCommit): Promise<T> {
    return this.#telemetry === undefined ? work() : this.#telemetry.send({ queue: this.#queue, count, within }, work)
  }

  /** Collects all reports of an add, and hands them over together. */
  #within<T extends Job | readonly Job[]>(commit: AfterCommit, count: number, work: () => Promise<T>): Promise<T> {
    const reports: (() => void)[] = []
    const report = (): void => reports.forEach((each) => each())
    const sent = this.#send(count, work, { afterCommit: (each) => void reports.push(each) })
    return sent.then(
      (added) => {
        const jobs = jobsIn(added)
        if (this.#debug !== undefined) reports.push(this.#lines(jobs))
        commit.afterCommit(report, evidenceOf(jobs))
        return added
      },
      (error: unknown) => {
        commit.afterCommit(report)
        throw error
      },
    )
  }

  /** What writes the lines about jobs that were added. It may be held for long, and keeps no data of jobs. */
  #lines(jobs: readonly Job[]): () => void {
    const lines = jobs.map(({ id, name, queue, duplicate }) => ({
      about: { id, name, queue },
      message: `${isScheduleId(id) ? 'schedule' : 'job'} ${duplicate ? 'stands already' : 'added'}`,
    }))
    return () => {
      for (const { about, message } of lines) this.#debug?.(about, message)
    }
  }
}

function jobsIn(added: Job | readonly Job[]): readonly Job[] {
  return Array.isArray(added) ? (added as readonly Job[]) : [added as Job]
}

/** The job to look for: one of a call is enough, since all of them are committed or none is. Undefined: there is none. */
function evidenceOf(jobs: readonly Job[]): Evidence | undefined {
  const job = jobs.find(({ duplicate }) => !duplicate) ?? jobs.find(({ state }) => state !== 'removed')
  if (job === undefined) return undefined
  const { id, queue, duplicate, createdAt } = job
  return { id, queue, createdAt, duplicate, jobs: jobs.length }
}

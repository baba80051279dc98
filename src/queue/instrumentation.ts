// queue/instrumentation.ts: what queues and workers report to telemetry and to the debug log.
import type { ErrorInfo, JobRecord } from '../job/job.js'
import { isScheduleId } from '../job/schedules/schedule.js'
import { openTransaction } from '../store/transaction-context.js'
import type { AfterCommit, Evidence } from '../store/transaction-context.js'
import type { Connection } from '../store/connection.js'
import type { Stop } from '../store/runtime.js'
import type { Store, Tx } from '../store/store.js'
import type { Logger } from './events/events.js'
import type { Job } from './job.js'

/** How the processing of a job ended, once that is durable. */
export interface Processed {
  /** The outcome of the attempt. */
  readonly outcome: 'completed' | 'failed' | 'retrying' | 'snoozed' | 'waiting-children' | 'interrupted'
  /** The error, if it failed. */
  readonly error?: ErrorInfo
}

/** One measured run of a handler. */
export interface Processing {
  /** Runs the handler inside the span. */
  run<T>(work: () => T): T
  /** The handler has ended. */
  handled(): void
  /** The outcome is durable. */
  ended(end: Processed): void
  /** The worker lost the job's lease, so the outcome is discarded. */
  lost(reason: string): void
}

/** Measures queues and workers. Made by `telemetry()`, and given to them as `telemetry`. */
export interface Telemetry {
  /** The trace that the calling code is part of, as W3C `traceparent`; undefined: none. */
  trace(): string | undefined
  /** @internal Measures an add; counts its jobs now, or when the transaction that it is part of commits. */
  send<T extends Job | readonly Job[]>(
    about: { readonly queue: string; readonly count: number; readonly within: AfterCommit | undefined },
    work: () => Promise<T>,
  ): Promise<T>
  /** @internal Starts to measure a run of a handler. */
  process(job: JobRecord): Processing
  /** @internal Measures job counts of a store until stopped. */
  observe(store: Store): Stop
}

/** Reports the adds of a queue. Exists only with telemetry or a debug logger. */
export class AddReporter {
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

  /** Adds jobs and reports that once it is durable; reports nothing that was rolled back. */
  reportAdd<T extends Job | readonly Job[]>(count: number, tx: Tx, work: () => Promise<T>): Promise<T> {
    const { store, outcomes } = this.#connection
    const open = openTransaction(store)
    if (tx !== undefined && open?.tx !== tx) return this.#sendWithin(outcomes, count, work)
    if (open !== undefined) return this.#sendWithin(open, count, work)
    const sent = this.#send(count, work)
    if (this.#debug === undefined) return sent
    return sent.then((added) => {
      this.#logLines(jobsIn(added))()
      return added
    })
  }

  #send<T extends Job | readonly Job[]>(count: number, work: () => Promise<T>, within?: AfterCommit): Promise<T> {
    return this.#telemetry === undefined ? work() : this.#telemetry.send({ queue: this.#queue, count, within }, work)
  }

  /** Collects all reports of an add and submits them together. */
  #sendWithin<T extends Job | readonly Job[]>(commit: AfterCommit, count: number, work: () => Promise<T>): Promise<T> {
    const reports: (() => void)[] = []
    const report = (): void => reports.forEach((each) => each())
    const sent = this.#send(count, work, { afterCommit: (each) => void reports.push(each) })
    return sent.then(
      (added) => {
        const jobs = jobsIn(added)
        if (this.#debug !== undefined) reports.push(this.#logLines(jobs))
        commit.afterCommit(report, evidenceOf(jobs))
        return added
      },
      (error: unknown) => {
        commit.afterCommit(report)
        throw error
      },
    )
  }

  /** Returns a function that logs the added jobs. A transaction may hold it for long, so it keeps no data of jobs. */
  #logLines(jobs: readonly Job[]): () => void {
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

/**
 * The job that proves the commit. One per call is enough, since all jobs of a call commit or none does. Undefined:
 * none.
 */
function evidenceOf(jobs: readonly Job[]): Evidence | undefined {
  const job = jobs.find(({ duplicate }) => !duplicate) ?? jobs.find(({ state }) => state !== 'removed')
  if (job === undefined) return undefined
  const { id, queue, duplicate, createdAt } = job
  let bytes = 0
  for (const each of jobs) bytes += each.id.length + each.name.length + each.queue.length
  return { id, queue, createdAt, duplicate, jobs: jobs.length, bytes }
}

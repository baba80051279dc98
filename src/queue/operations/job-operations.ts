// queue/operations/job-operations.ts: what handles call: each method runs the steps of one operation, or waits.
import { isFinished } from '../../job/job.js'
import type { JobRecord, LogLine } from '../../job/job.js'
import { promote, retry } from '../../job/lifecycle.js'
import { SIGNAL } from '../../job/signals.js'
import type { Connection } from '../../store/connection.js'
import { readDetails } from '../../store/read-pages.js'
import { step, runSteps } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Tx } from '../../store/store.js'
import type { StoreEvent } from '../../job/events.js'
import { awaitEnd, jobRemoved } from './result.js'
import { splitCascade, splitReason } from './cascade.js'
import type { CancelOptions, CascadeOptions } from './cascade.js'
import { cancelJob, failJob, redeliverJob, removeJob, updateJob } from './operations.js'
import { changeJob, denied, jobNotFound, readJob } from './decide.js'
import type { Decided } from './decide.js'
import type { JobDefinitions } from '../define.js'
import { EventSubscription } from '../events/subscription.js'
import { readGraph } from '../graph.js'
import type { JobGraph } from '../graph.js'
import { readAttempts, readSteps, readTimeline } from './times.js'
import type { HistoryOptions } from './times.js'
import type { AttemptInfo, JobStep, Timeline } from '../../job/timeline.js'
import { logPage } from './filter.js'
import type { LogOptions } from './filter.js'
import type {
  OperationResult,
  JobActions,
  ObserveFieldsOptions,
  ObserveOptions,
  ResultOptions,
  UpdateOptions,
} from '../job.js'
import { observe } from './observe.js'
import { Payloads } from '../payloads.js'
import { Rereader } from './reread.js'
import { sendSignal } from '../send-signal.js'
import { sessionFor } from '../../store/session.js'
import type { Session } from '../../store/session.js'

/** The operations on jobs that a queue and its workers share. */
export class JobOperations implements JobActions {
  readonly connection: Connection
  readonly subscription: EventSubscription
  readonly rereader: Rereader
  /** The session of a call: in a transaction if one is given or the calling code is inside of one. */
  readonly session: (tx?: Tx) => Session
  readonly payloads: Payloads
  /** Called on close, to end pending waits. */
  readonly #closeListeners = new Set<() => void>()
  #closed = false

  constructor(connection: Connection, jobs: JobDefinitions | undefined, maxBytes: number) {
    this.connection = connection
    this.session = sessionFor(connection)
    this.subscription = new EventSubscription(connection.store)
    this.rereader = new Rereader(connection)
    this.payloads = new Payloads(jobs, maxBytes)
  }

  read(id: string): Promise<JobRecord> {
    return runSteps(readJob(this.session(), id))
  }

  cancel(id: string, options?: CancelOptions): Promise<OperationResult> {
    const { reason, rest } = splitReason(options, 'job.cancel')
    const { cascade } = splitCascade(rest, 'job.cancel')
    return this.#change(id, (session, job) => cancelJob(session, job, { cascade, reason }))
  }

  fail(id: string, error: unknown): Promise<OperationResult> {
    return this.#change(id, (session, job) => failJob(session, job, error))
  }

  retry(id: string): Promise<OperationResult> {
    return this.#change(id, (session, job) => changeJob(session, job, retry))
  }

  promote(id: string): Promise<OperationResult> {
    return this.#change(id, (session, job) => changeJob(session, job, promote))
  }

  update(id: string, changes: UpdateOptions): Promise<OperationResult> {
    return this.#change(id, (session, job) => updateJob(session, job, changes, this.payloads))
  }

  /** Runs an operation for a handle, which is given the record that the job then has. */
  #change(id: string, work: (session: Session, job: JobRecord) => Steps<Decided>): Promise<OperationResult> {
    return this.#run(id, function* (session, before) {
      const { done, job } = yield* work(session, before)
      return { done, record: done ? yield* step(session.get(id)) : job }
    })
  }

  /** Reads a job and runs work on it. */
  #run<T>(id: string, work: (session: Session, job: JobRecord) => Steps<T>): Promise<T> {
    const session = this.session()
    const steps = function* (): Steps<T> {
      return yield* work(session, yield* readJob(session, id))
    }
    return runSteps(steps())
  }

  remove(id: string, options?: CascadeOptions): Promise<OperationResult> {
    const { cascade } = splitCascade(options, 'job.remove')
    const session = this.session()
    const change = function* (): Steps<OperationResult> {
      const job = yield* step(session.get(id))
      if (job === undefined || job.kind === SIGNAL) return { done: false, record: undefined }
      const done = yield* removeJob(session, job, cascade)
      return { done, record: done ? yield* step(session.get(id)) : undefined }
    }
    return runSteps(change())
  }

  redeliver(id: string): Promise<string> {
    return this.#run(id, (session, job) => redeliverJob(session, job, this.connection.runtime))
  }

  async logs(id: string, options?: LogOptions): Promise<readonly LogLine[]> {
    const query = { jobs: [id], parts: ['logs'], logs: logPage(options) } as const
    // A page is what one read returns, which is cut by bytes. All lines take as many reads as needed.
    const isPage = options?.after !== undefined || options?.limit !== undefined
    const [found] = isPage
      ? (await this.session().details(query)).jobs
      : await runSteps(readDetails(this.session(), query))
    return found?.logs ?? []
  }

  async history(id: string, options?: HistoryOptions): Promise<readonly AttemptInfo[]> {
    return runSteps(readAttempts(this.session(), id, options))
  }

  steps(id: string): Promise<readonly JobStep[]> {
    return runSteps(readSteps(this.session(), id))
  }

  timeline(id: string): Promise<Timeline> {
    return runSteps(readTimeline(this.session(), id, () => this.connection.runtime.now()))
  }

  graph(id: string): Promise<JobGraph> {
    const now = this.connection.runtime.now()
    return this.#run(id, (session, job) => readGraph(session, job, now))
  }

  signal(id: string, name: string, data: unknown): Promise<boolean> {
    return this.#run(id, (session, job) => sendSignal(session, job, name, data, this.payloads.maxBytes))
  }

  /**
   * Waits for a job's end by events, with a slow poll as fallback. Subscribes before the first read, so that no event
   * is missed in between.
   */
  result(id: string, options: ResultOptions): Promise<unknown> {
    return awaitEnd(this, `job ${id}`, id, options, (end) => {
      const receive = (record: JobRecord | undefined): void => {
        if (record === undefined || record.kind === SIGNAL) end.fail(jobNotFound(id))
        else if (record.kind === 'schedule')
          end.fail(denied(record, 'is a schedule: its runs have results, and it has none'))
        else if (isFinished(record.state)) end.conclude(record.state, record)
      }
      const { sharedReads } = this.connection
      const read = (): void => void sharedReads.read(id).then(receive, end.fail)
      let failure: StoreEvent | undefined
      // An event may arrive late: a job that failed, was cancelled or was removed may have restarted since.
      const concludeUnless = (restarted: (record: JobRecord | undefined) => boolean, finish: () => void): void =>
        void sharedReads.read(id).then((record) => void (restarted(record) || finish()), end.fail)
      const stop = this.subscription.job(id, (event) => {
        if (event === undefined) read()
        else if (event.type === 'completed') end.conclude(event.type, event)
        else if (event.type === 'failed' || event.type === 'cancelled') {
          failure = event
          concludeUnless(
            (record) => record !== undefined && !isFinished(record.state),
            () => end.conclude(event.type, event),
          )
        } else if (event.type === 'removed') {
          const last = failure // so that the failure is reported even if the job was not kept
          concludeUnless(
            (record) => record !== undefined,
            () => (last === undefined ? end.fail(jobRemoved(id)) : end.conclude(last.type, last)),
          )
        } else failure = undefined
      })
      read()
      const stopPolling = this.rereader.add({ jobs: () => [id], receive })
      return () => {
        stop()
        stopPolling()
      }
    })
  }

  /** Calls the listener on close, or at once if already closed. Returns a function that removes it. */
  onClose(listener: () => void): () => void {
    if (this.#closed) listener()
    else this.#closeListeners.add(listener)
    return () => void this.#closeListeners.delete(listener)
  }

  observe(id: string, options: ObserveOptions | ObserveFieldsOptions): AsyncGenerator<object, void, void> {
    return observe(this, id, options)
  }

  /** Ends all pending waits. */
  close(): void {
    this.#closed = true
    for (const each of [...this.#closeListeners]) each()
  }
}

// worker/attempt/steps.ts: steps that survive retries: `ctx.step`, `ctx.sleep`, `ctx.waitForSignal`.
import { parseDuration } from '../../job/values/duration.js'
import type { Duration } from '../../job/values/duration.js'
import { MillraceError, isInstance, isMillraceError, quote } from '../../job/errors/errors.js'
import { isFinished } from '../../job/job.js'
import type { Edge, EdgeError, JobRecord, Millis } from '../../job/job.js'
import { decodeJson, encodeJson } from '../../job/values/json.js'
import type { JsonText } from '../../job/values/json.js'
import type { Outcome } from '../../job/lifecycle.js'
import { checkName, refuseUnknown } from '../../job/values/names.js'
import { expectSignal } from '../../job/signals.js'
import type { JobOperations } from '../../queue/operations/job-operations.js'
import { checkSignal, isSignalEdge, signalId, signalRow } from '../../queue/send-signal.js'
import { readDetails } from '../../store/read-pages.js'
import { runSteps } from '../../store/maybe-sync.js'
import type { DetailsPart, JobDetails } from '../../store/store.js'
import { outOfOrder } from '../../queue/flows/follow-ups.js'
import { openTransaction } from '../../store/transaction-context.js'
import { notInBatch } from '../batches/handler.js'
import type { Attempt } from './attempt.js'
import type { ProgressWriter } from './progress-writer.js'
import { UnawaitedCalls } from './unawaited.js'
import type { SignalOptions } from './context.js'
import { checkCallback, notStored } from './attempt-errors.js'
import { EarlyExit } from './early-exit.js'

/** The steps and signals of earlier runs, and the steps that this run has added. */
interface StepHistory {
  readonly steps: Map<string, JsonText | undefined>
  readonly edges: ReadonlyMap<string, Edge>
}

/** The steps of one attempt. Created when its handler runs the first. */
export class DurableSteps {
  readonly #attempt: Attempt
  readonly #writer: ProgressWriter
  readonly #operations: JobOperations
  #history: Promise<StepHistory> | undefined
  /** Steps that are running, by name. Concurrent calls of one step share its promise. */
  readonly #running = new Map<string, Promise<JsonText | undefined>>()
  /** Calls that the handler may not have awaited. */
  readonly #calls = new UnawaitedCalls()
  /** Errors that a retry would only repeat: results that cannot be stored, calls that are not awaited. */
  readonly #fatal = new Set<unknown>()

  constructor(attempt: Attempt, writer: ProgressWriter) {
    this.#attempt = attempt
    this.#writer = writer
    this.#operations = attempt.parts.operations
  }

  /**
   * The handler has ended. Resolves when the steps that it did not await have ended, so that no step runs twice;
   * undefined if there are none, or if the lease is lost.
   */
  handlerEnded(): Promise<unknown> | undefined {
    this.#calls.close()
    return this.#attempt.lost === undefined ? this.#calls.runningSteps : undefined
  }

  /** The error of a handler that returned without awaiting all its calls. */
  get unawaitedFailure(): { readonly error: unknown } | undefined {
    const pending = this.#attempt.stepOutcome === undefined ? this.#calls.pending : undefined
    return this.#markFatal(this.#calls.unawaitedFailure ?? pending)
  }

  /**
   * The error of a handler that threw: what it threw, unless that was an early exit of a call that it did not await.
   */
  thrown(error: unknown): unknown {
    const { unawaitedFailure } = this.#calls
    if (unawaitedFailure === undefined) return error
    this.#attempt.stepOutcome = undefined
    return isInstance(error, EarlyExit) ? this.#markFatal(unawaitedFailure).error : error
  }

  /** A phase has returned: waits for its steps, and throws if it did not await all its calls. */
  async finish(): Promise<void> {
    await this.#calls.runningSteps
    const { unawaitedFailure } = this
    if (unawaitedFailure === undefined) return
    this.#calls.close()
    throw unawaitedFailure.error
  }

  /** Marks a missing `await` as an error that a retry would only repeat. */
  #markFatal<U extends { readonly error: unknown } | undefined>(unawaitedFailure: U): U {
    if (isMillraceError(unawaitedFailure?.error, 'NOT_AWAITED')) this.#fatal.add(unawaitedFailure.error)
    return unawaitedFailure
  }

  /** Whether a retry would only repeat an error. */
  isFatal(error: unknown): boolean {
    return this.#fatal.has(error)
  }

  step(name: string, run: () => unknown): Promise<unknown> {
    return this.#track('ctx.step', false, name, async () => {
      const key = `step:${checkName(name, 'step name')}`
      checkCallback(run, 'ctx.step(name, fn)')
      const { steps } = await this.#load()
      const known = steps.has(key) ? steps.get(key) : await this.#once(key, name, run, steps)
      return known === undefined ? undefined : decodeJson(known)
    })
  }

  sleep(name: string, duration: Duration): Promise<void> {
    return this.#track('ctx.sleep', true, name, async (call) => {
      const key = `sleep:${checkName(name, 'sleep name')}`
      const time = parseDuration(duration, 'ctx.sleep')
      const { steps } = await this.#load()
      if (!steps.has(key))
        this.#endRun(call, { kind: 'snoozed', for: time, steps: [{ name: key, result: undefined, ran: 0 }] })
    })
  }

  waitForSignal(name: string, options: SignalOptions = {}): Promise<unknown> {
    return this.#track('ctx.waitForSignal', true, name, async (call) => {
      checkSignal(name)
      refuseUnknown(options, ['timeout'], 'ctx.waitForSignal')
      const { timeout } = options
      const time = timeout === undefined ? undefined : parseDuration(timeout, 'ctx.waitForSignal: timeout')
      const { edges } = await this.#load()
      const id = signalId(this.#attempt.record, name)
      const edge = edges.get(id)
      if (edge !== undefined && edge.state !== 'open') return signalData(name, edge.state === 'ended', edge)
      const row = await this.#expected(id, edge === undefined ? time : undefined)
      if (row !== undefined && isFinished(row.state)) return signalData(name, row.state === 'completed', row)
      const also = row === undefined ? [signalRow(this.#attempt.record, name, time)] : []
      return this.#endRun(call, { kind: 'waits', for: [{ on: id, policy: 'ignore' }], also, signal: true })
    })
  }

  /** Runs a step, once for all concurrent calls, and stores its result. */
  #once(key: string, name: string, run: () => unknown, steps: StepHistory['steps']): Promise<JsonText | undefined> {
    const running = this.#running.get(key)
    if (running !== undefined) return running
    const { runtime } = this.#operations.connection
    const runStep = async (): Promise<JsonText | undefined> => {
      try {
        const began = runtime.elapsed()
        const value = await run()
        const result = this.#encode(name, value)
        const ran = Math.max(0, Math.round(runtime.elapsed() - began))
        await this.#writer.note({ steps: [{ name: key, result, ran }] })
        steps.set(key, result)
        return result
      } finally {
        this.#running.delete(key)
      }
    }
    if (this.#attempt.lost !== undefined || this.#attempt.done) throw this.#attempt.lostError()
    const { stepOutcome } = this.#attempt
    if (stepOutcome !== undefined) this.#endRun(`ctx.step(${quote(name)})`, stepOutcome)
    const started = runStep()
    this.#running.set(key, started)
    return started
  }

  #encode(name: string, value: unknown): JsonText | undefined {
    try {
      return value === undefined ? undefined : encodeJson(value, 'result')
    } catch (cause) {
      const error = notStored(`Step '${name}'`, cause)
      this.#fatal.add(error)
      throw error
    }
  }

  /** The signal's row, if any. A row that was created before the first wait for it gets this timeout. */
  async #expected(id: string, time: Millis | undefined): Promise<JobRecord | undefined> {
    const session = this.#operations.session()
    let row = await session.get(id)
    if (time === undefined) return row
    while (row !== undefined && !isFinished(row.state)) {
      const verdict = await session.commit(expectSignal(row, time))
      if (verdict.ok) break
      row = verdict.why === 'fence' ? await session.get(id) : undefined
    }
    return row
  }

  /** Ends this run; only the first call that does so determines the outcome. */
  #endRun(call: string, outcome: Outcome): never {
    if (!this.#calls.isClosed) this.#attempt.stepOutcome ??= outcome
    throw new EarlyExit('The handler has been left: the job sleeps, or waits for a signal, and runs again.', () =>
      this.#attempt.uncaught(call),
    )
  }

  #load(): Promise<StepHistory> {
    this.#history ??= this.#read().catch((error: unknown) => {
      this.#history = undefined
      throw error
    })
    return this.#history
  }

  async #read(): Promise<StepHistory> {
    const [found] = await this.#details(['steps', 'edges'])
    const { steps = [], edges = [] } = found ?? {}
    // A job that was removed has no steps either, and the steps of earlier claims would run again.
    const { id, fence } = this.#attempt.record
    if (steps.length === 0 && fence > 1) {
      const job = await this.#operations.session().get(id)
      if (job === undefined) throw this.#attempt.lostError()
    }
    // Results of dependencies may be many and large, and only those of signals are needed here.
    const signalled = edges.some((edge) => isSignalEdge(edge) && edge.state !== 'open')
    const ended = signalled ? (await this.#details(['edges', 'outcomes']))[0]?.edges.filter(isSignalEdge) : undefined
    return {
      steps: new Map(steps.map(({ name, result }) => [name, result])),
      edges: new Map([...edges, ...(ended ?? [])].map((edge) => [edge.chain, edge])),
    }
  }

  #details(parts: readonly DetailsPart[]): Promise<readonly JobDetails[]> {
    return runSteps(readDetails(this.#operations.session(), { jobs: [this.#attempt.record.id], parts }))
  }

  #track<T>(call: string, endsRun: boolean, name: string, work: (called: string) => Promise<T>): Promise<T> {
    const called = `${call}(${quote(name)})`
    return this.#calls.track(
      called,
      endsRun,
      this.#allowed(call).then(() => work(called)),
    )
  }

  /** Throws where a rollback would undo what the call stores. */
  async #allowed(call: string): Promise<void> {
    const { inBatch, transactions } = this.#attempt
    if (inBatch) throw notInBatch(call)
    if (transactions?.followUps !== undefined) {
      throw outOfOrder(`${call} was called inside or after ctx.complete; take steps before it`)
    }
    const { store } = this.#operations.connection
    if (transactions?.isOpen === true || transactions?.opening !== undefined || openTransaction(store) !== undefined) {
      throw new MillraceError(
        'IN_TRANSACTION',
        `${call} was called inside a transaction, and what it remembers would be undone with that. Call it before, or use { mode: 'staged' }.`,
      )
    }
  }
}

/** The data that was sent; throws if the wait has timed out. */
function signalData(
  name: string,
  sent: boolean,
  { result, error }: { readonly result: JsonText | undefined; readonly error: EdgeError | undefined },
): unknown {
  if (sent) return result === undefined ? undefined : decodeJson(result)
  const message = error?.message ?? `Signal '${name}' was taken away before it came.`
  throw new MillraceError('SIGNAL_TIMEOUT', message, { details: { name } })
}

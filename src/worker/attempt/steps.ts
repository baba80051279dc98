// worker/attempt/steps.ts: what a handler does once for its job, however often it runs: `ctx.step`, `ctx.sleep`, `ctx.waitForSignal`.
import { parseDuration } from '../../job/duration.js'
import type { Duration } from '../../job/duration.js'
import { MillraceError, isInstance, isMillraceError } from '../../job/errors.js'
import { isFinished } from '../../job/job.js'
import type { Edge, EdgeError, JobRecord, Millis } from '../../job/job.js'
import { decodeJson, encodeJson } from '../../job/json.js'
import type { JsonText } from '../../job/json.js'
import type { Outcome, NoteFields } from '../../job/lifecycle.js'
import { checkName, refuseUnknown } from '../../job/names.js'
import { quote } from '../../job/quote.js'
import { expected } from '../../job/signals.js'
import type { JobOperations } from '../../queue/operations/job-operations.js'
import { checkSignal, isOfSignal, signalId, signalRow } from '../../queue/signals.js'
import { readDetails } from '../../store/read-pages.js'
import { stepwise } from '../../store/maybe-sync.js'
import type { DetailsPart, JobDetails } from '../../store/store.js'
import { outOfOrder } from '../../queue/flows/follow-ups.js'
import { openTransaction } from '../../store/transaction-context.js'
import { notInBatch } from '../batches/types.js'
import { UnawaitedCalls } from './unawaited.js'
import type { SignalOptions } from './context.js'
import { checkCallback, notStored } from './failure.js'
import { EarlyExit } from './early-exit.js'

/** The attempt whose handler takes the steps. */
interface Stepping {
  readonly record: JobRecord
  /** Why it is no longer this worker's. */
  readonly lost: unknown
  readonly batch: unknown
  readonly transactions:
    | { readonly isOpen: boolean; readonly opening: unknown; readonly successors: unknown }
    | undefined
  readonly saying: { note(said: Pick<NoteFields, 'steps'>): Promise<void> }
  /** The handler has ended, or was given up. */
  readonly done: boolean
  notOurs(): MillraceError
  /** What a call threw to leave the handler was caught by nobody. */
  uncaught(call: string): void
}

/** What is remembered of earlier runs, and what this one has added. */
interface Memory {
  readonly steps: Map<string, JsonText | undefined>
  readonly edges: ReadonlyMap<string, Edge>
}

/** The steps of one attempt. Made when its handler takes the first. */
export class DurableSteps {
  readonly #attempt: Stepping
  readonly #desk: JobOperations
  #memory: Promise<Memory> | undefined
  /** Steps that are being taken, by name: who asks for one of them waits for the same. */
  readonly #running = new Map<string, Promise<JsonText | undefined>>()
  /** UnawaitedCalls that the handler may not have waited for. */
  readonly #calls = new UnawaitedCalls()
  #outcome: Outcome | undefined
  /** What would be the same the next time: results that cannot be remembered, calls that are not awaited. */
  readonly #refused = new Set<unknown>()

  constructor(attempt: Stepping, desk: JobOperations) {
    this.#attempt = attempt
    this.#desk = desk
  }

  /** What the run comes to, whatever its handler does: it sleeps, or waits. */
  get outcome(): Outcome | undefined {
    return this.#outcome
  }

  /** Whether a handler that has ended did not wait for all steps: they are taken to their end first, so that none is taken again. */
  delay(then: () => void): boolean {
    this.#calls.cut()
    const { underWay } = this.#calls
    if (underWay === undefined || this.#attempt.lost !== undefined) return false
    void underWay.then(then)
    return true
  }

  /** What a handler fails with that returned without waiting for what it called. */
  get unheard(): { readonly error: unknown } | undefined {
    const pending = this.#outcome === undefined ? this.#calls.pending : undefined
    return this.#mistaken(this.#calls.unheard ?? pending)
  }

  /** What a handler that threw fails with: what it threw, unless it was left by what nobody waited for. */
  thrown(error: unknown): unknown {
    const { unheard } = this.#calls
    if (unheard === undefined) return error
    this.#outcome = undefined
    return isInstance(error, EarlyExit) ? this.#mistaken(unheard).error : error
  }

  /** A phase has returned: its steps are taken to their end, and it fails like a handler that did not wait. */
  async over(): Promise<void> {
    await this.#calls.underWay
    const { unheard } = this
    if (unheard === undefined) return
    this.#calls.cut()
    throw unheard.error
  }

  /** A call that was not awaited will not be the next time either. */
  #mistaken<U extends { readonly error: unknown } | undefined>(unheard: U): U {
    if (isMillraceError(unheard?.error, 'NOT_AWAITED')) this.#refused.add(unheard.error)
    return unheard
  }

  /** Whether an error is about what would be the same the next time. */
  refused(error: unknown): boolean {
    return this.#refused.has(error)
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
      if (!steps.has(key)) this.#leave(call, { kind: 'snoozed', for: time, steps: [{ name: key, result: undefined }] })
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
      if (edge !== undefined && edge.state !== 'open') return taken(name, edge.state === 'ended', edge)
      const row = await this.#expected(id, edge === undefined ? time : undefined)
      if (row !== undefined && isFinished(row.state)) return taken(name, row.state === 'completed', row)
      const also = row === undefined ? [signalRow(this.#attempt.record, name, time)] : []
      return this.#leave(call, { kind: 'waits', for: [{ on: id, policy: 'ignore' }], also, signal: true })
    })
  }

  /** Takes a step, once for all who ask for it at the same time, and remembers what it came to. */
  #once(key: string, name: string, run: () => unknown, steps: Memory['steps']): Promise<JsonText | undefined> {
    const under = this.#running.get(key)
    if (under !== undefined) return under
    const taking = async (): Promise<JsonText | undefined> => {
      try {
        const value = await run()
        const result = this.#encode(name, value)
        await this.#attempt.saying.note({ steps: [{ name: key, result }] })
        steps.set(key, result)
        return result
      } finally {
        this.#running.delete(key)
      }
    }
    if (this.#attempt.lost !== undefined || this.#attempt.done) throw this.#attempt.notOurs()
    if (this.#outcome !== undefined) this.#leave(`ctx.step(${quote(name)})`, this.#outcome)
    const taken = taking()
    this.#running.set(key, taken)
    return taken
  }

  #encode(name: string, value: unknown): JsonText | undefined {
    try {
      return value === undefined ? undefined : encodeJson(value, 'result')
    } catch (cause) {
      const error = notStored(`Step '${name}'`, cause)
      this.#refused.add(error)
      throw error
    }
  }

  /** The signal's row, if there is one; one that stands without a wait for it is given the time of this one. */
  async #expected(id: string, time: Millis | undefined): Promise<JobRecord | undefined> {
    const way = this.#desk.way()
    let row = await way.get(id)
    if (time === undefined) return row
    while (row !== undefined && !isFinished(row.state)) {
      const verdict = await way.commit(expected(row, time))
      if (verdict.ok) break
      row = verdict.why === 'fence' ? await way.get(id) : undefined
    }
    return row
  }

  /** Ends this run; only the first that asks for it is heard. */
  #leave(call: string, outcome: Outcome): never {
    if (!this.#calls.isCut) this.#outcome ??= outcome
    throw new EarlyExit('The handler has been left: the job sleeps, or waits for a signal, and runs again.', () =>
      this.#attempt.uncaught(call),
    )
  }

  #load(): Promise<Memory> {
    this.#memory ??= this.#read().catch((error: unknown) => {
      this.#memory = undefined
      throw error
    })
    return this.#memory
  }

  async #read(): Promise<Memory> {
    const [found] = await this.#details(['steps', 'edges'])
    const { steps = [], edges = [] } = found ?? {}
    // Results of dependencies may be many and large, and only what signals brought is needed here.
    const signalled = edges.some((edge) => isOfSignal(edge) && edge.state !== 'open')
    const ended = signalled ? (await this.#details(['edges', 'outcomes']))[0]?.edges.filter(isOfSignal) : undefined
    return {
      steps: new Map(steps.map(({ name, result }) => [name, result])),
      edges: new Map([...edges, ...(ended ?? [])].map((edge) => [edge.chain, edge])),
    }
  }

  #details(parts: readonly DetailsPart[]): Promise<readonly JobDetails[]> {
    return stepwise(readDetails(this.#desk.way(), { jobs: [this.#attempt.record.id], parts }))
  }

  #track<T>(call: string, leaves: boolean, name: string, work: (called: string) => Promise<T>): Promise<T> {
    const called = `${call}(${quote(name)})`
    return this.#calls.track(
      called,
      leaves,
      this.#allowed(call).then(() => work(called)),
    )
  }

  /** Refused where what is remembered would be undone with something else. */
  async #allowed(call: string): Promise<void> {
    const { batch, transactions } = this.#attempt
    if (batch !== undefined) throw notInBatch(call)
    if (transactions?.successors !== undefined) {
      throw outOfOrder(`${call} was called inside or after ctx.complete; take steps before it`)
    }
    const { store } = this.#desk.connection
    if (transactions?.isOpen === true || transactions?.opening !== undefined || openTransaction(store) !== undefined) {
      throw new MillraceError(
        'IN_TRANSACTION',
        `${call} was called inside a transaction, and what it remembers would be undone with that. Call it before, or use { mode: 'staged' }.`,
      )
    }
  }
}

/** What was sent; or the error of a wait that was over before. */
function taken(
  name: string,
  sent: boolean,
  { result, error }: { readonly result: JsonText | undefined; readonly error: EdgeError | undefined },
): unknown {
  if (sent) return result === undefined ? undefined : decodeJson(result)
  const message = error?.message ?? `Signal '${name}' was taken away before it came.`
  throw new MillraceError('SIGNAL_TIMEOUT', message, { details: { name } })
}

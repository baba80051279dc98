// testing/queue/context.ts: a context for unit tests of one handler, without a queue: it records what the handler does.
import { createRecord, givenOrder } from '../../job/apply.js'
import type { NewJob } from '../../job/change.js'
import { parseDuration } from '../../job/values/duration.js'
import type { Duration } from '../../job/values/duration.js'
import { MillraceError, isInstance } from '../../job/errors/errors.js'
import type { JobRecord, Millis, Time } from '../../job/job.js'
import { DEFAULT_JSON_LIMIT, decodeJson, encodeJson } from '../../job/values/json.js'
import { claimed } from '../../job/lifecycle.js'
import { checkName, refuseUnknown } from '../../job/values/names.js'
import { oneOf, whole } from '../../job/values/options.js'
import { Adder } from '../../queue/add.js'
import type { AddOptions, Dependency } from '../../queue/add-options.js'
import { validate } from '../../queue/define.js'
import type { InputOf, JobDefinition, JobDefinitions, NameOf } from '../../queue/define.js'
import type { DependenciesOf, Ended } from '../../queue/flows/chain-types.js'
import { FollowUps, outOfOrder } from '../../queue/flows/follow-ups.js'
import type { Planned } from '../../queue/flows/follow-ups.js'
import { Job } from '../../queue/job.js'
import type { JobActions } from '../../queue/job.js'
import { JobOperations } from '../../queue/operations/job-operations.js'
import type { AnyJobs } from '../../queue/queue-types.js'
import { connect } from '../../store/connection.js'
import type { GivenBy, Store } from '../../store/store.js'
import { memory } from '../../stores/memory/store.js'
import { Children } from '../../worker/attempt/children.js'
import type { WaitOptions } from '../../worker/attempt/children.js'
import { Snoozed, abortFor } from '../../worker/attempt/context.js'
import type { AbortReason, JobContext, JobSignal, PrepareOptions, SignalOptions } from '../../worker/attempt/context.js'
import { checkCallback } from '../../worker/attempt/attempt-errors.js'
import { parseHold } from '../../worker/attempt/hold.js'
import type { HoldOptions } from '../../worker/attempt/hold.js'
import type { ContextOf, HandledJob } from '../../worker/handlers.js'
import { virtualClock } from '../world/clock.js'
import { addedJob } from './added.js'
import type { AddedJob, AddedOf } from './added.js'

/** What a handler did with its context, in order. */
export interface Recorded<Jobs extends JobDefinitions = AnyJobs> {
  /** The values given to `ctx.progress`. */
  readonly progress: readonly unknown[]
  /** The lines given to `ctx.log`. */
  readonly logs: readonly string[]
  /** The steps that ran, with their results; not those that were given. */
  readonly steps: readonly { readonly name: string; readonly result: unknown }[]
  /** The sleeps, each with its duration in milliseconds. */
  readonly sleeps: readonly { readonly name: string; readonly duration: Millis }[]
  /** The names of the signals that it waited for. */
  readonly signals: readonly string[]
  /** The jobs that it added, by `ctx.add` and in `ctx.complete`. */
  readonly added: readonly AddedOf<Jobs>[]
  /** The job that its chain continues with; undefined: none. */
  readonly continuation: AddedOf<Jobs> | undefined
  /** The ids given to `ctx.waitFor`; undefined: it was not called. */
  readonly waitsFor: readonly string[] | undefined
  /** The duration given to `ctx.snooze`, in milliseconds; undefined: it was not called. */
  readonly snoozed: Millis | undefined
  /** What `ctx.hold` was called with: the duration in milliseconds; undefined: it was not called. */
  readonly held: { readonly for: Millis; readonly of: 'name' | 'group' | 'queue' } | undefined
}

/** Options of `testContext`. */
export interface TestContextOptions<
  Jobs extends JobDefinitions = AnyJobs,
  Name extends NameOf<Jobs> = NameOf<Jobs>,
  Extra extends object = object,
  S extends Store = Store,
> {
  /** The number of this attempt. Default 1. */
  readonly attempt?: number
  /** Options that the job was added with. Default: none. */
  readonly options?: Omit<AddOptions, 'after' | 'repeat' | 'delay' | 'runAt'>
  /** Results of steps that ended in earlier attempts, by name: these do not run again. Default: none. */
  readonly steps?: Readonly<Record<string, unknown>>
  /** Data of the signals that arrive, by name; an `Error` is thrown instead. Default: none. */
  readonly signals?: Readonly<Record<string, unknown>>
  /** What `ctx.dependencies()` returns. Default: none; required if the job declares `after`. */
  readonly dependencies?: DependenciesOf<Jobs, Name>
  /** The transaction that `ctx.prepare` and `ctx.complete` pass to their callbacks. Default: none. */
  readonly tx?: GivenBy<S>
  /** The store that the handler is written for. Only its type counts, for that of transactions. Default: any store. */
  readonly store?: S
  /** What middleware adds to the context. Default: nothing. */
  readonly extra?: Extra
}

/** The context of a declared job, for its handler, with the job and with what the handler did. */
export type TestContext<
  Jobs extends JobDefinitions = AnyJobs,
  Name extends NameOf<Jobs> = NameOf<Jobs>,
  Extra extends object = object,
  S extends Store = Store,
> = ContextOf<Jobs, Name, S> &
  Extra & {
    /** The job, for the first argument of the handler. */
    readonly job: HandledJob<Jobs, Name>
    /** What the handler has done so far. */
    readonly recorded: Recorded<Jobs>
    /** Aborts `ctx.signal`, as a cancellation, a timeout or a shutdown does. Default `cancelled`. */
    abort(reason?: AbortReason, cancelReason?: string): void
  }

/** The arguments of `testContext` after the name. Data may be omitted if its type allows undefined. */
export type TestContextArguments<
  Jobs extends JobDefinitions,
  Name extends NameOf<Jobs>,
  Extra extends object,
  S extends Store,
> =
  undefined extends InputOf<Jobs[Name]>
    ? [data?: InputOf<Jobs[Name]>, options?: TestContextOptions<Jobs, Name, Extra, S>]
    : [data: InputOf<Jobs[Name]>, options?: TestContextOptions<Jobs, Name, Extra, S>]

type AnyOptions = TestContextOptions<JobDefinitions>

/**
 * Makes a job and a context for a unit test of one handler. Nothing is stored: the context records what the handler
 * does. Sleeps return at once, steps run, and signals and dependencies come from the options.
 *
 * ```ts
 * const ctx = testContext(jobs, 'send-email', { to: 'ann@example.com' })
 * expect(await sendEmail(ctx.job, ctx)).toEqual({ messageId: '1' })
 * expect(ctx.recorded.progress).toEqual([50, 100])
 * ```
 */
export function testContext<
  Jobs extends JobDefinitions = AnyJobs,
  const Name extends NameOf<Jobs> = NameOf<Jobs>,
  Extra extends object = object,
  S extends Store = Store,
>(
  jobs: Jobs | undefined,
  name: Name,
  ...[data, options = {}]: TestContextArguments<Jobs, Name, Extra, S>
): TestContext<Jobs, Name, Extra, S> {
  const known = ['attempt', 'options', 'steps', 'signals', 'dependencies', 'tx', 'store', 'extra']
  refuseUnknown(options, known, 'testContext')
  const { runtime } = virtualClock()
  const operations = new JobOperations(connect(memory({ runtime })), jobs, DEFAULT_JSON_LIMIT)
  const adder = new Adder('test', operations, jobs, {}, undefined)
  const context = new RecordingContext(adder, name, data, options as unknown as AnyOptions, runtime.now())
  return Object.assign(context, options.extra) as unknown as TestContext<Jobs, Name, Extra, S>
}

/** Every call of a handler, recorded. Fields instead of methods, because handlers destructure their context. */
class RecordingContext implements JobContext {
  readonly job: Job
  readonly recorded = {
    progress: [] as unknown[],
    logs: [] as string[],
    steps: [] as { name: string; result: unknown }[],
    sleeps: [] as { name: string; duration: Millis }[],
    signals: [] as string[],
    added: [] as AddedJob[],
    continuation: undefined as AddedJob | undefined,
    waitsFor: undefined as readonly string[] | undefined,
    snoozed: undefined as Millis | undefined,
    held: undefined as Recorded['held'],
  }
  readonly #options: AnyOptions
  readonly #definition: JobDefinition | undefined
  readonly #now: Time
  readonly #controller = new AbortController()
  readonly #steps: Map<string, Promise<unknown>>
  readonly #followUps: FollowUps
  readonly #children: Children
  #completed = false

  constructor(adder: Adder, name: string, data: unknown, options: AnyOptions, now: Time) {
    this.#options = options
    this.#now = now
    this.#definition = adder.definition(name)
    const { steps = {}, attempt = 1 } = options
    const parsed = handlerData(this.#definition, name, data)
    const record = this.#record(adder, name, data, whole(attempt, 'testContext: attempt', 1))
    this.#steps = new Map(Object.entries(steps).map(([step, result]) => [step, Promise.resolve(result)]))
    this.#followUps = new FollowUps(adder, record, undefined)
    this.#children = new Children(record, adder, () => {})
    this.job = new Job(noActions, record, { parsed: { data: parsed }, running: noActions })
  }

  readonly abort = (reason: AbortReason = 'cancelled', cancelReason?: string): void =>
    this.#controller.abort(abortFor(reason, cancelReason))

  get signal(): JobSignal {
    return this.#controller.signal
  }

  readonly progress = async (value: unknown): Promise<void> => {
    this.recorded.progress.push(decodeJson(encodeJson(value ?? null, 'progress')!))
  }

  readonly log = async (line: string): Promise<void> => {
    this.recorded.logs.push(String(line))
  }

  readonly step = async <T>(name: string, fn: () => unknown): Promise<T> => {
    checkName(name, 'step name')
    checkCallback(fn, 'ctx.step(name, fn)')
    const known = this.#steps.get(name)
    if (known !== undefined) return known as Promise<T>
    const running = (async () => {
      const value = await fn()
      const result = value === undefined ? undefined : decodeJson(encodeJson(value, 'result')!)
      this.recorded.steps.push({ name, result })
      return result
    })()
    this.#steps.set(name, running)
    running.catch(() => this.#steps.delete(name)) // an error is not kept
    return running as Promise<T>
  }

  readonly sleep = async (name: string, duration: Duration): Promise<void> => {
    this.recorded.sleeps.push({ name: checkName(name, 'sleep name'), duration: parseDuration(duration, 'ctx.sleep') })
  }

  readonly waitForSignal = async <T>(name: string, options: SignalOptions = {}): Promise<T> => {
    checkName(name, 'signal name')
    refuseUnknown(options, ['timeout'], 'ctx.waitForSignal')
    this.recorded.signals.push(name)
    const { signals = {} } = this.#options
    if (!Object.hasOwn(signals, name)) {
      throw unsupported(`ctx.waitForSignal('${name}')`, `give { signals: { '${name}': … } } to testContext`)
    }
    if (isInstance(signals[name], Error)) throw signals[name]
    return signals[name] as T
  }

  readonly add = async (name: string, data?: unknown, options?: AddOptions): Promise<Planned> => {
    const planned = await this.#followUps.planning().add(name, data, options)
    const { insert } = this.#followUps.also.find((each) => each.insert.job.id === planned.id)!
    this.recorded.added.push(addedJob(this.#stored(insert.job)))
    return planned
  }

  readonly waitFor = (children: Dependency | readonly Dependency[], options?: WaitOptions): never => {
    try {
      return this.#children.waitFor(children, options, this.#completed)
    } finally {
      if (this.#children.waits) this.recorded.waitsFor = this.#children.outcome().for.map(({ on }) => on)
    }
  }

  readonly dependencies = (async (page?: object): Promise<unknown> => {
    const { dependencies } = this.#options as { readonly dependencies?: readonly Ended[] }
    if (dependencies === undefined && (this.#definition?.after ?? []).length > 0) {
      throw unsupported('ctx.dependencies()', 'give { dependencies: […] } to testContext')
    }
    return page === undefined ? (dependencies ?? []) : { dependencies: dependencies ?? [] }
  }) as JobContext['dependencies']

  readonly snooze = (duration: Duration): never => {
    this.recorded.snoozed = parseDuration(duration, 'ctx.snooze')
    throw new Snoozed('The handler has been left: the job is snoozed.', () => {})
  }

  readonly hold = (duration: Duration, options?: HoldOptions): never => {
    const { name, group, for: length } = parseHold(duration, options, this.job)
    this.recorded.held = { for: length, of: name !== undefined ? 'name' : group !== undefined ? 'group' : 'queue' }
    throw new Snoozed('The handler has been left: its jobs are held.', () => {})
  }

  readonly prepare = async <T>(options: PrepareOptions, work: (inside: object) => T | Promise<T>): Promise<T> => {
    oneOf(options?.mode, ['atomic', 'staged'], 'ctx.prepare: mode')
    checkCallback(work, 'ctx.prepare(options, callback)')
    if (this.#completed) throw outOfOrder('ctx.prepare was called after ctx.complete')
    return work({ tx: this.#options.tx })
  }

  readonly complete = (async (first: unknown, ...rest: readonly unknown[]): Promise<unknown> => {
    const work = (rest.length === 0 ? first : rest[0]) as (inside: object) => unknown
    checkCallback(work, 'ctx.complete(callback)')
    if (this.#completed) throw outOfOrder('ctx.complete was called twice')
    this.#completed = true
    const { tx } = rest.length === 0 ? this.#options : (first as { readonly tx?: unknown })
    return work({ tx, add: this.add, continueWith: this.#continueWith })
  }) as JobContext['complete']

  readonly #continueWith = async (name: string, data?: unknown, options?: AddOptions): Promise<Planned> => {
    const planned = await this.#followUps.planning().continueWith(name, data, options)
    const { continuation } = this.#followUps.with(undefined)
    this.recorded.continuation = addedJob(this.#stored(continuation!.job))
    return planned
  }

  /** The record of the job, as a worker has it. */
  #record(adder: Adder, name: string, data: unknown, attempt: number): JobRecord {
    const names = this.#definition?.after ?? []
    const prepared = adder.prepare(name, data, this.#options.options ?? {}, { names })
    if (prepared instanceof Promise) throw asyncSchema(name)
    const waiting = this.#stored(prepared.insert.job)
    return { ...claimed(waiting, { worker: 'test', lease: 30_000, ahead: false, now: this.#now }), attempt }
  }

  #stored(job: NewJob): JobRecord {
    return createRecord(job, undefined, givenOrder(0), 1, this.#now)
  }
}

/** The data as the handler gets it: the output of the schema. */
function handlerData(definition: JobDefinition | undefined, name: string, data: unknown): unknown {
  if (definition?.phases !== undefined) throw unsupported(`testContext('${name}')`, 'its handler has phases')
  if (definition?.input === undefined) return data
  const validation = validate(definition.input, data)
  if (validation instanceof Promise) throw asyncSchema(name)
  if (validation.ok) return validation.value
  const issues = validation.issues.join('; ')
  throw new MillraceError('INVALID_PAYLOAD', `testContext: the data for '${name}' was refused: ${issues}`)
}

function asyncSchema(name: string): MillraceError {
  return unsupported(`testContext('${name}')`, 'its schema is asynchronous')
}

function unsupported(call: string, why: string): MillraceError {
  return new MillraceError(
    'TEST_UNSUPPORTED',
    `${call} has no answer without a queue: ${why}, or run the job by testQueue and runOne.`,
    { details: { call } },
  )
}

/** The calls of a job's handle, which need a queue. */
const noActions = new Proxy({} as JobActions, {
  get: (_target, call) => {
    const error = (): MillraceError =>
      unsupported(`job.${call === 'read' ? 'refresh' : String(call)}()`, 'there is no stored job')
    if (call !== 'observe') return () => Promise.reject(error())
    return () => {
      throw error()
    }
  },
})

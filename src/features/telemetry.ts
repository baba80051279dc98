// features/telemetry.ts: spans and metrics of queues and workers, by OpenTelemetry's conventions for messaging.
import { AsyncLocalStorage } from 'node:async_hooks'
import type { MillraceError } from '../job/errors/errors.js'
import { describeError } from '../job/errors/failure.js'
import type { ErrorInfo, JobRecord } from '../job/job.js'
import { jobStates } from '../job/job.js'
import { refuseUnknown, workerNameIn } from '../job/values/names.js'
import { invalid } from '../job/values/options.js'
import { isScheduleId } from '../job/schedules/schedule.js'
import { waitOf } from '../job/waits.js'
import { countsOf } from '../queue/counts.js'
import { connect } from '../store/connection.js'
import { readMonitored } from './monitored.js'
import type { Monitored } from './monitored.js'
import type { Job } from '../queue/job.js'
import type { Processed, Processing, Telemetry } from '../queue/instrumentation.js'
import type { AfterCommit } from '../store/transaction-context.js'
import { microtask } from '../store/runtime.js'
import type { Stop } from '../store/runtime.js'
import type { Store } from '../store/store.js'
import { openTelemetryApi, parseTraceparent, formatTraceparent } from './opentelemetry.js'
import type { Api, Attributes, Meter, Observable, Span, SpanContext, Tracer } from './opentelemetry.js'

/** Creates spans: a `Tracer` of `@opentelemetry/api`. */
export interface TracerLike {
  /** Starts a span. */
  startSpan(name: string, options?: object, context?: unknown): unknown
}

/** Creates instruments: a `Meter` of `@opentelemetry/api`. */
export interface MeterLike {
  /** Creates a counter. */
  createCounter(name: string, options?: object): unknown
  /** Creates a histogram. */
  createHistogram(name: string, options?: object): unknown
  /** Creates a gauge that is read by callbacks. */
  createObservableGauge(name: string, options?: object): unknown
}

/** Options of `telemetry()`. */
export interface TelemetryOptions {
  /** Creates the spans. Default: that of the global tracer provider, by the name `millrace`. */
  readonly tracer?: TracerLike
  /** Creates the instruments. Default: that of the global meter provider, by the name `millrace`. */
  readonly meter?: MeterLike
  /** The package `@opentelemetry/api`, for bundled programs. Default: loaded from where Millrace is installed. */
  readonly api?: object
}

/**
 * Measures the queues and workers that have it as `telemetry`: spans and metrics by the conventions for messaging.
 * Needs the package `@opentelemetry/api`.
 *
 * ```ts
 * const measured = telemetry()
 * const queue = new Queue('emails', { store, telemetry: measured })
 * const worker = new Worker(queue, handlers, { telemetry: measured })
 * ```
 */
export function telemetry(options: TelemetryOptions = {}): Telemetry {
  refuseUnknown(options, ['tracer', 'meter', 'api'], 'telemetry')
  const { tracer, meter } = options
  if (tracer !== undefined && typeof tracer?.startSpan !== 'function') throw invalidOption('tracer', 'Tracer')
  if (meter !== undefined && typeof meter?.createCounter !== 'function') throw invalidOption('meter', 'Meter')
  const api = options.api === undefined ? openTelemetryApi() : (options.api as Api)
  if (typeof api?.trace?.getTracer !== 'function') {
    throw invalid("telemetry: api must be the package itself: import * as api from '@opentelemetry/api'.")
  }
  return new OpenTelemetryRecorder(
    api,
    (tracer as Tracer | undefined) ?? api.trace.getTracer('millrace'),
    (meter as Meter | undefined) ?? api.metrics.getMeter('millrace'),
  )
}

function invalidOption(option: string, type: string): MillraceError {
  return invalid(`telemetry: ${option} must be a ${type} of @opentelemetry/api.`)
}

/** Bucket boundaries of histograms in seconds, by the conventions. */
const advice = { explicitBucketBoundaries: [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10] }

/** What all jobs of a name have in common. */
interface NameInfo {
  readonly queue: string
  readonly name: string
  readonly title: string
  /** Attributes of measurements of successful runs. */
  readonly measured: Attributes
}

/** The trace in which a job was added, and the links and parent context of its span. */
interface Origin {
  readonly trace: string | undefined
  readonly active: object
  readonly links: { context: SpanContext }[]
  readonly parentContext: object
}

/** Reports a value of a gauge. */
type Observe = (value: number, attributes: Attributes) => void

/** Shows an age, if there is anything of that kind. */
const ageOf =
  (field: 'overdue' | 'scheduleLag' | 'upkeepLag' | 'longestRunning') =>
  (queue: Monitored, observe: Observe): void => {
    const seconds = queue[field]
    if (seconds !== undefined) observe(seconds, {})
  }

/** The gauges that are read from stores: name, unit, description, and what they show of a queue. */
const gauges: readonly (readonly [string, string, string, (queue: Monitored, observe: Observe) => void])[] = [
  [
    'millrace.jobs',
    '{job}',
    'Number of jobs in a queue, by state.',
    ({ tally }, observe) => {
      const { total } = countsOf(tally, [])
      for (const state of jobStates) observe(total[state], { 'millrace.job.state': state })
    },
  ],
  [
    'millrace.oldest_waiting',
    's',
    'How long the oldest waiting job has waited since it could be claimed, by name.',
    ({ oldestWaiting }, observe) => {
      for (const [name, seconds] of Object.entries(oldestWaiting)) observe(seconds, { [NAME]: name })
    },
  ],
  ['millrace.overdue', 's', 'How long the first delayed job is due without promotion.', ageOf('overdue')],
  ['millrace.schedule.lag', 's', 'How late the first due schedule is.', ageOf('scheduleLag')],
  ['millrace.upkeep.lag', 's', 'How late upkeep is.', ageOf('upkeepLag')],
  ['millrace.longest_running', 's', 'How long the longest running job has run.', ageOf('longestRunning')],
  ['millrace.workers', '{worker}', 'Live workers of the queue.', ({ workers }, observe) => observe(workers, {})],
  ['millrace.slots', '{slot}', 'Slots of the live workers of the queue.', ({ slots }, observe) => observe(slots, {})],
]

class OpenTelemetryRecorder implements Telemetry {
  readonly api: Api
  readonly #tracer: Tracer
  readonly #sent: ReturnType<Meter['createCounter']>
  readonly #operation: ReturnType<Meter['createHistogram']>
  readonly #consumed: ReturnType<Meter['createCounter']>
  readonly duration: ReturnType<Meter['createHistogram']>
  readonly #wait: ReturnType<Meter['createHistogram']>
  /** The gauges that are read from stores, each with what it shows of a queue. */
  readonly #gauges: readonly (readonly [Observable, (queue: Monitored, observe: Observe) => void])[]
  readonly #observed = new Map<Store, { users: number; readonly stop: Stop }>()
  /** The most recently used names. */
  #recentNames: readonly NameInfo[] = []
  /** The origin of the last processed job. */
  #origin: Origin | undefined
  /** Runs not yet counted, by attributes. */
  readonly #runs = new Map<Attributes, number>()
  /** The span of the current add, for programs without a context manager. */
  readonly #adding = new AsyncLocalStorage<SpanContext>()

  constructor(api: Api, tracer: Tracer, meter: Meter) {
    this.api = api
    this.#tracer = tracer
    this.#sent = meter.createCounter('messaging.client.sent.messages', {
      description: 'Number of messages producer attempted to send to the broker.',
      unit: '{message}',
    })
    this.#operation = meter.createHistogram('messaging.client.operation.duration', {
      description: 'Duration of messaging operation initiated by a producer or consumer client.',
      unit: 's',
      advice,
    })
    this.#consumed = meter.createCounter('messaging.client.consumed.messages', {
      description: 'Number of messages that were delivered to the application.',
      unit: '{message}',
    })
    this.duration = meter.createHistogram('messaging.process.duration', {
      description: 'Duration of processing operation.',
      unit: 's',
      advice,
    })
    this.#wait = meter.createHistogram('millrace.job.wait', {
      description: 'How long claimed jobs had waited since they could be claimed.',
      unit: 's',
      advice,
    })
    this.#gauges = gauges.map(([name, unit, description, show]) => [
      meter.createObservableGauge(name, { description, unit }),
      show,
    ])
  }

  trace(): string | undefined {
    const { trace, context } = this.api
    const spanContext = trace.getSpanContext(context.active()) ?? this.#adding.getStore()
    return spanContext === undefined ? undefined : formatTraceparent(spanContext)
  }

  send<T extends Job | readonly Job[]>(
    { queue, count, within }: { queue: string; count: number; within: AfterCommit | undefined },
    work: () => Promise<T>,
  ): Promise<T> {
    const { context, trace, SpanKind } = this.api
    const attributes: Attributes = { ...operationAttributes(queue, 'send'), ...(count !== 1 && { [BATCH]: count }) }
    const startedAt = clock()
    const span = this.#tracer.startSpan(`send ${queue}`, { kind: SpanKind.PRODUCER, startTime: startedAt, attributes })
    const whenDurable = (report: (at: number) => void): void => {
      const at = clock()
      if (within === undefined) report(at)
      else within.afterCommit(() => report(at)) // after a rollback, the span never ends and is not exported
    }
    const measure = (at: number, failed: Attributes, messages: number): void => {
      this.#operation.record((at - startedAt) / 1000, { ...operationAttributes(queue, 'send'), ...failed })
      if (messages > 0) this.#sent.add(messages, { ...operationAttributes(queue, 'send'), ...failed })
      span.end(at)
    }
    return this.#adding
      .run(span.spanContext(), () => context.with(trace.setSpan(context.active(), span), work))
      .then(
        (added) => {
          const jobs = (Array.isArray(added) ? added : [added]) as readonly Job[]
          if (count === 1 && jobs.length === 1) span.setAttributes({ [MESSAGE]: jobs[0]!.id, [NAME]: jobs[0]!.name })
          const messages = jobs.filter(({ id, duplicate }) => !duplicate && !isScheduleId(id)).length
          whenDurable((at) => measure(at, {}, messages))
          return added
        },
        (error: unknown) => {
          const info = describeError(error)
          const type = { [ERROR]: errorType(info) }
          whenDurable((at) => {
            this.fail(span, info, type)
            measure(at, type, count)
          })
          throw error
        },
      )
  }

  process(job: JobRecord): Processing {
    const { api } = this
    const { links, parentContext } = this.#originOf(job.extras?.trace, api.context.active())
    const info = this.nameInfoOf(job)
    this.#wait.record(waitOf(job) / 1000, info.measured)
    const startedAt = clock()
    const options = { kind: api.SpanKind.CONSUMER, startTime: startedAt, attributes: spanAttributes(job), links }
    const span = this.#tracer.startSpan(info.title, options, parentContext)
    return new ProcessSpan(this, info, span, startedAt, parentContext)
  }

  /** The origin of a job: mostly that of the job before, since one call adds many. */
  #originOf(trace: string | undefined, active: object): Origin {
    if (trace === this.#origin?.trace && active === this.#origin?.active) return this.#origin
    const producer = parseTraceparent(trace)
    const parentContext = producer === undefined ? active : this.api.trace.setSpanContext(active, producer)
    const links = producer === undefined ? [] : [{ context: producer }]
    return (this.#origin = { trace, active, links, parentContext })
  }

  /** What all jobs of a name have in common. They share one object, because instruments compare attributes by value. */
  nameInfoOf({ queue, name }: JobRecord): NameInfo {
    const [last] = this.#recentNames
    if (last?.name === name && last.queue === queue) return last
    const known = this.#recentNames.find((each) => each.name === name && each.queue === queue) ?? nameInfo(queue, name)
    this.#recentNames = [known, ...this.#recentNames.filter((each) => each !== known)].slice(0, 32)
    return known
  }

  /** Counts a run; runs that end together are counted in one call. */
  consume(attributes: Attributes): void {
    if (this.#runs.size === 0) microtask(() => this.#flushCounts())
    this.#runs.set(attributes, (this.#runs.get(attributes) ?? 0) + 1)
  }

  #flushCounts(): void {
    const runs = [...this.#runs]
    this.#runs.clear()
    for (const [attributes, count] of runs) this.#consumed.add(count, attributes)
  }

  observe(store: Store): Stop {
    const known = this.#observed.get(store) ?? this.#startObserving(store)
    known.users++
    let stopped = false
    return () => {
      if (stopped) return
      stopped = true
      if (--known.users > 0) return
      this.#observed.delete(store)
      known.stop()
    }
  }

  #startObserving(store: Store): { users: number; readonly stop: Stop } {
    let reading: Promise<readonly Monitored[]> | undefined
    /** All gauges of one collection share a read. An unavailable store reports nothing. */
    const read = (): Promise<readonly Monitored[]> =>
      (reading ??= readMonitored(connect(store), undefined)
        .catch(() => [])
        .finally(() => (reading = undefined)))
    const stops = this.#gauges.map(([gauge, show]) => {
      const callback = async (result: { observe: Observe }): Promise<void> => {
        for (const queue of await read()) {
          const own = queueAttributes(queue.tally.queue)
          show(queue, (value, attributes) => result.observe(value, { ...own, ...attributes }))
        }
      }
      gauge.addCallback(callback)
      return () => gauge.removeCallback(callback)
    })
    const entry = { users: 0, stop: () => stops.forEach((stop) => stop()) }
    this.#observed.set(store, entry)
    return entry
  }

  fail(span: Span, error: ErrorInfo, type: Attributes): void {
    const { name, message } = error
    span.setAttributes(type)
    span.recordException({
      name,
      message,
      ...((error.stack ?? error.cause) !== undefined && { stack: formatStack(error) }),
    })
    span.setStatus({ code: this.api.SpanStatusCode.ERROR, message })
  }
}

/** Ends when the handler has ended and its outcome is durable, or discarded. */
class ProcessSpan implements Processing {
  readonly #recorder: OpenTelemetryRecorder
  readonly #nameInfo: NameInfo
  readonly #span: Span
  readonly #parentContext: object
  readonly #startedAt: number
  #handled: number | undefined
  #end: Processed | string | undefined

  constructor(recorder: OpenTelemetryRecorder, info: NameInfo, span: Span, startedAt: number, parentContext: object) {
    this.#startedAt = startedAt
    this.#recorder = recorder
    this.#nameInfo = info
    this.#span = span
    this.#parentContext = parentContext
  }

  run<T>(work: () => T): T {
    const { context, trace } = this.#recorder.api
    return context.with(trace.setSpan(this.#parentContext, this.#span), work)
  }

  handled(): void {
    this.#handled ??= clock()
    this.#close()
  }

  ended(end: Processed): void {
    this.#end ??= end
    this.#close()
  }

  lost(reason: string): void {
    this.#end ??= reason
    this.#close()
  }

  #close(): void {
    const at = this.#handled
    const end = this.#end
    if (at === undefined || end === undefined) return
    const { measured } = this.#nameInfo
    if (typeof end !== 'string' && end.error === undefined) return this.#record(at, measured, end.outcome)
    const error = typeof end === 'string' ? end : errorType(end.error!)
    if (typeof end === 'string') {
      const message = `The job was no longer this worker's: ${end}.`
      this.#span.setAttribute(ERROR, error)
      this.#span.setStatus({ code: this.#recorder.api.SpanStatusCode.ERROR, message })
    } else this.#recorder.fail(this.#span, end.error!, { [ERROR]: error })
    this.#record(at, { ...measured, [ERROR]: error }, typeof end === 'string' ? 'lost' : end.outcome)
  }

  #record(at: number, measured: Attributes, outcome: string): void {
    this.#span.setAttribute('millrace.job.outcome', outcome)
    this.#recorder.consume(measured)
    this.#recorder.duration.record((at - this.#startedAt) / 1000, measured)
    this.#span.end(at)
  }
}

/** The current time for spans: finer than milliseconds, and never before the start of a span. */
const clock = (): number => performance.timeOrigin + performance.now()

const MESSAGE = 'messaging.message.id'
const BATCH = 'messaging.batch.message_count'
const NAME = 'millrace.job.name'
const ERROR = 'error.type'

function queueAttributes(queue: string): Attributes {
  return { 'messaging.system': 'millrace', 'messaging.destination.name': queue }
}

function operationAttributes(queue: string, operation: 'send' | 'process'): Attributes {
  return { ...queueAttributes(queue), 'messaging.operation.name': operation, 'messaging.operation.type': operation }
}

function nameInfo(queue: string, name: string): NameInfo {
  return {
    queue,
    name,
    title: `process ${queue}`,
    measured: { ...operationAttributes(queue, 'process'), [NAME]: name },
  }
}

/**
 * The attributes of a run. Spelled out: there is one for every job, and assembling objects costs several times as much.
 */
function spanAttributes({ queue, id, name, attempt, worker = '' }: JobRecord): Attributes {
  const attributes: Attributes = {
    'messaging.system': 'millrace',
    'messaging.destination.name': queue,
    'messaging.operation.name': 'process',
    'messaging.operation.type': 'process',
    'messaging.message.id': id,
    'messaging.client.id': worker,
    'millrace.job.name': name,
    'millrace.job.attempt': attempt,
  }
  const workerName = workerNameIn(worker)
  if (workerName !== undefined) attributes['millrace.worker.name'] = workerName
  return attributes
}

/** The stack of an error and its causes, in the format of Java and Node. */
function formatStack({ name, message, stack = `${name}: ${message}`, cause, errors = [] }: ErrorInfo): string {
  const causes = cause === undefined ? [] : [`Caused by: ${formatStack(cause)}`]
  const parts = errors.map((each, at) => `Error ${at + 1} of ${errors.length}: ${formatStack(each)}`)
  return [stack, ...causes, ...parts].join('\n')
}

/** The type of an error: its code, if it has one. */
function errorType({ code, name }: ErrorInfo): string {
  return code ?? name
}

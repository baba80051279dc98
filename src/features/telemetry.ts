// features/telemetry.ts: spans and metrics of queues and workers, by OpenTelemetry's conventions for messaging.
import { AsyncLocalStorage } from 'node:async_hooks'
import { MillraceError } from '../job/errors.js'
import { describeError } from '../job/failure.js'
import type { ErrorInfo, JobRecord } from '../job/job.js'
import { jobStates } from '../job/job.js'
import { refuseUnknown } from '../job/names.js'
import { isScheduleId } from '../job/schedule.js'
import { storeCounts } from '../queue/counts.js'
import type { Job } from '../queue/job.js'
import type { Processed, Processing, Telemetry } from '../queue/telemetry.js'
import type { AfterCommit } from '../store/transaction-context.js'
import type { Stop } from '../store/runtime.js'
import type { Store } from '../store/store.js'
import { openTelemetryApi, placeIn, traceparent } from './opentelemetry.js'
import type { Api, Attributes, Meter, Observable, Span, SpanContext, Tracer } from './opentelemetry.js'

/** What spans are made with: a `Tracer` of `@opentelemetry/api`. */
export interface TracerLike {
  /** Begins a span. */
  startSpan(name: string, options?: object, context?: unknown): unknown
}

/** What instruments are made with: a `Meter` of `@opentelemetry/api`. */
export interface MeterLike {
  /** Makes a counter. */
  createCounter(name: string, options?: object): unknown
  /** Makes a histogram. */
  createHistogram(name: string, options?: object): unknown
  /** Makes a gauge that is asked. */
  createObservableGauge(name: string, options?: object): unknown
}

/** Where spans and measurements go. */
export interface TelemetryOptions {
  /** Makes the spans. Default: the global tracer provider's, by the name `millrace`. */
  readonly tracer?: TracerLike
  /** Makes the instruments. Default: the global meter provider's, by the name `millrace`. */
  readonly meter?: MeterLike
  /** The package `@opentelemetry/api`, for programs that are bundled. Default: loaded from where Millrace is installed. */
  readonly api?: object
}

/**
 * Measures queues and workers that are given it as `telemetry`: spans and metrics by the conventions for messaging. Needs
 * the package `@opentelemetry/api`.
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
  if (tracer !== undefined && typeof tracer?.startSpan !== 'function') throw wrong('tracer', 'Tracer')
  if (meter !== undefined && typeof meter?.createCounter !== 'function') throw wrong('meter', 'Meter')
  const api = options.api === undefined ? openTelemetryApi() : (options.api as Api)
  if (typeof api?.trace?.getTracer !== 'function') {
    throw new MillraceError(
      'INVALID_OPTION',
      "telemetry: api must be the package itself: import * as api from '@opentelemetry/api'.",
    )
  }
  return new Measures(
    api,
    (tracer as Tracer | undefined) ?? api.trace.getTracer('millrace'),
    (meter as Meter | undefined) ?? api.metrics.getMeter('millrace'),
  )
}

function wrong(option: string, type: string): MillraceError {
  return new MillraceError('INVALID_OPTION', `telemetry: ${option} must be a ${type} of @opentelemetry/api.`)
}

/** Bounds of histograms in seconds, as the conventions ask for. */
const advice = { explicitBucketBoundaries: [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10] }

/** What is told of all jobs of a name. */
interface Kind {
  readonly queue: string
  readonly name: string
  readonly title: string
  /** Attributes of what is measured of runs that went well. */
  readonly measured: Attributes
}

/** Where a job comes from, and what its span has to do with that. */
interface Origin {
  readonly trace: string | undefined
  readonly active: object
  readonly links: { context: SpanContext }[]
  readonly around: object
}

class Measures implements Telemetry {
  readonly api: Api
  readonly #tracer: Tracer
  readonly #sent: ReturnType<Meter['createCounter']>
  readonly #operation: ReturnType<Meter['createHistogram']>
  readonly #consumed: ReturnType<Meter['createCounter']>
  readonly duration: ReturnType<Meter['createHistogram']>
  readonly #jobs: Observable
  readonly #observed = new Map<Store, { by: number; readonly stop: Stop }>()
  /** The names that ran last. */
  #kinds: readonly Kind[] = []
  /** Where the job came from that ran last. */
  #origin: Origin | undefined
  /** Runs that are still to be counted. */
  readonly #runs = new Map<Attributes, number>()
  /** The span of the add under way, for where nobody keeps contexts. */
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
    this.#jobs = meter.createObservableGauge('millrace.jobs', {
      description: 'Number of jobs in a queue, by state.',
      unit: '{job}',
    })
  }

  trace(): string | undefined {
    const { trace, context } = this.api
    const place = trace.getSpanContext(context.active()) ?? this.#adding.getStore()
    return place === undefined ? undefined : traceparent(place)
  }

  send<T extends Job | readonly Job[]>(
    { queue, count, within }: { queue: string; count: number; within: AfterCommit | undefined },
    work: () => Promise<T>,
  ): Promise<T> {
    const { context, trace, SpanKind } = this.api
    const attributes: Attributes = { ...about(queue, 'send'), ...(count !== 1 && { [BATCH]: count }) }
    const begun = clock()
    const span = this.#tracer.startSpan(`send ${queue}`, { kind: SpanKind.PRODUCER, startTime: begun, attributes })
    const told = (tell: (at: number) => void): void => {
      const at = clock()
      if (within === undefined) tell(at)
      else within.afterCommit(() => tell(at)) // never ended, it is never exported
    }
    const measure = (at: number, failed: Attributes, messages: number): void => {
      this.#operation.record((at - begun) / 1000, { ...about(queue, 'send'), ...failed })
      if (messages > 0) this.#sent.add(messages, { ...about(queue, 'send'), ...failed })
      span.end(at)
    }
    return this.#adding
      .run(span.spanContext(), () => context.with(trace.setSpan(context.active(), span), work))
      .then(
        (added) => {
          const jobs = (Array.isArray(added) ? added : [added]) as readonly Job[]
          if (count === 1 && jobs.length === 1) span.setAttributes({ [MESSAGE]: jobs[0]!.id, [NAME]: jobs[0]!.name })
          const messages = jobs.filter(({ id, duplicate }) => !duplicate && !isScheduleId(id)).length
          told((at) => measure(at, {}, messages))
          return added
        },
        (error: unknown) => {
          const info = describeError(error)
          const type = { [ERROR]: typeOf(info) }
          told((at) => {
            this.fail(span, info, type)
            measure(at, type, count)
          })
          throw error
        },
      )
  }

  process(job: JobRecord): Processing {
    const { api } = this
    const { links, around } = this.#from(job.extras?.trace, api.context.active())
    const kind = this.kindOf(job)
    const begun = clock()
    const options = { kind: api.SpanKind.CONSUMER, startTime: begun, attributes: spanOf(job), links }
    const span = this.#tracer.startSpan(kind.title, options, around)
    return new ProcessSpan(this, kind, span, begun, around)
  }

  /** Where jobs come from: mostly the same place as the one before, since many were added by one call. */
  #from(trace: string | undefined, active: object): Origin {
    if (trace === this.#origin?.trace && active === this.#origin?.active) return this.#origin
    const producer = placeIn(trace)
    const around = producer === undefined ? active : this.api.trace.setSpanContext(active, producer)
    const links = producer === undefined ? [] : [{ context: producer }]
    return (this.#origin = { trace, active, links, around })
  }

  /** What is told of all jobs of a name: one object for all of them, since instruments go by what is in them. */
  kindOf({ queue, name }: JobRecord): Kind {
    const [last] = this.#kinds
    if (last?.name === name && last.queue === queue) return last
    const known = this.#kinds.find((each) => each.name === name && each.queue === queue) ?? kindOf(queue, name)
    this.#kinds = [known, ...this.#kinds.filter((each) => each !== known)].slice(0, 32)
    return known
  }

  /** Counts a run; those that end together are counted together. */
  consume(attributes: Attributes): void {
    if (this.#runs.size === 0) queueMicrotask(() => this.#counted())
    this.#runs.set(attributes, (this.#runs.get(attributes) ?? 0) + 1)
  }

  #counted(): void {
    const runs = [...this.#runs]
    this.#runs.clear()
    for (const [attributes, count] of runs) this.#consumed.add(count, attributes)
  }

  observe(store: Store): Stop {
    const known = this.#observed.get(store) ?? this.#begin(store)
    known.by++
    let stopped = false
    return () => {
      if (stopped) return
      stopped = true
      if (--known.by > 0) return
      this.#observed.delete(store)
      known.stop()
    }
  }

  #begin(store: Store): { by: number; readonly stop: Stop } {
    const look = async (result: { observe(value: number, attributes: Attributes): void }): Promise<void> => {
      const counts = await storeCounts(store).catch(() => ({})) // a store that is away has nothing to tell
      for (const [queue, { total }] of Object.entries(counts)) {
        for (const state of jobStates) result.observe(total[state], { ...of(queue), 'millrace.job.state': state })
      }
    }
    this.#jobs.addCallback(look)
    const entry = { by: 0, stop: () => this.#jobs.removeCallback(look) }
    this.#observed.set(store, entry)
    return entry
  }

  fail(span: Span, error: ErrorInfo, type: Attributes): void {
    const { name, message } = error
    span.setAttributes(type)
    span.recordException({
      name,
      message,
      ...((error.stack ?? error.cause) !== undefined && { stack: written(error) }),
    })
    span.setStatus({ code: this.api.SpanStatusCode.ERROR, message })
  }
}

/** Ends when the handler has ended, and what it came to is durable, or counts for nothing. */
class ProcessSpan implements Processing {
  readonly #measures: Measures
  readonly #kind: Kind
  readonly #span: Span
  readonly #around: object
  readonly #begun: number
  #handled: number | undefined
  #end: Processed | string | undefined

  constructor(measures: Measures, kind: Kind, span: Span, begun: number, around: object) {
    this.#begun = begun
    this.#measures = measures
    this.#kind = kind
    this.#span = span
    this.#around = around
  }

  run<T>(work: () => T): T {
    const { context, trace } = this.#measures.api
    return context.with(trace.setSpan(this.#around, this.#span), work)
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
    const { measured } = this.#kind
    if (typeof end !== 'string' && end.error === undefined) return this.#record(at, measured, end.outcome)
    const error = typeof end === 'string' ? end : typeOf(end.error!)
    if (typeof end === 'string') {
      const message = `The job was no longer this worker's: ${end}.`
      this.#span.setAttribute(ERROR, error)
      this.#span.setStatus({ code: this.#measures.api.SpanStatusCode.ERROR, message })
    } else this.#measures.fail(this.#span, end.error!, { [ERROR]: error })
    this.#record(at, { ...measured, [ERROR]: error }, typeof end === 'string' ? 'lost' : end.outcome)
  }

  #record(at: number, measured: Attributes, outcome: string): void {
    this.#span.setAttribute('millrace.job.outcome', outcome)
    this.#measures.consume(measured)
    this.#measures.duration.record((at - this.#begun) / 1000, measured)
    this.#span.end(at)
  }
}

/** The time of day as spans have it: finer than milliseconds, and never behind their beginning. */
const clock = (): number => performance.timeOrigin + performance.now()

const MESSAGE = 'messaging.message.id'
const BATCH = 'messaging.batch.message_count'
const NAME = 'millrace.job.name'
const ERROR = 'error.type'

function of(queue: string): Attributes {
  return { 'messaging.system': 'millrace', 'messaging.destination.name': queue }
}

function about(queue: string, operation: 'send' | 'process'): Attributes {
  return { ...of(queue), 'messaging.operation.name': operation, 'messaging.operation.type': operation }
}

function kindOf(queue: string, name: string): Kind {
  return { queue, name, title: `process ${queue}`, measured: { ...about(queue, 'process'), [NAME]: name } }
}

/** The attributes of a run. Written out: there is one for every job, and to put objects together costs several times as much. */
function spanOf({ queue, id, name, attempt, worker = '' }: JobRecord): Attributes {
  return {
    'messaging.system': 'millrace',
    'messaging.destination.name': queue,
    'messaging.operation.name': 'process',
    'messaging.operation.type': 'process',
    'messaging.message.id': id,
    'messaging.client.id': worker,
    'millrace.job.name': name,
    'millrace.job.attempt': attempt,
  }
}

/** The stack of an error and of its causes, as Java and Node's own printing write them. */
function written({ name, message, stack = `${name}: ${message}`, cause, errors = [] }: ErrorInfo): string {
  const causes = cause === undefined ? [] : [`Caused by: ${written(cause)}`]
  const parts = errors.map((each, at) => `Error ${at + 1} of ${errors.length}: ${written(each)}`)
  return [stack, ...causes, ...parts].join('\n')
}

/** What kind of error it is: its code, where it has one. */
function typeOf({ code, name }: ErrorInfo): string {
  return code ?? name
}

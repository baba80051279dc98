// worker/options.ts: the options of a worker: their types, checks and defaults.
import { parseDuration } from '../job/values/duration.js'
import type { Duration } from '../job/values/duration.js'
import { MillraceError } from '../job/errors/errors.js'
import type { JobRecord, Millis } from '../job/job.js'
import { DEFAULT_JSON_LIMIT } from '../job/values/json.js'
import { checkName, checkWorkerName, nearest, refuseUnknown } from '../job/values/names.js'
import { invalid, isObject, mustBe, oneOf, whole } from '../job/values/options.js'
import { parseBackoff } from '../job/retry.js'
import type { Backoff, BackoffOptions, CustomBackoff } from '../job/retry.js'
import type { Recovery } from '../job/moves.js'
import { versionsOf } from '../queue/define.js'
import type { JobDefinitions } from '../queue/define.js'
import type { Logger } from '../queue/events/events.js'
import { checkTelemetry } from '../queue/queue-types.js'
import type { Telemetry } from '../queue/instrumentation.js'
import type { Job } from '../queue/job.js'
import type { Handled, Store } from '../store/store.js'
import { parseBatch } from './batches/handler.js'
import type { BatchHandler, BatchHandlerOptions, BatchOptions, ParsedBatch } from './batches/handler.js'
import type { Middleware } from './attempt/context.js'
import type { Handler, HandlerOptions } from './handlers.js'
import { asDeclared, phasesIn } from './phases/handler.js'
import type { ParsedPhases } from './phases/handler.js'

/** Options of a worker. */
export interface WorkerOptions<
  Jobs extends JobDefinitions = JobDefinitions,
  Wraps extends readonly Middleware[] = readonly Middleware[],
  S extends Store = Store,
  Batching extends BatchOptions | undefined = undefined,
> {
  /** The store of the jobs. Required if the worker is constructed with queue names. Default: the queue's. */
  readonly store?: S
  /** The declared jobs. Default: the queue's, or any. */
  readonly jobs?: Jobs
  /**
   * A readable name, such as that of its host or its role: at most 218 characters. The worker's id is this name, a colon
   * and a unique part, so that leases, logs, spans, events and `explain` show it, and two workers may have the same
   * name. Default: no name; the id is the unique part alone.
   */
  readonly workerName?: string
  /** How many jobs, or batches of jobs, this worker runs at a time. Default 1. */
  readonly concurrency?: number
  /**
   * How many jobs of each of its queues run at a time, over all workers. Only a seed: a limit set on the queue has
   * precedence. Default: no limit.
   */
  readonly maxGlobalConcurrency?: number
  /** How long a claimed job belongs to this worker without a renewal. Default 30 s. */
  readonly lease?: Duration
  /** How often leases are renewed. Default: a third of the shortest lease. */
  readonly renewEvery?: Duration
  /**
   * The longest time between two checks for ended delays and expired leases. Default: the shortest lease, 30 s at most.
   */
  readonly upkeepEvery?: Duration
  /** How often it claims jobs even without a hint that there are any. Default 5 s. */
  readonly pollEvery?: Duration
  /**
   * How long a handler may run on after its timeout has aborted its signal, before its slot is given up. Default 60 s.
   */
  readonly abandonAfter?: Duration
  /**
   * What this worker does, when it starts, with jobs that it handles and that belong to dead workers, instead of
   * waiting for their leases to expire: `retry` puts them back in the queue, and the attempt counts; `fail` fails them
   * with `WORKER_DIED`. Default `retry`.
   */
  readonly recovery?: Recovery
  /**
   * Handlers that are functions get many jobs in one call and return a result for each: `(jobs, ctx) => results`.
   * Default: one job per call.
   */
  readonly batch?: Batching
  /** Backoff strategies by name, for `backoff: { type: 'custom', name }`. Default: none. */
  readonly backoff?: Readonly<Record<string, CustomBackoff>>
  /** Decides whether to retry after an error. Default: retry all but `UnrecoverableError`. */
  readonly retryable?: (error: unknown, job: Job) => 'retry' | 'fatal'
  /** The wait between tries while the store fails. Default: exponential from 100 ms, half jitter, at most 10 s. */
  readonly reconnect?: BackoffOptions | Duration
  /**
   * The most bytes of JSON that the data of a job added by a handler may take. Only for a worker constructed with queue
   * names; one constructed with a queue uses the queue's. Default 1 MiB.
   */
  readonly maxDataBytes?: number
  /** Wraps each run; the first is the outermost. Default: none. */
  readonly middleware?: Wraps
  /** Start at once; if false, call `run()`. Default true. */
  readonly autorun?: boolean
  /**
   * Logs warnings and errors that have no listener, and with `info` and `debug` what happens to jobs; `false` for no
   * log. Default: the console, which gets warnings and errors, and one line for each job that failed for good and for
   * the first retry of a name in a minute.
   */
  readonly logger?: Logger | false
  /** Measures what is run, made by `telemetry()`. Default: none. */
  readonly telemetry?: Telemetry
}

const optionNames = [
  'store',
  'jobs',
  'workerName',
  'concurrency',
  'maxGlobalConcurrency',
  'lease',
  'renewEvery',
  'upkeepEvery',
  'pollEvery',
  'abandonAfter',
  'recovery',
  'batch',
  'backoff',
  'retryable',
  'reconnect',
  'maxDataBytes',
  'middleware',
  'autorun',
  'logger',
  'telemetry',
] as const satisfies readonly (keyof WorkerOptions)[]

/** A handler with its options parsed. */
export interface ParsedHandler {
  readonly run: Handler
  readonly lease: Millis
  readonly timeout: Millis | undefined
  readonly backoff: Backoff | undefined
  /** The phases that it runs in; undefined: it is one function. */
  readonly phases: ParsedPhases | undefined
  /** How it runs many jobs in one call; undefined: one job per call. */
  readonly batching: ParsedBatch | undefined
  /** Set once it has used a transaction. */
  transacts: boolean
}

/** A worker's options, parsed. */
export interface Settings {
  readonly workerName: string | undefined
  readonly concurrency: number
  readonly maxGlobalConcurrency: number | undefined
  readonly renewEvery: Millis
  readonly upkeepEvery: Millis
  readonly pollEvery: Millis
  readonly abandonAfter: Millis
  readonly recovery: Recovery
  readonly custom: Readonly<Record<string, CustomBackoff>>
  readonly retryable: ((error: unknown, job: Job) => 'retry' | 'fatal') | undefined
  readonly reconnect: Backoff
  /** The limit for jobs added to queues of which the worker knows only the name. */
  readonly maxDataBytes: number
  readonly handles: readonly Handled[]
  /** The size of its batches, if it handles only one name, and that in batches. */
  readonly onlyBatchSize: number | undefined
  /** The handled names; undefined: all. */
  readonly names: readonly string[] | undefined
  /** The handler of a job. Every claimed job has one. */
  handlerOf(job: JobRecord): ParsedHandler | undefined
}

/** The wait between tries while the store fails, where none is given. */
export const defaultReconnect: Backoff = { type: 'exponential', delay: 100, max: 10_000, jitter: 0.5 }

/** Checks the options and fills in the defaults. */
export function parseWorker(
  handlers: unknown,
  options: WorkerOptions<JobDefinitions, readonly Middleware[], Store, BatchOptions | undefined>,
  jobs: JobDefinitions | undefined,
): Settings {
  refuseUnknown(options, optionNames, 'new Worker')
  checkTelemetry(options.telemetry, 'new Worker')
  const { concurrency = 1, maxGlobalConcurrency, backoff = {}, retryable } = options
  const { maxDataBytes = DEFAULT_JSON_LIMIT } = options
  whole(concurrency, 'new Worker: concurrency', 1)
  whole(maxDataBytes, 'new Worker: maxDataBytes', 1)
  if (maxGlobalConcurrency !== undefined) whole(maxGlobalConcurrency, 'new Worker: maxGlobalConcurrency', 1)
  if (options.autorun !== undefined && typeof options.autorun !== 'boolean') throw bad('autorun must be true or false')
  if (jobs !== undefined && (typeof jobs !== 'object' || jobs === null)) throw bad('jobs must be made by defineJobs')
  if (!isObject(backoff)) throw mustBe('new Worker: backoff', 'an object of functions by name', backoff)
  for (const [name, strategy] of Object.entries(backoff)) {
    if (typeof strategy !== 'function') throw bad(`backoff.${name} must be a function (attempt, error) => duration`)
  }
  if (retryable !== undefined && typeof retryable !== 'function') throw bad('retryable must be a function')
  const lease = atLeast(options.lease ?? 30_000, 10, 'lease')
  const batch = options.batch === undefined ? undefined : parseBatch(options.batch, 'new Worker: batch')
  const parsed = parseHandlers(handlers, { lease, batch }, jobs)
  const shortest = Math.min(...[...parsed.byName.values()].map((each) => each.lease), parsed.any?.lease ?? Infinity)
  const renewEvery = atLeast(options.renewEvery ?? Math.max(3, Math.floor(shortest / 3)), 1, 'renewEvery')
  if (renewEvery >= shortest) {
    throw bad(`renewEvery (${renewEvery} ms) must be shorter than the shortest lease (${shortest} ms)`)
  }
  const upkeepEvery = atLeast(options.upkeepEvery ?? Math.min(30_000, shortest), 1, 'upkeepEvery')
  if (upkeepEvery > 30_000) throw bad('upkeepEvery may be 30 s at most')
  return {
    workerName: options.workerName === undefined ? undefined : checkWorkerName(options.workerName),
    concurrency,
    maxGlobalConcurrency,
    renewEvery,
    upkeepEvery,
    pollEvery: atLeast(options.pollEvery ?? 5_000, 1, 'pollEvery'),
    abandonAfter: parseDuration(options.abandonAfter ?? 60_000, 'new Worker: abandonAfter'),
    recovery: oneOf(options.recovery ?? 'retry', ['retry', 'fail'], 'new Worker: recovery'),
    custom: backoff,
    retryable,
    reconnect:
      options.reconnect === undefined ? defaultReconnect : parseBackoff(options.reconnect, 'new Worker: reconnect'),
    maxDataBytes,
    handles: [
      ...[...parsed.byName].map(([name, each]) => handled(name, each.lease, jobs)),
      ...(parsed.any === undefined ? [] : [{ name: undefined, lease: parsed.any.lease }]),
    ],
    onlyBatchSize:
      parsed.byName.size === 1 && parsed.any === undefined ? [...parsed.byName.values()][0]!.batching?.size : undefined,
    names: parsed.any === undefined ? [...parsed.byName.keys()] : undefined,
    handlerOf: (job) => parsed.byName.get(job.name) ?? parsed.any,
  }
}

/** What a claim asks for of one name: the versions that are declared, or all. */
export function handled(name: string, lease: Millis, jobs: JobDefinitions | undefined): Handled {
  const definition = jobs?.[name]
  return definition === undefined ? { name, lease } : { name, lease, versions: versionsOf(definition) }
}

interface ParsedHandlers {
  readonly byName: ReadonlyMap<string, ParsedHandler>
  readonly any: ParsedHandler | undefined
}

/** Settings for handlers that do not set their own. */
interface HandlerDefaults {
  readonly lease: Millis
  readonly batch: Omit<ParsedBatch, 'run'> | undefined
}

function parseHandlers(handlers: unknown, defaults: HandlerDefaults, jobs: JobDefinitions | undefined): ParsedHandlers {
  const phases = phasesIn(handlers)
  if (typeof handlers === 'function' || phases !== undefined) {
    const any = { ...parseFunction(handlers, defaults), ...(phases !== undefined && { phases, batching: undefined }) }
    // With declared jobs, one function handles exactly those.
    if (jobs === undefined) return { byName: new Map(), any }
    const each = (name: string): ParsedHandler => {
      const declared = jobs[name]!.phases
      return declared === undefined ? any : { ...any, phases: asDeclared(name, phases, declared) }
    }
    return { byName: new Map(Object.keys(jobs).map((name) => [name, each(name)])), any: undefined }
  }
  if (!isObject(handlers)) {
    throw new MillraceError(
      'INVALID_HANDLER',
      'new Worker: give a handler function, or an object of handlers by job name.',
    )
  }
  const entries = Object.entries(handlers).filter(([, handler]) => handler !== undefined)
  if (entries.length === 0)
    throw new MillraceError('INVALID_HANDLER', 'new Worker: there is no handler, so no job to run.')
  return {
    byName: new Map(entries.map(([name, each]) => [name, parseHandler(name, each, defaults, jobs)])),
    any: undefined,
  }
}

function parseFunction(handler: unknown, { lease, batch }: HandlerDefaults): ParsedHandler {
  const batching = batch === undefined ? undefined : { ...batch, run: handler as BatchHandler }
  return { ...NO_OPTIONS, run: handler as Handler, lease, batching, transacts: false }
}

const NO_OPTIONS = { timeout: undefined, backoff: undefined, phases: undefined }

function parseHandler(
  name: string,
  handler: unknown,
  defaults: HandlerDefaults,
  jobs: JobDefinitions | undefined,
): ParsedHandler {
  checkName(name, 'job name')
  if (jobs !== undefined && !Object.hasOwn(jobs, name)) {
    const near = nearest(name, Object.keys(jobs))
    throw new MillraceError(
      'UNKNOWN_JOB',
      `new Worker: there is a handler for '${name}', which is not declared` +
        (near === undefined ? '; declare it with defineJobs.' : `; did you mean '${near}'?`),
    )
  }
  const own = phasesIn(handler)
  const phases = asDeclared(name, own ?? phasesIn((handler as HandlerOptions | null)?.run), jobs?.[name]?.phases)
  if (own !== undefined) return { ...parseFunction(handler, defaults), phases, batching: undefined }
  if (typeof handler === 'function') return parseFunction(handler, defaults)
  const options = handler as (HandlerOptions & { readonly runBatch?: undefined }) | BatchHandlerOptions | null
  const isBatch = typeof options?.runBatch === 'function'
  if (
    typeof options !== 'object' ||
    options === null ||
    (isBatch ? 'run' in options : phases === undefined && !isRun(options))
  ) {
    throw new MillraceError(
      'INVALID_HANDLER',
      `new Worker: the handler of '${name}' must be a function, phases({ … }), { run, … } or { runBatch, batch, … }.`,
    )
  }
  refuseUnknown(
    options,
    [...(isBatch ? ['runBatch', 'batch'] : ['run']), 'lease', 'timeout', 'backoff'],
    `the handler of '${name}'`,
  )
  const { lease, timeout, backoff } = options
  return {
    run: isBatch ? onlyInBatches : (options as HandlerOptions).run,
    lease: lease === undefined ? defaults.lease : atLeast(lease, 10, `the lease of '${name}'`),
    timeout: timeout === undefined ? undefined : atLeast(timeout, 1, `the timeout of '${name}'`),
    backoff: backoff === undefined ? undefined : parseBackoff(backoff, `the backoff of '${name}'`),
    phases,
    batching: isBatch ? parseBatching(name, options, defaults) : undefined,
    transacts: false,
  }
}

function isRun(options: object): boolean {
  return typeof (options as { run?: unknown }).run === 'function'
}

function parseBatching(name: string, { runBatch, batch }: BatchHandlerOptions, defaults: HandlerDefaults): ParsedBatch {
  const gathering = batch === undefined ? defaults.batch : parseBatch(batch, `new Worker: the batch of '${name}'`)
  if (gathering !== undefined) return { ...gathering, run: runBatch }
  throw bad(`say how large the batches of '${name}' may be: { runBatch, batch: { size: 100 } }`)
}

/** Never called: a batch calls its own function. */
const onlyInBatches: Handler = () => {
  throw new MillraceError('INVALID_HANDLER', 'This handler takes many jobs in one call.')
}

function atLeast(value: Duration, least: Millis, field: string): Millis {
  const millis = parseDuration(value, `new Worker: ${field}`)
  if (millis < least) throw bad(`${field} must be ${least} ms or more`)
  return millis
}

function bad(what: string): MillraceError {
  return invalid(`new Worker: ${what}.`)
}

// testing/queue/options.ts: the options of a test queue, their checks and defaults.
import type { Duration } from '../../job/values/duration.js'
import { MillraceError } from '../../job/errors/errors.js'
import type { Time } from '../../job/job.js'
import { refuseUnknown } from '../../job/values/names.js'
import { flag, invalid, isObject, whole } from '../../job/values/options.js'
import { parseDuration } from '../../job/values/duration.js'
import type { JobDefinitions, NameOf } from '../../queue/define.js'
import type { QueueOptions } from '../../queue/queue-types.js'
import type { ExtrasOf, Middleware } from '../../worker/attempt/context.js'
import type { Handling } from '../../worker/handlers.js'
import type { WorkerOptions } from '../../worker/options.js'
import type { MemoryStore } from './journal.js'

/** Handlers for a test queue: one for all jobs, or by name, as a worker takes them. */
export type TestHandlers<Jobs extends JobDefinitions, Extra = unknown> = Handling<
  NameOf<Jobs>,
  Jobs,
  Extra,
  MemoryStore
>

/** Options of the worker that a test queue runs its jobs with. */
export interface TestWorkerOptions<
  Jobs extends JobDefinitions,
  Wraps extends readonly Middleware[] = readonly Middleware[],
> extends Pick<WorkerOptions<Jobs, Wraps>, 'backoff' | 'retryable' | 'middleware' | 'lease' | 'telemetry'> {
  /** How many jobs run at a time. Default 1; 100 in inline mode, where a handler may add jobs and wait for them. */
  readonly concurrency?: number
}

/** Options of `testQueue`, besides those of a queue. */
export interface TestQueueOptions<
  Jobs extends JobDefinitions,
  Wraps extends readonly Middleware[] = readonly Middleware[],
> extends Omit<QueueOptions<Jobs, MemoryStore>, 'store' | 'jobs'> {
  /** Its name. Default `test`. */
  readonly name?: string
  /** The handlers of its jobs. Default: none; `drain` and `runOne` take them as well. */
  readonly handlers?: [TestHandlers<Jobs, ExtrasOf<Wraps>>][Jobs extends unknown ? 0 : never]
  /**
   * Runs jobs when they are added: `add` resolves when the job has run, and so have the jobs that it added. Jobs with a
   * delay run when the clock is advanced. Needs `handlers`. Default false.
   */
  readonly inline?: boolean
  /** Options of the worker that runs the jobs. Default: those of a worker. */
  readonly worker?: TestWorkerOptions<Jobs, Wraps>
  /** The time at which its clock starts. Default: 14 November 2023, 22:13:20 UTC. */
  readonly start?: Date | Time
  /** The seed of random numbers and ids. Default 1. */
  readonly seed?: number
  /** Another test queue, to share its store and its clock. Not with `start` and `seed`. Default: its own. */
  readonly beside?: { readonly store: MemoryStore }
}

/** Options of `drain`. */
export interface DrainOptions<Jobs extends JobDefinitions, Extra = unknown> {
  /** The handlers. Default: those of the queue. */
  readonly handlers?: [TestHandlers<Jobs, Extra>][Jobs extends unknown ? 0 : never]
  /**
   * How far the clock may be advanced, to run delayed and held jobs, retries after their backoff, and the runs of
   * schedules, and to have jobs expire; `true`: as far as the jobs need it, without schedules. The clock stops at the
   * last of them. Default 0.
   */
  readonly advance?: Duration | true
  /** Rejects with `TEST_ENDLESS` after this many runs. Default 10,000. */
  readonly maxRuns?: number
}

/** Options of `runOne`. */
export interface RunOneOptions<Jobs extends JobDefinitions, Extra = unknown> {
  /** The handlers. Default: those of the queue. */
  readonly handlers?: [TestHandlers<Jobs, Extra>][Jobs extends unknown ? 0 : never]
}

const queueOptions = ['defaults', 'retention', 'webhook', 'logger', 'telemetry', 'series', 'maxDataBytes'] as const
const ownOptions = ['name', 'handlers', 'inline', 'worker', 'start', 'seed', 'beside'] as const
const workerOptions = ['concurrency', 'backoff', 'retryable', 'middleware', 'lease', 'telemetry'] as const

/** The options of a test queue without their types. */
export type AnyTestQueueOptions = TestQueueOptions<JobDefinitions>

/** Checks the options of a test queue. The queue and its worker check theirs. */
export function checkTestQueue(options: AnyTestQueueOptions): void {
  refuseUnknown(options, [...ownOptions, ...queueOptions], 'testQueue')
  refuseUnknown(options.worker ?? {}, workerOptions, 'testQueue: worker')
  const { inline, handlers, beside, start, seed } = options
  if (flag(inline, 'testQueue: inline') && handlers === undefined) {
    throw invalid('testQueue: inline runs jobs when they are added; give handlers as well.')
  }
  if (beside !== undefined && (start !== undefined || seed !== undefined)) {
    throw invalid('testQueue: a queue beside another has its clock; give start and seed to that.')
  }
  if (start !== undefined && Number.isNaN(new Date(start).getTime())) {
    throw new MillraceError('INVALID_DATE', 'testQueue: start must be a valid Date or milliseconds since 1970.')
  }
}

/** The options of the queue itself. */
export function queueOptionsOf(options: AnyTestQueueOptions): Omit<QueueOptions, 'store'> {
  return Object.fromEntries(
    Object.entries(options).filter(([name]) => (queueOptions as readonly string[]).includes(name)),
  )
}

/** Parses the options of `drain`. */
export function parseDrain(options: DrainOptions<JobDefinitions>): {
  readonly advance: number
  readonly schedules: boolean
  readonly maxRuns: number
} {
  refuseUnknown(options, ['handlers', 'advance', 'maxRuns'], 'drain')
  const { advance = 0, maxRuns = 10_000 } = options
  return {
    advance: advance === true ? Infinity : parseDuration(advance, 'drain: advance'),
    schedules: advance !== true,
    maxRuns: whole(maxRuns, 'drain: maxRuns', 1),
  }
}

/** Handlers whose batches start with the jobs that there are: in virtual time, no others come while they wait. */
export function withoutWaits<Handlers>(handlers: Handlers): Handlers {
  if (!isObject(handlers)) return handlers
  const entries = Object.entries(handlers as Record<string, unknown>).map(([name, handler]) => {
    const batch = isObject(handler) ? (handler as { batch?: unknown }).batch : undefined
    return [name, isObject(batch) ? { ...(handler as object), batch: { ...batch, wait: 0 } } : handler] as const
  })
  return Object.fromEntries(entries) as Handlers
}

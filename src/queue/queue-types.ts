// queue/queue-types.ts: the options of a queue and their checks, and the types of its calls by the jobs it declares.
import type { Millis } from '../job/job.js'
import { DEFAULT_JSON_LIMIT } from '../job/values/json.js'
import type { Time } from '../job/job.js'
import { MillraceError } from '../job/errors/errors.js'
import { checkName, checkOwnName, refuseUnknown } from '../job/values/names.js'
import { invalid } from '../job/values/options.js'
import type { Abortable } from './operations/abort-signal.js'
import type { Store } from '../store/store.js'
import type { InputOf, JobDefinition, JobDefinitions, NameOf, PhasesOf, OwnResultOf } from './define.js'
import type { Logger } from './events/events.js'
import type { Job } from './job.js'
import { checkDefaults, defaultOptionNames } from './add-options.js'
import type { AddOptions, JobDefaults } from './add-options.js'
import type { RetentionOptions } from './settings/retention.js'
import type { Telemetry } from './instrumentation.js'
import type { WithTransaction } from './transactions.js'
import { checkSeries } from './health/series.js'
import type { SeriesKeepOptions } from './health/series.js'
import { checkWebhooks } from './settings/webhook.js'
import type { Webhooks } from './settings/webhook.js'

/** Jobs of any name, with any data. */
export type AnyJobs = Readonly<Record<string, JobDefinition>>

/** What upkeep does with the queue object: there is none for it on a store whose upkeep is done elsewhere. */
type HereAlone<S extends Store, Option> = S extends { readonly can: { readonly upkeep: 'elsewhere' } } ? never : Option

/** Options of a queue. */
export interface QueueOptions<Jobs extends JobDefinitions = AnyJobs, S extends Store = Store> {
  /** The store that holds its jobs. */
  readonly store: S
  /** The jobs it accepts, made by `defineJobs`. Default: any. */
  readonly jobs?: Jobs
  /** Defaults for all its jobs; `job()` and `add` override them. Default: those of `JobDefaults`. */
  readonly defaults?: JobDefaults
  /**
   * How long its finished jobs are kept, and callbacks for stale and removed jobs; `false`: for ever. Default:
   * completed and cancelled jobs 7 days, failed ones 30 days.
   */
  readonly retention?: RetentionOptions<JobOf<Jobs>> | false
  /** Delivers the ends of its jobs to a URL: `webhooks({ url, secret })`. Default: no webhooks. */
  readonly webhook?: HereAlone<S, Webhooks>
  /** Logs warnings and errors that have no listener; `false` for none. Default: the console. */
  readonly logger?: Logger | false
  /** Measures adds; made by `telemetry()`. Default: none. */
  readonly telemetry?: Telemetry
  /**
   * How its counts over time are kept; `false`: nothing is counted of it by this process. Default: 30 days. Give all
   * queues of that name the same.
   */
  readonly series?: SeriesKeepOptions | false
  /** Maximum size of a job's data as JSON, in bytes. Default 1 MiB. */
  readonly maxDataBytes?: number
}

/**
 * Requires the `jobs` option where jobs are declared: with their types alone, attempts, timeouts and versions would be
 * lost.
 */
export type Declaring<Jobs extends JobDefinitions> = string extends keyof Jobs ? unknown : { readonly jobs: Jobs }

/** A page of jobs; no `cursor` on the last. */
export interface JobPage<AJob> {
  /** The jobs, in the requested order. */
  readonly jobs: readonly AJob[]
  /** Pass it to `list` for the next page. Only its absence shows that there is none: a page may be short, or empty. */
  readonly cursor?: string
  /** Of a `search`: how many jobs it has read, on this page and those before. */
  readonly searched?: number
  /** Of a `search` that ended before it had read all: when the last job that it read was added. */
  readonly stoppedAt?: Time
  /** Of a `search` that used the index of `queue.searchIndex`: no job was left out. */
  readonly exact?: true
}

/** The arguments of `add` after the name. Data may be omitted if its type allows undefined. */
export type AddArguments<Input, S extends Store = Store> = undefined extends Input
  ? [data?: Input, options?: WithTransaction<S, AddOptions & Abortable>]
  : [data: Input, options?: WithTransaction<S, AddOptions & Abortable>]

/** What `add` takes for a name; for a union of names, data that fits all of them. */
export type InputFor<Jobs extends JobDefinitions, Name extends NameOf<Jobs>> = (
  Name extends unknown ? (input: InputOf<Jobs[Name]>) => void : never
) extends (input: infer Input) => void
  ? Input
  : never

/** The handle of a job of one declared name, or of any, discriminated by `name`: `JobOf<typeof jobs, 'send-email'>`. */
export type JobOf<Jobs extends JobDefinitions, Name extends NameOf<Jobs> = NameOf<Jobs>> = Name extends unknown
  ? Job<InputOf<Jobs[Name]>, OwnResultOf<Jobs[Name]>, Name, InputOf<Jobs[Name]>, PhasesOf<Jobs[Name]>>
  : never

/** One job for `addBulk`. */
export type BulkItem<Jobs extends JobDefinitions> = {
  [Name in NameOf<Jobs>]: undefined extends InputOf<Jobs[Name]>
    ? { readonly name: Name; readonly data?: InputOf<Jobs[Name]>; readonly options?: AddOptions }
    : { readonly name: Name; readonly data: InputOf<Jobs[Name]>; readonly options?: AddOptions }
}[NameOf<Jobs>]

/** Marks a queue that Millrace itself makes. A symbol, so that no user sets it by accident. */
export const RESERVED: unique symbol = Symbol('reserved')

/** Returns the name of a queue if it is valid. */
export function checkQueueName(name: string, options: object): string {
  return RESERVED in (options ?? {}) ? checkName(name, 'queue name') : checkOwnName(name, 'queue name')
}

/** Throws unless the value is made by `telemetry()`. */
export function checkTelemetry(telemetry: { readonly process: unknown } | undefined, where: string): void {
  if (telemetry === undefined || typeof telemetry?.process === 'function') return
  throw invalid(`${where}: telemetry must be made by telemetry().`)
}

/** Throws if the options are invalid; returns those that have defaults. */
export function checkQueue<Jobs extends JobDefinitions, S extends Store>(
  name: string,
  options: QueueOptions<Jobs, S>,
): {
  readonly defaults: JobDefaults
  readonly maxDataBytes: number
  readonly webhooks: Webhooks | undefined
  readonly series: Millis | false | undefined
} {
  checkStore(options, `new Queue('${name}')`)
  const known = ['store', 'jobs', 'defaults', 'retention', 'webhook', 'logger', 'telemetry', 'series', 'maxDataBytes']
  refuseUnknown(options, known, 'new Queue')
  const { defaults = {} } = options
  const maxDataBytes = checkMaxDataBytes(options.maxDataBytes, 'new Queue')
  refuseUnknown(defaults, defaultOptionNames, 'new Queue: defaults')
  checkDefaults(defaults, 'new Queue: defaults')
  checkTelemetry(options.telemetry, 'new Queue')
  if (options.jobs !== undefined && (typeof options.jobs !== 'object' || Array.isArray(options.jobs))) {
    throw invalid('new Queue: jobs must be made by defineJobs.')
  }
  const webhooks = checkWebhooks(options.webhook)
  checkElsewhere(options)
  return { defaults, maxDataBytes, webhooks, series: checkSeries(options.series) }
}

/** Refuses what upkeep does with the queue object, where the upkeep of the store is done elsewhere. */
function checkElsewhere(options: {
  readonly store: Store
  readonly webhook?: unknown
  readonly retention?: unknown
}): void {
  const { store, webhook, retention } = options
  if (store.can.upkeep !== 'elsewhere') return
  const { onStale = false, onDelete = false } = (
    typeof retention === 'object' && retention !== null ? retention : {}
  ) as RetentionOptions
  const option = webhook !== undefined ? 'webhook' : onStale !== false || onDelete !== false ? 'retention' : undefined
  if (option === undefined) return
  throw new MillraceError(
    'UPKEEP_ELSEWHERE',
    `new Queue: ${option === 'webhook' ? 'the secrets of webhooks' : 'callbacks of retention'} do not travel to the server of a remote store, which ${option === 'webhook' ? 'sends the deliveries' : 'applies the retention'}. Give the option to the queue that the server serves: serve({ queues: [new Queue(…)] }).`,
    { details: { option } },
  )
}

/** Throws unless the options hold a store. */
export function checkStore(options: { readonly store: Store }, where: string): void {
  if (typeof options === 'object' && options !== null && typeof options.store?.commit === 'function') return
  throw invalid(`${where}: give it a store, as in { store: sqlite('jobs.db') }.`)
}

/** The maximum size of a job's data. */
export function checkMaxDataBytes(value = DEFAULT_JSON_LIMIT, where: string): number {
  if (Number.isSafeInteger(value) && value >= 1) return value
  throw invalid(`${where}: maxDataBytes must be a whole number from 1 up.`)
}

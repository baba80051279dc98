// queue/queue-types.ts: the types of a queue's calls, by the jobs it declares.
import type { Abortable } from './operations/abort-signal.js'
import type { Store } from '../store/store.js'
import type { InputOf, JobDefinition, JobDefinitions, NameOf, PhasesOf, OwnResultOf } from './define.js'
import type { Logger } from './events/events.js'
import type { Job } from './job.js'
import type { AddOptions, JobDefaults } from './add-options.js'
import type { RetentionOptions } from './settings/retention.js'
import type { Telemetry } from './telemetry.js'
import type { WithTransaction } from './transactions.js'
import type { Webhooks } from './settings/webhook.js'

/** Jobs of any name, with any data. */
export type AnyJobs = Readonly<Record<string, JobDefinition>>

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
  readonly webhook?: Webhooks
  /** Logs warnings and errors that have no listener; `false` for none. Default: the console. */
  readonly logger?: Logger | false
  /** Measures adds; made by `telemetry()`. Default: none. */
  readonly telemetry?: Telemetry
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
  /** Pass it to `list` for the next page. */
  readonly cursor?: string
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

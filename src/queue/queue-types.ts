// queue/queue-types.ts: the shapes of a queue's calls, typed by the jobs it takes.
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

/** How a queue is made. */
export interface QueueOptions<Jobs extends JobDefinitions = AnyJobs, S extends Store = Store> {
  /** Where its jobs live. */
  readonly store: S
  /** The jobs it takes, made by `defineJobs`. Default: any. */
  readonly jobs?: Jobs
  /** Defaults for all its jobs; what `job()` and `add` say goes before. Default: those of `JobDefaults`. */
  readonly defaults?: JobDefaults
  /**
   * How long its finished jobs are kept, and who is told when one goes; `false`: for ever. Default: completed and cancelled
   * jobs 7 days, failed ones 30 days.
   */
  readonly retention?: RetentionOptions<JobOf<Jobs>> | false
  /** Tells a URL of the ends of its jobs: `webhooks({ url, secret })`. Default: nobody is told. */
  readonly webhook?: Webhooks
  /** Where warnings and errors go that nobody listens for; `false` for nowhere. Default: the console. */
  readonly logger?: Logger | false
  /** Who measures what is added, made by `telemetry()`. Default: nobody. */
  readonly telemetry?: Telemetry
  /** The most bytes that a job's data may take as JSON. Default 1 MiB. */
  readonly maxDataBytes?: number
}

/**
 * What one that takes declared jobs must be given: the declarations, and not their types alone, with which attempts, timeouts
 * and versions would be lost.
 */
export type Declaring<Jobs extends JobDefinitions> = string extends keyof Jobs ? unknown : { readonly jobs: Jobs }

/** A page of jobs; no `cursor` on the last. */
export interface JobPage<AJob> {
  /** The jobs, in the order asked for. */
  readonly jobs: readonly AJob[]
  /** Give it to `list` for the next page. */
  readonly cursor?: string
}

/** What `add` takes after the name. Data may be left out where undefined is data. */
export type AddArguments<Input, S extends Store = Store> = undefined extends Input
  ? [data?: Input, options?: WithTransaction<S, AddOptions & Abortable>]
  : [data: Input, options?: WithTransaction<S, AddOptions & Abortable>]

/** What `add` takes for a name; of a name that may be one of several, what fits all of them. */
export type InputFor<Jobs extends JobDefinitions, Name extends NameOf<Jobs>> = (
  Name extends unknown ? (input: InputOf<Jobs[Name]>) => void : never
) extends (input: infer Input) => void
  ? Input
  : never

/** The handle on a job of one declared name, or of any, told apart by `name`: `JobOf<typeof jobs, 'send-email'>`. */
export type JobOf<Jobs extends JobDefinitions, Name extends NameOf<Jobs> = NameOf<Jobs>> = Name extends unknown
  ? Job<InputOf<Jobs[Name]>, OwnResultOf<Jobs[Name]>, Name, InputOf<Jobs[Name]>, PhasesOf<Jobs[Name]>>
  : never

/** One job for `addBulk`. */
export type BulkItem<Jobs extends JobDefinitions> = {
  [Name in NameOf<Jobs>]: undefined extends InputOf<Jobs[Name]>
    ? { readonly name: Name; readonly data?: InputOf<Jobs[Name]>; readonly options?: AddOptions }
    : { readonly name: Name; readonly data: InputOf<Jobs[Name]>; readonly options?: AddOptions }
}[NameOf<Jobs>]

// worker/handlers.ts: the types of handlers, derived from the declared jobs: single, batch, in phases, by name.
import type { Duration } from '../job/values/duration.js'
import type { BackoffOptions } from '../job/retry.js'
import type {
  DataOf,
  HandlerReturnOf,
  InputOf,
  JobDefinitions,
  NameOf,
  PhasesOf,
  OwnResultOf,
  ReturnOf,
} from '../queue/define.js'
import type { Job } from '../queue/job.js'
import type { ContinuationOf, DependenciesOf } from '../queue/flows/chain-types.js'
import type { Store } from '../store/store.js'
import type { BatchHandler, BatchHandlerOptions, BatchOptions } from './batches/handler.js'
import type { JobContext } from './attempt/context.js'
import type { AnyPhases, Exactly, FreePhases, Phases } from './phases/handler.js'

/** A job as its handler sees it: with its data as parsed by the `input` schema. */
export type HandledJob<Jobs extends JobDefinitions, Name extends NameOf<Jobs> = NameOf<Jobs>> = Name extends unknown
  ? Job<DataOf<Jobs[Name]>, OwnResultOf<Jobs[Name]>, Name, InputOf<Jobs[Name]>, PhasesOf<Jobs[Name]>>
  : never

/** The context of the handler of a declared job. */
export interface ContextOf<
  Jobs extends JobDefinitions,
  Name extends NameOf<Jobs> = NameOf<Jobs>,
  S extends Store = Store,
> extends JobContext<S, Jobs, ContinuationOf<Jobs, Name>, DependenciesOf<Jobs, Name>> {}

/** Runs a job: returns its result, or throws. `Ctx` is its context, `Extra` what middleware adds to it. */
export type Handler<AJob extends Job = Job, Return = unknown, Extra = unknown, Ctx = JobContext> = (
  job: AJob,
  ctx: Ctx & Extra,
) => Return | Promise<Return>

/** A handler with options for its job name. */
export interface HandlerOptions<AJob extends Job = Job, Return = unknown, Extra = unknown, Ctx = JobContext> {
  /** Runs a job: returns its result, or throws. */
  readonly run: Handler<AJob, Return, Extra, Ctx>
  /** The lease of jobs with this name. Default: the worker's. */
  readonly lease?: Duration
  /** How long it may run, unless the job has its own timeout. Default: no limit. */
  readonly timeout?: Duration
  /** The wait before the next attempt, unless the job has its own. Default: exponential from 1 s, full jitter. */
  readonly backoff?: BackoffOptions | Duration
}

/** A handler in phases, alone or with options for its job name. */
type Phased<Of> =
  | Of
  | (Omit<HandlerOptions, 'run'> & {
      /** Runs a job in phases. */
      readonly run: Of
    })

/**
 * Like `HandlerOf`, for a handler in phases: `PhasesHandlerOf<typeof jobs, 'encode'>`. Has exactly the declared names.
 */
export type PhasesHandlerOf<
  Jobs extends JobDefinitions,
  Name extends NameOf<Jobs> = NameOf<Jobs>,
  Extra = unknown,
  S extends Store = Store,
> =
  unknown extends PhasesOf<Jobs[Name]>
    ? FreePhases<HandledJob<Jobs, Name>, ContextOf<Jobs, Name, S>, Extra>
    : Phases<
        HandledJob<Jobs, Name>,
        Exactly<Extract<keyof PhasesOf<Jobs[Name]>, string>>,
        ContextOf<Jobs, Name, S>,
        PhasesOf<Jobs[Name]>,
        Extra
      >

/**
 * The handler of one declared job, for handlers that are written apart from their worker: `HandlerOf<typeof jobs,
 * 'send-email'>`. `Extra` is what middleware adds to the context; default: nothing. `S` is the store, which determines
 * the type of transactions.
 */
export type HandlerOf<
  Jobs extends JobDefinitions,
  Name extends NameOf<Jobs> = NameOf<Jobs>,
  Extra = unknown,
  S extends Store = Store,
> = Handler<HandledJob<Jobs, Name>, HandlerReturnOf<Jobs[Name]>, Extra, ContextOf<Jobs, Name, S>>

/** Like `HandlerOf`, for a handler of batches: `BatchHandlerOf<typeof jobs, 'send-email'>`. */
export type BatchHandlerOf<
  Jobs extends JobDefinitions,
  Name extends NameOf<Jobs> = NameOf<Jobs>,
  Extra = unknown,
> = BatchHandler<HandledJob<Jobs, Name>, ReturnOf<Jobs[Name]>, Extra>

/** A handler that is a function: of one job, or of many if the worker has `batch`. */
type Run<AJob extends Job, Return, Extra, Ctx, Batching> = [Batching] extends [BatchOptions]
  ? BatchHandler<AJob, Return, Extra>
  : Handler<AJob, Return, Extra, Ctx>

/** Handlers by job name. A worker claims only these names. `Batching` is the worker's `batch`; default: none. */
export type Handlers<
  Jobs extends JobDefinitions,
  Extra = unknown,
  S extends Store = Store,
  Batching = undefined,
> = string extends keyof Jobs
  ? {
      readonly [name: string]:
        | Run<Job, unknown, Extra, JobContext<S>, Batching>
        | HandlerOptions<Job, unknown, Extra, JobContext<S>>
        | BatchHandlerOptions<Job, unknown, Extra>
        | Phased<AnyPhases>
    }
  : {
      readonly [Name in NameOf<Jobs>]?: unknown extends PhasesOf<Jobs[Name]>
        ?
            | Run<HandledJob<Jobs, Name>, HandlerReturnOf<Jobs[Name]>, Extra, ContextOf<Jobs, Name, S>, Batching>
            | HandlerOptions<HandledJob<Jobs, Name>, HandlerReturnOf<Jobs[Name]>, Extra, ContextOf<Jobs, Name, S>>
            | BatchHandlerOptions<HandledJob<Jobs, Name>, ReturnOf<Jobs[Name]>, Extra>
            | Phased<PhasesHandlerOf<Jobs, Name, Extra, S>>
        : Phased<PhasesHandlerOf<Jobs, Name, Extra, S>>
    }

/**
 * The members of every function, of a type without parameters. Otherwise TypeScript would take the handler of a job named
 * `call` for the method of a function, and not know its job.
 */
interface FunctionMembers {
  readonly apply: object
  readonly bind: object
  readonly call: object
  readonly toString: object
  readonly prototype: object
  readonly arguments: object
}

/**
 * One handler for all jobs of a worker. An interface over the jobs, and not `Handler` over the union of their handles:
 * TypeScript computes that union only where such a handler is given, and not again for each handler by name.
 */
interface AnyHandler<
  Name extends NameOf<Jobs>,
  Jobs extends JobDefinitions,
  Extra,
  S extends Store,
> extends FunctionMembers {
  (
    job: HandledJob<Jobs, Name>,
    ctx: JobContext<S, Jobs> & Extra,
  ): HandlerReturnOf<Jobs[Name]> | Promise<HandlerReturnOf<Jobs[Name]>>
}

/** Like `AnyHandler`, if the worker has `batch`. */
interface AnyBatchHandler<Name extends NameOf<Jobs>, Jobs extends JobDefinitions, Extra> extends FunctionMembers {
  (
    ...args: Parameters<BatchHandler<HandledJob<Jobs, Name>, ReturnOf<Jobs[Name]>, Extra>>
  ): ReturnType<BatchHandler<HandledJob<Jobs, Name>, ReturnOf<Jobs[Name]>, Extra>>
}

/** What a worker runs: one handler for all jobs, or handlers by name. Names come first, for readable type errors. */
export type Handling<
  Name extends NameOf<Jobs>,
  Jobs extends JobDefinitions,
  Extra = unknown,
  S extends Store = Store,
  Batching = undefined,
> =
  | Handlers<Jobs, Extra, S, Batching>
  | ([Batching] extends [BatchOptions] ? AnyBatchHandler<Name, Jobs, Extra> : AnyHandler<Name, Jobs, Extra, S>)
  | AnyPhases

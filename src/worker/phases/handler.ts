// worker/phases/handler.ts: handlers in phases: what `phases()` accepts, its checks, and the context of a phase.
import type { Duration } from '../../job/values/duration.js'
import { parseDuration } from '../../job/values/duration.js'
import { MillraceError, quote } from '../../job/errors/errors.js'
import type { Millis } from '../../job/job.js'
import { nearest, refuseUnknown } from '../../job/values/names.js'
import { checkPhaseNames } from '../../job/phases.js'
import { parseBackoff } from '../../job/retry.js'
import type { Backoff, BackoffOptions } from '../../job/retry.js'
import type { Job } from '../../queue/job.js'
import type { JobContext } from '../attempt/context.js'

const madeByPhases: unique symbol = Symbol.for('millrace.phases')
declare const types: unique symbol

/** What the context of a phase has beyond that of a handler. `Known` maps each phase to what it returns. */
export interface PhaseMethods<Known = Record<string, unknown>> {
  /**
   * Reports the progress of this phase, from 0 to 100; the progress of the job is derived from it. Resolves when it is
   * durable. Calls made while a batch is in flight are merged into one write.
   */
  progress(percent: number): Promise<void>
  /** The result of a phase; undefined if it has not completed, or returned nothing. */
  phaseResult<Name extends Extract<keyof Known, string>>(name: Name): Known[Name] | undefined
  /** The results of the phases that have completed, by name. */
  phaseResults(): { readonly [Name in keyof Known]?: Known[Name] }
}

/** The context of a phase. */
export type PhaseContext<Known = Record<string, unknown>, Ctx = JobContext, Extra = unknown> = Omit<Ctx, 'progress'> &
  PhaseMethods<Known> &
  Extra

/** Runs one phase: returns its result, which is JSON, or throws. `Extra` is what middleware adds to the context. */
export type PhaseRunner<
  AJob extends Job = Job,
  Return = unknown,
  Known = Record<string, unknown>,
  Ctx = JobContext,
  Extra = unknown,
> = (job: AJob, ctx: PhaseContext<Known, Ctx, Extra>) => Return | Promise<Return>

/** A phase with options. */
export interface PhaseOptions<
  AJob extends Job = Job,
  Return = unknown,
  Known = Record<string, unknown>,
  Ctx = JobContext,
  Extra = unknown,
> {
  /** Runs the phase. */
  readonly run: PhaseRunner<AJob, Return, Known, Ctx, Extra>
  /** How often this phase is tried, the first time included, within the job's attempts. Default: no limit but those. */
  readonly attempts?: number
  /** The wait before this phase is tried again. Default: the job's. */
  readonly backoff?: BackoffOptions | Duration
  /** How long one try of this phase may take. Default: no limit but the job's. */
  readonly timeout?: Duration
}

/** Phases by name. */
type PhaseMap<AJob extends Job, Ctx, Known, Names extends string, Extra> = {
  readonly [Name in Names]:
    | PhaseRunner<AJob, ResultIn<Known, Name>, Known, Ctx, Extra>
    | PhaseOptions<AJob, ResultIn<Known, Name>, Known, Ctx, Extra>
}

type ResultIn<Known, Name> = Name extends keyof Known ? Known[Name] : unknown

/** Exactly these names. */
export type Exactly<Names> = (names: Names) => Names

/** A handler in phases, made by `phases()`. */
export interface Phases<
  AJob extends Job = Job,
  Names = unknown,
  Ctx = JobContext,
  Known = Record<string, unknown>,
  Extra = unknown,
> {
  /** Carries types only; the property does not exist at run time. */
  readonly [types]: {
    readonly job: (job: AJob) => void
    readonly ctx: (ctx: Ctx) => void
    readonly extra: (extra: Extra) => void
    readonly names: Names
    readonly known: Exactly<Known>
  }
}

/** A handler in undeclared phases. It does not mention their names, so that TypeScript infers nothing from it. */
export interface FreePhases<AJob extends Job = Job, Ctx = JobContext, Extra = unknown> {
  /** As in `Phases`. */
  readonly [types]: {
    readonly job: (job: AJob) => void
    readonly ctx: (ctx: Ctx) => void
    readonly extra: (extra: Extra) => void
  }
}

/** A handler in phases of any job. TypeScript infers nothing from it, so the types of declared jobs stay precise. */
export interface AnyPhases {
  /** As in `Phases`. */
  readonly [types]: unknown
}

/**
 * A handler in phases. They run one after another, in the order of `job({ phases })` or else of their keys. A phase
 * begins only when the results of those before it are durable, and a phase that has completed is not run again,
 * whatever happens to the job. The job's result is what the last phase returns.
 *
 * ```ts
 * phases({
 *   download: async (job, ctx) => ({ path: await fetchTo(job.data.url, ctx.signal) }),
 *   upload: { run: (job, ctx) => store(ctx.phaseResult('download')), attempts: 5, backoff: '10s', timeout: '1m' },
 * })
 * ```
 */
export function phases<
  AJob extends Job = Job,
  Ctx = JobContext,
  Known = Record<string, unknown>,
  Names extends string = string,
  Extra = unknown,
>(map: PhaseMap<AJob, Ctx, Known, Names, Extra>): Phases<AJob, Exactly<Names>, Ctx, Known, Extra> {
  // The property that carries the types is never read, so it does not exist.
  return Object.freeze({ [madeByPhases]: parse(map) }) as never
}

/** One phase with its options parsed. */
interface ParsedPhase {
  readonly run: (job: Job, ctx: never) => unknown
  readonly attempts: number | undefined
  readonly backoff: Backoff | undefined
  readonly timeout: Millis | undefined
}

/** Phases with their options parsed, in their order. */
export interface ParsedPhases {
  readonly names: readonly string[]
  readonly phases: Readonly<Record<string, ParsedPhase>>
}

/** The parsed phases, if `phases()` made this handler. */
export function phasesIn(handler: unknown): ParsedPhases | undefined {
  if (typeof handler !== 'object' || handler === null) return undefined
  return (handler as { readonly [madeByPhases]?: ParsedPhases })[madeByPhases]
}

/** Checks the phases of a handler against the declared ones, whose order counts. */
export function asDeclared(
  name: string,
  given: ParsedPhases | undefined,
  declared: readonly string[] | undefined,
): ParsedPhases | undefined {
  if (declared === undefined) return given
  const list = declared.join(', ')
  if (given === undefined) {
    throw bad(`job '${name}' was declared with phases, so its handler is phases({ ${list} })`)
  }
  const missing = declared.find((each) => !given.names.includes(each))
  if (missing !== undefined) throw bad(`the handler of '${name}' has no phase '${missing}', which was declared`)
  const unknown = given.names.find((each) => !declared.includes(each))
  if (unknown === undefined) return { ...given, names: declared }
  const near = nearest(unknown, declared)
  const hint = near === undefined ? `those declared are ${list}` : `did you mean '${near}'?`
  throw bad(`the handler of '${name}' has a phase '${unknown}', which was not declared; ${hint}`)
}

function parse(map: object): ParsedPhases {
  if (typeof map !== 'object' || map === null || Array.isArray(map)) {
    throw bad('phases() takes an object of functions by name, in their order')
  }
  const entries = Object.entries(map).filter(([, each]) => each !== undefined)
  if (entries.length === 0) throw bad('phases() takes functions by name, one at the least: phases({ download: … })')
  const names = checkPhaseNames(
    entries.map(([name]) => name),
    'phases()',
  )
  return {
    names,
    phases: Object.fromEntries(entries.map(([name, each]) => [name, parsePhase(name, each)])),
  }
}

function parsePhase(name: string, given: unknown): ParsedPhase {
  const where = `phase '${name}'`
  if (typeof given === 'function') return { ...PLAIN, run: given as ParsedPhase['run'] }
  if (typeof given !== 'object' || given === null || typeof (given as { run?: unknown }).run !== 'function') {
    throw bad(`${where} must be a function, or { run, attempts, backoff, timeout }`)
  }
  const options = given as PhaseOptions
  refuseUnknown(options, ['run', 'attempts', 'backoff', 'timeout'], where)
  const { attempts, backoff, timeout } = options
  if (attempts !== undefined && attempts !== Infinity && !(Number.isSafeInteger(attempts) && attempts >= 1)) {
    throw new MillraceError(
      'INVALID_ATTEMPTS',
      `${where}: attempts must be a whole number from 1 up, or Infinity, not ${quote(attempts)}.`,
    )
  }
  const millis = timeout === undefined ? undefined : parseDuration(timeout, `the timeout of ${where}`)
  if (millis !== undefined && millis < 1) {
    throw new MillraceError('INVALID_OPTION', `The timeout of ${where} must be 1 ms or more.`)
  }
  return {
    run: options.run,
    attempts,
    backoff: backoff === undefined ? undefined : parseBackoff(backoff, `the backoff of ${where}`),
    timeout: millis,
  }
}

const PLAIN = { attempts: undefined, backoff: undefined, timeout: undefined }

function bad(what: string): MillraceError {
  return new MillraceError('INVALID_HANDLER', `${what[0]!.toUpperCase()}${what.slice(1)}.`)
}

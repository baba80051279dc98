// queue/define.ts: declares typed jobs: input and result types, by schema or by plain types, and defaults.
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { MillraceError } from '../job/errors/errors.js'
import { describeError } from '../job/errors/failure.js'
import type { Jsonable } from '../job/values/json.js'
import { checkName, nearest, refuseUnknown } from '../job/values/names.js'
import { invalid, isObject } from '../job/values/options.js'
import { checkPhaseNames } from '../job/phases.js'
import { checkDefaults, defaultOptionNames } from './add-options.js'
import type { JobDefaults } from './add-options.js'

declare const madeByJob: unique symbol

/** Options of `job()` besides schemas: the defaults for jobs of this name, and its version. */
export interface JobOptions<Input = unknown> extends JobDefaults {
  /**
   * The version of the payload's shape. New jobs get this version, and a worker claims only versions that it knows.
   * Default 1.
   */
  readonly version?: number
  /**
   * Functions that upgrade payloads of other versions to this one, by version. A worker claims those versions too, and
   * its handler receives the upgraded payload. Default: none, so jobs of other versions are left to workers that know
   * them.
   */
  readonly upgrade?: Readonly<Record<number, Upgrade<Input>>>
}

/** Upgrades the payload of another version, as it was added, to this version. */
export type Upgrade<Input = unknown> = {
  // Method syntax makes the parameter bivariant, so that the function may declare the type it expects.
  bivariant(data: unknown): Input | Promise<Input>
}['bivariant']

/**
 * A job declared with `job()`: its types, schemas and defaults. `Input` is what `add` takes, `Data` what the handler
 * receives, `Return` what the handler returns and `Result` what `result()` returns. Without schemas, `Input` and `Data`
 * are the same type, and so are `Return` and `Result`.
 */
export interface JobDefinition<
  Input = unknown,
  Data = Input,
  Result = unknown,
  Return = Result,
  Next extends string = string,
  After extends readonly string[] = readonly string[],
  Phases = unknown,
> extends JobOptions {
  /** Carries types only; does not exist at run time. */
  readonly [madeByJob]: {
    readonly input: Input
    readonly data: Data
    readonly result: Result
    readonly return: Return
    readonly next: Next
    readonly after: After
    readonly phases: Phases
  }
  /**
   * Validates the payload at `add` and again before the handler, which receives the schema's output. Default: no check.
   */
  readonly input?: StandardSchemaV1
  /** Validates what the handler returns; the job's result is the schema's output. Default: no check. */
  readonly output?: StandardSchemaV1
  /** The jobs that may continue its chain. Default: any. */
  readonly next?: readonly string[]
  /** The jobs that it waits for, in this order. Default: any, or none. */
  readonly after?: readonly string[]
  /** The phases of its handler, in this order. Default: none. */
  readonly phases?: readonly string[]
}

/** Declared jobs by name. */
export type JobDefinitions = Readonly<Record<string, JobDefinition>>

/** The names of declared jobs. */
export type NameOf<Jobs> = Extract<keyof Jobs, string>

/** What `add` takes for a job: `InputOf<(typeof jobs)['send-email']>`. */
export type InputOf<Definition extends JobDefinition> = Definition[typeof madeByJob]['input']

/** The type of `job.data` in a job's handler. */
export type DataOf<Definition extends JobDefinition> = Definition[typeof madeByJob]['data']

/** The type of `result()`. */
export type ResultOf<Definition extends JobDefinition> = Definition[typeof madeByJob]['result']

/** What a handler may return: the input of the `output` schema, which may be looser than the result. */
export type ReturnOf<Definition extends JobDefinition> = Definition[typeof madeByJob]['return']

/** The names that may continue a job's chain; `string` if `next` is not declared. */
export type NextOf<Definition extends JobDefinition> = Definition[typeof madeByJob]['next']

/**
 * What a handler may return instead of a result when its chain continues; never where `next` is not declared or empty.
 */
type IfContinues<Definition extends JobDefinition, Nothing> =
  string extends NextOf<Definition> ? never : [NextOf<Definition>] extends [never] ? never : Nothing

/** The type of a job's own `result()`: undefined if the chain continued and the job returned nothing. */
export type OwnResultOf<Definition extends JobDefinition> = ResultOf<Definition> | IfContinues<Definition, undefined>

/** What a handler may return: `ReturnOf`, or, where `next` is declared, nothing if it continues its chain. */
export type HandlerReturnOf<Definition extends JobDefinition> = ReturnOf<Definition> | IfContinues<Definition, void>

/** The names that a job is declared to wait for, in order; `readonly string[]` if `after` is not declared. */
export type AfterOf<Definition extends JobDefinition> = Definition[typeof madeByJob]['after']

/** The declared return types of a job's phases, by name; `unknown` if the names are not declared. */
export type PhasesOf<Definition extends JobDefinition> = Definition[typeof madeByJob]['phases']

/** The known results of declared phases: the last phase returns the job's result. */
type PhaseResults<Names extends readonly string[], Return> = string extends Names[number]
  ? unknown
  : Names extends readonly [...infer First extends string[], infer Last extends string]
    ? { readonly [Name in First[number]]: unknown } & { readonly [Name in Last]: Return }
    : unknown

/** Rejects declarations whose `next` names an undeclared job. */
type KnownContinuations<Jobs> = {
  readonly [Name in keyof Jobs]: Jobs[Name] extends JobDefinition
    ? string extends NextOf<Jobs[Name]>
      ? unknown
      : [NextOf<Jobs[Name]>] extends [keyof Jobs]
        ? unknown
        : { readonly next: readonly (keyof Jobs)[] }
    : unknown
}

/**
 * Rejects payloads and results that JSON cannot carry. The store holds a schema's input as payload, and its output as
 * result.
 */
type JsonOnly<Jobs> = {
  readonly [Name in keyof Jobs]: Jobs[Name] extends JobDefinition
    ? [InputOf<Jobs[Name]>] extends [Jsonable<InputOf<Jobs[Name]>>]
      ? [ResultOf<Jobs[Name]>] extends [Jsonable<ResultOf<Jobs[Name]>>]
        ? unknown
        : { readonly output: 'The result is not JSON: declare what is stored, as text in place of a Date.' }
      : { readonly input: 'The payload is not JSON: declare what is stored, as text in place of a Date.' }
    : unknown
}

type SchemaInput<Given, Plain> = Given extends StandardSchemaV1 ? StandardSchemaV1.InferInput<Given> : Plain
type SchemaOutput<Given, Plain> = Given extends StandardSchemaV1 ? StandardSchemaV1.InferOutput<Given> : Plain

/**
 * The type of `next` if type arguments are given without its names: an empty list, because `continueWith` would not
 * know the names. Give the types with `typed`, or the names as the third type argument.
 */
type Unnamed = readonly never[]

/**
 * Declares a job by schemas (any Standard Schema: zod, valibot, arktype, …) or by plain types, which are not checked at
 * run time. What is declared neither way is `unknown`.
 *
 * ```ts
 * job({ input: z.object({ to: z.email() }), attempts: 5 })
 * job<{ to: string }, { messageId: string }>({ attempts: 5 })
 * job({ input: typed<{ draft: string }>(), next: ['publish', 'reject'] })
 * ```
 */
export function job<
  Input = unknown,
  Result = unknown,
  InputSchema extends StandardSchemaV1 | undefined = undefined,
  OutputSchema extends StandardSchemaV1 | undefined = undefined,
  const Next extends readonly string[] = readonly string[],
  const After extends readonly string[] = readonly string[],
  const Phases extends readonly string[] = readonly string[],
>(
  options: JobOptions<SchemaInput<InputSchema, Input>> & {
    /**
     * Validates the payload at `add` and again before the handler, which receives the schema's output. Default: no
     * check.
     */
    readonly input?: InputSchema
    /** Validates what the handler returns; the job's result is the schema's output. Default: no check. */
    readonly output?: OutputSchema
    /** The jobs that may continue its chain: `continueWith` takes no other. `[]`: none. Default: any. */
    readonly next?: readonly string[] extends Next ? Unnamed : Next
    /**
     * The jobs that it waits for, in this order. Types `ctx.dependencies()`, and `add` requires as many. Default: any.
     */
    readonly after?: After
    /**
     * The phases of its handler, in this order; the handler is made by `phases()`. A new job has them from the start.
     * Default: none.
     */
    readonly phases?: Phases
  },
): JobDefinition<
  SchemaInput<InputSchema, Input>,
  SchemaOutput<InputSchema, Input>,
  SchemaOutput<OutputSchema, Result>,
  SchemaInput<OutputSchema, Result>,
  Next[number],
  After,
  PhaseResults<Phases, SchemaInput<OutputSchema, Result>>
>
/**
 * Declares a job by plain types, which are not checked at run time, with type arguments for the continuations. `Phases`
 * declares what each phase returns: `{ download: { path: string }; upload: Result }`.
 */
export function job<
  Input = unknown,
  Result = unknown,
  Next extends string = string,
  After extends readonly string[] = readonly string[],
  Phases = unknown,
>(
  options?: JobOptions<Input> & {
    /** The jobs that may continue its chain: `continueWith` takes no other. `[]`: none. Default: any. */
    readonly next?: string extends Next ? Unnamed : readonly Next[]
    /**
     * The jobs that it waits for, in this order. Types `ctx.dependencies()`, and `add` requires as many. Default: any.
     */
    readonly after?: After
    /**
     * The phases of its handler, in this order; the handler is made by `phases()`. A new job has them from the start.
     * Default: none.
     */
    readonly phases?: readonly (unknown extends Phases ? string : Extract<keyof Phases, string>)[]
  },
): JobDefinition<Input, Input, Result, Result, Next, After, Phases>
/** The implementation of both overloads. */
export function job(options: Declared = {}): JobDefinition {
  checkDefinition(options, 'job()')
  // The property that carries the types is never read, so it is not created.
  const { input, output, ...rest } = options
  return {
    ...rest,
    ...(input !== undefined && input !== AS_IS && { input }),
    ...(output !== undefined && output !== AS_IS && { output }),
  } as JobDefinition
}

/** Accepts any value unchanged. */
const AS_IS: StandardSchemaV1 = { '~standard': { version: 1, vendor: 'millrace', validate: (value) => ({ value }) } }

/**
 * A plain type in place of a schema. Nothing is checked at run time, and the other declarations are still inferred.
 *
 * ```ts
 * job({ input: typed<Draft>(), output: typed<{ url: string }>(), next: ['review'] })
 * ```
 */
export function typed<Type>(): StandardSchemaV1<Type, Type> {
  return AS_IS as StandardSchemaV1<Type, Type>
}

/** The argument of `job()`, without its types. */
interface Declared extends JobOptions {
  readonly input?: StandardSchemaV1 | undefined
  readonly output?: StandardSchemaV1 | undefined
  readonly next?: readonly string[]
  readonly after?: readonly string[]
  readonly phases?: readonly string[]
}

/** Collects declared jobs by name. Checks the names, so that an invalid name fails at program start. */
export function defineJobs<const Jobs extends JobDefinitions>(
  jobs: Jobs & KnownContinuations<Jobs> & JsonOnly<Jobs>,
): Jobs {
  if (!isObject(jobs)) throw invalid('defineJobs takes an object of jobs by name.')
  for (const [name, definition] of Object.entries(jobs)) {
    checkName(name, 'job name')
    checkDefinition(definition, `defineJobs: '${name}'`)
    for (const next of definition.next ?? []) {
      if (Object.hasOwn(jobs, next)) continue
      const near = nearest(next, Object.keys(jobs))
      const hint = near === undefined ? 'declare it as well' : `did you mean '${near}'?`
      throw new MillraceError(
        'UNKNOWN_JOB',
        `defineJobs: '${name}' goes on with '${next}', which is not there; ${hint}`,
      )
    }
  }
  return jobs
}

/** Schemas by declared job name: `input` accepts what `add` takes, and `output` produces what `result()` returns. */
export type SchemasFor<Jobs extends JobDefinitions> = {
  readonly [Name in keyof Jobs]?: {
    /**
     * Validates the payload at `add` and again before the handler, which receives the schema's output. Default: as
     * declared.
     */
    readonly input?: StandardSchemaV1<InputOf<Jobs[Name]>, unknown>
    /** Validates what the handler returns; the job's result is the schema's output. Default: as declared. */
    readonly output?: StandardSchemaV1<unknown, ResultOf<Jobs[Name]>>
  }
}

/** Rejects an `input` schema that does not accept everything that `add` takes. */
type Fitting<Jobs extends JobDefinitions, Schemas> = {
  readonly [Name in keyof Schemas & keyof Jobs]: [InputOf<Jobs[Name]>] extends [
    SchemaInput<InputIn<Schemas[Name]>, InputOf<Jobs[Name]>>,
  ]
    ? unknown
    : { readonly input: { readonly doesNotTake: InputOf<Jobs[Name]> } }
}

type InputIn<Schemas> = Schemas extends { readonly input: infer Schema } ? Schema : undefined
type OutputIn<Schemas> = Schemas extends { readonly output: infer Schema } ? Schema : undefined

/** Declared jobs with schemas. */
export type WithSchemas<Jobs extends JobDefinitions, Schemas> = {
  readonly [Name in keyof Jobs]: Name extends keyof Schemas
    ? JobDefinition<
        InputOf<Jobs[Name]>,
        SchemaOutput<InputIn<Schemas[Name]>, DataOf<Jobs[Name]>>,
        ResultOf<Jobs[Name]>,
        SchemaInput<OutputIn<Schemas[Name]>, ReturnOf<Jobs[Name]>>,
        NextOf<Jobs[Name]>,
        AfterOf<Jobs[Name]>,
        PhasesOf<Jobs[Name]>
      >
    : Jobs[Name]
}

/**
 * Adds schemas to declared jobs, for workers. Producers import only the declarations, which have the same names, types,
 * options and versions, and load no schema.
 *
 * ```ts
 * export const jobs = defineJobs({ 'send-email': job<{ to: string }>({ version: 2, attempts: 5 }) }) // jobs.ts
 * export const checked = withSchemas(jobs, { 'send-email': { input: z.object({ to: z.email() }) } }) // checked.ts
 * ```
 */
export function withSchemas<const Jobs extends JobDefinitions, Schemas extends SchemasFor<Jobs>>(
  jobs: Jobs,
  schemas: Schemas & Fitting<Jobs, Schemas>,
): WithSchemas<Jobs, Schemas> {
  refuseUnknown(schemas, Object.keys(jobs), 'withSchemas')
  const entries = Object.entries(jobs).map(([name, definition]) => {
    const given = (schemas as SchemasFor<JobDefinitions>)[name] ?? {}
    refuseUnknown(given, ['input', 'output'], `withSchemas: '${name}'`)
    return [name, job({ ...definition, ...given } as JobOptions)]
  })
  return defineJobs(Object.fromEntries(entries) as JobDefinitions) as WithSchemas<Jobs, Schemas>
}

function checkDefinition(options: Declared, where: string): void {
  if (typeof options !== 'object' || options === null || '~standard' in options) {
    throw invalid(`${where}: write job({ input: schema }), or job({ attempts: 5 }) and the like.`)
  }
  refuseUnknown(
    options,
    ['input', 'output', 'version', 'upgrade', 'next', 'after', 'phases', ...defaultOptionNames],
    where,
  )
  checkSchema(options.input, `${where}: input`)
  checkSchema(options.output, `${where}: output`)
  const { version } = options
  if (version !== undefined && !(Number.isSafeInteger(version) && version >= 1)) {
    throw invalid(`${where}: version must be a whole number from 1 up, not ${String(version)}.`)
  }
  checkUpgrades(options, where)
  for (const field of ['next', 'after'] as const) {
    const names: unknown = options[field]
    if (names === undefined) continue
    if (!Array.isArray(names)) throw invalid(`${where}: ${field} must be a list of names.`)
    for (const name of names) checkName(name as string, `job name in ${field}`)
  }
  if (options.phases !== undefined) checkPhaseNames(options.phases, where)
  checkDefaults(options, where)
}

function checkUpgrades({ version = 1, upgrade }: JobOptions, where: string): void {
  if (upgrade === undefined) return
  if (!isObject(upgrade)) throw invalid(`${where}: upgrade must be an object of functions by version.`)
  for (const [from, change] of Object.entries(upgrade)) {
    const number = Number(from)
    if (!Number.isSafeInteger(number) || number < 1 || number === version || typeof change !== 'function') {
      throw invalid(
        `${where}: upgrade must be functions by other versions than ${version}, as in { 1: (data) => … }; '${from}' is not.`,
      )
    }
  }
}

/** The version of new jobs of a declared name. */
export function versionOf(definition: JobDefinition): number {
  return definition.version ?? 1
}

/** The versions of a declared name that its handler accepts. */
export function versionsOf(definition: JobDefinition): readonly number[] {
  return [versionOf(definition), ...Object.keys(definition.upgrade ?? {}).map(Number)]
}

function checkSchema(schema: StandardSchemaV1 | undefined, field: string): void {
  if (schema === undefined) return
  const standard: unknown = (schema as Partial<StandardSchemaV1> | null)?.['~standard']
  const ok =
    typeof standard === 'object' &&
    standard !== null &&
    (standard as { version?: unknown }).version === 1 &&
    typeof (standard as { validate?: unknown }).validate === 'function'
  if (!ok) {
    throw new MillraceError(
      'INVALID_SCHEMA',
      `${field} is not a Standard Schema (version 1). Use zod, valibot, arktype or another that implements it.`,
    )
  }
}

/** The outcome of a validation. */
export type Validation =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly issues: readonly string[] }

/** Runs a schema; asynchronous only if the schema is. A schema that throws counts as an issue. */
export function validate(schema: StandardSchemaV1, value: unknown): Validation | Promise<Validation> {
  try {
    const result: unknown = schema['~standard'].validate(value)
    if (typeof (result as { then?: unknown } | undefined)?.then !== 'function') return toValidation(result as Result)
    return Promise.resolve(result as Promise<Result>)
      .then(toValidation)
      .catch(failedValidation)
  } catch (error) {
    return failedValidation(error)
  }
}

type Result = StandardSchemaV1.Result<unknown>

function toValidation(result: Result): Validation {
  return result.issues === undefined
    ? { ok: true, value: result.value }
    : { ok: false, issues: result.issues.map(describeIssue) }
}

function failedValidation(error: unknown): Validation {
  return { ok: false, issues: [describeError(error).message] }
}

function describeIssue(issue: StandardSchemaV1.Issue): string {
  const path = (issue.path ?? []).map((part) => String(typeof part === 'object' ? part.key : part)).join('.')
  return path === '' ? issue.message : `${path}: ${issue.message}`
}

// queue/define.ts: typed jobs: what a job takes and gives, by schema or by plain types, and its defaults.
import type { StandardSchemaV1 } from '@standard-schema/spec'
import { MillraceError } from '../job/errors.js'
import { describeError } from '../job/failure.js'
import { checkName, refuseUnknown } from '../job/names.js'
import { checkDefaults, defaultOptionNames } from './options.js'
import type { JobDefaults } from './options.js'

declare const madeByJob: unique symbol

/** What `job()` takes beside schemas: the defaults of this name's jobs, and its version. */
export interface JobOptions extends JobDefaults {
  /** Which shape of payload this is; a worker claims only the version it knows. Default 1. */
  readonly version?: number
}

/**
 * A job that was declared with `job()`: its types, its schemas and its defaults. `Input` is what `add` takes, `Data`
 * what the handler sees, `Return` what it returns and `Result` what `result()` gives; without schemas the first two are
 * one type, and so are the last two.
 */
export interface JobDefinition<Input = unknown, Data = Input, Result = unknown, Return = Result> extends JobOptions {
  /** Carries types only; there is nothing here at run time. */
  readonly [madeByJob]: {
    readonly input: Input
    readonly data: Data
    readonly result: Result
    readonly return: Return
  }
  /** Checks the payload at `add` and again before the handler, which gets what it makes of it. Default: no check. */
  readonly input?: StandardSchemaV1
  /** Checks what the handler returns; the result is what it makes of it. Default: no check. */
  readonly output?: StandardSchemaV1
}

/** Declared jobs by name. */
export type JobDefinitions = Readonly<Record<string, JobDefinition>>

/** The names of declared jobs. */
export type NameOf<Jobs> = Extract<keyof Jobs, string>

/** What `add` takes for a job: `InputOf<(typeof jobs)['send-email']>`. */
export type InputOf<Definition extends JobDefinition> = Definition[typeof madeByJob]['input']

/** What a job's handler sees as `job.data`. */
export type DataOf<Definition extends JobDefinition> = Definition[typeof madeByJob]['data']

/** What `result()` gives. */
export type ResultOf<Definition extends JobDefinition> = Definition[typeof madeByJob]['result']

/** What a handler may return: the input of the `output` schema, which may be looser than the result. */
export type ReturnOf<Definition extends JobDefinition> = Definition[typeof madeByJob]['return']

type SchemaInput<Given, Plain> = Given extends StandardSchemaV1 ? StandardSchemaV1.InferInput<Given> : Plain
type SchemaOutput<Given, Plain> = Given extends StandardSchemaV1 ? StandardSchemaV1.InferOutput<Given> : Plain

/**
 * Declares a job by schemas (any Standard Schema: zod, valibot, arktype, …) or by plain types, which are not checked at
 * run time. What is declared neither way is `unknown`.
 *
 * ```ts
 * job({ input: z.object({ to: z.email() }), attempts: 5 })
 * job<{ to: string }, { messageId: string }>({ attempts: 5 })
 * ```
 */
export function job<
  Input = unknown,
  Result = unknown,
  InputSchema extends StandardSchemaV1 | undefined = undefined,
  OutputSchema extends StandardSchemaV1 | undefined = undefined,
>(
  options: JobOptions & {
    /** Checks the payload at `add` and again before the handler, which gets what it makes of it. Default: no check. */
    readonly input?: InputSchema
    /** Checks what the handler returns; the result is what it makes of it. Default: no check. */
    readonly output?: OutputSchema
  } = {},
): JobDefinition<
  SchemaInput<InputSchema, Input>,
  SchemaOutput<InputSchema, Input>,
  SchemaOutput<OutputSchema, Result>,
  SchemaInput<OutputSchema, Result>
> {
  checkDefinition(options, 'job()')
  // The types are carried by a property that nothing reads, so there is none.
  return { ...options } as ReturnType<typeof job<Input, Result, InputSchema, OutputSchema>>
}

/** Gathers declared jobs. Names are checked here, so that a bad one is found when the program starts. */
export function defineJobs<const Jobs extends JobDefinitions>(jobs: Jobs): Jobs {
  if (typeof jobs !== 'object' || jobs === null || Array.isArray(jobs)) {
    throw new MillraceError('INVALID_OPTION', 'defineJobs takes an object of jobs by name.')
  }
  for (const [name, definition] of Object.entries(jobs)) {
    checkName(name, 'job name')
    checkDefinition(definition, `defineJobs: '${name}'`)
  }
  return jobs
}

function checkDefinition(
  options: JobOptions & { input?: StandardSchemaV1; output?: StandardSchemaV1 },
  where: string,
): void {
  if (typeof options !== 'object' || options === null || '~standard' in options) {
    throw new MillraceError(
      'INVALID_OPTION',
      `${where}: write job({ input: schema }), or job({ attempts: 5 }) and the like.`,
    )
  }
  refuseUnknown(options, ['input', 'output', 'version', ...defaultOptionNames], where)
  checkSchema(options.input, `${where}: input`)
  checkSchema(options.output, `${where}: output`)
  const { version } = options
  if (version !== undefined && !(Number.isSafeInteger(version) && version >= 1)) {
    throw new MillraceError(
      'INVALID_OPTION',
      `${where}: version must be a whole number from 1 up, not ${String(version)}.`,
    )
  }
  checkDefaults(options, where)
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

/** What a schema said of a value. */
export type Validation =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: false; readonly issues: readonly string[] }

/** Runs a schema; waits only if the schema does. A schema that throws refuses. */
export function validate(schema: StandardSchemaV1, value: unknown): Validation | Promise<Validation> {
  try {
    const result: unknown = schema['~standard'].validate(value)
    if (typeof (result as { then?: unknown } | undefined)?.then !== 'function') return judge(result as Result)
    return Promise.resolve(result as Promise<Result>)
      .then(judge)
      .catch(refusal)
  } catch (error) {
    return refusal(error)
  }
}

type Result = StandardSchemaV1.Result<unknown>

function judge(result: Result): Validation {
  return result.issues === undefined
    ? { ok: true, value: result.value }
    : { ok: false, issues: result.issues.map(describe) }
}

function refusal(error: unknown): Validation {
  return { ok: false, issues: [describeError(error).message] }
}

function describe(issue: StandardSchemaV1.Issue): string {
  const path = (issue.path ?? []).map((part) => String(typeof part === 'object' ? part.key : part)).join('.')
  return path === '' ? issue.message : `${path}: ${issue.message}`
}

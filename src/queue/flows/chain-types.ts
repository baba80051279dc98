// queue/flows/chain-types.ts: the types and checks of declared continuations and dependencies.
import { MillraceError } from '../../job/errors/errors.js'
import type { Edge, EdgeError } from '../../job/job.js'
import { decodeJson } from '../../job/values/json.js'
import type { AfterOf, JobDefinition, JobDefinitions, NameOf, NextOf, ResultOf } from '../define.js'

/** The names that `continueWith` takes for a job: those of its `next`, or any. */
export type ContinuationOf<Jobs extends JobDefinitions, Name extends NameOf<Jobs>> = Name extends unknown
  ? string extends NextOf<Jobs[Name]>
    ? NameOf<Jobs>
    : Extract<NextOf<Jobs[Name]>, NameOf<Jobs>>
  : never

/** The names in `next` of these jobs; never if it is not declared. */
type Declared<Jobs extends JobDefinitions, Name extends NameOf<Jobs>> = Name extends unknown
  ? string extends NextOf<Jobs[Name]>
    ? never
    : Extract<NextOf<Jobs[Name]>, NameOf<Jobs>>
  : never

/** The jobs that a chain can reach by `next`. Each is visited once, so that loops end. */
type Reached<Jobs extends JobDefinitions, Names extends NameOf<Jobs>, Seen extends NameOf<Jobs> = never> = [
  Exclude<Names, Seen>,
] extends [never]
  ? Seen
  : Reached<Jobs, Declared<Jobs, Exclude<Names, Seen>>, Seen | Names>

/**
 * The result of a job as the last of its chain; never for a job that has `next` and declares no result, because it is
 * not meant to be the last.
 */
type LastResult<Jobs extends JobDefinitions, Name extends NameOf<Jobs>> = Name extends unknown
  ? [Declared<Jobs, Name>] extends [never]
    ? ResultOf<Jobs[Name]>
    : unknown extends ResultOf<Jobs[Name]>
      ? never
      : ResultOf<Jobs[Name]>
  : never

type OrUnknown<Result> = [Result] extends [never] ? unknown : Result

/**
 * The result of a chain that begins with a job: that of any job it can end with. These are the jobs reachable by `next`
 * that have no `next` themselves or declare a result.
 */
export type ChainResult<Jobs extends JobDefinitions, Name extends NameOf<Jobs> = NameOf<Jobs>> = OrUnknown<
  LastResult<Jobs, Reached<Jobs, Name>>
>

/** The outcome of a dependency: of its whole chain. */
export type Ended<Name extends string = string, Result = unknown> = {
  /** The id of the dependency's chain: of its first job. */
  readonly id: string
  /** The name of the dependency. */
  readonly name: Name
} & (
  | {
      readonly status: 'completed'
      /** What the last job of the chain returned. */
      readonly result: Result
    }
  | {
      readonly status: 'failed'
      /** The error it failed with. */
      readonly error: EdgeError
    }
  | { readonly status: 'cancelled' }
)

/** The outcomes of dependencies of these names, discriminated by `name` and `status`. */
export type EndedOf<Jobs extends JobDefinitions, Name extends string = NameOf<Jobs>> =
  Name extends NameOf<Jobs> ? Ended<Name, ChainResult<Jobs, Name>> : Ended<Name>

type EndedEach<Jobs extends JobDefinitions, After extends readonly string[]> = {
  readonly [Index in keyof After]: EndedOf<Jobs, After[Index]>
}

type EndedAfter<Jobs extends JobDefinitions, After extends readonly string[]> = string extends After[number]
  ? readonly Ended[]
  : readonly [...EndedEach<Jobs, After>, ...Ended[]]

/**
 * The type of `ctx.dependencies()` in a job's handler: by the declared `after`. Further dependencies have no declared
 * type, because flows and `ctx.waitFor` can reach other queues, whose jobs are unknown here.
 */
export type DependenciesOf<Jobs extends JobDefinitions, Name extends NameOf<Jobs>> = Name extends unknown
  ? EndedAfter<Jobs, AfterOf<Jobs[Name]>>
  : never

/** A page of the outcomes of a job's dependencies. The last page has no `cursor`. */
export interface DependencyPage<Each extends Ended = Ended> {
  /** In the order in which they were named. */
  readonly dependencies: readonly Each[]
  /** Pass it to read the next page. */
  readonly cursor?: string
}

/** The outcome of a dependency, from its decided edge. */
export function outcomeOf({ chain: id, name, state, result, error }: Edge): Ended {
  if (state === 'ended') {
    return { id, name, status: 'completed', result: result === undefined ? undefined : decodeJson(result) }
  }
  return error === undefined ? { id, name, status: 'cancelled' } : { id, name, status: 'failed', error }
}

/** Throws if a chain would continue with a job that the declaration does not name. */
export function refuseWrongNext(
  job: { id: string; name: string },
  definition: JobDefinition | undefined,
  next: string,
): void {
  const known = definition?.next
  if (known === undefined || known.includes(next)) return
  const continuation = known.length === 0 ? 'ends its chain' : `goes on with ${list(known)}`
  throw new MillraceError(
    'WRONG_CONTINUATION',
    `continueWith('${next}') of job ${job.id}: '${job.name}' ${continuation}. Name '${next}' in its \`next\`, if that is meant.`,
    { details: { id: job.id, next } },
  )
}

/**
 * Throws if the dependencies do not fit the declaration: at least as many, each in its position, and the rest of
 * declared names. A dependency of unknown name is accepted. `page` says whether `names` is the first and the last page.
 */
export function refuseWrongAfter(
  name: string,
  definition: JobDefinition | undefined,
  names: readonly (string | undefined)[],
  where: string,
  page = { first: true, last: true },
): void {
  const declared = definition?.after
  if (declared === undefined) return
  const fits =
    (!page.first || !page.last || names.length >= declared.length) &&
    (!page.first || names.every((each, at) => each === undefined || (declared[at] ?? each) === each)) &&
    names.every((each) => each === undefined || declared.includes(each))
  if (fits) return
  const given = names.length === 0 ? 'nothing' : list(names.map((each) => each ?? 'a job by its id'))
  throw new MillraceError(
    'WRONG_DEPENDENCIES',
    `${where}: '${name}' is declared to run after ${declared.length === 0 ? 'nothing' : list(declared)}, and was to wait for ${given}.`,
    { details: { name } },
  )
}

function list(names: readonly string[]): string {
  return (
    names
      .map((name) => `'${name}'`)
      .slice(0, 10)
      .join(', ') + (names.length > 10 ? ', …' : '')
  )
}

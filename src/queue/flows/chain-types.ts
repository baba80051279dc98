// queue/flows/chain-types.ts: how declared jobs belong together: what a chain may go on with, and what those waited for came to.
import { MillraceError } from '../../job/errors.js'
import type { Edge, EdgeError } from '../../job/job.js'
import { decodeJson } from '../../job/json.js'
import type { AfterOf, JobDefinition, JobDefinitions, NameOf, NextOf, ResultOf } from '../define.js'

/** The names that `continueWith` takes for a job: those of its `next`, or any. */
export type ContinuationOf<Jobs extends JobDefinitions, Name extends NameOf<Jobs>> = Name extends unknown
  ? string extends NextOf<Jobs[Name]>
    ? NameOf<Jobs>
    : Extract<NextOf<Jobs[Name]>, NameOf<Jobs>>
  : never

/** What `next` of these jobs names; nothing where it was not declared. */
type Declared<Jobs extends JobDefinitions, Name extends NameOf<Jobs>> = Name extends unknown
  ? string extends NextOf<Jobs[Name]>
    ? never
    : Extract<NextOf<Jobs[Name]>, NameOf<Jobs>>
  : never

/** The jobs that a chain can come to, by `next`; each is looked at once, so that loops end. */
type Reached<Jobs extends JobDefinitions, Names extends NameOf<Jobs>, Seen extends NameOf<Jobs> = never> = [
  Exclude<Names, Seen>,
] extends [never]
  ? Seen
  : Reached<Jobs, Declared<Jobs, Exclude<Names, Seen>>, Seen | Names>

/** What a job gives as the last of its chain: one that goes on and declares no result is not meant to be the last. */
type LastResult<Jobs extends JobDefinitions, Name extends NameOf<Jobs>> = Name extends unknown
  ? [Declared<Jobs, Name>] extends [never]
    ? ResultOf<Jobs[Name]>
    : unknown extends ResultOf<Jobs[Name]>
      ? never
      : ResultOf<Jobs[Name]>
  : never

type OrUnknown<Result> = [Result] extends [never] ? unknown : Result

/**
 * What a chain that begins with a job gives: the result of any job that it can end with. That is each job that can be
 * reached by `next` and has no `next` itself, or declares a result.
 */
export type ChainResult<Jobs extends JobDefinitions, Name extends NameOf<Jobs> = NameOf<Jobs>> = OrUnknown<
  LastResult<Jobs, Reached<Jobs, Name>>
>

/** What a job that another waited for, or its whole chain, came to. */
export type Ended<Name extends string = string, Result = unknown> = {
  /** The chain that was waited for: the id of its first job. */
  readonly id: string
  /** The name of the job that was waited for. */
  readonly name: Name
} & (
  | {
      readonly status: 'completed'
      /** What the last job of the chain returned. */
      readonly result: Result
    }
  | {
      readonly status: 'failed'
      /** What it failed with. */
      readonly error: EdgeError
    }
  | { readonly status: 'cancelled' }
)

/** What jobs of these names came to, told apart by `name` and `status`. */
export type EndedOf<Jobs extends JobDefinitions, Name extends string = NameOf<Jobs>> =
  Name extends NameOf<Jobs> ? Ended<Name, ChainResult<Jobs, Name>> : Ended<Name>

type EndedEach<Jobs extends JobDefinitions, After extends readonly string[]> = {
  readonly [Place in keyof After]: EndedOf<Jobs, After[Place]>
}

type EndedAfter<Jobs extends JobDefinitions, After extends readonly string[]> = string extends After[number]
  ? readonly Ended[]
  : readonly [...EndedEach<Jobs, After>, ...Ended[]]

/**
 * What `ctx.dependencies()` gives to the handler of a job: by `after`, if it was declared with one. Nothing is claimed of others:
 * flows and `ctx.waitFor` reach into other queues, whose jobs are not known here.
 */
export type DependenciesOf<Jobs extends JobDefinitions, Name extends NameOf<Jobs>> = Name extends unknown
  ? EndedAfter<Jobs, AfterOf<Jobs[Name]>>
  : never

/** A page of what those that a job waited for came to, and where the next begins; no `cursor` on the last page. */
export interface DependencyPage<Each extends Ended = Ended> {
  /** In the order in which they were named. */
  readonly dependencies: readonly Each[]
  /** What to give for the next page. */
  readonly cursor?: string
}

/** What an edge that has been decided tells of what it led to. */
export function endedOf({ chain: id, name, state, result, error }: Edge): Ended {
  if (state === 'ended') {
    return { id, name, status: 'completed', result: result === undefined ? undefined : decodeJson(result) }
  }
  return error === undefined ? { id, name, status: 'cancelled' } : { id, name, status: 'failed', error }
}

/** Refuses a chain to go on with a job that its declaration does not name. */
export function refuseWrongNext(
  job: { id: string; name: string },
  definition: JobDefinition | undefined,
  next: string,
): void {
  const known = definition?.next
  if (known === undefined || known.includes(next)) return
  const ways = known.length === 0 ? 'ends its chain' : `goes on with ${list(known)}`
  throw new MillraceError(
    'WRONG_CONTINUATION',
    `continueWith('${next}') of job ${job.id}: '${job.name}' ${ways}. Name '${next}' in its \`next\`, if that is meant.`,
    { details: { id: job.id, next } },
  )
}

/**
 * Refuses what does not fit the declared dependencies: there are as many at least, each in its place, and all others are of
 * the names declared. A name that is not known is believed. Of a page it is known whether it is the `first` and the `last`.
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

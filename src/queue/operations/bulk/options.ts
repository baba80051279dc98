// queue/operations/bulk/options.ts: the options of bulk operations, their checks, and what follows from them.
import { bulkActions } from '../../../job/bulk.js'
import type { BulkAction } from '../../../job/bulk.js'
import { parseDuration } from '../../../job/values/duration.js'
import type { Duration } from '../../../job/values/duration.js'
import { cleanText } from '../../../job/errors/failure.js'
import { statesFor } from '../../../job/lifecycle.js'
import { checkName, refuseUnknown } from '../../../job/values/names.js'
import { flag, invalid, isObject, mustBe, oneOf, whole } from '../../../job/values/options.js'
import { step } from '../../../store/maybe-sync.js'
import type { Runtime } from '../../../store/runtime.js'
import type { Steps } from '../../../store/maybe-sync.js'
import type { Query } from '../../../store/store.js'
import type { Session } from '../../../store/session.js'
import type { InputOf, JobDefinitions, NameOf } from '../../define.js'
import type { UpdateOptions } from '../../job.js'
import type { Payloads } from '../../payloads.js'
import { splitReason } from '../cascade.js'
import { parseUpdate } from '../edits.js'
import { checkFilter, noFilter, queryIn } from '../filter.js'
import type { JobFilter } from '../filter.js'
import type { BulkSpec, NamedEdit } from './spec.js'

/** Which jobs `operate` and `plan` are for. */
type Selection<Name extends string> =
  | {
      /** The jobs to change: those that match when it begins, and still match when their turn comes. Required without `all`. */
      readonly where: JobFilter<Name>
      /** Not together with `where`. */
      readonly all?: never
    }
  | {
      /** All jobs of the queue in the states in which the action can change them, in place of `where`. */
      readonly all: true
      /** Not together with `all`. */
      readonly where?: never
    }

/** How fast a bulk operation changes jobs. */
export interface OperationRate {
  /** Maximum number of jobs in a period, from 1 up; all of them may be changed at once. */
  readonly max: number
  /** The length of the period. */
  readonly per: Duration
}

/** What `operate` and `plan` take for any action. */
interface AnyOperation {
  /** At most so many jobs in each period. Default: as fast as the store takes them. */
  readonly rate?: OperationRate
  /** Why, in at most 500 characters. Of a cancellation it is also the reason of each job. Default: none. */
  readonly reason?: string
  /** Who asks, in at most 255 characters: kept with the operation. Default: no name. */
  readonly by?: string
}

/** What `operate` and `plan` take. */
export type OperationRequest<Jobs extends JobDefinitions, Name extends NameOf<Jobs> = NameOf<Jobs>> = AnyOperation &
  Selection<Name> &
  (
    | {
        /** Restarts failed and cancelled jobs, or runs delayed ones now. */
        readonly do: 'retry' | 'promote'
      }
    | {
        /** Cancels unfinished jobs, or removes jobs in any state. */
        readonly do: 'cancel' | 'remove'
        /** Cancelling: also the children of these jobs. Removing: also the jobs that wait for them. Default false. */
        readonly cascade?: boolean
      }
    | {
        /** Changes data, priority or time of jobs that have not started. */
        readonly do: 'update'
        /** What changes, as for `queue.update`. */
        readonly changes: UpdateOptions<InputOf<Jobs[Name]>>
      }
  )

/** What `operate` takes. */
export type OperateOptions<Jobs extends JobDefinitions, Name extends NameOf<Jobs> = NameOf<Jobs>> = OperationRequest<
  Jobs,
  Name
> & {
  /** Changes nothing, and resolves to what `queue.plan` does. Default false. */
  readonly dryRun?: boolean
}

/** The options without their types. */
interface Given extends AnyOperation {
  readonly where?: JobFilter
  readonly all?: true
  readonly do: BulkAction
  readonly cascade?: boolean
  readonly changes?: UpdateOptions
}

/** Where a request is checked. */
export interface RequestScope {
  readonly queue: string
  readonly session: Session
  readonly payloads: Payloads
  readonly runtime: Pick<Runtime, 'now'>
}

const common = ['do', 'where', 'all', 'rate', 'reason', 'by'] as const

/** Checks a request; returns what the row of the operation stores. */
export function* parseRequest(scope: RequestScope, options: object, call: string): Steps<BulkSpec> {
  if (!isObject(options)) throw mustBe(call, "an object like { do: 'retry', where: { state: 'failed' } }", options)
  const given = options as Given
  const action = oneOf(given.do, bulkActions, `${call}: do`)
  const cascades = action === 'cancel' || action === 'remove'
  refuseUnknown(
    given,
    [
      ...common,
      ...(cascades ? ['cascade'] : []),
      ...(action === 'update' ? ['changes'] : []),
      ...(call === 'queue.operate' ? ['dryRun'] : []),
      'tx',
    ],
    `${call} with do: '${action}'`,
  )
  const where = whereOf(given, call)
  const { reason } = splitReason(given, call)
  const query = queryFor(scope, action, where, call)
  return {
    do: action,
    where,
    query,
    ...matchedOf(query, yield* countsBy(scope)),
    ...(given.rate !== undefined && { rate: parseRate(given.rate, `${call}: rate`) }),
    ...(flag(given.cascade, `${call}: cascade`) && { cascade: true as const }),
    ...(action === 'update' && { edits: yield* parseEdits(scope, given.changes, query, call) }),
    ...(reason !== undefined && { reason }),
    ...(given.by !== undefined && { by: cleanText(checkName(given.by, 'name of who asks')) }),
  }
}

function whereOf({ where, all }: Given, call: string): JobFilter {
  const isAll = flag(all, `${call}: all`)
  if (where !== undefined) checkFilter(where)
  const isEmpty = where === undefined || Object.keys(where).length === 0
  if (isEmpty && !isAll) {
    throw noFilter(call, "{ where: { state: 'failed' } }", 'all: true')
  }
  if (!isEmpty && isAll) throw invalid(`${call}: give either where or all, not both.`)
  return where ?? {}
}

/** The query for the jobs to visit. Throws for a state in which the action can change no job. */
function queryFor(scope: RequestScope, action: BulkAction, where: JobFilter, call: string): Query {
  const states = statesFor[action]
  const named = where.state === undefined ? [] : [where.state].flat()
  const query = queryIn(scope, where, states)
  const useless = named.filter((state) => !(states as readonly string[]).includes(state))
  if (query !== undefined && useless.length === 0) return query
  throw invalid(
    `${call}: ${action} changes no ${useless.join(' or ')} jobs, only ${states.join(', ')} ones. Leave where.state out, or name one of these.`,
    { states: useless },
  )
}

function parseRate(rate: OperationRate, where: string): NonNullable<BulkSpec['rate']> {
  refuseUnknown(rate, ['max', 'per'], where)
  const max = whole(rate.max, `${where}.max`, 1)
  const per = parseDuration(rate.per, `${where}.per`)
  if (per === 0) throw invalid(`${where} is written { max: 50, per: '1s' }; per must be longer than 0.`)
  return { max, per }
}

/** Counts of jobs by name and state, as the store keeps them. */
export type CountsByName = Readonly<Record<string, Readonly<Record<string, number>>>>

/** The counts of the queue. */
export function* countsBy({ queue, session }: Pick<RequestScope, 'queue' | 'session'>): Steps<CountsByName> {
  const [tally] = yield* step(session.tally(queue))
  return tally?.names ?? {}
}

/** The fields of a query that the store's counters answer. */
const counted: ReadonlySet<string> = new Set(['queue', 'kind', 'states', 'names'] satisfies (keyof Query)[])

/** The counts of the jobs that a query finds, by name and state; undefined where counters do not tell. */
export function countsIn(query: Query, counts: CountsByName): CountsByName | undefined {
  if (Object.entries(query).some(([field, value]) => value !== undefined && !counted.has(field))) return undefined
  // From entries, so that a job named `__proto__` is a name like any other.
  const found = Object.entries(counts).flatMap(([name, states]) => {
    if (query.names?.includes(name) === false) return []
    const kept = Object.entries(states).filter(([state, count]) => {
      return count > 0 && query.states?.some((each) => each === state) !== false
    })
    return kept.length === 0 ? [] : [[name, Object.fromEntries(kept)] as const]
  })
  return Object.fromEntries(found)
}

/** The sum of counts by name and state. */
export function sumOf(counts: CountsByName): number {
  return Object.values(counts).reduce(
    (sum, states) => sum + Object.values(states).reduce((total, count) => total + count, 0),
    0,
  )
}

function matchedOf(query: Query, counts: CountsByName): Pick<BulkSpec, 'matched'> {
  const found = countsIn(query, counts)
  return found === undefined ? {} : { matched: sumOf(found) }
}

/** The changes for each name that has jobs: its schema must accept new data before anything is written. */
export function* parseEdits(
  scope: RequestScope,
  changes: UpdateOptions | undefined,
  query: Query,
  call: string,
): Steps<readonly NamedEdit[]> {
  if (!isObject(changes)) throw mustBe(`${call}: changes`, 'an object like { priority: 5 }', changes)
  const { payloads } = scope
  const { data, ...rest } = changes
  const plain = yield* parseUpdate(rest, '', payloads)
  if (data === undefined) {
    if (Object.keys(plain).length > 0) return [{ edit: plain }]
    throw invalid(`${call}: changes must hold data, priority, delay or runAt.`)
  }
  if (payloads.names === undefined) return [{ edit: yield* parseUpdate(changes, '', payloads) }]
  const used = Object.keys(countsIn({ states: query.states! }, yield* countsBy(scope)) ?? {})
  const edits: NamedEdit[] = []
  for (const name of query.names ?? used) {
    const version = payloads.versionOf(name)
    edits.push({ name, ...(version !== undefined && { version }), edit: yield* parseUpdate(changes, name, payloads) })
  }
  return edits
}

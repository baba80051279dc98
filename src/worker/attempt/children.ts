// worker/attempt/children.ts: the jobs that a handler adds, and its wait for them: `ctx.add`, `ctx.waitFor`.
import type { NewEdge } from '../../job/change.js'
import { MillraceError } from '../../job/errors/errors.js'
import type { Edge, FailurePolicy, JobRecord } from '../../job/job.js'
import type { Outcome, Returned } from '../../job/lifecycle.js'
import { refuseUnknown } from '../../job/values/names.js'
import { NO_OPTIONS } from '../../queue/add.js'
import type { Adder } from '../../queue/add.js'
import type { JobDefinition } from '../../queue/define.js'
import type { JobOperations } from '../../queue/operations/job-operations.js'
import { pageQuery, requestedPage } from '../../queue/operations/filter.js'
import type { PageOptions } from '../../queue/operations/filter.js'
import { outcomeOf, refuseWrongAfter } from '../../queue/flows/chain-types.js'
import type { DependencyPage, Ended } from '../../queue/flows/chain-types.js'
import { parseAfter } from '../../queue/add-options.js'
import type { AddOptions, Dependency } from '../../queue/add-options.js'
import { isSignalEdge } from '../../queue/send-signal.js'
import { FollowUps, outOfOrder } from '../../queue/flows/follow-ups.js'
import type { Planned } from '../../queue/flows/follow-ups.js'
import { readDetails } from '../../store/read-pages.js'
import { runSteps } from '../../store/maybe-sync.js'
import type { JobDetails, Verdict } from '../../store/store.js'
import { EarlyExit } from './early-exit.js'

/** How a job waits for its children. */
export interface WaitOptions {
  /** What the failure of a child means for the job, unless the child has its own `onFailure`. Default `fail`. */
  readonly onFailure?: FailurePolicy
  /** Cancel the unfinished children before the failure of another fails or removes the job. Default false. */
  readonly cancelSiblings?: boolean
}

/** Thrown by `ctx.waitFor` to end the run. */
class Waiting extends EarlyExit {
  override readonly name = 'Waiting'
}

/** The outcome of an attempt that waits. */
type Waits = Extract<Outcome, { kind: 'waits' }>

/** The jobs that one attempt adds and waits for. */
export class Children {
  readonly #record: JobRecord
  readonly #own: FollowUps
  readonly #adder: Adder
  readonly #uncaught: (call: string) => void
  #edges: readonly NewEdge[] | undefined
  #all: FollowUps | undefined

  /** `uncaught` is called if nothing caught what `ctx.waitFor` threw. */
  constructor(record: JobRecord, adder: Adder, uncaught: (call: string) => void) {
    this.#record = record
    this.#uncaught = uncaught
    this.#adder = adder
    this.#own = new FollowUps(adder, record, undefined)
  }

  /** The jobs added with `ctx.add`, outside of `ctx.complete`. */
  get own(): FollowUps {
    return this.#own
  }

  /** The same, combined with the jobs that the callback of `ctx.complete` added, as one settlement. */
  combined(done: FollowUps | undefined): FollowUps {
    return done === undefined ? this.#own : (this.#all ??= this.#own.and(done))
  }

  /** `ctx.add`: joins the callback of `ctx.complete` that is running, or else the settlement of this attempt. */
  add(inside: FollowUps | undefined, name: string, data: unknown, options: AddOptions | undefined): Promise<Planned> {
    return (inside ?? this.#own).planning().add(name, data, options ?? NO_OPTIONS)
  }

  /** `ctx.waitFor`. */
  waitFor(children: Dependency | readonly Dependency[], options: WaitOptions = {}, late = false): never {
    if (late) throw outOfOrder('ctx.waitFor was called after ctx.complete; a job that completes does not wait')
    refuseUnknown(options, ['onFailure', 'cancelSiblings'], 'ctx.waitFor')
    const { onFailure, cancelSiblings = false } = options
    if (typeof cancelSiblings !== 'boolean') {
      throw new MillraceError('INVALID_OPTION', 'ctx.waitFor: cancelSiblings must be true or false.')
    }
    const edges = parseAfter(
      { after: children, ...(onFailure !== undefined && { onChildFailure: onFailure }) },
      'ctx.waitFor',
    )
    if (edges.length === 0) {
      throw new MillraceError(
        'INVALID_OPTION',
        'ctx.waitFor: there is nothing to wait for, and the handler would run again for ever. Call it only with children.',
      )
    }
    const { id, chainId } = this.#record
    if (edges.some(({ on }) => on === id || on === chainId)) {
      throw new MillraceError('WAIT_CYCLE', `ctx.waitFor: job ${id} cannot wait for its own chain.`, {
        details: { id, cycle: [id, id] },
      })
    }
    this.#edges = cancelSiblings
      ? edges.map(({ on, policy }): NewEdge => ({ on, policy: `${policy as FailurePolicy}-all` }))
      : edges
    throw new Waiting('The job waits for its children.', () => this.#uncaught('ctx.waitFor'))
  }

  /** Whether the handler asked to wait. */
  get waits(): boolean {
    return this.#edges !== undefined
  }

  /** Throws if one of the jobs to wait for waits for this job. */
  refuseCycle(known?: JobDetails): Promise<void> {
    return this.#adder.refuseCycle('ctx.waitFor', this.#record, this.outcome().for, this.#own.also, known)
  }

  /** The outcome of an attempt that waits. */
  outcome(): Waits {
    const { also } = this.#own.with(undefined)
    return { kind: 'waits', for: this.#edges!.map(({ on, policy }) => ({ on: this.#own.standing(on), policy })), also }
  }
}

/**
 * Throws if a job to wait for waits for this job, or if this job has waited for all of them already: its handler would
 * run again for ever.
 */
export async function refuseEndlessWait(
  operations: JobOperations,
  { id }: JobRecord,
  children: Children,
): Promise<void> {
  await children.own.close()
  const { for: edges } = children.outcome()
  const { jobs } = await operations.session().details({ jobs: [id], parts: ['edges', 'dependents', 'related'] })
  const known = new Map((jobs[0]?.edges ?? []).map((edge) => [edge.chain, edge.state]))
  await children.refuseCycle(jobs[0])
  const isOver = (chain: string): boolean => known.has(chain) && known.get(chain) !== 'open'
  if (!edges.every(({ on }) => isOver(on))) return
  throw new MillraceError(
    'INVALID_OPTION',
    `ctx.waitFor: job ${id} has waited for all of these, and its handler would run again for ever. Look at ctx.dependencies() first.`,
    { details: { id } },
  )
}

/**
 * The outcomes of the jobs that a job waited for, in order: all of them, or a page. A running job has no dependency that
 * is still open: if there is one, a later attempt has added it, and this one throws what `lost` returns.
 */
export async function dependenciesOf(
  operations: JobOperations,
  record: JobRecord,
  definition: JobDefinition | undefined,
  lost: () => MillraceError,
  options: PageOptions = {},
): Promise<readonly Ended[] | DependencyPage> {
  const { id, name } = record
  const page = requestedPage(options, 'ctx.dependencies')
  if (page !== undefined) return dependencyPage(operations, record, definition, lost, page)
  const [found] = await runSteps(readDetails(operations.session(), { jobs: [id], parts: ['edges', 'outcomes'] }))
  const ended = outcomesOf(found?.edges ?? [], lost)
  refuseWrongAfter(name, definition, namesOf(ended), 'ctx.dependencies')
  return ended
}

/** A page of the outcomes. A page that holds only signals is skipped. */
async function dependencyPage(
  operations: JobOperations,
  { id, name }: JobRecord,
  definition: JobDefinition | undefined,
  lost: () => MillraceError,
  page: PageOptions,
): Promise<DependencyPage> {
  const { limit = 1, cursor } = pageQuery(page, 'ctx.dependencies')
  const ended: Ended[] = []
  let after = cursor === undefined ? undefined : Number(cursor)
  do {
    const edges = { limit, ...(after !== undefined && { after }) }
    const { jobs } = await operations.session().details({ jobs: [id], parts: ['edges', 'outcomes'], edges })
    ended.push(...outcomesOf(jobs[0]?.edges ?? [], lost))
    after = jobs[0]?.more?.edges
  } while (ended.length === 0 && after !== undefined)
  const place = { first: cursor === undefined, last: after === undefined }
  refuseWrongAfter(name, definition, namesOf(ended), 'ctx.dependencies', place)
  return { dependencies: ended, ...(after !== undefined && { cursor: String(after) }) }
}

function outcomesOf(edges: readonly Edge[], lost: () => MillraceError): Ended[] {
  const dependencies = edges.filter((edge) => !isSignalEdge(edge))
  if (dependencies.some(({ state }) => state === 'open')) throw lost()
  return dependencies.map(outcomeOf)
}

function namesOf(ended: readonly Ended[]): readonly string[] {
  return ended.map(({ name }) => name)
}

/** The outcome of a handler that returned, with the jobs that it added. */
export function returned(result: Returned['result'], followUps: FollowUps | undefined): Returned {
  return followUps === undefined ? { kind: 'returned', result, also: NOTHING } : followUps.with(result)
}

const NOTHING: readonly never[] = []

/** The error of a wait that was refused although all its children could be added. */
export function cannotWait({ id }: JobRecord, verdict: Verdict & { ok: false }): MillraceError {
  return new MillraceError(
    'DEPENDENCY_MISSING',
    `ctx.waitFor of job ${id}: there is no job ${verdict.id} to wait for.`,
    {
      details: { id: verdict.id },
    },
  )
}

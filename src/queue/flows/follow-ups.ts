// queue/flows/follow-ups.ts: the jobs that a settlement adds in the same commit, and the continuation of its chain.
import type { Insert } from '../../job/change.js'
import { MillraceError } from '../../job/errors/errors.js'
import { invalid } from '../../job/values/options.js'
import type { JobRecord } from '../../job/job.js'
import { continueChain } from '../../job/lifecycle.js'
import type { Returned } from '../../job/lifecycle.js'
import { holdsOverlapKey } from '../../job/schedules/schedule.js'
import { runSteps } from '../../store/maybe-sync.js'
import type { GivenBy, Group, Refused, Store, Verdict } from '../../store/store.js'
import type { Adder, Prepared } from '../add.js'
import { NO_OPTIONS, queueFull } from '../add.js'
import type { JobDefinitions, NameOf } from '../define.js'
import { AwaitedPromise } from './awaited.js'
import { refuseWrongNext } from './chain-types.js'
import type { AddOptions } from '../add-options.js'
import { Overflow } from '../settings/overflow.js'
import type { OverflowSession } from '../settings/overflow.js'
import type { InputFor } from '../queue-types.js'

/** A job that exists once its commit is durable. */
export interface Planned {
  /** Its id; if a job with the same dedup key already exists, the id of that job. */
  readonly id: string
}

/** The arguments of `add` and `continueWith` after the name. Data may be omitted if its type allows undefined. */
export type PlanArguments<Input> = undefined extends Input
  ? [data?: Input, options?: AddOptions]
  : [data: Input, options?: AddOptions]

/** Adds jobs in the commit of the settlement: they exist if and only if the settlement does. */
export interface Planning<Jobs extends JobDefinitions, Next extends NameOf<Jobs> = NameOf<Jobs>> {
  /**
   * Adds a child to the same queue, in the same commit. A duplicate, by id or dedup key, resolves to the existing job,
   * as with `queue.add`. Stores without transactions find duplicates when the job settles, and cannot replace there.
   */
  add<Name extends NameOf<Jobs>>(name: Name, ...args: PlanArguments<InputFor<Jobs, Name>>): Promise<Planned>
  /**
   * Continues the chain with a job in the same queue, in the same commit; once. Jobs that wait for the chain wait for
   * it too. Takes the names in `next` of the job's declaration, if declared.
   */
  continueWith<Name extends Next>(name: Name, ...args: PlanArguments<InputFor<Jobs, Name>>): Promise<Planned>
}

/** What a callback that runs in a transaction receives: the transaction, if the store has them. */
export type Inside<S extends Store> = [GivenBy<S>] extends [never]
  ? object
  : unknown extends GivenBy<S>
    ? { readonly tx?: unknown } // an unknown store may have no transactions
    : { readonly tx: GivenBy<S> }

/** What the callback of `complete` receives. */
export type Completing<
  S extends Store,
  Jobs extends JobDefinitions,
  Next extends NameOf<Jobs> = NameOf<Jobs>,
> = Inside<S> & Planning<Jobs, Next>

/** Sends a job within the open transaction; undefined on stores without transactions. */
export type SendNow = ((prepared: Prepared) => Promise<Planned>) | undefined

/** Makes a call of the callback. */
type Guard = (call: string, make: () => Promise<Planned>, late: boolean) => Promise<Planned>

/** Collects the jobs that the callback of one `complete` adds. Without a transaction, the settlement inserts them. */
export class FollowUps {
  readonly #adder: Adder
  readonly #job: JobRecord
  readonly #sendNow: SendNow
  readonly #otherJobs: () => readonly Prepared[]
  readonly #pending = new Set<Promise<unknown>>()
  /** The errors of calls that have failed and that nothing has awaited. */
  readonly #unawaited = new Map<Promise<unknown>, { readonly error: unknown }>()
  #also: Prepared[] = []
  #continuation: Prepared | undefined
  /** The continuation as a job of this chain. */
  #next: Insert | undefined
  #continued = false
  #closed = false
  /** The jobs to drop for them. */
  readonly #overflow = new Overflow()
  /** Existing jobs in place of planned ones, by the id of the planned job. */
  readonly #existing = new Map<string, string>()

  /** `otherJobs`: further jobs that are inserted with the settlement. */
  constructor(adder: Adder, job: JobRecord, sendNow: SendNow, otherJobs: () => readonly Prepared[] = () => []) {
    this.#adder = adder
    this.#job = job
    this.#sendNow = sendNow
    this.#otherJobs = otherJobs
  }

  /** The jobs to insert with the settlement. */
  get also(): readonly Prepared[] {
    return this.#also
  }

  /**
   * What the callback receives. Closures, not methods, because callers destructure them. `guard` makes the calls, and
   * gets whether they come too late.
   */
  planning(guard: Guard = (_call, make) => make()): Planning<JobDefinitions> {
    const track = (what: string, work: () => Promise<Planned>): Promise<Planned> =>
      guard(what, () => this.#track(what, work), this.#closed)
    return {
      add: (name, ...args) => track('add', () => this.#add(name, args[0], args[1] ?? NO_OPTIONS)),
      continueWith: (name, ...args) =>
        track('continueWith', () => this.#continue(name, args[0], args[1] ?? NO_OPTIONS)),
    }
  }

  /**
   * Called when the callback has ended. Waits for calls that the callback did not await; rejects if one of them fails
   * or has failed, or if the continuation would wait in a cycle.
   */
  async close(): Promise<void> {
    this.#closed = true
    await Promise.all(this.#pending)
    for (const { error } of this.#unawaited.values()) throw error
    const next = this.#continuation?.insert
    if (next === undefined || next.edges.length === 0) return
    const planned = [...this.#otherJobs(), ...this.#also]
    await this.#adder.refuseCycle(`continueWith('${next.job.name}')`, this.#job, next.edges, planned)
  }

  /** Whether the chain continues: the job may then end without a result of its own. */
  get goesOn(): boolean {
    return this.#continuation !== undefined
  }

  /** Whether some are still being prepared, or have failed without being awaited. */
  get isBusy(): boolean {
    return this.#pending.size > 0 || this.#unawaited.size > 0
  }

  /** Combines these with others, which may contain the continuation. */
  and(others: FollowUps): FollowUps {
    const all = new FollowUps(this.#adder, this.#job, undefined)
    all.#also = [...this.#also, ...others.#also]
    all.#continuation = others.#continuation
    return all
  }

  /** The id of the job that exists for a planned one: its own, unless there was a duplicate. */
  standing(id: string): string {
    return this.#existing.get(id) ?? id
  }

  /** The outcome with all of them. */
  with(result: Returned['result']): Returned {
    const also = [...this.#overflow.changes, ...this.#also.map(({ insert }) => insert)]
    if (this.#continuation === undefined) return { kind: 'returned', result, also }
    this.#next ??= continueChain(this.#job, this.#continuation.insert)
    return { kind: 'returned', result, also, continuation: this.#next }
  }

  /**
   * Resolves the refusal of a settlement by one of the jobs that it adds or drops. Leaves out a duplicate where the
   * existing job is as good, and drops a job of a full group with `drop-oldest`. Returns whether it could: then the
   * settlement can be sent again. `error` is what `queue.add` would throw. `undefined`: the refusal is about another
   * change of the group. Rejects only if the store does not respond.
   */
  async resolveRefusal(
    group: Group,
    refused: Refused,
    session: Pick<OverflowSession, 'details'>,
  ): Promise<{ readonly error?: unknown } | undefined> {
    const change = group[refused.change]!
    if (this.#overflow.includes(change)) {
      this.#overflow.clear() // it was moved or started: the backlog may have room now
      return {}
    }
    const prepared = this.#also.find(({ insert }) => insert === change)
    const insert = prepared?.insert ?? (change === this.#next ? this.#next : undefined)
    if (insert === undefined) return undefined
    if (refused.why === 'full') {
      if (await runSteps(this.#overflow.dropOldest(group, refused, session))) return {}
      return { error: queueFull(insert, refused.job) }
    }
    if (prepared === undefined) return { error: cannotContinue(this.#job, insert, refused) }
    try {
      this.#existing.set(insert.job.id, (await this.#adder.handle(prepared, refused)).id)
    } catch (error) {
      return { error }
    }
    this.#also = this.#also.filter((each) => each !== prepared)
    return {}
  }

  #track<T>(what: string, work: () => Promise<T>): Promise<T> {
    if (this.#closed) return Promise.reject(outOfOrder(`${what} was called after the callback of complete had ended`))
    const done = work()
    let awaited = false
    this.#pending.add(done)
    done.then(
      () => this.#pending.delete(done),
      (error: unknown) => {
        this.#pending.delete(done)
        if (!awaited) this.#unawaited.set(done, { error })
      },
    )
    const onAwait = (): void => {
      awaited = true
      this.#unawaited.delete(done)
    }
    return new AwaitedPromise((resolve, reject) => void done.then(resolve, reject), onAwait, false)
  }

  async #add(name: string, data: unknown, options: AddOptions): Promise<Planned> {
    const prepared = await this.#adder.prepare(name, data, options, { parentId: this.#job.id })
    if (this.#sendNow !== undefined) return this.#sendNow(prepared)
    if (prepared.mode === 'replace' || prepared.mode === 'schedule') {
      throw invalid(
        prepared.mode === 'schedule'
          ? `add('${name}') in complete: repeat needs a store with transactions; use queue.schedule outside of it.`
          : `add('${name}') in complete: dedup mode 'replace' needs a store with transactions; use 'keep' or 'reject'.`,
      )
    }
    this.#also.push(prepared)
    return { id: prepared.insert.job.id }
  }

  async #continue(name: string, data: unknown, options: AddOptions): Promise<Planned> {
    refuseWrongNext(this.#job, this.#adder.definition(this.#job.name), name)
    if (this.#continued) throw outOfOrder('continueWith was called twice; a chain goes on with one job')
    this.#continued = true
    try {
      const prepared = await this.#adder.prepare(name, data, options)
      if (prepared.mode === 'schedule') {
        throw invalid(`continueWith('${name}'): a chain cannot go on with a repeated job.`)
      }
      if (prepared.insert.job.dedup !== undefined && holdsOverlapKey(this.#job)) {
        throw invalid(
          `continueWith('${name}'): a run of a schedule keeps the next one away until its chain has ended, by a key of its own. Leave dedup out, or schedule it with overlap: 'allow'.`,
        )
      }
      this.#continuation = prepared
      return { id: this.#continuation.insert.job.id }
    } catch (error) {
      this.#continued = false
      throw error
    }
  }
}

/** The error for a continuation that cannot be inserted. */
export function cannotContinue(job: JobRecord, { job: next }: Insert, verdict: Verdict & { ok: false }): MillraceError {
  const which = `continueWith('${next.name}') of job ${job.id}`
  switch (verdict.why) {
    case 'duplicate':
      return new MillraceError(
        verdict.id === next.id ? 'DUPLICATE_ID' : 'DUPLICATE_JOB',
        `${which}: job ${verdict.id} has its id or its dedup key, and a chain goes on only with a new job.`,
        { details: { id: verdict.id } },
      )
    case 'missing':
      return new MillraceError('DEPENDENCY_MISSING', `${which}: there is no job ${verdict.id} for it to run after.`, {
        details: { id: verdict.id },
      })
    case 'full':
      return queueFull({ kind: 'insert', job: next, edges: [] }, verdict.job)
    default:
      return new MillraceError('STORE_UNAVAILABLE', `${which}: the store refused it (${verdict.why}).`)
  }
}

/** The error for a call made twice, too late or too early. */
export function outOfOrder(what: string): MillraceError {
  return new MillraceError('CALLED_OUT_OF_ORDER', `${what}.`)
}

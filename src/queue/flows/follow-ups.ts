// queue/flows/follow-ups.ts: the jobs that a settlement brings with it: those added in the same commit, and the chain's next.
import type { Insert } from '../../job/change.js'
import { MillraceError } from '../../job/errors.js'
import type { JobRecord } from '../../job/job.js'
import { continueChain, isDenied } from '../../job/lifecycle.js'
import type { Decision, Returned } from '../../job/lifecycle.js'
import { keepsRunsAway } from '../../job/schedule.js'
import { stepwise } from '../../store/maybe-sync.js'
import type { GivenBy, Refused, Store, Verdict } from '../../store/store.js'
import type { Adder, Prepared } from '../add.js'
import { NO_OPTIONS, noRoom } from '../add.js'
import type { JobDefinitions, NameOf } from '../define.js'
import { refuseWrongNext } from './chain-types.js'
import type { AddOptions } from '../add-options.js'
import { Overflow } from '../settings/overflow.js'
import type { OverflowSession } from '../settings/overflow.js'
import type { InputFor } from '../queue-types.js'

/** A job that will be there when its commit is. */
export interface Planned {
  /** Its id; where a job with the same dedup key stands already, that one's. */
  readonly id: string
}

/** What `add` and `continueWith` take after the name. Data may be left out where undefined is data. */
export type PlanArguments<Input> = undefined extends Input
  ? [data?: Input, options?: AddOptions]
  : [data: Input, options?: AddOptions]

/** Adds jobs that are there if, and only if, this settlement is. */
export interface Planning<Jobs extends JobDefinitions, Next extends NameOf<Jobs> = NameOf<Jobs>> {
  /**
   * Adds a child to the same queue, in the same commit. Where a job with its id or dedup key stands already, that one is
   * meant, as with `queue.add`; stores without transactions find out when the job settles, and cannot replace there.
   */
  add<Name extends NameOf<Jobs>>(name: Name, ...args: PlanArguments<InputFor<Jobs, Name>>): Promise<Planned>
  /**
   * Continues the chain with a job in the same queue, in the same commit; once. Who waits for the chain waits for it. Takes
   * the names in `next` of the job's declaration, if it has one.
   */
  continueWith<Name extends Next>(name: Name, ...args: PlanArguments<InputFor<Jobs, Name>>): Promise<Planned>
}

/** What a callback that runs in a transaction is given: the transaction, where the store has any. */
export type Inside<S extends Store> = [GivenBy<S>] extends [never]
  ? object
  : unknown extends GivenBy<S>
    ? { readonly tx?: unknown } // of a store that is not known, which may have none
    : { readonly tx: GivenBy<S> }

/** What the callback of `complete` is given. */
export type Completing<
  S extends Store,
  Jobs extends JobDefinitions,
  Next extends NameOf<Jobs> = NameOf<Jobs>,
> = Inside<S> & Planning<Jobs, Next>

/** Sends a job within the transaction that is open; undefined on stores that have none. */
export type SendNow = ((prepared: Prepared) => Promise<Planned>) | undefined

/** Gathers what the callback of one `complete` asks for. Without a transaction, it leaves with the settlement. */
export class FollowUps {
  readonly #adder: Adder
  readonly #job: JobRecord
  readonly #sendNow: SendNow
  readonly #beside: () => readonly Prepared[]
  readonly #pending = new Set<Promise<unknown>>()
  #also: Prepared[] = []
  #continuation: Prepared | undefined
  #continued = false
  #closed = false
  /** What is dropped for them. */
  readonly #room = new Overflow()
  /** Jobs that stand in place of planned ones, by the ids of these. */
  readonly #instead = new Map<string, string>()

  /** `beside`: what else is to be added with the settlement. */
  constructor(adder: Adder, job: JobRecord, sendNow: SendNow, beside: () => readonly Prepared[] = () => []) {
    this.#adder = adder
    this.#job = job
    this.#sendNow = sendNow
    this.#beside = beside
  }

  /** Jobs that are to be inserted with the settlement. */
  get also(): readonly Prepared[] {
    return this.#also
  }

  /** What the callback is given. Getters would do, but these are called without their object. */
  planning(): Planning<JobDefinitions> {
    return {
      add: (name, ...args) => this.#take('add', () => this.#add(name, args[0], args[1] ?? NO_OPTIONS)),
      continueWith: (name, ...args) =>
        this.#take('continueWith', () => this.#continue(name, args[0], args[1] ?? NO_OPTIONS)),
    }
  }

  /** The callback has ended: waits for those it did not wait for, and rejects if one of them fails, or would wait for ever. */
  async close(): Promise<void> {
    this.#closed = true
    await Promise.all(this.#pending)
    const next = this.#continuation?.insert
    if (next === undefined || next.edges.length === 0) return
    const planned = [...this.#beside(), ...this.#also]
    await this.#adder.refuseCycle(`continueWith('${next.job.name}')`, this.#job, next.edges, planned)
  }

  /** Whether the chain goes on: the job may then end without a result of its own. */
  get goesOn(): boolean {
    return this.#continuation !== undefined
  }

  /** Whether some are still being prepared. */
  get isBusy(): boolean {
    return this.#pending.size > 0
  }

  /** These and those of another, which may carry the chain on, as one. */
  and(others: FollowUps): FollowUps {
    const all = new FollowUps(this.#adder, this.#job, undefined)
    all.#also = [...this.#also, ...others.#also]
    all.#continuation = others.#continuation
    return all
  }

  /** Whether the store refused them over a job that was to be dropped for one of them. */
  drops(verdict: Verdict & { ok: false }): boolean {
    return this.#room.isAbout(verdict)
  }

  /** The job that came to be in place of a planned one: itself, unless another stood already. */
  standing(id: string): string {
    return this.#instead.get(id) ?? id
  }

  /** The outcome with all of them. */
  with(result: Returned['result']): Returned {
    const also = [...this.#room.changes, ...this.#also.map(({ insert }) => insert)]
    const continuation = this.#continuation?.insert
    if (continuation === undefined) return { kind: 'returned', result, also }
    return { kind: 'returned', result, also, continuation: continueChain(this.#job, continuation) }
  }

  /**
   * The store refused a settlement over one of these jobs. Leaves out those that stand already, where that is as good, and
   * makes room where groups say so; answers what `queue.add` would have thrown otherwise, or what the store says of the job
   * itself if that is not as it was seen. Rejects only if the store gives no answer.
   */
  async sortOut(
    decide: (outcome: Returned) => Decision,
    way: OverflowSession,
  ): Promise<{ readonly error: unknown } | { readonly moved: Refused } | undefined> {
    const kept: Prepared[] = []
    this.#room.clear()
    for (const each of this.#also) {
      const refused = await this.#probe(kept, each, decide, way)
      if (refused === undefined) {
        kept.push(each)
        continue
      }
      if (this.#isMoved(refused)) return { moved: refused }
      if (refused.why === 'full') return { error: noRoom(each.insert, refused.job) }
      try {
        this.#instead.set(each.insert.job.id, (await this.#adder.handle(each, refused)).id)
      } catch (error) {
        return { error }
      }
    }
    const last = this.#continuation
    const refused = last === undefined ? undefined : await this.#probe(kept, last, decide, way)
    if (refused !== undefined) {
      return this.#isMoved(refused) ? { moved: refused } : { error: cannotContinue(this.#job, last!.insert, refused) }
    }
    this.#also = kept
    return undefined
  }

  /** What the store has against a job after those kept, if anything, once there is as much room as can be made. */
  async #probe(
    kept: readonly Prepared[],
    { insert }: Prepared,
    decide: (outcome: Returned) => Decision,
    way: OverflowSession,
  ): Promise<Refused | undefined> {
    // The group that asks ends with a job whose id is taken for certain, so that it never lands.
    const taken: Insert = { kind: 'insert', job: { ...insert.job, id: this.#job.id, dedup: undefined }, edges: [] }
    const inserts = [...kept.map((each) => each.insert), insert]
    for (;;) {
      const also = [...this.#room.changes, ...inserts, taken]
      const group = decide({ kind: 'returned', result: undefined, also })
      if (isDenied(group)) return undefined
      const verdict = await way.commit(group)
      // One that was to be dropped and is not there any more comes up again when all is sent.
      if (verdict.ok || this.#room.isAbout(verdict)) return undefined
      if (this.#isMoved(verdict)) return verdict
      const atItsEnd = verdict.id === this.#job.id && insert.job.id !== this.#job.id
      if (atItsEnd) return undefined
      if (verdict.why !== 'full' || !(await stepwise(this.#room.make(verdict, inserts, way)))) return verdict
    }
  }

  /** Whether it is the job itself that the store has something against. */
  #isMoved({ why, id }: Refused): boolean {
    return id === this.#job.id && (why === 'fence' || why === 'missing')
  }

  #take<T>(what: string, work: () => Promise<T>): Promise<T> {
    if (this.#closed) return Promise.reject(outOfOrder(`${what} was called after the callback of complete had ended`))
    const done = work()
    this.#pending.add(done)
    const settled = (): void => void this.#pending.delete(done)
    done.then(settled, settled)
    return done
  }

  async #add(name: string, data: unknown, options: AddOptions): Promise<Planned> {
    const prepared = await this.#adder.prepare(name, data, options, { parentId: this.#job.id })
    if (this.#sendNow !== undefined) return this.#sendNow(prepared)
    if (prepared.mode === 'replace' || prepared.mode === 'schedule') {
      throw new MillraceError(
        'INVALID_OPTION',
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
        throw new MillraceError('INVALID_OPTION', `continueWith('${name}'): a chain cannot go on with a repeated job.`)
      }
      if (prepared.insert.job.dedup !== undefined && keepsRunsAway(this.#job)) {
        throw new MillraceError(
          'INVALID_OPTION',
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

/** The error for a chain whose next job cannot be inserted. */
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
      return noRoom({ kind: 'insert', job: next, edges: [] }, verdict.job)
    default:
      return new MillraceError('STORE_UNAVAILABLE', `${which}: the store refused it (${verdict.why}).`)
  }
}

/** The error for a call that came twice, too late or too early. */
export function outOfOrder(what: string): MillraceError {
  return new MillraceError('CALLED_OUT_OF_ORDER', `${what}.`)
}

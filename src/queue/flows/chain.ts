// queue/flows/chain.ts: a chain of jobs, and its settlement without a worker: approvals, callbacks of others, work done by hand.
import { MillraceError } from '../../job/errors.js'
import { isFinished } from '../../job/job.js'
import type { JobRecord, JobState } from '../../job/job.js'
import { encodeJson } from '../../job/json.js'
import { cancel, complete, isDenied, lock } from '../../job/lifecycle.js'
import type { Returned } from '../../job/lifecycle.js'
import { checkName } from '../../job/names.js'
import { OpenTransaction, refuseWithout, runInside } from '../../store/transaction-context.js'
import { connect } from '../../store/connection.js'
import { stepwise } from '../../store/maybe-sync.js'
import type { Store, Tx } from '../../store/store.js'
import type { Adder } from '../add.js'
import { cascadeIn, reasonIn } from '../operations/cascade.js'
import type { CancelOptions, CascadeArgument } from '../operations/cascade.js'
import { chainJobs, chainPage, chainResult, lastJob, noChain as notFound, removeChain } from './chain-jobs.js'
import { validate } from '../define.js'
import type { JobDefinitions } from '../define.js'
import type { JobOperations } from '../operations/job-operations.js'
import { pageIn, pageQuery } from '../operations/filter.js'
import type { PageOptions, PageWish } from '../operations/filter.js'
import { Job } from '../job.js'
import type { ResultOptions } from '../job.js'
import { withOverflow } from '../settings/overflow.js'
import { FollowUps, cannotContinue, outOfOrder } from './follow-ups.js'
import type { Completing } from './follow-ups.js'
import { splitTransaction, transactionIn, transactionOn } from '../transactions.js'
import type { InTransaction, TransactionArgument, WithTransaction } from '../transactions.js'
import type { JobPage } from '../queue-types.js'
import type { Session } from '../../store/session.js'

/** How often a settlement is judged anew because somebody else moved the job first. */
const RACES = 100

/** What a chain needs of its queue. */
export interface ChainHost {
  readonly queue: string
  readonly store: Store
  readonly jobs: JobDefinitions | undefined
  readonly desk: JobOperations
  readonly adder: Adder
  refuseClosed(): void
}

/** What the callback of `chain.complete` is given. */
export interface CurrentJob<Jobs extends JobDefinitions, S extends Store, AJob = Job> {
  /** The job at which the chain stands. */
  readonly job: AJob
  /**
   * Completes that job, whatever its state: the callback's writes, the jobs it adds and the settlement are there together
   * or not at all. Its result is what the callback returns. Once; without it, nothing happens to the job.
   */
  complete<Result>(work: (inside: NoInfer<Completing<S, Jobs>>) => Result | Promise<Result>): Promise<Result>
}

/** A job and those that it was continued with. `Result` is what it can end with. */
export class Chain<Jobs extends JobDefinitions, S extends Store, AJob = Job, Result = unknown> {
  /** The id that it was asked for by: of its first job, or of any of its jobs. */
  readonly id: string
  readonly #host: ChainHost

  /** @internal Chains come from `queue.chain`. */
  constructor(host: ChainHost, id: string) {
    this.id = checkName(id, 'job id')
    this.#host = host
  }

  /**
   * What the last job of the chain returned, as soon as the chain has ended; throws if that one failed, was cancelled or
   * removed. Waits by push, through all jobs that the chain goes on with.
   */
  result(options: ResultOptions = {}): Promise<Result> {
    return this.#do(() => chainResult(this.#host.desk, this.id, this.#host.queue, options)) as Promise<Result>
  }

  /** Its jobs by page, in order, as they stand; those that were removed are missing. */
  jobs(options: WithTransaction<S, PageWish>): Promise<JobPage<AJob>>
  /** All of them at once. */
  jobs(...options: TransactionArgument<S>): Promise<AJob[]>
  jobs(options: PageOptions & InTransaction = {}): Promise<unknown> {
    return this.#do(async () => {
      const { desk, queue } = this.#host
      const { tx, rest } = splitTransaction(options, 'chain.jobs')
      const page = pageIn(rest, 'chain.jobs')
      const way = desk.way(tx)
      const handle = (record: JobRecord): AJob => new Job(desk, record) as AJob
      if (page === undefined) return (await chainJobs(way, this.id, queue)).map(handle)
      const { items, cursor } = await chainPage(way, this.id, queue, pageQuery(page, 'chain.jobs'))
      return { jobs: items.map(handle), ...(cursor !== undefined && { cursor }) }
    })
  }

  /**
   * The state of the job at which it stands: a chain goes on as long as that is unfinished, and ended as that did. A method,
   * since it has to be read. Rejects with `JOB_NOT_FOUND` if none of its jobs is there.
   */
  state(...options: TransactionArgument<S>): Promise<JobState> {
    return this.#do(async () => {
      const way = this.#host.desk.way(transactionIn(options[0], 'chain.state'))
      return (await lastJob(way, this.id, this.#host.queue)).state
    })
  }

  /** Cancels the job at which it stands, and so the chain, for a `reason` if one is given; false if it had ended. */
  cancel(...options: [options?: WithTransaction<S, Pick<CancelOptions, 'reason'>>]): Promise<boolean> {
    return this.#do(async () => {
      const { desk, queue } = this.#host
      const { reason, rest } = reasonIn(options[0], 'chain.cancel')
      const way = desk.way(transactionIn(rest, 'chain.cancel'))
      for (let seen: string | undefined; ;) {
        const last = await lastJob(way, this.id, queue)
        if (last.id === seen) return false
        seen = last.id
        if ((await stepwise(desk.acting(last.id, (job) => cancel(job, reason), way, last))).done) return true // else it went on meanwhile
      }
    })
  }

  /**
   * Removes its jobs; answers how many there were. Refused while others wait for it, which `details.dependents` lists;
   * `cascade`: removes them as well.
   */
  remove(...options: CascadeArgument<S>): Promise<number> {
    return this.#do(async () => {
      const { cascade, rest } = cascadeIn(options[0], 'chain.remove')
      const { desk, queue } = this.#host
      return removeChain(desk, desk.way(transactionIn(rest, 'chain.remove')), this.id, queue, cascade)
    })
  }

  async #do<T>(work: () => Promise<T>): Promise<T> {
    this.#host.refuseClosed()
    return work()
  }

  /**
   * Settles the job at which the chain stands without a worker, in one transaction where the store has them. A worker
   * that is running it learns of it by its signal: `completed-elsewhere`. Rejects with `JOB_NOT_FOUND` or, if the chain has
   * ended, `INVALID_STATE`.
   *
   * ```ts
   * await queue.chain(id).complete(async ({ job, complete }) => {
   *   if (job.name === 'await-approval') await complete(async ({ continueWith }) => void (await continueWith('publish')))
   * })
   * ```
   */
  async complete<T>(
    work: (current: CurrentJob<Jobs, S, AJob>) => T | Promise<T>,
    ...options: TransactionArgument<S>
  ): Promise<T> {
    const { store, refuseClosed } = this.#host
    refuseClosed()
    if (typeof work !== 'function') {
      throw new MillraceError('INVALID_OPTION', 'chain.complete takes a function: async ({ job, complete }) => ….')
    }
    const given: Tx = transactionIn(options[0], 'chain.complete')
    const run = work as unknown as (current: CurrentJob<JobDefinitions, Store>) => T | Promise<T>
    if (given !== undefined) {
      refuseWithout(store)
      const open = new OpenTransaction(store, given, connect(store).outcomes)
      return runInside({ open }, async () => {
        try {
          return await new Completion(this.#host, this.id, given).run(run)
        } finally {
          await open.over()
        }
      })
    }
    if (!store.can.transactions) return new Completion(this.#host, this.id).run(run)
    return transactionOn(store, refuseClosed, () => new Completion(this.#host, this.id).run(run))
  }
}

/** One call of `complete`, inside its transaction where there is one. */
class Completion {
  readonly #host: ChainHost
  readonly #id: string
  /** The user's own transaction. */
  readonly #given: Tx
  readonly #way: Session
  #called = false
  #ended = false
  #running: Promise<unknown> | undefined

  constructor(host: ChainHost, id: string, given?: Tx) {
    this.#host = host
    this.#id = id
    this.#given = given
    this.#way = host.desk.way()
  }

  async run<T>(work: (current: CurrentJob<JobDefinitions, Store>) => T | Promise<T>): Promise<T> {
    const record = await this.#hold()
    const current: CurrentJob<JobDefinitions, Store> = {
      job: new Job(this.#host.desk, record),
      complete: (inner) => {
        const done = this.#complete(record, inner)
        this.#running = done.catch(() => {})
        return done
      },
    }
    const value = await work(current)
    this.#ended = true
    await this.#running
    return value
  }

  /** The job at which the chain stands, kept from others while the transaction is open. */
  async #hold(): Promise<JobRecord> {
    for (let races = 0; races < RACES; races++) {
      const record = await this.#last()
      if (!this.#way.within) return record
      const verdict = await this.#way.commit([lock(record, false)])
      if (verdict.ok) return record
    }
    throw notFound(this.#id, this.#host.queue)
  }

  async #last(): Promise<JobRecord> {
    const record = await lastJob(this.#way, this.#id, this.#host.queue)
    if (isFinished(record.state)) throw hasEnded(this.#id, record)
    return record
  }

  async #complete<Result>(
    record: JobRecord,
    work: (inside: Completing<Store, JobDefinitions>) => Result | Promise<Result>,
  ): Promise<Result> {
    if (typeof work !== 'function') throw new MillraceError('INVALID_OPTION', 'complete takes a function.')
    if (this.#ended) throw outOfOrder('complete was called after the callback of chain.complete had ended')
    if (this.#called) throw outOfOrder('complete was called twice for one job')
    this.#called = true
    try {
      if (!this.#way.within || this.#given !== undefined)
        return await this.#settle(record, this.#way, this.#given, work)
      // Caught by the caller, an error undoes the callback's writes and no more.
      return await transactionOn(
        this.#host.store,
        () => {},
        (tx) => this.#settle(record, this.#host.desk.way(), tx, work),
      )
    } catch (error) {
      this.#called = false
      throw error
    }
  }

  async #settle<Result>(
    record: JobRecord,
    way: Session,
    tx: Tx,
    work: (inside: Completing<Store, JobDefinitions>) => Result | Promise<Result>,
  ): Promise<Result> {
    const { adder } = this.#host
    const successors = new FollowUps(adder, record, way.within ? (prepared) => adder.send(prepared, way) : undefined)
    const value = await work({ ...(way.within && { tx }), ...successors.planning() })
    await successors.close()
    const result = await this.#result(record, value, successors.goesOn)
    await this.#land(record, successors, result, way)
    return value
  }

  /** The result as text, if the declared schema takes it. None is asked of a job whose chain goes on. */
  async #result({ id, name }: JobRecord, value: unknown, goesOn: boolean): Promise<Returned['result']> {
    const schema = this.#host.jobs?.[name]?.output
    const said = schema === undefined ? undefined : await validate(schema, value)
    if (said?.ok === false) {
      if (goesOn && value === undefined) return undefined
      throw new MillraceError('INVALID_RESULT', `The result for job ${id} was refused: ${said.issues.join('; ')}`, {
        details: { id, issues: said.issues },
      })
    }
    const result = said === undefined ? value : said.value
    return result === undefined ? undefined : encodeJson(result, 'result')
  }

  async #land(first: JobRecord, successors: FollowUps, result: Returned['result'], way: Session): Promise<void> {
    let record = first
    for (let races = 0; races < RACES; races++) {
      const outcome = successors.with(result)
      const changes = complete(record, outcome)
      if (isDenied(changes)) throw hasEnded(this.#id, record)
      const said = await way.commit(changes)
      const full = !said.ok && said.why === 'full' && way.within
      const verdict = full ? await stepwise(withOverflow(way, changes, said)) : said
      if (verdict.ok) return
      const own = verdict.id === record.id
      const standing = own && verdict.why === 'fence' ? await way.get(record.id) : undefined
      if (standing !== undefined) {
        record = standing // somebody moved it in between: judged anew
        continue
      }
      if (own && (verdict.why === 'missing' || verdict.why === 'fence')) throw notFound(this.#id, record.queue)
      if (outcome.continuation !== undefined && way.within) throw cannotContinue(record, outcome.continuation, verdict)
      const seen = record
      const failed = await successors.sortOut((tried) => complete(seen, tried), way)
      if (failed !== undefined && 'error' in failed) throw failed.error
    }
    throw notFound(this.#id, this.#host.queue)
  }
}

function hasEnded(id: string, last: JobRecord): MillraceError {
  return new MillraceError(
    'INVALID_STATE',
    `Chain ${id} has ended: its last job, ${last.id} ('${last.name}'), is ${last.state}. Only one that goes on can be completed.`,
    { details: { id: last.id, state: last.state } },
  )
}

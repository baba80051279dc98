// queue/flows/chain.ts: a chain of jobs, and completing it without a worker: approvals, callbacks, manual work.
import { MillraceError } from '../../job/errors/errors.js'
import { isFinished } from '../../job/job.js'
import type { JobRecord, JobState } from '../../job/job.js'
import { encodeJson } from '../../job/values/json.js'
import { cancel, complete, isDenied, lock } from '../../job/lifecycle.js'
import type { Returned } from '../../job/lifecycle.js'
import { checkName } from '../../job/values/names.js'
import { invalid } from '../../job/values/options.js'
import { OpenTransaction, requireTransactions, runAtPosition } from '../../store/transaction-context.js'
import { connect } from '../../store/connection.js'
import { runSteps, step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Store, Tx } from '../../store/store.js'
import type { Adder } from '../add.js'
import { splitCascade, splitReason } from '../operations/cascade.js'
import type { CancelOptions, CascadeArgument } from '../operations/cascade.js'
import { chainJobs, chainPage, chainResult, lastJob, chainNotFound, removeChain } from './chain-jobs.js'
import { validate } from '../define.js'
import type { JobDefinitions } from '../define.js'
import { changeJob, MAX_RACES } from '../operations/decide.js'
import type { JobOperations } from '../operations/job-operations.js'
import { requestedPage, pageQuery } from '../operations/filter.js'
import type { PageOptions, PageWish } from '../operations/filter.js'
import { Job } from '../job.js'
import type { ResultOptions } from '../job.js'
import { FollowUps, outOfOrder } from './follow-ups.js'
import type { Completing } from './follow-ups.js'
import { splitTransaction, transactionIn, transactionOn } from '../transactions.js'
import type { InTransaction, TransactionArgument, WithTransaction } from '../transactions.js'
import type { JobPage } from '../queue-types.js'
import type { Session } from '../../store/session.js'

/** What a chain uses of its queue. */
export interface ChainHost {
  readonly queue: string
  readonly store: Store
  readonly jobs: JobDefinitions | undefined
  readonly operations: JobOperations
  readonly adder: Adder
  refuseClosed(): void
}

/** What the callback of `chain.complete` receives. */
export interface CurrentJob<Jobs extends JobDefinitions, S extends Store, AJob = Job> {
  /** The current job of the chain. */
  readonly job: AJob
  /**
   * Completes that job, whatever its state. The callback's writes, the jobs it adds and the settlement commit together
   * or not at all. The job's result is what the callback returns. Can be called once; without it, the job does not
   * change.
   */
  complete<Result>(work: (inside: NoInfer<Completing<S, Jobs>>) => Result | Promise<Result>): Promise<Result>
}

/** A job and its continuations. `Result` is what the chain can end with. */
export class Chain<Jobs extends JobDefinitions, S extends Store, AJob = Job, Result = unknown> {
  /** The id given to `queue.chain`: that of its first job, or of any of its jobs. */
  readonly id: string
  readonly #host: ChainHost

  /** @internal Chains come from `queue.chain`. */
  constructor(host: ChainHost, id: string) {
    this.id = checkName(id, 'job id')
    this.#host = host
  }

  /**
   * Resolves to what the last job of the chain returned when the chain ends; throws if that job failed, was cancelled
   * or removed. Waits by events, through all continuations.
   */
  result(options: ResultOptions = {}): Promise<Result> {
    return this.#run(({ operations, queue }, id) =>
      step(chainResult(operations, id, queue, options)),
    ) as Promise<Result>
  }

  /** Its jobs by page, in order; removed jobs are missing. */
  jobs(options: WithTransaction<S, PageWish>): Promise<JobPage<AJob>>
  /** All of them at once. */
  jobs(...options: TransactionArgument<S>): Promise<AJob[]>
  jobs(options: PageOptions & InTransaction = {}): Promise<unknown> {
    return this.#run(function* ({ operations, queue }, id) {
      const { tx, rest } = splitTransaction(options, 'chain.jobs')
      const page = requestedPage(rest, 'chain.jobs')
      const session = operations.session(tx)
      const handle = (record: JobRecord): AJob => new Job(operations, record) as AJob
      if (page === undefined) return (yield* chainJobs(session, id, queue)).map(handle)
      const { items, cursor } = yield* chainPage(session, id, queue, pageQuery(page, 'chain.jobs'))
      return { jobs: items.map(handle), ...(cursor !== undefined && { cursor }) }
    })
  }

  /**
   * The state of its current job. The chain continues while that job is unfinished, and ends in that job's end state. A
   * method, because it reads the store. Rejects with `JOB_NOT_FOUND` if none of its jobs exists.
   */
  state(...options: TransactionArgument<S>): Promise<JobState> {
    return this.#run(function* ({ operations, queue }, id) {
      const session = operations.session(transactionIn(options[0], 'chain.state'))
      return (yield* lastJob(session, id, queue)).state
    })
  }

  /** Cancels its current job, and so the chain, with a `reason` if given; false if the chain had ended. */
  cancel(...options: [options?: WithTransaction<S, Pick<CancelOptions, 'reason'>>]): Promise<boolean> {
    return this.#run(function* ({ operations, queue }, id) {
      const { reason, rest } = splitReason(options[0], 'chain.cancel')
      const session = operations.session(transactionIn(rest, 'chain.cancel'))
      for (let previous: string | undefined; ;) {
        const last: JobRecord = yield* lastJob(session, id, queue)
        if (last.id === previous) return false
        previous = last.id
        const { done } = yield* changeJob(session, last, (job) => cancel(job, reason))
        if (done) return true // otherwise the chain continued meanwhile
      }
    })
  }

  /**
   * Removes its jobs; returns how many there were. Throws while other jobs wait for it, listed in `details.dependents`;
   * `cascade`: removes those too.
   */
  remove(...options: CascadeArgument<S>): Promise<number> {
    return this.#run(({ operations, queue }, id) => {
      const { cascade, rest } = splitCascade(options[0], 'chain.remove')
      return removeChain(operations.session(transactionIn(rest, 'chain.remove')), id, queue, cascade)
    })
  }

  #run<T>(work: (host: ChainHost, id: string) => Steps<T>): Promise<T> {
    const [host, { id }] = [this.#host, this]
    const steps = function* (): Steps<T> {
      host.refuseClosed()
      return yield* work(host, id)
    }
    return runSteps(steps())
  }

  /**
   * Settles the current job of the chain without a worker, in one transaction if the store has them. A worker that is
   * running the job gets an aborted signal: `completed-elsewhere`. Rejects with `JOB_NOT_FOUND` or, if the chain has
   * ended, `INVALID_STATE`.
   *
   * ```ts
   * await queue.chain(id).complete(async ({ job, complete }) => {
   * if (job.name === 'await-approval') await complete(async ({ continueWith }) => void (await continueWith('publish')))
   * })
   * ```
   */
  async complete<T>(
    work: (current: CurrentJob<Jobs, S, AJob>) => T | Promise<T>,
    ...options: TransactionArgument<S>
  ): Promise<T> {
    const { store, refuseClosed } = this.#host
    refuseClosed()
    if (typeof work !== 'function') throw invalid('chain.complete takes a function: async ({ job, complete }) => ….')
    const userTx: Tx = transactionIn(options[0], 'chain.complete')
    const run = work as unknown as (current: CurrentJob<JobDefinitions, Store>) => T | Promise<T>
    if (userTx !== undefined) {
      requireTransactions(store)
      const open = new OpenTransaction(store, userTx, connect(store).outcomes)
      return runAtPosition({ open }, async () => {
        try {
          return await new Completion(this.#host, this.id, userTx).run(run)
        } finally {
          await open.over()
        }
      })
    }
    if (!store.can.transactions) return new Completion(this.#host, this.id).run(run)
    return transactionOn(store, refuseClosed, () => new Completion(this.#host, this.id).run(run))
  }
}

/** One call of `complete`, inside its transaction if there is one. */
class Completion {
  readonly #host: ChainHost
  readonly #id: string
  /** The user transaction. */
  readonly #userTx: Tx
  readonly #session: Session
  #called = false
  #ended = false
  #running: Promise<unknown> | undefined

  constructor(host: ChainHost, id: string, userTx?: Tx) {
    this.#host = host
    this.#id = id
    this.#userTx = userTx
    this.#session = host.operations.session()
  }

  async run<T>(work: (current: CurrentJob<JobDefinitions, Store>) => T | Promise<T>): Promise<T> {
    const record = await this.#lockCurrent()
    const current: CurrentJob<JobDefinitions, Store> = {
      job: new Job(this.#host.operations, record),
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

  /** The current job of the chain, locked while the transaction is open. */
  async #lockCurrent(): Promise<JobRecord> {
    for (let races = 0; races < MAX_RACES; races++) {
      const record = await this.#readCurrent()
      if (!this.#session.within) return record
      const verdict = await this.#session.commit([lock(record, false)])
      if (verdict.ok) return record
    }
    throw chainNotFound(this.#id, this.#host.queue)
  }

  async #readCurrent(): Promise<JobRecord> {
    const record = await runSteps(lastJob(this.#session, this.#id, this.#host.queue))
    if (isFinished(record.state)) throw chainEnded(this.#id, record)
    return record
  }

  async #complete<Result>(
    record: JobRecord,
    work: (inside: Completing<Store, JobDefinitions>) => Result | Promise<Result>,
  ): Promise<Result> {
    if (typeof work !== 'function') throw invalid('complete takes a function.')
    if (this.#ended) throw outOfOrder('complete was called after the callback of chain.complete had ended')
    if (this.#called) throw outOfOrder('complete was called twice for one job')
    this.#called = true
    try {
      if (!this.#session.within || this.#userTx !== undefined)
        return await this.#settle(record, this.#session, this.#userTx, work)
      // A savepoint: if the caller catches an error, only the callback's writes are rolled back.
      return await transactionOn(
        this.#host.store,
        () => {},
        (tx) => this.#settle(record, this.#host.operations.session(), tx, work),
      )
    } catch (error) {
      this.#called = false
      throw error
    }
  }

  async #settle<Result>(
    record: JobRecord,
    session: Session,
    tx: Tx,
    work: (inside: Completing<Store, JobDefinitions>) => Result | Promise<Result>,
  ): Promise<Result> {
    const { adder } = this.#host
    const followUps = new FollowUps(
      adder,
      record,
      session.within ? (prepared) => adder.send(prepared, session) : undefined,
    )
    const value = await work({ ...(session.within && { tx }), ...followUps.planning() })
    await followUps.close()
    const result = await this.#result(record, value, followUps.goesOn)
    await this.#commit(record, followUps, result, session)
    return value
  }

  /** The result as JSON, if the declared schema accepts it. A job whose chain continues needs none. */
  async #result({ id, name }: JobRecord, value: unknown, goesOn: boolean): Promise<Returned['result']> {
    const schema = this.#host.jobs?.[name]?.output
    const validation = schema === undefined ? undefined : await validate(schema, value)
    if (validation?.ok === false) {
      if (goesOn && value === undefined) return undefined
      throw new MillraceError(
        'INVALID_RESULT',
        `The result for job ${id} was refused: ${validation.issues.join('; ')}`,
        {
          details: { id, issues: validation.issues },
        },
      )
    }
    const result = validation === undefined ? value : validation.value
    return result === undefined ? undefined : encodeJson(result, 'result')
  }

  async #commit(first: JobRecord, followUps: FollowUps, result: Returned['result'], session: Session): Promise<void> {
    let record = first
    for (let races = 0; races < MAX_RACES;) {
      const changes = complete(record, followUps.with(result))
      if (isDenied(changes)) throw chainEnded(this.#id, record)
      const verdict = await session.commit(changes)
      if (verdict.ok) return
      const resolved = await followUps.resolveRefusal(changes, verdict, session)
      if (resolved === undefined) {
        // The refusal is about the job itself: another writer moved it. Decide again.
        const current = verdict.why === 'fence' ? await session.get(record.id) : undefined
        if (current === undefined) throw chainNotFound(this.#id, record.queue)
        record = current
        races++
      } else if ('error' in resolved) throw resolved.error
    }
    throw chainNotFound(this.#id, this.#host.queue)
  }
}

function chainEnded(id: string, last: JobRecord): MillraceError {
  return new MillraceError(
    'INVALID_STATE',
    `Chain ${id} has ended: its last job, ${last.id} ('${last.name}'), is ${last.state}. Only one that goes on can be completed.`,
    { details: { id: last.id, state: last.state } },
  )
}

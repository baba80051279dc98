// queue/operations/queue-operations.ts: the methods of a queue that change existing jobs, by id or by filter.
import { runSteps } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Store } from '../../store/store.js'
import { splitCascade, splitReason } from './cascade.js'
import type { CancelArgument, CancelOptions, CascadeArgument, CascadeOptions } from './cascade.js'
import type { InputOf, JobDefinitions, NameOf } from '../define.js'
import { countMatches, failingJobs } from './failing-jobs.js'
import type { ErrorsOptions, ErrorsPage, MatchCount } from './failing-jobs.js'
import { selected } from './filter.js'
import type { AllJobs, JobFilter, PageOptions } from './filter.js'
import { refuseUnknown } from '../../job/values/names.js'
import { flag, isObject } from '../../job/values/options.js'
import { Operation, operationOf, operationsOf } from './bulk/operation.js'
import type { OperationPage } from './bulk/operation.js'
import { parseRequest } from './bulk/options.js'
import type { OperationRequest } from './bulk/options.js'
import { planBulk } from './bulk/plan.js'
import type { OperationPlan } from './bulk/plan.js'
import { addBulk } from './bulk/start.js'
import type { JobOperations } from './job-operations.js'
import type { UpdateOptions } from '../job.js'
import {
  applyToJobs,
  cancelJobs,
  failJob,
  ownJob,
  redeliverJob,
  removeJobs,
  retryJobs,
  updateJobs,
} from './operations.js'
import type { QueueScope, RetryOptions } from './operations.js'
import { splitTransaction } from '../transactions.js'
import type { InTransaction, TransactionArgument, WithTransaction } from '../transactions.js'

/** An id as it is, or what a filter selects. */
function selection(which: string | JobFilter | AllJobs, call: string): string | JobFilter {
  return typeof which === 'string' ? which : selected(which, call)
}

/** The part of a queue that counts and changes existing jobs. */
export abstract class QueueOperations<Jobs extends JobDefinitions, S extends Store> {
  /**
   * How many jobs match. Exact, from counters, by state and name; by other fields, the jobs are counted up to 10,000, or
   * as far as one call looks, and `exact` shows whether that was all.
   */
  count(filter: JobFilter<NameOf<Jobs>>, ...options: TransactionArgument<S>): Promise<MatchCount> {
    return this.run(options[0], 'queue.count', (scope) => countMatches(scope, filter))
  }

  /**
   * The failing jobs by the cause of their last error: how many, since when, and one of them. A job that completes, is
   * retried by hand or is removed counts no more.
   */
  errors(options?: WithTransaction<S, ErrorsOptions>): Promise<ErrorsPage> {
    try {
      const { tx, rest } = splitTransaction<ErrorsOptions>(options ?? {}, 'queue.errors')
      return this.run({ tx }, 'queue.errors', (scope) => failingJobs(scope, rest))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /**
   * Cancels a job; false if it had finished. Aborts the signal of a running handler, with the `reason` if given.
   * `cascade`: cancels its children too.
   */
  cancel(id: string, ...options: CancelArgument<S>): Promise<boolean>
  /**
   * Cancels all unfinished jobs that match (`{ all: true }`: all of the queue); returns how many. `cascade`: cancels their children too, which are not
   * counted.
   */
  cancel(filter: JobFilter<NameOf<Jobs>> | AllJobs, ...options: CancelArgument<S>): Promise<number>
  cancel(which: string | JobFilter | AllJobs, options?: CancelOptions & InTransaction): Promise<boolean | number> {
    try {
      if (isObject(options)) refuseUnknown(options, ['cascade', 'reason', 'tx'], 'queue.cancel')
      const { reason, rest } = splitReason(options, 'queue.cancel')
      return this.#cascading(rest, 'queue.cancel', (scope, cascade) =>
        cancelJobs(scope, selection(which, 'queue.cancel'), { cascade, reason }),
      )
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /**
   * Fails an unfinished job for good with this error, from outside of its handler, whatever attempts are left. Aborts
   * the signal of a running handler: `completed-elsewhere`. Throws `INVALID_STATE` if the job has finished.
   */
  fail(id: string, error: unknown, ...options: TransactionArgument<S>): Promise<void> {
    return this.run(options[0], 'queue.fail', function* (scope) {
      yield* failJob(scope.session, yield* ownJob(scope, id), error)
    })
  }

  /** Restarts a failed or cancelled job, with all its attempts. */
  retry(id: string, ...options: TransactionArgument<S>): Promise<boolean>
  /**
   * Restarts all failed or cancelled jobs that match; returns how many. `rate`: jobs per second. `dryRun`: only
   * counts.
   */
  retry(
    filter: JobFilter<NameOf<Jobs>> | AllJobs,
    ...options: [options?: WithTransaction<S, RetryOptions>]
  ): Promise<number>
  retry(which: string | JobFilter | AllJobs, options?: RetryOptions & InTransaction): Promise<boolean | number> {
    if (typeof which === 'string')
      return this.run(options, 'queue.retry', (scope) => applyToJobs(scope, 'retry', which))
    try {
      const { tx, rest } = splitTransaction<RetryOptions>(options ?? {}, 'queue.retry')
      return this.run({ tx }, 'queue.retry', (scope) => retryJobs(scope, selected(which, 'queue.retry'), rest))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Makes a delayed job run now; false if it was already waiting. */
  promote(id: string, ...options: TransactionArgument<S>): Promise<boolean>
  /** Makes all delayed jobs that match run now; returns how many. */
  promote(filter: JobFilter<NameOf<Jobs>> | AllJobs, ...options: TransactionArgument<S>): Promise<number>
  promote(which: string | JobFilter | AllJobs, options?: InTransaction): Promise<boolean | number> {
    return this.run(options, 'queue.promote', (scope) =>
      applyToJobs(scope, 'promote', selection(which, 'queue.promote')),
    )
  }

  /**
   * Removes a job; false if there was none. Throws while other jobs wait for it; `cascade`: removes those too. Throws
   * for the last job of a chain while earlier ones exist: `queue.chain(id).remove()` removes the whole chain.
   */
  remove(id: string, ...options: CascadeArgument<S>): Promise<boolean>
  /**
   * Removes all jobs that match, except those that other jobs wait for and the last jobs of chains that do not match as
   * a whole; returns how many. `cascade`: removes those other jobs too.
   */
  remove(filter: JobFilter<NameOf<Jobs>> | AllJobs, ...options: CascadeArgument<S>): Promise<number>
  remove(which: string | JobFilter | AllJobs, options?: CascadeOptions & InTransaction): Promise<boolean | number> {
    return this.#cascading(options, 'queue.remove', (scope, cascade) =>
      removeJobs(scope, selection(which, 'queue.remove'), cascade),
    )
  }

  #cascading<T>(
    options: (CascadeOptions & InTransaction) | undefined,
    call: string,
    work: (scope: QueueScope, cascade: boolean) => Steps<T>,
  ): Promise<T> {
    try {
      if (isObject(options)) refuseUnknown(options, ['cascade', 'tx'], call)
      const { cascade, rest } = splitCascade(options, call)
      return this.run(rest, call, (scope) => work(scope, cascade))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Changes data, priority or delay of a job; false if nothing changed. */
  update(
    id: string,
    changes: UpdateOptions<InputOf<Jobs[NameOf<Jobs>]>>,
    ...options: TransactionArgument<S>
  ): Promise<boolean>
  /** Changes data, priority or delay of all jobs that match and have not started; returns how many. */
  update<Name extends NameOf<Jobs>>(
    filter: JobFilter<Name> | AllJobs,
    changes: UpdateOptions<InputOf<Jobs[Name]>>,
    ...options: TransactionArgument<S>
  ): Promise<number>
  update(
    which: string | JobFilter | AllJobs,
    changes: UpdateOptions,
    options?: InTransaction,
  ): Promise<boolean | number> {
    return this.run(options, 'queue.update', (scope) => updateJobs(scope, selection(which, 'queue.update'), changes))
  }

  /** Sends the webhook of a finished job again; returns the `webhook-id` of that delivery. */
  redeliver(id: string, ...options: TransactionArgument<S>): Promise<string> {
    return this.run(options[0], 'queue.redeliver', function* (scope) {
      return yield* redeliverJob(scope.session, yield* ownJob(scope, id), scope.runtime)
    })
  }

  /**
   * What an operation on all jobs that match would do: counts by name and state, ten samples, and what would be refused.
   * Writes nothing.
   */
  plan<Name extends NameOf<Jobs>>(request: WithTransaction<S, OperationRequest<Jobs, Name>>): Promise<OperationPlan> {
    return this.#request(request, 'queue.plan', (scope, rest) => this.#plan(scope, rest, 'queue.plan'))
  }

  /** With `dryRun`: the same as `plan`. */
  operate<Name extends NameOf<Jobs>>(
    options: WithTransaction<S, OperationRequest<Jobs, Name> & { readonly dryRun: true }>,
  ): Promise<OperationPlan>
  /**
   * Cancels, retries, promotes, removes or updates all jobs that match, as a durable operation: workers of this queue
   * change them page by page, whatever process dies meanwhile, and its result is kept for 30 days. Resolves when the
   * operation is durable; `result()` of it waits for its end.
   */
  operate<Name extends NameOf<Jobs>>(
    options: WithTransaction<S, OperationRequest<Jobs, Name> & { readonly dryRun?: false }>,
  ): Promise<Operation>
  operate(options: object & InTransaction): Promise<Operation | OperationPlan> {
    const { actions } = this
    return this.#request<Operation | OperationPlan>(options, 'queue.operate', (scope, given) => {
      const { dryRun, ...rest } = given as { readonly dryRun?: unknown }
      if (flag(dryRun, 'queue.operate: dryRun')) return this.#plan(scope, rest, 'queue.operate')
      const start = function* (): Steps<Operation> {
        return new Operation(
          actions,
          scope.queue,
          yield* addBulk(scope, yield* parseRequest(scope, rest, 'queue.operate')),
        )
      }
      return start()
    })
  }

  *#plan(scope: QueueScope, request: object, call: string): Steps<OperationPlan> {
    return yield* planBulk(scope, yield* parseRequest(scope, request, call))
  }

  #request<T>(
    options: object & InTransaction,
    call: string,
    work: (scope: QueueScope, rest: object) => Steps<T>,
  ): Promise<T> {
    try {
      const { tx, rest } = splitTransaction(options, call)
      return this.run({ tx }, call, (scope) => work(scope, rest))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** The operation on many jobs with this id, or undefined. */
  operation(id: string, ...options: TransactionArgument<S>): Promise<Operation | undefined> {
    return this.run(options[0], 'queue.operation', (scope) => operationOf(scope, this.actions, id))
  }

  /** The operations on many jobs of this queue by page, the newest first. They are kept for 30 days after their end. */
  operations(options?: WithTransaction<S, PageOptions>): Promise<OperationPage> {
    const given: PageOptions & InTransaction = options ?? {}
    return this.#request(given, 'queue.operations', (scope, rest) => operationsOf(scope, this.actions, rest))
  }

  /** @internal What handles of operations call. */
  protected abstract get actions(): JobOperations

  /** @internal The scope of a call, in the transaction it names or is made in; throws if the queue is closed. */
  protected abstract scope(options: InTransaction | undefined, call: string): QueueScope

  /** @internal Runs the work of a call. */
  protected run<T>(
    options: InTransaction | undefined,
    call: string,
    work: (scope: QueueScope) => Steps<T>,
  ): Promise<T> {
    try {
      return runSteps(work(this.scope(options, call)))
    } catch (error) {
      return Promise.reject(error)
    }
  }
}

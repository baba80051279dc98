// queue/operations/queue-operations.ts: the methods of a queue that change existing jobs, by id or by filter.
import { runSteps } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Store } from '../../store/store.js'
import { splitCascade, splitReason } from './cascade.js'
import type { CancelArgument, CancelOptions, CascadeArgument, CascadeOptions } from './cascade.js'
import type { InputOf, JobDefinitions, NameOf } from '../define.js'
import type { JobFilter } from './filter.js'
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

/** The part of a queue that changes existing jobs. */
export abstract class QueueOperations<Jobs extends JobDefinitions, S extends Store> {
  /**
   * Cancels a job; false if it had finished. Aborts the signal of a running handler, with the `reason` if given.
   * `cascade`: cancels its children too.
   */
  cancel(id: string, ...options: CancelArgument<S>): Promise<boolean>
  /**
   * Cancels all unfinished jobs that match; returns how many. `cascade`: cancels their children too, which are not
   * counted.
   */
  cancel(filter: JobFilter<NameOf<Jobs>>, ...options: CancelArgument<S>): Promise<number>
  cancel(which: string | JobFilter, options?: CancelOptions & InTransaction): Promise<boolean | number> {
    try {
      const { reason, rest } = splitReason(options, 'queue.cancel')
      return this.#cascading(rest, 'queue.cancel', (scope, cascade) => cancelJobs(scope, which, { cascade, reason }))
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
  retry(filter: JobFilter<NameOf<Jobs>>, ...options: [options?: WithTransaction<S, RetryOptions>]): Promise<number>
  retry(which: string | JobFilter, options?: RetryOptions & InTransaction): Promise<boolean | number> {
    if (typeof which === 'string')
      return this.run(options, 'queue.retry', (scope) => applyToJobs(scope, 'retry', which))
    try {
      const { tx, rest } = splitTransaction<RetryOptions>(options ?? {}, 'queue.retry')
      return this.run({ tx }, 'queue.retry', (scope) => retryJobs(scope, which, rest))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Makes a delayed job run now; false if it was already waiting. */
  promote(id: string, ...options: TransactionArgument<S>): Promise<boolean>
  /** Makes all delayed jobs that match run now; returns how many. */
  promote(filter: JobFilter<NameOf<Jobs>>, ...options: TransactionArgument<S>): Promise<number>
  promote(which: string | JobFilter, options?: InTransaction): Promise<boolean | number> {
    return this.run(options, 'queue.promote', (scope) => applyToJobs(scope, 'promote', which))
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
  remove(filter: JobFilter<NameOf<Jobs>>, ...options: CascadeArgument<S>): Promise<number>
  remove(which: string | JobFilter, options?: CascadeOptions & InTransaction): Promise<boolean | number> {
    return this.#cascading(options, 'queue.remove', (scope, cascade) => removeJobs(scope, which, cascade))
  }

  #cascading<T>(
    options: (CascadeOptions & InTransaction) | undefined,
    call: string,
    work: (scope: QueueScope, cascade: boolean) => Steps<T>,
  ): Promise<T> {
    try {
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
    filter: JobFilter<Name>,
    changes: UpdateOptions<InputOf<Jobs[Name]>>,
    ...options: TransactionArgument<S>
  ): Promise<number>
  update(which: string | JobFilter, changes: UpdateOptions, options?: InTransaction): Promise<boolean | number> {
    return this.run(options, 'queue.update', (scope) => updateJobs(scope, which, changes))
  }

  /** Sends the webhook of a finished job again; returns the `webhook-id` of that delivery. */
  redeliver(id: string, ...options: TransactionArgument<S>): Promise<string> {
    return this.run(options[0], 'queue.redeliver', function* (scope) {
      return yield* redeliverJob(scope.session, yield* ownJob(scope, id), scope.runtime)
    })
  }

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

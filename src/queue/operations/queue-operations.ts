// queue/operations/queue-operations.ts: what a queue can do to jobs that were added, by id or by filter.
import { stepwise } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Store } from '../../store/store.js'
import { cascadeIn, reasonIn } from './cascade.js'
import type { CancelArgument, CancelOptions, CascadeArgument, CascadeOptions } from './cascade.js'
import type { InputOf, JobDefinitions, NameOf } from '../define.js'
import type { JobFilter } from './filter.js'
import type { UpdateOptions } from '../job.js'
import { cancelJobs, ownJob, removeJobs, updateJobs, wish } from './by-filter.js'
import type { Place } from './by-filter.js'
import { retryJobs } from './retry.js'
import type { RetryOptions } from './retry.js'
import { splitTransaction } from '../transactions.js'
import type { InTransaction, TransactionArgument, WithTransaction } from '../transactions.js'
import { redelivering } from '../settings/webhook.js'

/** The half of a queue that looks after jobs that were added. */
export abstract class QueueOperations<Jobs extends JobDefinitions, S extends Store> {
  /**
   * Cancels a job; false if it had finished. A running handler's signal aborts, with the `reason` if one is given. `cascade`: its
   * children as well.
   */
  cancel(id: string, ...options: CancelArgument<S>): Promise<boolean>
  /** Cancels all unfinished jobs that match; answers how many. `cascade`: their children as well, which are not counted. */
  cancel(filter: JobFilter<NameOf<Jobs>>, ...options: CancelArgument<S>): Promise<number>
  cancel(which: string | JobFilter, options?: CancelOptions & InTransaction): Promise<boolean | number> {
    try {
      const { reason, rest } = reasonIn(options, 'queue.cancel')
      return this.#cascading(rest, 'queue.cancel', (place, cascade) => cancelJobs(place, which, { cascade, reason }))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Starts a failed or cancelled job over, with all its attempts. */
  retry(id: string, ...options: TransactionArgument<S>): Promise<boolean>
  /** Starts all failed or cancelled jobs over that match; answers how many. `rate`: so many a second. `dryRun`: none. */
  retry(filter: JobFilter<NameOf<Jobs>>, ...options: [options?: WithTransaction<S, RetryOptions>]): Promise<number>
  retry(which: string | JobFilter, options?: RetryOptions & InTransaction): Promise<boolean | number> {
    if (typeof which === 'string') return this.run(options, 'queue.retry', (place) => wish(place, 'retry', which))
    try {
      const { tx, rest } = splitTransaction<RetryOptions>(options ?? {}, 'queue.retry')
      return this.run({ tx }, 'queue.retry', (place) => retryJobs(place, which, rest))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Lets a delayed job run now; false if it was waiting already. */
  promote(id: string, ...options: TransactionArgument<S>): Promise<boolean>
  /** Lets all delayed jobs run now that match; answers how many. */
  promote(filter: JobFilter<NameOf<Jobs>>, ...options: TransactionArgument<S>): Promise<number>
  promote(which: string | JobFilter, options?: InTransaction): Promise<boolean | number> {
    return this.run(options, 'queue.promote', (place) => wish(place, 'promote', which))
  }

  /**
   * Removes a job; false if there was none. Refused while others wait for it; `cascade`: removes them as well. The last job
   * of a chain is refused while earlier ones are there: `queue.chain(id).remove()` removes all of it.
   */
  remove(id: string, ...options: CascadeArgument<S>): Promise<boolean>
  /**
   * Removes all jobs that match but those that others wait for, and the last of chains of which not all match; answers how
   * many. `cascade`: removes those others as well.
   */
  remove(filter: JobFilter<NameOf<Jobs>>, ...options: CascadeArgument<S>): Promise<number>
  remove(which: string | JobFilter, options?: CascadeOptions & InTransaction): Promise<boolean | number> {
    return this.#cascading(options, 'queue.remove', (place, cascade) => removeJobs(place, which, cascade))
  }

  #cascading<T>(
    options: (CascadeOptions & InTransaction) | undefined,
    call: string,
    work: (place: Place, cascade: boolean) => Steps<T>,
  ): Promise<T> {
    try {
      const { cascade, rest } = cascadeIn(options, call)
      return this.run(rest, call, (place) => work(place, cascade))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Changes data, priority or delay of a job; false if that changed nothing. */
  update(
    id: string,
    changes: UpdateOptions<InputOf<Jobs[NameOf<Jobs>]>>,
    ...options: TransactionArgument<S>
  ): Promise<boolean>
  /** Changes data, priority or delay of all jobs that match and have not started; answers how many. */
  update<Name extends NameOf<Jobs>>(
    filter: JobFilter<Name>,
    changes: UpdateOptions<InputOf<Jobs[Name]>>,
    ...options: TransactionArgument<S>
  ): Promise<number>
  update(which: string | JobFilter, changes: UpdateOptions, options?: InTransaction): Promise<boolean | number> {
    return this.run(options, 'queue.update', (place) => updateJobs(place, which, changes))
  }

  /** Tells the end of a finished job to its webhook once more; answers the `webhook-id` of that delivery. */
  redeliver(id: string, ...options: TransactionArgument<S>): Promise<string> {
    return this.run(options[0], 'queue.redeliver', function* (place) {
      return yield* redelivering(id, place.desk, place.way, yield* ownJob(place, id))
    })
  }

  /** @internal Where a call works, in the transaction it names or is made in; refused where the queue is closed. */
  protected abstract place(options: InTransaction | undefined, call: string): Place

  /** @internal Runs what a call comes to. */
  protected run<T>(options: InTransaction | undefined, call: string, work: (place: Place) => Steps<T>): Promise<T> {
    try {
      return stepwise(work(this.place(options, call)))
    } catch (error) {
      return Promise.reject(error)
    }
  }
}

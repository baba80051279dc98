// queue/settings/queue-settings.ts: the methods of a queue that hold jobs back for a time.
import type { Duration } from '../../job/values/duration.js'
import type { Time } from '../../job/job.js'
import { storeTime } from '../../store/connection.js'
import type { Connection } from '../../store/connection.js'
import { step } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Store } from '../../store/store.js'
import type { JobDefinitions, NameOf } from '../define.js'
import type { QueueScope } from '../operations/operations.js'
import { QueueOperations } from '../operations/queue-operations.js'
import { splitTransaction } from '../transactions.js'
import type { InTransaction, TransactionArgument, WithTransaction } from '../transactions.js'
import { addHold, holdsOf, removeHold } from './holds.js'
import type { ScheduleCalls } from './schedule-handle.js'
import type { Hold, HoldTarget, QueueHoldOptions } from './holds.js'

/** The part of a queue that holds jobs back. */
export abstract class QueueSettings<Jobs extends JobDefinitions, S extends Store> extends QueueOperations<Jobs, S> {
  /**
   * Holds the jobs of a name, of a group or (with neither) of the whole queue: no worker starts one until the time is
   * over, and then work goes on by itself. Running jobs continue. Of two holds for the same jobs the one that ends later
   * counts. At most 1,000 at a time: `TOO_MANY_HOLDS`.
   */
  hold(duration: Duration, ...options: [options?: WithTransaction<S, QueueHoldOptions<NameOf<Jobs>>>]): Promise<void> {
    return this.#settings<QueueHoldOptions, void>(options[0], 'queue.hold', ({ session, queue }, rest) =>
      addHold(session, queue, duration, rest, (name) => this.checkJob(name)),
    )
  }

  /** Ends a hold before its time; false if there was none. */
  unhold(...options: [options?: WithTransaction<S, HoldTarget<NameOf<Jobs>>>]): Promise<boolean> {
    return this.#settings<HoldTarget, boolean>(options[0], 'queue.unhold', ({ session, queue, runtime }, rest) =>
      removeHold(session, queue, rest, runtime.now(), (name) => this.checkJob(name)),
    )
  }

  /** The holds that have not ended: of the queue, of names and of groups, each with who added it. */
  holds(...options: TransactionArgument<S>): Promise<readonly Hold<NameOf<Jobs>>[]> {
    const now = (within: boolean): Promise<Time> => storeTime(this.reading().connection, within)
    return this.run(options[0], 'queue.holds', function* ({ session, queue }) {
      return yield* holdsOf(session, queue, yield* step(now(session.within)))
    }) as Promise<readonly Hold<NameOf<Jobs>>[]>
  }

  /** @internal How handles make the calls of this queue. */
  protected readonly calls: ScheduleCalls = {
    run: (options, call, work) => this.run(options, call, work),
  }

  #settings<Options extends object, T>(
    options: (Options & InTransaction) | undefined,
    call: string,
    work: (scope: QueueScope, options: Options) => Steps<T>,
  ): Promise<T> {
    try {
      const { tx, rest } = splitTransaction<Options>(options ?? ({} as Options), call)
      return this.run({ tx }, call, (scope) => work(scope, rest))
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** @internal Throws for the name of a job that the queue does not declare. */
  protected abstract checkJob(name: string): void
  /** @internal The connection, and the names that are declared; throws if the queue is closed. */
  protected abstract reading(): { readonly connection: Connection; readonly declared: readonly string[] }
}

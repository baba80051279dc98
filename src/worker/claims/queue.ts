// worker/claims/queue.ts: the queue of the front door: a producer whose jobs can also be claimed by hand. It is in this
// room because a caller that claims jobs does upkeep as well, as a worker does, and a producer does not.
import type { ContinuationOf } from '../../queue/flows/chain-types.js'
import type { Planning } from '../../queue/flows/follow-ups.js'
import type { HandlerReturnOf, JobDefinitions, NameOf } from '../../queue/define.js'
import { Queue as Producer } from '../../queue/queue.js'
import type { AnyJobs } from '../../queue/queue-types.js'
import type { Store } from '../../store/store.js'
import { refuseInside } from '../../store/transaction-context.js'
import type { HandledJob } from '../handlers.js'
import type { ClaimedJob } from './claimed-job.js'
import { HandClaims } from './hand-claims.js'
import type { ClaimOptions } from './options.js'

/** A claimed job of one declared name, or of any, discriminated by `name`: `ClaimedJobOf<typeof jobs, 'send-email'>`. */
export type ClaimedJobOf<Jobs extends JobDefinitions, Name extends NameOf<Jobs> = NameOf<Jobs>> = Name extends unknown
  ? ClaimedJob<HandledJob<Jobs, Name>, HandlerReturnOf<Jobs[Name]>, Planning<Jobs, ContinuationOf<Jobs, Name>>>
  : never

/** A named queue in a store. Cheap to create; queues on one store share their write batches. */
export class Queue<Jobs extends JobDefinitions = AnyJobs, S extends Store = Store> extends Producer<Jobs, S> {
  #claims: HandClaims | undefined
  #ending: Promise<void> | undefined

  /**
   * Claims jobs for a loop of your own: up to `max` of them, in claim order, each with the calls that settle it. Waits
   * for the first job, up to `wait`, and returns an empty list if there is none. Limits, pauses and groups apply as for
   * workers. A job whose lease expires, because no call settles it or sends a heartbeat, is retried. From the first
   * claim on, this queue object also does the upkeep of a worker, until it is closed.
   */
  claim<Name extends NameOf<Jobs> = NameOf<Jobs>>(
    options: ClaimOptions<Name> = {},
  ): Promise<ClaimedJobOf<Jobs, Name>[]> {
    this.#claims ??= new HandClaims(this as unknown as Producer)
    return this.#claims.claim(options) as Promise<unknown> as Promise<ClaimedJobOf<Jobs, Name>[]>
  }

  override close(): Promise<void> {
    try {
      refuseInside(this.store, 'queue.close()')
    } catch (error) {
      return Promise.reject(error)
    }
    this.#ending ??= this.#close()
    return this.#ending
  }

  /** Closes the producer first, so that nothing is claimed from now on. */
  async #close(): Promise<void> {
    const closed = super.close()
    const [claims] = await Promise.allSettled([this.#claims?.close()])
    await closed
    if (claims.status === 'rejected') throw claims.reason
  }
}

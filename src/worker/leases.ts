// worker/leases.ts: one timer that renews all leases of a worker in one batch, and notices when it comes too late.
import { MillraceError } from '../job/errors.js'
import type { Millis } from '../job/job.js'
import type { Connection } from '../store/connection.js'
import type { Stop } from '../store/runtime.js'
import type { Renewal, Verdict } from '../store/store.js'
import type { Attempt } from './attempt.js'
import type { AbortReason } from './context.js'

/** What the leases need of their worker. */
export interface LeaseHost {
  readonly connection: Connection
  readonly renewEvery: Millis
  /** Everything that is leased here: running, waiting for a slot, or being settled. */
  held(): Iterable<Attempt>
  /** This one is no longer ours. */
  lost(attempt: Attempt, reason: AbortReason): void
  /** The store failed. */
  failed(error: unknown): void
  /** Runs with every tick: the worker's sign of life. */
  tick(): void
}

/** Why a job that does not carry our fence any more was taken away. */
export function reasonOf(verdict: Verdict): AbortReason {
  if (verdict.ok) return 'lease-lost'
  if (verdict.why === 'missing') return 'removed'
  switch (verdict.job?.state) {
    case 'cancelled':
      return 'cancelled'
    case 'completed':
    case 'failed':
      return 'completed-elsewhere'
    default:
      return 'lease-lost'
  }
}

/** Keeps a worker's leases alive. */
export class Leases {
  readonly #host: LeaseHost
  #timer: Stop | undefined
  #stopped = false
  #inFlight = false
  /** The last renewal got no answer. */
  #failed = false

  constructor(host: LeaseHost) {
    this.#host = host
  }

  start(): void {
    this.#arm()
  }

  stop(): void {
    this.#stopped = true
    this.#timer?.()
  }

  /**
   * Whether a lease is over through our own doing: this process slept, or a handler blocked its event loop, so that no
   * renewal was even sent. While the store does not answer, that is not for us to say.
   */
  overslept(attempt: Attempt): boolean {
    return !this.#inFlight && !this.#failed && this.#host.connection.runtime.elapsed() >= attempt.leaseEnds
  }

  #arm(): void {
    if (this.#stopped) return
    const { runtime } = this.#host.connection
    const expected = runtime.elapsed() + this.#host.renewEvery
    this.#timer = runtime.timer(this.#host.renewEvery, () => {
      const late = runtime.elapsed() - expected
      if (late > this.#host.renewEvery) {
        this.#host.failed(
          new MillraceError(
            'EVENT_LOOP_BLOCKED',
            `The event loop was blocked for ${Math.round(late)} ms: leases could not be renewed. ` +
              'Move long computations to a worker thread, or lengthen the lease.',
            { details: { lag: late } },
          ),
        )
      }
      this.#arm()
      void this.#renew()
      this.#host.tick()
    })
  }

  async #renew(): Promise<void> {
    const { connection, lost, failed } = this.#host
    const attempts: Attempt[] = []
    for (const attempt of [...this.#host.held()]) {
      if (this.overslept(attempt)) lost(attempt, 'lease-lost')
      else attempts.push(attempt)
    }
    if (this.#inFlight) return // the next tick takes them all
    if (attempts.length === 0) {
      this.#failed = false
      return
    }
    const sent = connection.runtime.elapsed()
    this.#inFlight = true
    try {
      const verdicts = await connection.renewals.renew(attempts.map(renewal))
      this.#failed = false
      attempts.forEach((attempt, at) => {
        const verdict = verdicts[at]!
        if (verdict.ok) attempt.leaseEnds = Math.max(attempt.leaseEnds, sent + attempt.handler.lease)
        else lost(attempt, reasonOf(verdict))
      })
    } catch (error) {
      this.#failed = true
      failed(error)
    } finally {
      this.#inFlight = false
    }
  }
}

function renewal(attempt: Attempt): Renewal {
  const { id, fence } = attempt.record
  return { id, fence, lease: attempt.handler.lease, started: attempt.started }
}

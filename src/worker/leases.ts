// worker/leases.ts: renews all leases of a worker in one batch on one timer, and detects when the timer is late.
import { MillraceError } from '../job/errors.js'
import type { JobRecord, Millis } from '../job/job.js'
import { cancelReason } from '../job/lifecycle.js'
import type { Connection } from '../store/connection.js'
import type { Stop } from '../store/runtime.js'
import type { Renewal, Store, Verdict } from '../store/store.js'
import type { LostReason } from './attempt/context.js'

/** A job that is leased here. */
export interface Leased {
  readonly record: JobRecord
  readonly handler: { readonly lease: Millis }
  readonly started: boolean
  /** When its lease expires, by this process's clock. */
  leaseEnds: Millis
  /** At the last renewal, another transaction had the job locked. */
  busy: boolean
  /** Whether the attempt's own transaction has the job locked, so that its lease cannot be renewed. */
  readonly isHeldByItself: boolean
}

/** What the leases need of their worker. */
export interface LeaseHost {
  readonly connection: Connection
  readonly renewEvery: Millis
  /** The shortest lease of this worker's handlers. */
  readonly shortest: Millis
  /** Everything that is leased here: running, waiting for a slot, or being settled. */
  held(): Iterable<Leased>
  /** The lease is lost. */
  lost(attempt: Leased, ...why: LostReason): void
  /** The store failed. */
  failed(error: unknown): void
  /** Called on every tick; the worker sends its heartbeat. */
  tick(): void
}

/** Why the lease is lost, by the verdict on a change with our fence. */
export function reasonOf(verdict: Verdict): LostReason {
  if (verdict.ok) return ['lease-lost']
  if (verdict.why === 'missing') return ['removed']
  switch (verdict.job?.state) {
    case 'cancelled':
      return ['cancelled', cancelReason(verdict.job.error)]
    case 'completed':
    case 'failed':
      return ['completed-elsewhere']
    default:
      return ['lease-lost']
  }
}

/**
 * The leases held in this process, by store. An open transaction keeps some stores from renewing any of them, so the
 * lease that expires first bounds how long a transaction may take.
 */
const leasesByStore = new WeakMap<Store, Set<Leases>>()

/** A transaction is rolled back when less than this fraction of a lease is left. */
const LAST_FRACTION = 1 / 5

/** Renews a worker's leases. */
export class Leases {
  readonly #host: LeaseHost
  #timer: Stop | undefined
  #retryTimer: Stop | undefined
  #stopped = false
  #inFlight = false
  /** Leases may have been revoked since the renewal in flight was sent. */
  #checkAgain = false
  /** The last renewal failed. */
  #failed = false

  constructor(host: LeaseHost) {
    this.#host = host
  }

  start(): void {
    this.#peers().add(this)
    this.#arm()
  }

  stop(): void {
    this.#stopped = true
    this.#peers().delete(this)
    this.#timer?.()
    this.#retryTimer?.()
  }

  /**
   * When the transaction of an attempt must end, by this process's clock, so that it costs no lease of this process.
   * Jobs that another transaction has locked do not count: their leases do not depend on this one.
   */
  mustEnd(own: Leased): Millis {
    let soonest = own.leaseEnds - own.handler.lease * LAST_FRACTION
    if (this.#host.connection.store.can.parallel === true) return soonest // other renewals continue in parallel
    for (const peer of this.#peers()) {
      for (const { leaseEnds, handler, busy } of peer.#host.held()) {
        if (busy) continue
        const end = leaseEnds - handler.lease * LAST_FRACTION
        if (end < soonest) soonest = end
      }
    }
    return soonest
  }

  /**
   * A lower bound on the time until any lease comes that near its end. Most transactions end sooner, so this spares
   * them the exact computation.
   */
  spare(own: Leased): Millis {
    const { runtime, store } = this.#host.connection
    let least = own.leaseEnds - own.handler.lease * LAST_FRACTION - runtime.elapsed()
    if (store.can.parallel === true) return Math.max(1, least)
    for (const { shortest, renewEvery } of Array.from(this.#peers(), (peer) => peer.#host)) {
      least = Math.min(least, renewEvery, shortest * (1 - LAST_FRACTION) - renewEvery)
    }
    return Math.max(1, least)
  }

  /** Renews one lease now; resolves when the renewal has succeeded or failed. */
  async renew(attempt: Leased): Promise<void> {
    const { connection } = this.#host
    const sent = connection.runtime.elapsed()
    try {
      const [verdict] = await connection.renewals.renew([renewal(attempt)])
      this.#renewed(attempt, verdict!, sent)
    } catch (error) {
      this.#host.failed(error)
    }
  }

  /** Leases may have been revoked without a notice: finds out now, by renewing all of them. */
  check(): void {
    if (this.#inFlight) this.#checkAgain = true
    else void this.#renew()
  }

  #peers(): Set<Leases> {
    const { store } = this.#host.connection
    let peers = leasesByStore.get(store)
    if (peers === undefined) leasesByStore.set(store, (peers = new Set()))
    return peers
  }

  /**
   * Applies the verdict on a renewal. Returns whether another transaction had the job locked, so that nothing is known.
   */
  #renewed(attempt: Leased, verdict: Verdict, sent: Millis): boolean {
    attempt.busy = !verdict.ok && verdict.why === 'busy'
    if (verdict.ok) attempt.leaseEnds = Math.max(attempt.leaseEnds, sent + attempt.handler.lease)
    else if (!attempt.busy) this.#host.lost(attempt, ...reasonOf(verdict))
    return attempt.busy
  }

  /**
   * Whether a lease expired because this process was suspended or a handler blocked its event loop, so that no renewal
   * was even sent. False while the store fails or a transaction has the job locked: then the store decides.
   */
  missedRenewal(attempt: Leased): boolean {
    if (this.#inFlight || this.#failed || attempt.busy) return false
    return this.#host.connection.runtime.elapsed() >= attempt.leaseEnds
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

  /** Another transaction had a job locked. It may end long before the next tick. */
  #retrySoon(): void {
    if (this.#stopped || this.#retryTimer !== undefined) return
    this.#retryTimer = this.#host.connection.runtime.timer(this.#host.renewEvery / 4, () => {
      this.#retryTimer = undefined
      void this.#renew()
    })
  }

  async #renew(): Promise<void> {
    const { connection, lost, failed } = this.#host
    const attempts: Leased[] = []
    for (const attempt of [...this.#host.held()]) {
      if (this.missedRenewal(attempt)) lost(attempt, 'lease-lost')
      else if (!attempt.isHeldByItself) attempts.push(attempt)
    }
    if (this.#inFlight) return // the next tick renews all of them
    if (attempts.length === 0) {
      this.#failed = false
      return
    }
    const sent = connection.runtime.elapsed()
    this.#inFlight = true
    try {
      const verdicts = await connection.renewals.renew(attempts.map(renewal))
      this.#failed = false
      let busy = false
      attempts.forEach((attempt, at) => {
        if (this.#renewed(attempt, verdicts[at]!, sent)) busy = true
      })
      if (busy) this.#retrySoon()
    } catch (error) {
      this.#failed = true
      failed(error)
    } finally {
      this.#inFlight = false
      const again = this.#checkAgain && !this.#stopped
      this.#checkAgain = false
      if (again) void this.#renew()
    }
  }
}

function renewal(attempt: Leased): Renewal {
  const { id, fence } = attempt.record
  return { id, fence, lease: attempt.handler.lease, started: attempt.started }
}

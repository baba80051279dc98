// worker/leases.ts: the leases of a worker: renews all of them in one batch on one timer, and handles their loss.
import { MillraceError } from '../job/errors/errors.js'
import type { Millis } from '../job/job.js'
import { cancelReason } from '../job/lifecycle.js'
import type { Connection } from '../store/connection.js'
import { poll } from '../store/runtime.js'
import type { Stop } from '../store/runtime.js'
import type { Renewal, Revoked, Store, Verdict } from '../store/store.js'
import type { Attempt } from './attempt/attempt.js'
import type { LostReason } from './attempt/context.js'
import { IndexedSet } from './indexed-set.js'
import type { WorkerParts } from './parts.js'
import type { Registration } from './registry.js'
import type { Reporter } from './reporter.js'
import type { StoreErrors } from './store-errors.js'

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

/** The leases of a worker, from the claim of a job until its settlement is durable. */
export class Leases {
  readonly #connection: Connection
  readonly #errors: StoreErrors
  readonly #reporter: Reporter
  readonly #registration: Pick<Registration, 'heartbeat' | 'readsNext'>
  readonly #renewEvery: Millis
  /** The shortest lease of this worker's handlers. */
  readonly #shortest: Millis
  readonly #held = new IndexedSet<'heldAt', Attempt>('heldAt')
  #timer: Stop | undefined
  #retryTimer: Stop | undefined
  #stopped = false
  #inFlight = false
  /** Leases may have been revoked since the renewal in flight was sent. */
  #checkAgain = false
  /** The last renewal failed. */
  #failed = false

  /** The heartbeat of `registration` is sent on the same timer. */
  constructor(
    { connection, settings, errors, reporter }: Pick<WorkerParts, 'connection' | 'settings' | 'errors' | 'reporter'>,
    registration: Pick<Registration, 'heartbeat' | 'readsNext'>,
  ) {
    this.#connection = connection
    this.#errors = errors
    this.#reporter = reporter
    this.#registration = registration
    this.#renewEvery = settings.renewEvery
    this.#shortest = Math.min(...settings.handles.map(({ lease }) => lease))
  }

  /** The ids of the jobs that are leased here: running, waiting for a slot, or being settled. */
  get ids(): readonly string[] {
    return this.#held.items.map((attempt) => attempt.record.id)
  }

  /** A job was claimed: its lease is renewed from now on. */
  add(attempt: Attempt): void {
    this.#held.add(attempt)
  }

  /** The settlement of a job is durable: its lease has ended. */
  delete(attempt: Attempt): void {
    this.#held.delete(attempt)
  }

  /** Renews none of them any more. Jobs whose handlers still run are left to their leases. */
  clear(): void {
    this.#held.clear()
  }

  /** The store notified us of a revoked lease. */
  revoked({ id, fence, reason, cancelReason }: Revoked): void {
    const attempt = this.#held.items.find(({ record }) => record.id === id && record.fence === fence)
    if (attempt !== undefined) this.lose(attempt, reason, cancelReason)
  }

  /** The lease is lost. The handler keeps its slot until it has ended. */
  lose(attempt: Attempt, ...[reason, cancelReason]: LostReason): void {
    if (attempt.lost !== undefined) return
    attempt.lose(reason, cancelReason)
    attempt.tracing?.lost(reason)
    this.#held.delete(attempt)
    if (reason === 'lease-lost') this.#reporter.leaseLost(attempt.record)
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
  mustEnd(own: Attempt): Millis {
    let soonest = own.leaseEnds - own.handler.lease * LAST_FRACTION
    if (this.#connection.store.can.parallel === true) return soonest // other renewals continue in parallel
    for (const peer of this.#peers()) {
      for (const { leaseEnds, handler, busy } of peer.#held.items) {
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
  spare(own: Attempt): Millis {
    const { runtime, store } = this.#connection
    let least = own.leaseEnds - own.handler.lease * LAST_FRACTION - runtime.elapsed()
    if (store.can.parallel === true) return Math.max(1, least)
    for (const peer of this.#peers()) {
      least = Math.min(least, peer.#renewEvery, peer.#shortest * (1 - LAST_FRACTION) - peer.#renewEvery)
    }
    return Math.max(1, least)
  }

  /** Renews one lease now; resolves when the renewal has succeeded or failed. */
  async renew(attempt: Attempt): Promise<void> {
    const sent = this.#connection.runtime.elapsed()
    try {
      const [verdict] = await this.#connection.renewals.renew([renewal(attempt)])
      this.#renewed(attempt, verdict!, sent)
    } catch (error) {
      this.#errors.report(error)
    }
  }

  /** Leases may have been revoked without a notice: finds out now, by renewing all of them. */
  check(): void {
    if (this.#inFlight) this.#checkAgain = true
    else void this.#renew()
  }

  #peers(): Set<Leases> {
    const { store } = this.#connection
    let peers = leasesByStore.get(store)
    if (peers === undefined) leasesByStore.set(store, (peers = new Set()))
    return peers
  }

  /**
   * Applies the verdict on a renewal. Returns whether another transaction had the job locked, so that nothing is known.
   */
  #renewed(attempt: Attempt, verdict: Verdict, sent: Millis): boolean {
    attempt.busy = !verdict.ok && verdict.why === 'busy'
    if (verdict.ok) attempt.leaseEnds = Math.max(attempt.leaseEnds, sent + attempt.handler.lease)
    else if (!attempt.busy) this.lose(attempt, ...reasonOf(verdict))
    return attempt.busy
  }

  /**
   * Whether a lease expired because this process was suspended or a handler blocked its event loop, so that no renewal
   * was even sent. False while the store fails or a transaction has the job locked: then the store decides.
   */
  missedRenewal(attempt: Attempt): boolean {
    if (this.#inFlight || this.#failed || attempt.busy) return false
    return this.#connection.runtime.elapsed() >= attempt.leaseEnds
  }

  #arm(): void {
    if (this.#stopped) return
    const renew = (late: Millis): void => {
      if (late > this.#renewEvery) {
        this.#errors.report(
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
      void this.#registration.heartbeat().catch((error: unknown) => this.#errors.report(error))
    }
    // Without leases, only the last heartbeat before something happens counts, if it reads the registry.
    const slack = (): Millis => (this.#held.items.length === 0 && this.#registration.readsNext ? Infinity : 0)
    this.#timer = poll(this.#connection.runtime, this.#renewEvery, renew, slack)
  }

  /** Another transaction had a job locked. It may end long before the next tick. */
  #retrySoon(): void {
    if (this.#stopped || this.#retryTimer !== undefined) return
    this.#retryTimer = this.#connection.runtime.timer(this.#renewEvery / 4, () => {
      this.#retryTimer = undefined
      void this.#renew()
    })
  }

  async #renew(): Promise<void> {
    const attempts: Attempt[] = []
    for (const attempt of [...this.#held.items]) {
      if (this.missedRenewal(attempt)) this.lose(attempt, 'lease-lost')
      else if (!attempt.isHeldByItself) attempts.push(attempt)
    }
    if (this.#inFlight) return // the next tick renews all of them
    if (attempts.length === 0) {
      this.#failed = false
      return
    }
    const sent = this.#connection.runtime.elapsed()
    this.#inFlight = true
    try {
      const verdicts = await this.#connection.renewals.renew(attempts.map(renewal))
      this.#failed = false
      let busy = false
      attempts.forEach((attempt, at) => {
        if (this.#renewed(attempt, verdicts[at]!, sent)) busy = true
      })
      if (busy) this.#retrySoon()
    } catch (error) {
      this.#failed = true
      this.#errors.report(error)
    } finally {
      this.#inFlight = false
      const again = this.#checkAgain && !this.#stopped
      this.#checkAgain = false
      if (again) void this.#renew()
    }
  }
}

function renewal(attempt: Attempt): Renewal {
  const { id, fence } = attempt.record
  return { id, fence, lease: attempt.handler.lease, started: attempt.started }
}

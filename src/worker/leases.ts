// worker/leases.ts: one timer that renews all leases of a worker in one batch, and notices when it comes too late.
import { MillraceError } from '../job/errors.js'
import type { JobRecord, Millis } from '../job/job.js'
import { cancelReason } from '../job/lifecycle.js'
import type { Connection } from '../store/connection.js'
import type { Stop } from '../store/runtime.js'
import type { Renewal, Store, Verdict } from '../store/store.js'
import type { Why } from './attempt/context.js'

/** A job that is leased here. */
export interface Leased {
  readonly record: JobRecord
  readonly handler: { readonly lease: Millis }
  readonly started: boolean
  /** When its lease is over, by this process's clock. */
  leaseEnds: Millis
  /** Somebody's transaction held the job when its lease was last to be renewed. */
  busy: boolean
  /** Whether its own transaction holds the job, so that its lease cannot be renewed. */
  readonly isHeldByItself: boolean
}

/** What the leases need of their worker. */
export interface LeaseHost {
  readonly connection: Connection
  readonly renewEvery: Millis
  /** The shortest lease that is given here. */
  readonly shortest: Millis
  /** Everything that is leased here: running, waiting for a slot, or being settled. */
  held(): Iterable<Leased>
  /** This one is no longer ours. */
  lost(attempt: Leased, ...why: Why): void
  /** The store failed. */
  failed(error: unknown): void
  /** Runs with every tick: the worker's sign of life. */
  tick(): void
}

/** Why a job that does not carry our fence any more was taken away. */
export function reasonOf(verdict: Verdict): Why {
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
 * The leases held in this process, by store. An open transaction keeps some stores from renewing any of them, so that
 * the one that ends first says how long a transaction may take.
 */
const inThisProcess = new WeakMap<Store, Set<Leases>>()

/** A transaction is ended when less than this part of a lease is left. */
const LAST_PART = 1 / 5

/** Keeps a worker's leases alive. */
export class Leases {
  readonly #host: LeaseHost
  #timer: Stop | undefined
  #soon: Stop | undefined
  #stopped = false
  #inFlight = false
  /** Leases may have been taken away since the renewal in flight was sent. */
  #suspect = false
  /** The last renewal got no answer. */
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
    this.#soon?.()
  }

  /**
   * When the transaction of an attempt must end, by this process's clock, for no lease of this process to be lost over it.
   * A job that somebody else's transaction holds is not lost over this one.
   */
  mustEnd(own: Leased): Millis {
    let soonest = own.leaseEnds - own.handler.lease * LAST_PART
    if (this.#host.connection.store.can.parallel === true) return soonest // renewals of the others go on beside it
    for (const peer of this.#peers()) {
      for (const { leaseEnds, handler, busy } of peer.#host.held()) {
        if (busy) continue
        const end = leaseEnds - handler.lease * LAST_PART
        if (end < soonest) soonest = end
      }
    }
    return soonest
  }

  /** How long, at least, no lease can come so near its end: most transactions are over by then. */
  spare(own: Leased): Millis {
    const { runtime, store } = this.#host.connection
    let least = own.leaseEnds - own.handler.lease * LAST_PART - runtime.elapsed()
    if (store.can.parallel === true) return Math.max(1, least)
    for (const { shortest, renewEvery } of Array.from(this.#peers(), (peer) => peer.#host)) {
      least = Math.min(least, renewEvery, shortest * (1 - LAST_PART) - renewEvery)
    }
    return Math.max(1, least)
  }

  /** Renews one lease now; resolves when that is answered, however. */
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

  /** Leases may have been taken away without a word: finds out at once, by renewing all of them. */
  check(): void {
    if (this.#inFlight) this.#suspect = true
    else void this.#renew()
  }

  #peers(): Set<Leases> {
    const { store } = this.#host.connection
    let peers = inThisProcess.get(store)
    if (peers === undefined) inThisProcess.set(store, (peers = new Set()))
    return peers
  }

  /** Whether somebody's transaction held the job, so that nothing was found out. */
  #renewed(attempt: Leased, verdict: Verdict, sent: Millis): boolean {
    attempt.busy = !verdict.ok && verdict.why === 'busy'
    if (verdict.ok) attempt.leaseEnds = Math.max(attempt.leaseEnds, sent + attempt.handler.lease)
    else if (!attempt.busy) this.#host.lost(attempt, ...reasonOf(verdict))
    return attempt.busy
  }

  /**
   * Whether a lease is over through our own doing: this process slept, or a handler blocked its event loop, so that no
   * renewal was even sent. While the store does not answer, or a transaction holds the job, that is not for us to say.
   */
  overslept(attempt: Leased): boolean {
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

  /** Somebody's transaction held a job: it may end long before the next tick. */
  #tryAgain(): void {
    if (this.#stopped || this.#soon !== undefined) return
    this.#soon = this.#host.connection.runtime.timer(this.#host.renewEvery / 4, () => {
      this.#soon = undefined
      void this.#renew()
    })
  }

  async #renew(): Promise<void> {
    const { connection, lost, failed } = this.#host
    const attempts: Leased[] = []
    for (const attempt of [...this.#host.held()]) {
      if (this.overslept(attempt)) lost(attempt, 'lease-lost')
      else if (!attempt.isHeldByItself) attempts.push(attempt)
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
      let busy = false
      attempts.forEach((attempt, at) => {
        if (this.#renewed(attempt, verdicts[at]!, sent)) busy = true
      })
      if (busy) this.#tryAgain()
    } catch (error) {
      this.#failed = true
      failed(error)
    } finally {
      this.#inFlight = false
      const again = this.#suspect && !this.#stopped
      this.#suspect = false
      if (again) void this.#renew()
    }
  }
}

function renewal(attempt: Leased): Renewal {
  const { id, fence } = attempt.record
  return { id, fence, lease: attempt.handler.lease, started: attempt.started }
}

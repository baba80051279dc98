// server/working/beat.ts: the leases that a turn renews, and those of them that are lost, then or while it waits.
import { isMillraceError } from '../../job/errors/errors.js'
import type { Millis } from '../../job/job.js'
import type { Revoked } from '../../store/store.js'
import type { AbortReason } from '../../worker/attempt/context.js'
import { reasonOf } from '../../worker/leases.js'
import type { ServerParts } from '../parts.js'
import type { Principal } from '../principal.js'
import type { HeldJob } from './held-jobs.js'
import type { LostLease } from './working.js'

/** A lease as a worker names it. */
interface Lease {
  readonly id: string
  readonly fence: number
}

/** The leases of one turn. */
export class Beat {
  readonly #server: ServerParts
  readonly #principal: Principal
  readonly #leases: readonly Lease[]
  readonly #lost = new Map<string, LostLease>()
  readonly #lossy = new AbortController()
  readonly #unlisten: () => void
  #found: Promise<readonly (HeldJob | undefined)[]> | undefined

  constructor(server: ServerParts, principal: Principal, leases: readonly Lease[]) {
    this.#server = server
    this.#principal = principal
    this.#leases = leases
    this.#unlisten = leases.length === 0 ? () => {} : server.working.onLoss((revoked) => this.#onLoss(revoked))
  }

  /** Aborts when one of them is lost. */
  get lossy(): AbortSignal {
    return this.#lossy.signal
  }

  /** Those that are lost, and why. */
  get lost(): readonly LostLease[] {
    return [...this.#lost.values()]
  }

  /** The longest that a turn may wait, so that the next one renews the leases in time. */
  async longest(): Promise<Millis> {
    const found = await this.#find()
    return Math.floor(Math.min(...found.map((each) => each?.lease ?? Infinity)) / 3)
  }

  /** Renews those that the caller still holds; with the changes that are submitted in the same turn of the event loop. */
  async renew(): Promise<void> {
    if (this.#leases.length === 0) return
    const found = await this.#find()
    const held = found.filter((each) => each !== undefined && !this.#lost.has(each.record.id)) as readonly HeldJob[]
    if (held.length === 0) return
    const verdicts = await this.#server.connection.main.renew(
      held.map(({ record: { id, fence }, lease }) => ({ id, fence, lease, started: true })),
    )
    for (const [at, verdict] of verdicts.entries()) {
      // A transaction that holds the row says nothing about the lease: the next turn tries again.
      if (!verdict.ok && verdict.why !== 'busy') this.#lose(held[at]!.record.id, ...reasonOf(verdict))
    }
  }

  /** The turn is over. */
  end(): void {
    this.#unlisten()
  }

  #find(): Promise<readonly (HeldJob | undefined)[]> {
    this.#found ??= Promise.all(this.#leases.map((lease) => this.#findOne(lease)))
    return this.#found
  }

  async #findOne({ id, fence }: Lease): Promise<HeldJob | undefined> {
    try {
      return await this.#server.working.held.find(this.#principal, id, fence)
    } catch (error) {
      if (isMillraceError(error, 'LEASE_LOST')) {
        const { reason, cancelReason } = error.details as {
          readonly reason: AbortReason
          readonly cancelReason?: string
        }
        this.#lose(id, reason, cancelReason)
        return undefined
      }
      // One that the caller may not know of is like one that is gone.
      if (!isMillraceError(error, 'JOB_REMOVED') && !isMillraceError(error, 'JOB_NOT_FOUND')) throw error
      this.#lose(id, 'removed')
      return undefined
    }
  }

  /** Leases were revoked; undefined: they may have been. */
  #onLoss(revoked: readonly Revoked[] | undefined): void {
    if (revoked === undefined) {
      this.renew().catch(() => {}) // the next turn finds out
      return
    }
    for (const { id, fence, reason, cancelReason } of revoked) {
      if (this.#leases.some((each) => each.id === id && each.fence === fence)) this.#lose(id, reason, cancelReason)
    }
  }

  #lose(id: string, reason: AbortReason, cancelReason?: string): void {
    this.#lost.set(id, { id, reason, ...(cancelReason !== undefined && { cancelReason }) })
    this.#lossy.abort()
  }
}

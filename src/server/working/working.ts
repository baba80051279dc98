// server/working/working.ts: what a server keeps for the workers that speak HTTP: claims that wait, the jobs they hold, their
// entries in the registry, and its own upkeep.
import type { AbortReason } from '../../worker/attempt/context.js'
import type { Logger } from '../../queue/events/events.js'
import type { Connection } from '../../store/connection.js'
import type { Notice, Revoked } from '../../store/store.js'
import type { Limits } from '../options.js'
import type { ServedQueues } from '../queues.js'
import { ServerUpkeep } from '../upkeep.js'
import { ClaimAnswers } from './claim-answers.js'
import { HeldJobs } from './held-jobs.js'
import { RemoteWorkers } from './remote-workers.js'
import { WaitingClaims } from './waiting.js'

/** A lease that was lost, and why. */
export interface LostLease {
  readonly id: string
  readonly reason: AbortReason
  readonly cancelReason?: string
}

/** What it is made of. */
interface WorkingParts {
  readonly connection: Connection
  readonly queues: ServedQueues
  readonly logger: Logger
  readonly readOnly: boolean
  readonly limits: Limits
  readonly closing: AbortSignal
}

/** The workers of a server, and what it does for them. */
export class Working {
  readonly waiting: WaitingClaims
  readonly held: HeldJobs
  readonly workers: RemoteWorkers
  readonly answers: ClaimAnswers
  readonly upkeep: ServerUpkeep
  /** Called for leases that a commit revoked; undefined: for all that may have been, because notices were missed. */
  readonly #losses = new Set<(revoked: readonly Revoked[] | undefined) => void>()

  constructor(parts: WorkingParts) {
    const { connection, queues, logger, limits } = parts
    this.waiting = new WaitingClaims(connection, limits)
    this.workers = new RemoteWorkers(connection, logger)
    this.answers = new ClaimAnswers(connection.runtime)
    this.upkeep = new ServerUpkeep({
      ...parts,
      isClaimingFor: (worker) => this.waiting.isClaimingFor(worker),
      notice: (notice) => this.#onNotice(notice),
      sweep: () => this.workers.sweep(),
    })
    this.held = new HeldJobs({ connection, queues, workers: this.workers, keepLast: this.upkeep.keepLast })
  }

  /** Calls the listener when leases were revoked; returns a function that stops that. */
  onLoss(listener: (revoked: readonly Revoked[] | undefined) => void): () => void {
    this.#losses.add(listener)
    return () => void this.#losses.delete(listener)
  }

  async close(): Promise<void> {
    await this.waiting.close()
    await this.upkeep.close()
  }

  #onNotice(notice: Notice): void {
    this.waiting.notice(notice)
    if (this.#losses.size === 0) return
    if (notice.missed === true) for (const each of this.#losses) each(undefined)
    else if (notice.revoked.length > 0) for (const each of this.#losses) each(notice.revoked)
  }
}

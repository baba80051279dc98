// worker/settlements.ts: writes the outcomes of attempts, and reports them once they are durable.
import { isMillraceError } from '../job/errors.js'
import type { MillraceError } from '../job/errors.js'
import type { Millis } from '../job/job.js'
import { decodeJson } from '../job/json.js'
import { lock, settle } from '../job/lifecycle.js'
import type { Outcome } from '../job/lifecycle.js'
import type { EventType, QueueEvent } from '../queue/events/events.js'
import type { FollowUps } from '../queue/flows/follow-ups.js'
import { bytesOf } from '../store/batch-size.js'
import type { Caller } from '../store/batcher.js'
import type { Connection } from '../store/connection.js'
import type { Group, Refused, Verdict } from '../store/store.js'
import type { Attempt } from './attempt/attempt.js'
import { cannotWait } from './attempt/children.js'
import type { LostReason } from './attempt/context.js'
import { reasonOf } from './leases.js'
import type { Leases } from './leases.js'
import { withLastNote } from './phases/run.js'

/** What settlements need of their worker. */
export interface SettlementHost {
  readonly connection: Connection
  leases(): Leases
  emit(event: QueueEvent): void
  /** Whether the type has listeners. */
  hasListeners(type: EventType): boolean
  /** The settlement is durable, so the worker no longer renews the lease. */
  settled(attempt: Attempt): void
  lost(attempt: Attempt, ...why: LostReason): void
  failed(error: unknown): void
  /** Backpressure has ended: the worker may claim again. */
  caughtUp(): void
}

/**
 * Backpressure: stop claiming while more settlements than this are unacknowledged. The bound is higher where a batch
 * holds more: one batch, or two where the store commits claims in parallel.
 */
const MAX_UNACKNOWLEDGED = 500

/** Backpressure in bytes: stop claiming while unacknowledged settlements and notes take more than this. */
const MAX_UNACKNOWLEDGED_BYTES = 64 * 2 ** 20

/** The wait before an unacknowledged settlement is sent again. */
const RETRY_DELAY: Millis = 250

/** Settlements that the store has not acknowledged yet. */
export class Settlements {
  readonly #host: SettlementHost
  readonly #limit: number
  #open = 0
  /** About how many bytes the unacknowledged settlements and notes take. */
  #bytes = 0
  #gaveUp = false
  /** The last error that was reported. */
  #lastReported: unknown
  #idle: (() => void)[] = []

  constructor(host: SettlementHost) {
    this.#host = host
    const { portion = 0, parallel } = host.connection.store.can
    this.#limit = Math.max(MAX_UNACKNOWLEDGED, parallel === true ? 2 * portion : portion)
  }

  /** Sends an outcome, unless the lease expired because this process was suspended or blocked. */
  send(attempt: Attempt, outcome: Outcome): void {
    if (this.#host.leases().missedRenewal(attempt)) {
      this.#host.lost(attempt, 'lease-lost')
      return
    }
    this.#open++
    attempt.lastNote = attempt.takeLastNote()
    this.#submit(attempt, outcome)
  }

  /** The handler of a revoked job has ended: ends the lease, so that the job no longer counts against limits. */
  releaseLease(attempt: Attempt): void {
    const { id, fence } = attempt.record
    this.#open++
    this.#host.connection.renewals.renew([{ id, fence, lease: 0, started: true }]).then(
      () => this.#close(),
      () => this.#close(), // the lease expires by itself
    )
  }

  /** Resolves when the store has acknowledged everything that was sent. */
  idle(): Promise<void> {
    return this.#open === 0 ? Promise.resolve() : new Promise((resolve) => this.#idle.push(resolve))
  }

  /** Stops retrying. Jobs whose settlement is not durable by now run again when their leases expire. */
  giveUp(): void {
    this.#gaveUp = true
  }

  /** Whether too many settlements are unacknowledged to claim further jobs. */
  get backpressure(): boolean {
    return this.#open > this.#limit || this.#bytes > MAX_UNACKNOWLEDGED_BYTES
  }

  /** Counts bytes of notes that wait for the store, or (negative) that no longer do. */
  countNotes(bytes: number): void {
    this.#count(0, bytes)
  }

  #count(settlements: number, bytes: number): void {
    const wasBlocked = this.backpressure
    this.#open += settlements
    this.#bytes += bytes
    if (wasBlocked && !this.backpressure) this.#host.caughtUp()
  }

  #close(attempt?: Attempt): void {
    this.#count(-1, -(attempt?.settlementBytes ?? 0))
    if (this.#open === 0) for (const done of this.#idle.splice(0)) done()
  }

  #submit(attempt: Attempt, outcome: Outcome): void {
    const group = groupOf(attempt, outcome)
    const bytes = bytesOf(group)
    this.#count(0, bytes - attempt.settlementBytes)
    attempt.settlementBytes = bytes
    this.#host.connection.main.submit(group, new SentSettlement(this, attempt, outcome))
  }

  /** The store sent no receipt: the settlement may or may not have been applied. */
  unacknowledged(attempt: Attempt, outcome: Outcome, error: unknown): void {
    if (isMillraceError(error, 'DATA_TOO_LARGE')) return this.#tooLarge(attempt, outcome, error)
    attempt.unsure = true
    if (error !== this.#lastReported) this.#host.failed((this.#lastReported = error)) // once for a whole batch
    this.#retry(attempt, outcome, error)
  }

  /** The settlement is durable: reports it. Called directly where it was committed in the attempt's own transaction. */
  landed(attempt: Attempt, outcome: Outcome): void {
    this.#host.settled(attempt)
    attempt.lastNote?.landed({ ok: true, inserted: [] })
    const finalEntry = attempt.phases?.finalEntry(outcome)
    if (finalEntry !== undefined) attempt.publishNote(finalEntry)
    this.#report(attempt, outcome)
  }

  /** Handles the store's verdict on a settlement. */
  acknowledged(attempt: Attempt, outcome: Outcome, verdict: Verdict): void {
    const landed = verdict.ok ? outcome : appliedUnacknowledged(attempt, outcome, verdict)
    if (landed !== undefined) {
      this.landed(attempt, landed)
      this.#close(attempt)
      return
    }
    if (verdict.ok) return
    const { followUps, record } = attempt
    if (outcome.kind === 'waits' && outcome.signal === true && verdict.why === 'duplicate') {
      // The signal arrived in the meantime: the handler finds it when it runs again.
      this.#submit(attempt, (attempt.outcome = { kind: 'snoozed', for: 0 }))
      return
    }
    const addsJobs = outcome.kind === 'returned' || outcome.kind === 'waits'
    if (addsJobs && followUps !== undefined && isAboutOthers(groupOf(attempt, outcome), verdict, record.id)) {
      void this.#resolveFollowUps(attempt, outcome, followUps, verdict)
      return
    }
    const stillOurs = verdict.job?.fence === attempt.record.fence && verdict.job.state === 'active'
    if (stillOurs && attempt.lost === undefined && !this.#host.leases().missedRenewal(attempt)) {
      // The lease expired while the store was unavailable, and no upkeep has reaped the job: renew the lease, then
      // settle.
      void this.#renewFirst(attempt, outcome)
      return
    }
    attempt.lastNote?.landed(verdict)
    this.#host.lost(attempt, ...reasonOf(verdict))
    this.#close(attempt)
  }

  /** A job to be added with the settlement exists already, or cannot be added: settles accordingly. */
  async #resolveFollowUps(
    attempt: Attempt,
    outcome: Extract<Outcome, { kind: 'returned' | 'waits' }>,
    followUps: FollowUps,
    verdict: Refused,
  ): Promise<void> {
    const { main, store } = this.#host.connection
    const group = groupOf(attempt, outcome)
    try {
      if (attempt.unsure) {
        // The jobs may exist because this settlement was applied before, without an answer. Then the job has moved.
        const current = await main.commit([lock(attempt.record, true)])
        const change = group.findIndex((each) => each.kind === 'move' && each.id === attempt.record.id)
        if (!current.ok) return this.acknowledged(attempt, outcome, { ...current, change })
      }
      const resolved = await followUps.resolveRefusal(group, verdict, store)
      if (resolved === undefined) attempt.outcome = attempt.failedWith(cannotWait(attempt.record, verdict))
      else if ('error' in resolved) attempt.outcome = attempt.failedWith(resolved.error)
      else if (outcome.kind === 'returned') attempt.outcome = followUps.with(outcome.result)
      else {
        // A job that exists already may wait for this one.
        const cycle = await attempt.children.refuseCycle().catch(asCycle)
        attempt.outcome = cycle === undefined ? attempt.children.outcome() : attempt.failedWith(cycle)
      }
      this.#submit(attempt, attempt.outcome)
    } catch (error) {
      if (isMillraceError(error, 'DATA_TOO_LARGE')) return this.#tooLarge(attempt, outcome, error)
      this.#host.failed(error)
      this.#retry(attempt, outcome, error)
    }
  }

  /**
   * The store rejects a settlement for its size, and would again. Drops the handler's last note first. If the rest is
   * still too large, the job fails permanently, and without the state of its phases if need be.
   */
  #tooLarge(attempt: Attempt, outcome: Outcome, error: MillraceError): void {
    if (attempt.lastNote !== undefined) {
      attempt.lastNote.failed(error)
      attempt.lastNote = undefined
      this.#host.failed(error)
      return this.#submit(attempt, outcome)
    }
    if (outcome.kind !== 'threw') return this.#submit(attempt, (attempt.outcome = attempt.failedWith(error)))
    this.#host.failed(error)
    if (attempt.phases !== undefined) {
      attempt.phases = undefined
      return this.#submit(attempt, outcome)
    }
    this.#host.lost(attempt, 'lease-lost')
    this.#close(attempt)
  }

  async #renewFirst(attempt: Attempt, outcome: Outcome): Promise<void> {
    const { id, fence } = attempt.record
    const { connection } = this.#host
    const sent = connection.runtime.elapsed()
    try {
      const [verdict] = await connection.renewals.renew([{ id, fence, lease: attempt.handler.lease, started: true }])
      if (verdict!.ok) {
        attempt.leaseEnds = sent + attempt.handler.lease
        this.#submit(attempt, outcome)
        return
      }
      attempt.lastNote?.landed(verdict!)
      this.#host.lost(attempt, ...reasonOf(verdict!))
      this.#close(attempt)
    } catch (error) {
      this.#host.failed(error)
      this.#retry(attempt, outcome, error)
    }
  }

  #retry(attempt: Attempt, outcome: Outcome, error: unknown): void {
    if (this.#gaveUp || attempt.lost !== undefined) return this.#drop(attempt, error)
    this.#host.connection.runtime.timer(RETRY_DELAY, () => {
      if (this.#gaveUp || attempt.lost !== undefined) this.#drop(attempt, error)
      else this.#submit(attempt, outcome)
    })
  }

  /** The settlement is not sent again. Rejects the last note, so that no caller waits for it for ever. */
  #drop(attempt: Attempt, error: unknown): void {
    attempt.lastNote?.failed(attempt.lost === undefined ? error : attempt.lostError())
    this.#close(attempt)
  }

  #report(attempt: Attempt, outcome: Outcome): void {
    const { record } = attempt
    const { id, name, queue, attempt: number } = record
    const base = { id, name, queue, attempt: number }
    const at = (): number => this.#host.connection.runtime.now()
    if (outcome.kind === 'returned' && this.#host.hasListeners('completed')) {
      const result = outcome.result === undefined ? undefined : decodeJson(outcome.result)
      this.#host.emit({ type: 'completed', ...base, at: at(), result })
    }
    if (outcome.kind !== 'threw') return attempt.tracing?.ended({ outcome: outcomeNames[outcome.kind] })
    const { error } = outcome
    const retrying = settle(record, outcome).some((change) => change.kind === 'move' && change.why === 'retrying')
    attempt.tracing?.ended({ outcome: retrying ? 'retrying' : 'failed', error })
    if (retrying) this.#host.emit({ type: 'retrying', ...base, at: at(), error, runAt: at() + outcome.retryIn })
    else this.#host.emit({ type: 'failed', ...base, at: at(), error })
  }
}

/** The names that telemetry uses for outcomes other than failures. */
const outcomeNames = {
  returned: 'completed',
  snoozed: 'snoozed',
  waits: 'waiting-children',
  interrupted: 'interrupted',
} as const

/** A settlement in flight. A class and not closures, because there is one for every job and closures cost more. */
class SentSettlement implements Caller {
  readonly #settlements: Settlements
  readonly #attempt: Attempt
  readonly #outcome: Outcome

  constructor(settlements: Settlements, attempt: Attempt, outcome: Outcome) {
    this.#settlements = settlements
    this.#attempt = attempt
    this.#outcome = outcome
  }

  landed(verdict: Verdict): void {
    this.#settlements.acknowledged(this.#attempt, this.#outcome, verdict)
  }

  failed(error: unknown): void {
    this.#settlements.unacknowledged(this.#attempt, this.#outcome, error)
  }
}

/** The changes that settle an attempt: the same for the same outcome. */
function groupOf(attempt: Attempt, outcome: Outcome): Group {
  return withLastNote(attempt, outcome, settle(attempt.record, outcome))
}

/** Whether a settlement was refused because of another job: one that it adds, drops for those, or waits for. */
function isAboutOthers(group: Group, { why, change, id }: Refused, own: string): boolean {
  if (why === 'busy') return false
  const refused = group[change]
  return refused?.kind === 'insert' || id !== own
}

/** The error, if it is about a cycle and not about the store. */
function asCycle(error: unknown): MillraceError {
  if (isMillraceError(error, 'WAIT_CYCLE')) return error
  throw error
}

/**
 * The outcome that was applied although its receipt was lost, if any. Then the job has finished, its fence is one
 * higher, and its worker is this one. The outcome may also be the one committed earlier in the attempt's transaction.
 */
function appliedUnacknowledged(
  attempt: Attempt,
  outcome: Outcome,
  verdict: Verdict & { ok: false },
): Outcome | undefined {
  const { record, unsure, maybeCommitted } = attempt
  const { job } = verdict
  if (verdict.why === 'missing' && verdict.id === record.id && maybeCommitted !== undefined) {
    return settle(record, maybeCommitted).some((change) => change.kind === 'move' && change.to === 'removed')
      ? maybeCommitted
      : undefined
  }
  if (!unsure || job?.id !== record.id) return undefined
  if (job.fence !== record.fence + 1 || job.worker !== record.worker) return undefined
  if (job.state === 'completed') return outcome.kind === 'returned' ? outcome : maybeCommitted
  return outcome.kind === 'threw' && job.state === 'failed' ? outcome : undefined
}

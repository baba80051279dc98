// worker/settlements.ts: writes the outcomes of attempts, and reports them once they are durable.
import { isMillraceError } from '../job/errors/errors.js'
import type { MillraceError } from '../job/errors/errors.js'
import { tooManyHolds } from '../job/holds.js'
import type { JobRecord, Millis, MovedJob } from '../job/job.js'
import { lock, settle } from '../job/lifecycle.js'
import type { Outcome } from '../job/lifecycle.js'
import type { FollowUps } from '../queue/flows/follow-ups.js'
import { bytesOf } from '../store/batch-size.js'
import type { Caller } from '../store/batcher.js'
import type { Group, Refused, Verdict } from '../store/store.js'
import type { Attempt } from './attempt/attempt.js'
import { cannotWait } from './attempt/children.js'
import { lateFailure } from './attempt/outcome.js'
import { reasonOf } from './leases.js'
import type { Leases } from './leases.js'
import type { WorkerParts } from './parts.js'
import { outcomeName } from './reporter.js'

/** The wait before an unacknowledged settlement is sent again. */
const RETRY_DELAY: Millis = 250

/** Writes the outcomes of a worker's attempts, until the store has acknowledged them. */
export class Settlements {
  readonly #parts: WorkerParts
  readonly #leases: Leases
  #gaveUp = false
  /** The last error that was reported. */
  #lastReported: unknown

  constructor(parts: WorkerParts, leases: Leases) {
    this.#parts = parts
    this.#leases = leases
  }

  /** Sends an outcome, unless the lease expired because this process was suspended or blocked. */
  send(attempt: Attempt, outcome: Outcome): void {
    if (this.#leases.missedRenewal(attempt)) return this.#leases.lose(attempt, 'lease-lost')
    this.#parts.backpressure.opened()
    attempt.lastNote = attempt.notes?.takeLast()
    this.#settle(attempt, outcome)
  }

  /** The handler of a revoked job has ended: ends the lease, so that the job no longer counts against limits. */
  releaseLease({ record: { id, fence } }: Attempt): void {
    const { connection, backpressure, run } = this.#parts
    backpressure.opened()
    const over = (): void => {
      backpressure.closed(0)
      run.changed()
    }
    connection.renewals.renew([{ id, fence, lease: 0, started: true }]).then(over, over) // or the lease expires by itself
  }

  /** Resolves when the store has acknowledged everything that was sent. */
  idle(): Promise<void> {
    return this.#parts.backpressure.idle()
  }

  /** Stops retrying. Jobs whose settlement is not durable by now run again when their leases expire. */
  giveUp(): void {
    this.#gaveUp = true
  }

  /** Decides what the outcome does to the job, once, and sends it. */
  #settle(attempt: Attempt, outcome: Outcome): void {
    this.#submit(new Settlement(this, attempt, outcome, settle(attempt.record, outcome)))
  }

  #submit(settlement: Settlement): void {
    const { attempt, group } = settlement
    const bytes = bytesOf(group)
    this.#parts.backpressure.count(bytes - attempt.settlementBytes)
    attempt.settlementBytes = bytes
    this.#parts.connection.main.submit(group, settlement)
  }

  #close(attempt: Attempt): void {
    this.#parts.backpressure.closed(attempt.settlementBytes)
    this.#parts.run.changed()
  }

  /** The settlement is durable: reports it. */
  landed(attempt: Attempt, outcome: Outcome, group: Group): void {
    const { reporter, run, keepLast } = this.#parts
    const { record, phases } = attempt
    const ended = outcomeName(outcome, group)
    if (attempt.started) run.settled(ended)
    if (record.keep !== undefined && (ended === 'completed' || ended === 'failed')) keepLast.ended(record, ended)
    this.#leases.delete(attempt)
    attempt.lastNote?.landed({ ok: true, inserted: [] })
    const final = phases?.finalEntry(outcome)
    if (final !== undefined) attempt.noted(final)
    reporter.settled(attempt.known, outcome, group, attempt.tracing)
  }

  /** The store sent no receipt: the settlement may or may not have been applied. */
  unacknowledged(settlement: Settlement, error: unknown): void {
    const { attempt } = settlement
    if (isMillraceError(error, 'DATA_TOO_LARGE')) return this.#tooLarge(settlement, error)
    attempt.unsure = true
    if (error !== this.#lastReported) this.#parts.errors.report((this.#lastReported = error)) // once for a whole batch
    this.#retry(settlement, error)
  }

  /** Handles the store's verdict on a settlement. */
  acknowledged(settlement: Settlement, verdict: Verdict): void {
    const { attempt, outcome, group } = settlement
    const landed = verdict.ok ? settlement : appliedUnacknowledged(settlement, verdict)
    if (landed !== undefined) {
      this.landed(attempt, landed.outcome, landed.group)
      return this.#close(attempt)
    }
    if (verdict.ok) return
    const { followUps, record } = attempt
    if (outcome.kind === 'waits' && outcome.signal === true && verdict.why === 'duplicate') {
      // The signal arrived in the meantime: the handler finds it when it runs again.
      return this.#settle(attempt, { kind: 'snoozed', for: 0 })
    }
    const addsJobs = outcome.kind === 'returned' || outcome.kind === 'waits'
    if (addsJobs && followUps !== undefined && isAboutOthers(group, verdict, record.id)) {
      return void this.#resolveFollowUps(settlement, followUps, verdict)
    }
    if (outcome.kind === 'held' && verdict.why === 'full') {
      this.#parts.errors.report(tooManyHolds(record.queue))
      return this.#settle(attempt, { kind: 'snoozed', for: outcome.hold.for })
    }
    const stillOurs = verdict.job?.fence === record.fence && verdict.job.state === 'active'
    if (stillOurs && attempt.lost === undefined && !this.#leases.missedRenewal(attempt)) {
      // The lease expired while the store was unavailable, and no upkeep has reaped the job: renew the lease, then
      // settle.
      return void this.#renewFirst(settlement)
    }
    this.#refused(attempt, verdict)
  }

  /** The lease was lost before the settlement. */
  #refused(attempt: Attempt, verdict: Verdict): void {
    attempt.lastNote?.landed(verdict)
    this.#leases.lose(attempt, ...reasonOf(verdict))
    this.#close(attempt)
  }

  /** A job to be added with the settlement exists already, or cannot be added: settles accordingly. */
  async #resolveFollowUps(settlement: Settlement, followUps: FollowUps, verdict: Refused): Promise<void> {
    const { attempt, outcome, group } = settlement
    const { record, children } = attempt
    const { main, store } = this.#parts.connection
    try {
      if (attempt.unsure) {
        // The jobs may exist because this settlement was applied before, without an answer. Then the job has moved.
        const current = await main.commit([lock(record, true)])
        const change = group.findIndex((each) => each.kind === 'move' && each.id === record.id)
        if (!current.ok) return this.acknowledged(settlement, { ...current, change })
      }
      const resolved = await followUps.resolveRefusal(group, verdict, store)
      let next: Outcome
      if (resolved === undefined) next = lateFailure(attempt, cannotWait(record, verdict))
      else if ('error' in resolved) next = lateFailure(attempt, resolved.error)
      else if (outcome.kind === 'returned') next = followUps.with(outcome.result)
      else {
        // A job that exists already may wait for this one.
        const cycle = await children!.refuseCycle().catch(asCycle)
        next = cycle === undefined ? children!.outcome() : lateFailure(attempt, cycle)
      }
      this.#settle(attempt, next)
    } catch (error) {
      if (isMillraceError(error, 'DATA_TOO_LARGE')) return this.#tooLarge(settlement, error)
      this.#parts.errors.report(error)
      this.#retry(settlement, error)
    }
  }

  /**
   * The store rejects a settlement for its size, and would again. Drops the handler's last note first. If the rest is
   * still too large, the job fails permanently, and without the state of its phases if need be.
   */
  #tooLarge(settlement: Settlement, error: MillraceError): void {
    const { attempt, outcome, changes } = settlement
    if (attempt.lastNote === undefined && outcome.kind !== 'threw') {
      return this.#settle(attempt, lateFailure(attempt, error))
    }
    this.#parts.errors.report(error)
    if (attempt.lastNote !== undefined) {
      attempt.lastNote.failed(error)
      attempt.lastNote = undefined
    } else if (attempt.phases !== undefined) attempt.phases = undefined
    else {
      this.#leases.lose(attempt, 'lease-lost')
      return this.#close(attempt)
    }
    this.#submit(new Settlement(this, attempt, outcome, changes))
  }

  async #renewFirst(settlement: Settlement): Promise<void> {
    const { attempt } = settlement
    const { record, handler } = attempt
    const { connection, errors } = this.#parts
    const sent = connection.runtime.elapsed()
    try {
      const renewal = { id: record.id, fence: record.fence, lease: handler.lease, started: true }
      const [verdict] = await connection.renewals.renew([renewal])
      if (!verdict!.ok) return this.#refused(attempt, verdict!)
      attempt.leaseEnds = sent + handler.lease
      this.#submit(settlement)
    } catch (error) {
      errors.report(error)
      this.#retry(settlement, error)
    }
  }

  #retry(settlement: Settlement, error: unknown): void {
    const { attempt } = settlement
    if (this.#gaveUp || attempt.lost !== undefined) return this.#drop(attempt, error)
    this.#parts.connection.runtime.timer(RETRY_DELAY, () => {
      if (this.#gaveUp || attempt.lost !== undefined) this.#drop(attempt, error)
      else this.#submit(settlement)
    })
  }

  /** The settlement is not sent again. Rejects the last note, so that no caller waits for it for ever. */
  #drop(attempt: Attempt, error: unknown): void {
    attempt.lastNote?.failed(attempt.lost === undefined ? error : attempt.lostError())
    this.#close(attempt)
  }
}

/** An outcome and its changes, in flight. A class and not closures: there is one for every job, and closures cost more. */
class Settlement implements Caller {
  readonly attempt: Attempt
  readonly outcome: Outcome
  /** What the outcome does to the job. */
  readonly changes: Group
  /** What is sent: the changes, and the last note of the handler before them. */
  readonly group: Group
  readonly #settlements: Settlements

  constructor(settlements: Settlements, attempt: Attempt, outcome: Outcome, changes: Group) {
    this.#settlements = settlements
    this.attempt = attempt
    this.outcome = outcome
    this.changes = changes
    this.group = attempt.settlement(outcome, changes)
  }

  landed(verdict: Verdict): void {
    this.#settlements.acknowledged(this, verdict)
  }

  failed(error: unknown): void {
    this.#settlements.unacknowledged(this, error)
  }
}

/** Whether a settlement was refused because of another job: one that it adds, drops for those, or waits for. */
export function isAboutOthers(group: Group, { why, change, id }: Refused, own: string): boolean {
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
 * The settlement that was applied although its receipt was lost, if any. Then the job has finished, its fence is one
 * higher, and its worker is this one. It may also be the one committed earlier in the attempt's transaction.
 */
function appliedUnacknowledged(
  settlement: Settlement,
  verdict: Refused,
): Pick<Settlement, 'outcome' | 'group'> | undefined {
  const { attempt, outcome } = settlement
  const { record, unsure, maybeCommitted } = attempt
  const { job } = verdict
  if (verdict.why === 'missing' && verdict.id === record.id && maybeCommitted !== undefined) {
    const removes = maybeCommitted.group.some((change) => change.kind === 'move' && change.to === 'removed')
    return removes ? maybeCommitted : undefined
  }
  if (!unsure || !isEndedBy(record, job)) return undefined
  if (job.state === 'completed') return outcome.kind === 'returned' ? settlement : maybeCommitted
  return outcome.kind === 'threw' && job.state === 'failed' ? settlement : undefined
}

/** Whether a job that has moved was ended by the holder of this lease: by the next fence, and with its worker. */
export function isEndedBy(lease: JobRecord, job: MovedJob | undefined): job is MovedJob {
  return job?.id === lease.id && job.fence === lease.fence + 1 && job.worker === lease.worker
}

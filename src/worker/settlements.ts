// worker/settlements.ts: sends what attempts came to, and tells of it once it is durable.
import { isMillraceError } from '../job/errors.js'
import type { MillraceError } from '../job/errors.js'
import type { Millis } from '../job/job.js'
import { decodeJson } from '../job/json.js'
import { settle } from '../job/lifecycle.js'
import type { Outcome } from '../job/lifecycle.js'
import type { EventType, QueueEvent } from '../queue/events/events.js'
import type { FollowUps } from '../queue/flows/follow-ups.js'
import type { Caller } from '../store/batcher.js'
import type { Connection } from '../store/connection.js'
import type { Verdict } from '../store/store.js'
import type { Attempt } from './attempt/attempt.js'
import { cannotWait } from './attempt/children.js'
import type { Why } from './attempt/context.js'
import { reasonOf } from './leases.js'
import type { Leases } from './leases.js'
import { withLastNote } from './phases/run.js'

/** What settlements need of their worker. */
export interface SettlementHost {
  readonly connection: Connection
  leases(): Leases
  emit(event: QueueEvent): void
  /** Whether anybody listens. */
  wants(type: EventType): boolean
  /** It is durable: the lease is no longer ours to hold. */
  settled(attempt: Attempt): void
  lost(attempt: Attempt, ...why: Why): void
  failed(error: unknown): void
  /** Few enough are on their way now to take in more jobs. */
  caughtUp(): void
}

/** More settlements than this on their way (or than a batch holds, or two where claims go beside them), and no further jobs are taken: claims must not outrun what they come to. */
const MANY = 500

/** Backpressure in bytes: no further jobs are claimed while unacknowledged results take more than this. */
const MANY_BYTES = 64 * 2 ** 20

/** The wait before a settlement whose answer never came is sent again. */
const AGAIN: Millis = 250

/** Outcomes on their way to the store. */
export class Settlements {
  readonly #host: SettlementHost
  readonly #many: number
  #open = 0
  /** About how many bytes the results take that are on their way. */
  #bytes = 0
  #given = false
  /** The error told last. */
  #told: unknown
  #idle: (() => void)[] = []

  constructor(host: SettlementHost) {
    this.#host = host
    const { portion = 0, parallel } = host.connection.store.can
    this.#many = Math.max(MANY, parallel === true ? 2 * portion : portion)
  }

  /** Sends an outcome, unless the job was lost through our own sleep. */
  send(attempt: Attempt, outcome: Outcome): void {
    if (this.#host.leases().overslept(attempt)) {
      this.#host.lost(attempt, 'lease-lost')
      return
    }
    this.#open++
    attempt.weight = outcome.kind === 'returned' ? (outcome.result?.length ?? 0) : 0
    this.#bytes += attempt.weight
    attempt.lastWords = attempt.takeLastWords()
    this.#submit(attempt, outcome)
  }

  /** The handler of a job that was taken away has ended: it no longer counts against limits. */
  letGo(attempt: Attempt): void {
    const { id, fence } = attempt.record
    this.#open++
    this.#host.connection.renewals.renew([{ id, fence, lease: 0, started: true }]).then(
      () => this.#close(),
      () => this.#close(), // its lease ends by itself
    )
  }

  /** Resolves when everything sent has been answered. */
  idle(): Promise<void> {
    return this.#open === 0 ? Promise.resolve() : new Promise((resolve) => this.#idle.push(resolve))
  }

  /** Stops trying: what is not durable now is left to its lease. */
  giveUp(): void {
    this.#given = true
  }

  /** Whether so many are on their way that no further jobs should be taken. */
  get behind(): boolean {
    return this.#open > this.#many || this.#bytes > MANY_BYTES
  }

  #close(attempt?: Attempt): void {
    const wasBehind = this.behind
    this.#open--
    this.#bytes -= attempt?.weight ?? 0
    if (wasBehind && !this.behind) this.#host.caughtUp()
    if (this.#open === 0) for (const done of this.#idle.splice(0)) done()
  }

  #submit(attempt: Attempt, outcome: Outcome): void {
    const settlement = settle(attempt.record, outcome)
    this.#host.connection.main.submit(withLastNote(attempt, outcome, settlement), new Sent(this, attempt, outcome))
  }

  /** No answer came: it may have landed, or not. */
  unanswered(attempt: Attempt, outcome: Outcome, error: unknown): void {
    if (isMillraceError(error, 'DATA_TOO_LARGE')) return this.#tooLarge(attempt, outcome, error)
    attempt.unsure = true
    if (error !== this.#told) this.#host.failed((this.#told = error)) // once for all that left in one batch
    this.#again(attempt, outcome, error)
  }

  /** It was committed in the attempt's own transaction. */
  landed(attempt: Attempt, outcome: Outcome): void {
    this.#host.settled(attempt)
    attempt.lastWords?.told({ ok: true, inserted: [] })
    const parting = attempt.phases?.parting(outcome)
    if (parting !== undefined) attempt.told(parting)
    this.#tell(attempt, outcome)
  }

  /** The store has judged it. */
  answered(attempt: Attempt, outcome: Outcome, verdict: Verdict): void {
    const landed = verdict.ok ? outcome : landedUnheard(attempt, outcome, verdict)
    if (landed !== undefined) {
      this.landed(attempt, landed)
      this.#close(attempt)
      return
    }
    if (verdict.ok) return
    const { successors, record } = attempt
    if (outcome.kind === 'waits' && outcome.signal === true && verdict.why === 'duplicate') {
      // It came in the meantime: the handler finds it when it runs again.
      this.#submit(attempt, (attempt.outcome = { kind: 'snoozed', for: 0 }))
      return
    }
    const brings = outcome.kind === 'returned' || outcome.kind === 'waits'
    if (brings && successors !== undefined && isAboutOthers(verdict, record.id)) {
      void this.#sortOut(attempt, outcome, successors, verdict)
      return
    }
    const stillOurs = verdict.job?.fence === attempt.record.fence && verdict.job.state === 'active'
    if (stillOurs && attempt.lost === undefined && !this.#host.leases().overslept(attempt)) {
      // The lease ran out while the store was away, and nobody has reaped it: renew it, then settle.
      void this.#renewFirst(attempt, outcome)
      return
    }
    attempt.lastWords?.told(verdict)
    this.#host.lost(attempt, ...reasonOf(verdict))
    this.#close(attempt)
  }

  /** One of the jobs to be added with it stands already, or cannot be added. */
  async #sortOut(
    attempt: Attempt,
    outcome: Extract<Outcome, { kind: 'returned' | 'waits' }>,
    successors: FollowUps,
    verdict: Verdict & { ok: false },
  ): Promise<void> {
    const { main, store } = this.#host.connection
    const wasDropped = successors.drops(verdict)
    try {
      const failed = await successors.sortOut((tried) => settle(attempt.record, tried), {
        commit: (group) => main.commit(group),
        details: (query) => store.details(query),
      })
      // It has landed before, or the job was taken away.
      if (failed !== undefined && 'moved' in failed) return this.answered(attempt, outcome, failed.moved)
      if (failed !== undefined) attempt.outcome = attempt.failedWith(failed.error)
      else if (outcome.kind === 'returned') attempt.outcome = successors.with(outcome.result)
      else if (verdict.why === 'missing' && !wasDropped)
        attempt.outcome = attempt.failedWith(cannotWait(attempt.record, verdict))
      else {
        // Those that stand already may wait for it.
        const cycle = await attempt.children.refuseCycle().catch(asCycle)
        attempt.outcome = cycle === undefined ? attempt.children.outcome() : attempt.failedWith(cycle)
      }
      this.#submit(attempt, attempt.outcome)
    } catch (error) {
      if (isMillraceError(error, 'DATA_TOO_LARGE')) return this.#tooLarge(attempt, outcome, error)
      this.#host.failed(error)
      this.#again(attempt, outcome, error)
    }
  }

  /**
   * The store refuses a settlement for its size, and would the next time as well. What the handler said last is dropped
   * first; if the rest is still too large, the job fails for good, in the end without a word about its phases.
   */
  #tooLarge(attempt: Attempt, outcome: Outcome, error: MillraceError): void {
    if (attempt.lastWords !== undefined) {
      attempt.lastWords.failed(error)
      attempt.lastWords = undefined
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
      attempt.lastWords?.told(verdict!)
      this.#host.lost(attempt, ...reasonOf(verdict!))
      this.#close(attempt)
    } catch (error) {
      this.#host.failed(error)
      this.#again(attempt, outcome, error)
    }
  }

  #again(attempt: Attempt, outcome: Outcome, error: unknown): void {
    if (this.#given || attempt.lost !== undefined) return this.#drop(attempt, error)
    this.#host.connection.runtime.timer(AGAIN, () => {
      if (this.#given || attempt.lost !== undefined) this.#drop(attempt, error)
      else this.#submit(attempt, outcome)
    })
  }

  /** It is not sent again; nobody waits for ever to hear of what went with it. */
  #drop(attempt: Attempt, error: unknown): void {
    attempt.lastWords?.failed(attempt.lost === undefined ? error : attempt.notOurs())
    this.#close(attempt)
  }

  #tell(attempt: Attempt, outcome: Outcome): void {
    const { record } = attempt
    const { id, name, queue, attempt: number } = record
    const base = { id, name, queue, attempt: number }
    const at = (): number => this.#host.connection.runtime.now()
    if (outcome.kind === 'returned' && this.#host.wants('completed')) {
      const result = outcome.result === undefined ? undefined : decodeJson(outcome.result)
      this.#host.emit({ type: 'completed', ...base, at: at(), result })
    }
    if (outcome.kind !== 'threw') return attempt.tracing?.ended({ outcome: told[outcome.kind] })
    const { error } = outcome
    const retrying = settle(record, outcome).some((change) => change.kind === 'move' && change.why === 'retrying')
    attempt.tracing?.ended({ outcome: retrying ? 'retrying' : 'failed', error })
    if (retrying) this.#host.emit({ type: 'retrying', ...base, at: at(), error, runAt: at() + outcome.retryIn })
    else this.#host.emit({ type: 'failed', ...base, at: at(), error })
  }
}

/** What outcomes other than failures are called where they are measured. */
const told = {
  returned: 'completed',
  snoozed: 'snoozed',
  waits: 'waiting-children',
  interrupted: 'interrupted',
} as const

/** A settlement on its way. A class, since there is one for every job, and closures cost more. */
class Sent implements Caller {
  readonly #settlements: Settlements
  readonly #attempt: Attempt
  readonly #outcome: Outcome

  constructor(settlements: Settlements, attempt: Attempt, outcome: Outcome) {
    this.#settlements = settlements
    this.#attempt = attempt
    this.#outcome = outcome
  }

  landed(verdict: Verdict): void {
    this.#settlements.answered(this.#attempt, this.#outcome, verdict)
  }

  failed(error: unknown): void {
    this.#settlements.unanswered(this.#attempt, this.#outcome, error)
  }
}

/** Whether a settlement was refused over a job that was to be added with it, or to be dropped for one. */
function isAboutOthers(verdict: Verdict & { ok: false }, id: string): boolean {
  const { why } = verdict
  return why === 'duplicate' || why === 'full' || ((why === 'missing' || why === 'fence') && verdict.id !== id)
}

/** The error, if it tells of a cycle and not of the store. */
function asCycle(error: unknown): MillraceError {
  if (isMillraceError(error, 'WAIT_CYCLE')) return error
  throw error
}

/**
 * What landed of a settlement whose answer was lost, if anything: then the job has finished one fence on, by this very
 * worker. It may be what was committed in the attempt's transaction before.
 */
function landedUnheard(attempt: Attempt, outcome: Outcome, verdict: Verdict & { ok: false }): Outcome | undefined {
  const { record, unsure, perhaps } = attempt
  const { job } = verdict
  if (verdict.why === 'missing' && verdict.id === record.id && perhaps !== undefined) {
    return settle(record, perhaps).some((change) => change.kind === 'move' && change.to === 'removed')
      ? perhaps
      : undefined
  }
  if (!unsure || job?.id !== record.id) return undefined
  if (job.fence !== record.fence + 1 || job.worker !== record.worker) return undefined
  if (job.state === 'completed') return outcome.kind === 'returned' ? outcome : perhaps
  return outcome.kind === 'threw' && job.state === 'failed' ? outcome : undefined
}

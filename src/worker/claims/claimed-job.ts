// worker/claims/claimed-job.ts: a job that was claimed by hand: every call is bound to the fence of its claim.
import { parseDuration } from '../../job/values/duration.js'
import type { Duration } from '../../job/values/duration.js'
import { MillraceError, isMillraceError } from '../../job/errors/errors.js'
import { describeError, isUnrecoverable } from '../../job/errors/failure.js'
import { tooManyHolds } from '../../job/holds.js'
import type { JobRecord, Millis, Time } from '../../job/job.js'
import type { Jsonable } from '../../job/values/json.js'
import { note, settle } from '../../job/lifecycle.js'
import type { Outcome } from '../../job/lifecycle.js'
import { refuseUnknown } from '../../job/values/names.js'
import { leftOpen } from '../../job/phases.js'
import { backoffDelay } from '../../job/retry.js'
import { FollowUps, outOfOrder } from '../../queue/flows/follow-ups.js'
import type { Job } from '../../queue/job.js'
import { sleep } from '../../store/runtime.js'
import type { Session } from '../../store/session.js'
import { joinedTransaction } from '../../store/transaction-context.js'
import type { Group, Verdict } from '../../store/store.js'
import { abortFor } from '../attempt/context.js'
import type { AbortReason, LostReason } from '../attempt/context.js'
import { parseHold } from '../attempt/hold.js'
import type { HoldOptions } from '../attempt/hold.js'
import { storedResult } from '../attempt/payload.js'
import { logEntry, noteOf, progressEntry } from '../attempt/pending-notes.js'
import type { NoteEntry } from '../attempt/pending-notes.js'
import { reasonOf } from '../leases.js'
import { outcomeName } from '../reporter.js'
import { isAboutOthers, isEndedBy } from '../settlements.js'
import type { ClaimHost } from './host.js'
import { parseLease } from './options.js'
import type { ClaimRequest } from './options.js'

/** The answer to a heartbeat: the job still belongs to the caller, or why it does not. */
export type Heartbeat =
  | { readonly held: true }
  | {
      readonly held: false
      /** Why the lease is lost, as in `ctx.signal.reason.reason` of a handler. */
      readonly reason: AbortReason
      /** The reason given to `cancel`, if the job was cancelled with one. */
      readonly cancelReason?: string
    }

/** Options of `fail`. */
export interface FailOptions {
  /**
   * Whether to try again, if attempts are left: `false`: never; a duration: after that wait; `true`: after the job's
   * backoff. Default: after the job's backoff, unless the error is an `UnrecoverableError`.
   */
  readonly retry?: boolean | Duration
}

/** Options of `heartbeat`. */
export interface HeartbeatOptions {
  /** How long the job belongs to the caller from now on; at least 10 ms. Default: the lease of the claim. */
  readonly lease?: Duration
}

/** What a claimed job keeps of the request that claimed it. */
export type ClaimTerms = Pick<ClaimRequest, 'lease' | 'custom'>

/** How often, and how many milliseconds apart, a lease is renewed while another transaction holds its job. */
const BUSY_TRIES = 25
const BUSY_PAUSE: Millis = 20

/**
 * A job that was claimed by hand. It belongs to the caller until its lease expires, unless a heartbeat renews it. A call
 * for a job that belongs to the caller no more writes nothing and rejects with `LEASE_LOST`; `details.reason` is why.
 * `AJob` is its handle, `Return` what it may be completed with, `Plan` what the callback of `complete` receives.
 */
export class ClaimedJob<AJob extends Job = Job, Return = unknown, Plan = unknown> {
  /** The handle of the job, as it was claimed. Its operations are those of any caller: they are not bound to the claim. */
  readonly job: AJob
  readonly #host: ClaimHost
  readonly #record: JobRecord
  readonly #request: ClaimTerms
  #lost: LostReason | undefined
  /** The call that is settling the job, or has settled it. */
  #settledBy: string | undefined
  /** A settlement was sent and never acknowledged: it may or may not have been applied. */
  #unsure = false

  /** @internal Claimed jobs come from `queue.claim`. */
  constructor(host: ClaimHost, record: JobRecord, job: AJob, request: ClaimTerms) {
    this.#host = host
    this.#record = record
    this.job = job
    this.#request = request
  }

  /** Its id, unique in the store. */
  get id(): string {
    return this.#record.id
  }
  /** The queue it is in. */
  get queue(): string {
    return this.#record.queue
  }
  /** The name it was added under. */
  get name(): AJob['name'] {
    return this.job.name
  }
  /** The payload: the output of the `input` schema, if there is one. */
  get data(): AJob['data'] {
    return this.job.data
  }
  /** The number of this attempt, from 1. */
  get attempt(): number {
    return this.#record.attempt
  }
  /** Maximum number of attempts, the first included; may be `Infinity`. */
  get attempts(): number {
    return this.#record.attempts
  }
  /** The fence of the claim, which every call of this object carries. */
  get fence(): number {
    return this.#record.fence
  }
  /** The worker id that the lease names. */
  get worker(): string {
    return this.#record.worker!
  }
  /** When the job was claimed, by the store's clock. */
  get startedAt(): Time {
    return this.#record.startedAt!
  }

  /**
   * Completes the job. The callback adds jobs and continues the chain in the same commit; its result is that of the
   * job. Inside `queue.transaction` the settlement is part of the transaction.
   */
  complete(work: (plan: Plan) => Return | Promise<Return>): Promise<void>
  /**
   * Completes the job with this result. A result that its schema refuses rejects with `INVALID_RESULT`: nothing is
   * written, and the job still belongs to the caller.
   */
  complete(...result: undefined extends Return ? [result?: Return] : [result: Return]): Promise<void>
  complete(given?: unknown): Promise<void> {
    return this.#settle('complete', (session) => this.#complete(session, given))
  }

  /**
   * Fails this attempt. The job is retried by its own rules; `UnrecoverableError`, or `retry: false`, fails it for good.
   * Returns which of the two happened.
   */
  async fail(error: unknown, options: FailOptions = {}): Promise<'retrying' | 'failed'> {
    return (await this.failed(error, options)).ended
  }

  /** @internal As `fail`; returns the wait before the retry as well. */
  async failed(
    error: unknown,
    options: FailOptions,
  ): Promise<{ readonly ended: 'retrying' | 'failed'; readonly retryIn: Millis }> {
    refuseUnknown(options, ['retry'], 'fail')
    const { retry = !isUnrecoverable(error) } = options
    const retryIn = typeof retry === 'boolean' ? this.#backoff(retry, error) : parseDuration(retry, 'fail: retry')
    const outcome: Outcome = { kind: 'threw', error: describeError(error), retryable: retry !== false, retryIn }
    let retried = false
    await this.#settle('fail', async (session) => {
      retried = outcomeName(outcome, await this.#commit(session, outcome)) === 'retrying'
    })
    return { ended: retried ? 'retrying' : 'failed', retryIn }
  }

  /** Runs the job again after that time; the attempt does not count. */
  snooze(duration: Duration): Promise<void> {
    return this.#settle('snooze', async (session) => {
      await this.#commit(session, { kind: 'snoozed', for: parseDuration(duration, 'snooze') })
    })
  }

  /**
   * Holds jobs like this one for that time: of its name (the default), its group or its queue, so that no worker starts
   * another, and returns the job to the queue, in its old place; the attempt does not count. For a service that answers
   * 429. Rejects with `TOO_MANY_HOLDS` where the queue has as many as it may have; the job then stays with the caller.
   */
  hold(duration: Duration, options?: HoldOptions): Promise<void> {
    return this.#settle('hold', async (session) => {
      const hold = parseHold(duration, options, this.#record, 'hold')
      await this.#commit(session, { kind: 'held', hold: { ...hold, by: this.worker, job: this.id } })
    })
  }

  /** Returns the job to the queue, in its old place; the attempt does not count. */
  release(): Promise<void> {
    return this.#settle('release', async (session) => void (await this.#commit(session, { kind: 'interrupted' })))
  }

  /**
   * Renews the lease: the job belongs to the caller for the length of a lease from now on. Returns `held: false` with
   * the reason if it does not any more: stop the work then. A lease that has expired is renewed as long as no other
   * worker has taken the job.
   */
  async heartbeat(options: HeartbeatOptions = {}): Promise<Heartbeat> {
    refuseUnknown(options, ['lease'], 'heartbeat')
    const lease = options.lease === undefined ? this.#request.lease : parseLease(options.lease, 'heartbeat: lease')
    this.#refuseSettled('heartbeat')
    this.#host.refuseClosed()
    if (this.#lost !== undefined) return answerOf(this.#lost)
    const verdict = await this.#renew(lease)
    this.#host.seen()
    if (verdict.ok) return { held: true }
    this.#lost = reasonOf(verdict)
    return answerOf(this.#lost)
  }

  /** Reports the progress of the job: any JSON. Resolves when it is durable. */
  progress<T>(value: T & Jsonable<T>): Promise<void> {
    return this.#note('progress', () => progressEntry(value))
  }

  /** Writes a line to the job's log. Resolves when it is durable. */
  log(line: string): Promise<void> {
    return this.#note('log', () => logEntry(line))
  }

  /** @internal Writes several lines, or a step, as one note. */
  write(call: string, entry: () => NoteEntry): Promise<void> {
    return this.#note(call, entry)
  }

  /** Releases the job if it was not settled, for `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#settledBy !== undefined || this.#lost !== undefined) return
    try {
      await this.release()
    } catch (error) {
      if (!isMillraceError(error, 'LEASE_LOST') && !isMillraceError(error, 'QUEUE_CLOSED')) throw error
    }
  }

  #backoff(retry: boolean, error: unknown): Millis {
    const { backoff, attempt, attempts } = this.#record
    if (!retry || attempt >= attempts) return 0
    return backoffDelay(backoff, attempt, this.#host.connection.runtime.random, this.#request.custom, error)
  }

  async #complete(session: Session, given: unknown): Promise<void> {
    const { adder, jobs } = this.#host
    const definition = jobs?.[this.#record.name]
    if (typeof given !== 'function') {
      const result = await storedResult(definition, given)
      await this.#commit(session, { kind: 'returned', result, also: [] })
      return
    }
    const send = session.within
      ? (prepared: Parameters<typeof adder.send>[0]) => adder.send(prepared, session)
      : undefined
    const followUps = new FollowUps(adder, this.#record, send)
    const value: unknown = await (given as (plan: object) => unknown)(followUps.planning())
    await followUps.close()
    // A job that continues its chain may leave the result to the next job.
    const result = value === undefined && followUps.goesOn ? undefined : await storedResult(definition, value)
    await this.#commit(session, () => followUps.with(result), followUps)
  }

  /**
   * Settles the job by one call. A call that fails with another error than a lost lease leaves the job with the caller,
   * who may make another one. In a transaction, the job is settled once that is committed.
   */
  async #settle(call: string, work: (session: Session) => Promise<void>): Promise<void> {
    this.#refuseSettled(call)
    this.#refuseLost()
    this.#host.refuseClosed()
    const session = this.#host.operations.session()
    const open = session.within ? joinedTransaction(this.#host.connection.store) : undefined
    this.#settledBy = call
    try {
      await work(session)
    } catch (error) {
      this.#settledBy = undefined
      throw error
    }
    if (open === undefined) return
    this.#settledBy = undefined // it may be rolled back
    open.afterCommit(() => (this.#settledBy = call))
  }

  /** Commits the changes of an outcome; returns them. Adapts the jobs that it adds as long as the store refuses one. */
  async #commit(session: Session, outcome: Outcome | (() => Outcome), followUps?: FollowUps): Promise<Group> {
    for (;;) {
      const decided = typeof outcome === 'function' ? outcome() : outcome
      const group = this.#group(decided)
      let verdict: Verdict
      try {
        verdict = await session.commit(group)
      } catch (error) {
        this.#unsure ||= !session.within
        throw error
      }
      if (verdict.ok || (this.#unsure && this.#wasApplied(decided, verdict))) {
        const ended = outcomeName(decided, group)
        session.changed(this.#record, group)
        if (ended === 'completed' || ended === 'failed') this.#host.keepLast.ended(this.#record, ended)
        return group
      }
      const others = followUps !== undefined && isAboutOthers(group, verdict, this.#record.id)
      const resolved = others ? await followUps.resolveRefusal(group, verdict, session) : undefined
      if (resolved === undefined) {
        if (decided.kind === 'held' && verdict.why === 'full') throw tooManyHolds(this.queue)
        throw this.#refusal(verdict, session, true)
      }
      if ('error' in resolved) throw resolved.error
    }
  }

  /** The changes of an outcome, preceded by a note where the job completes without its last phase. */
  #group(outcome: Outcome): Group {
    const changes = settle(this.#record, outcome)
    const memo = outcome.kind === 'returned' ? leftOpen(this.#record) : undefined
    return memo === undefined ? changes : [note(this.#record, { memo }), ...changes]
  }

  /** Whether a settlement that was never acknowledged had been applied, by the refusal of the next one. */
  #wasApplied(outcome: Outcome, verdict: Verdict): boolean {
    if (verdict.ok || verdict.why !== 'fence' || !isEndedBy(this.#record, verdict.job)) return false
    const { state } = verdict.job
    return state === (outcome.kind === 'returned' ? 'completed' : outcome.kind === 'threw' ? 'failed' : undefined)
  }

  async #note(call: string, entry: () => NoteEntry): Promise<void> {
    this.#refuseSettled(call)
    this.#refuseLost()
    this.#host.refuseClosed()
    const session = this.#host.operations.session()
    const verdict = await session.commit([noteOf(this.#record, entry())])
    if (!verdict.ok) throw this.#refusal(verdict, session, false)
  }

  async #renew(lease: Millis): Promise<Verdict> {
    const { id, fence } = this.#record
    const { renewals, runtime } = this.#host.connection
    for (let tries = 1; ; tries++) {
      const [verdict] = await renewals.renew([{ id, fence, lease, started: true }])
      if (verdict!.ok || verdict!.why !== 'busy') return verdict!
      if (tries === BUSY_TRIES) {
        const message = `Job ${id} is held by an open transaction, so that its lease cannot be renewed. Try again.`
        throw new MillraceError('STORE_BUSY', message, { details: { id } })
      }
      await sleep(runtime, BUSY_PAUSE)
    }
  }

  /**
   * The error of a refused write: the job belongs to the caller no more. Inside a transaction that is known only when it
   * ends: an earlier call in it may have settled the job. `ended`: the work is over, so that a revoked lease need not
   * count against limits until it expires.
   */
  #refusal(verdict: Verdict, session: Session, ended: boolean): MillraceError {
    const lost = reasonOf(verdict)
    if (!session.within) {
      this.#lost = lost
      const { id, fence } = this.#record
      if (ended) this.#host.connection.renewals.renew([{ id, fence, lease: 0, started: true }]).catch(() => {})
    }
    return this.#lostError(lost)
  }

  #refuseLost(): void {
    if (this.#lost !== undefined) throw this.#lostError(this.#lost)
  }

  #lostError(lost: LostReason): MillraceError {
    return lostLease(this.#record, lost)
  }

  #refuseSettled(call: string): void {
    if (this.#settledBy === undefined) return
    throw outOfOrder(`${call}() of job ${this.id} was called after ${this.#settledBy}(), which settles it`)
  }
}

/** The error of a call for a job that belongs to the caller no more. */
export function lostLease(
  { id, name }: Pick<JobRecord, 'id' | 'name'>,
  [reason, cancelReason]: LostReason,
): MillraceError {
  const abort = abortFor(reason, cancelReason)
  const details = { id, reason, ...(cancelReason !== undefined && { cancelReason }) }
  return new MillraceError('LEASE_LOST', `Nothing was written for job ${id} ('${name}'): ${abort.message}`, {
    cause: abort,
    details,
  })
}

function answerOf([reason, cancelReason]: LostReason): Heartbeat {
  return { held: false, reason, ...(cancelReason !== undefined && { cancelReason }) }
}

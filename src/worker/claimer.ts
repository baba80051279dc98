// worker/claimer.ts: claims jobs: one claim for all free slots, when there may be work.
import type { JobRecord, Millis } from '../job/job.js'
import { backoffDelay } from '../job/retry.js'
import { poll } from '../store/runtime.js'
import type { Stop } from '../store/runtime.js'
import type { Handled } from '../store/store.js'
import type { Leases } from './leases.js'
import type { WorkerParts } from './parts.js'
import { GroupRound } from './prefetch.js'
import type { Prefetch } from './prefetch.js'
import type { Slots } from './slots.js'

/**
 * A claim without an answer is sent again at least this often, as a share of the renewal interval. After an outage, upkeep
 * postpones reaping for one such interval.
 */
const RESENT_WITHIN = 1 / 2

/** No more jobs are prefetched while those that wait for a slot hold this many bytes. A claim returns about half of that. */
const MAX_PREFETCH_BYTES = 16 * 2 ** 20

/**
 * Takes claimed jobs. `sentAt` is when the claim was sent, by this process's clock. For the names in `ranDry`, the store
 * has no more jobs (undefined: of any name).
 */
export type AcceptClaimed = (
  jobs: readonly JobRecord[],
  sentAt: Millis,
  ranDry: readonly (string | undefined)[],
) => void

/** What a claimer needs of its runner. */
export interface ClaimTarget {
  readonly accept: AcceptClaimed
  /** How many claimed jobs have not started. */
  unstarted(): number
}

/** One claim: for jobs of one name, or of any handled name. */
interface ClaimRequest {
  readonly name: string | undefined
  readonly handles: readonly Handled[]
  readonly want: number
  readonly ahead: number
}

/** Woken by a hint, by a slot that is free again, or by its poll timer. */
export class Claimer {
  readonly #parts: WorkerParts
  readonly #slots: Slots
  readonly #leases: Leases
  readonly #prefetch: Prefetch
  readonly #accept: AcceptClaimed
  readonly #unstarted: () => number
  /** The shortest lease that is requested. */
  readonly #shortestLease: Millis
  #open = false
  #closing = false
  #claiming: Promise<void> | undefined
  /** Something happened during the claim in flight: claim again after it. */
  #again = false
  /** The last claim returned too few jobs, and there was no hint since: another claim would find nothing. */
  #dry = false
  /** The last claim returned fewer jobs than requested, prefetch included. */
  #short = false
  #failures = 0
  /** The error of the claim in flight, which is being retried. */
  #claimError: unknown
  /** Ends the wait of `stop()` for the claim in flight. */
  #endStop: () => void = () => {}
  #retryTimer: Stop | undefined
  #pollTimer: Stop | undefined
  /**
   * Bounds the prefetch by a round of all groups, so that the jobs of a new group do not wait for many turns of others.
   */
  readonly #groupRound = new GroupRound()
  /** Claims again when there is no backpressure any more. */
  readonly #resume = (): void => this.slotFree()
  /** Fires when a rate limit allows more claims. */
  #rateTimer: Stop | undefined

  constructor(parts: WorkerParts, slots: Slots, leases: Leases, prefetch: Prefetch, target: ClaimTarget) {
    this.#parts = parts
    this.#slots = slots
    this.#leases = leases
    this.#prefetch = prefetch
    this.#accept = target.accept
    this.#unstarted = () => target.unstarted()
    this.#shortestLease = Math.min(...parts.settings.handles.map(({ lease }) => lease))
  }

  /** Starts to claim. */
  start(): void {
    if (this.#open) return
    this.#open = true
    this.#dry = false
    this.#armPoll()
    this.wake()
  }

  /** Whether it has started and was not stopped. */
  get isOpen(): boolean {
    return this.#open
  }

  /** Stops claiming for good: a claim that failed is not retried for ever. */
  close(): Promise<void> {
    this.#closing = true
    return this.stop()
  }

  /** Stops claiming. Resolves when no claim is in flight, apart from one that failed and is being retried. */
  async stop(): Promise<void> {
    this.#open = false
    this.#pollTimer?.()
    this.#retryTimer?.()
    this.#rateTimer?.()
    this.#pollTimer = this.#retryTimer = this.#rateTimer = undefined
    if (this.#claimError !== undefined) return
    await Promise.race([this.#claiming, new Promise<void>((resolve) => (this.#endStop = resolve))])
  }

  /** Whether a claim is in flight, so that jobs may be leased to this worker that it does not know of yet. */
  get isClaiming(): boolean {
    return this.#claiming !== undefined
  }

  /** Whether a claim in flight may have leased jobs to this worker. */
  isClaimingFor(worker: string | undefined): boolean {
    return worker === this.#parts.id && this.isClaiming
  }

  /** Resolves when no claim is in flight: one that failed is awaited until it is answered, or given up. */
  async whenAnswered(): Promise<void> {
    while (this.#claiming !== undefined) await this.#claiming
  }

  /** Whether the last claim found too few jobs, none is in flight, and nothing is known that would change that soon. */
  get isDry(): boolean {
    const waits = this.#claiming !== undefined || this.#rateTimer !== undefined || this.#retryTimer !== undefined
    return this.#open && this.#dry && !waits
  }

  /** Claims now; resolves when the claim is answered. */
  async claimNow(): Promise<void> {
    this.wake()
    await this.#claiming
  }

  /** There may be new work. */
  wake(): void {
    this.#dry = false
    this.#slots.ranDry(false)
    this.slotFree()
  }

  /** There may be a free slot. */
  slotFree(): void {
    if (!this.#open || this.#retryTimer !== undefined) return
    if (this.#claiming !== undefined) {
      this.#again = true
      return
    }
    if (this.#parts.backpressure.isOn) return this.#parts.backpressure.whenOver(this.#resume)
    const requests = this.#requests()
    if (requests.length === 0) return
    this.#claiming = this.#claim(requests).finally(() => {
      this.#claiming = undefined
      const again = this.#again || this.#hasRoom()
      this.#again = false
      if (again) this.slotFree()
      this.#parts.run.changed()
    })
  }

  /** After a claim, slots may still be free because jobs joined batches, and batches may have space left. */
  #hasRoom(): boolean {
    return this.#slots.gathering.length > 0 || (!this.#dry && this.#slots.free > 0)
  }

  /**
   * One claim for all free slots. If the worker runs batches of only one name, it is for as many jobs as fit in them.
   * Otherwise it is for one job per slot, plus a claim by name for each batch that has a slot, so that no more jobs are
   * leased than there are slots for.
   */
  #requests(): readonly ClaimRequest[] {
    const { handles, onlyBatchSize } = this.#parts.settings
    const { gathering, free } = this.#slots
    const requests: ClaimRequest[] = []
    let left = this.#parts.run.room(this.#unstarted())
    if (!this.#dry) {
      const room = onlyBatchSize === undefined ? 0 : gathering.reduce((sum, batch) => sum + batch.room, 0)
      const want = Math.min(left, free * (onlyBatchSize ?? 1) + room)
      const ahead = Math.min(left - want, this.#ahead())
      if (want + ahead > 0) requests.push({ name: undefined, handles, want, ahead })
      left -= want + ahead
    }
    if (onlyBatchSize !== undefined) return requests
    for (const { name, room: most } of gathering) {
      const room = Math.min(left, most)
      if (room === 0) break
      left -= room
      const handled = handles.find((each) => each.name === name) ?? { ...handles[0]!, name }
      requests.push({ name, handles: [handled], want: room, ahead: 0 })
    }
    return requests
  }

  /** How many jobs to prefetch. At least half of the target at a time, so that claims are few. */
  #ahead(): number {
    const { connection } = this.#parts
    const { portion = Infinity, parallel } = connection.store.can
    const { ahead, aheadBytes } = this.#slots
    if (aheadBytes >= MAX_PREFETCH_BYTES) return 0
    // Where the store commits claims in parallel, another portion can be in flight at any moment.
    const most = Math.min(this.#prefetch.target(connection.claims.roundTrip), parallel === true ? 2 * portion : portion)
    const target = Math.min(most, this.#groupRound.size)
    // Other workers' free slots have priority: no prefetch once the queue has run short.
    return this.#short || ahead > target / 2 ? 0 : Math.min(target - ahead, portion)
  }

  async #claim(requests: readonly ClaimRequest[]): Promise<void> {
    const { connection, id, queues, settings, errors } = this.#parts
    const sentAt = connection.runtime.elapsed()
    const results = await Promise.allSettled(
      requests.map(({ handles, want, ahead }) =>
        connection.claims.claim({ worker: id, queues, handles, want, ahead }, (error, over) =>
          this.#retryClaim(error, over),
        ),
      ),
    )
    const late = this.#claimError !== undefined
    this.#claimError = undefined
    const jobs: JobRecord[] = []
    const ranDry: (string | undefined)[] = []
    let failure: PromiseRejectedResult | undefined
    let wait: Millis | undefined
    for (const [at, { name, want, ahead }] of requests.entries()) {
      const result = results[at]!
      if (result.status === 'rejected') {
        failure = result
        ranDry.push(undefined) // batches start with the jobs they have
        continue
      }
      const { jobs: found, again } = result.value
      jobs.push(...found)
      if (again !== undefined) wait = Math.min(wait ?? Infinity, again)
      // An answer that is full says to claim again at once: the store has more.
      const isShort = found.length < want + ahead && again !== 0
      if (isShort) ranDry.push(name)
      if (name !== undefined) continue
      this.#groupRound.claimed(found)
      this.#short = isShort
      this.#dry = isShort && found.length < want && !this.#again
    }
    // A run that may start no more jobs claims none: batches start with the jobs they have.
    if (this.#parts.run.room(this.#unstarted() + jobs.length) === 0) ranDry.push(undefined)
    if (failure === undefined) {
      this.#failures = 0
      errors.responded()
    } else this.#retryIn(backoffDelay(settings.reconnect, ++this.#failures, connection.runtime.random))
    this.#wakeIn(wait)
    if (jobs.length > 0 && connection.runtime.elapsed() >= sentAt + this.#shortestLease) {
      await this.#renewLateClaims(jobs, ranDry)
    } else {
      this.#accept(jobs, sentAt, ranDry)
      if (late && jobs.length > 0) this.#leases.check() // much of the leases may have passed
    }
    if (failure !== undefined) errors.report(failure.reason)
  }

  /** The receipt arrived after the leases expired: keeps the jobs that can still be renewed, because no upkeep reaped them. */
  async #renewLateClaims(jobs: readonly JobRecord[], ranDry: readonly (string | undefined)[]): Promise<void> {
    const { connection, settings, errors } = this.#parts
    const sentAt = connection.runtime.elapsed()
    const renewals = jobs.map((job) => {
      return { id: job.id, fence: job.fence, lease: settings.handlerOf(job)!.lease, started: false }
    })
    try {
      const verdicts = await connection.renewals.renew(renewals)
      const ours = jobs.filter((_, at) => verdicts[at]!.ok)
      this.#accept(ours, sentAt, ranDry)
    } catch (error) {
      this.#accept([], sentAt, ranDry)
      errors.report(error)
    }
  }

  /**
   * A claim failed. It may have been applied, so it is retried, often enough to arrive before the jobs are reaped when the
   * store is back. A worker that is closing gives it up when its leases have expired (`over`). Returns the wait before the
   * next try.
   */
  #retryClaim(error: unknown, over: boolean): Millis | undefined {
    if (over && this.#closing) return undefined
    const { connection, settings, errors } = this.#parts
    if (error !== this.#claimError) {
      this.#claimError = error
      this.#failures++
      this.#accept([], 0, [undefined]) // batches start with the jobs they have
      errors.report(error)
      this.#endStop()
    }
    return Math.min(
      backoffDelay(settings.reconnect, this.#failures, connection.runtime.random),
      settings.renewEvery * RESENT_WITHIN,
    )
  }

  /** A rate limit held jobs back, or the answer was full: claims again when there are more. */
  #wakeIn(delay: Millis | undefined): void {
    this.#rateTimer?.()
    this.#rateTimer = undefined
    if (delay === undefined || !this.#open) return
    this.#rateTimer = this.#parts.connection.runtime.timer(delay, () => {
      this.#rateTimer = undefined
      this.wake()
    })
  }

  #retryIn(delay: Millis): void {
    if (!this.#open) return
    this.#retryTimer = this.#parts.connection.runtime.timer(delay, () => {
      this.#retryTimer = undefined
      this.wake()
    })
  }

  #armPoll(): void {
    const { connection, settings } = this.#parts
    const claimAgain = (): void => {
      this.#armPoll()
      this.wake()
    }
    this.#pollTimer = poll(connection.runtime, settings.pollEvery, claimAgain, () => Infinity)
  }
}

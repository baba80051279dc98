// store/batcher.ts: group commit. Concurrent calls leave as one batch; calls made while it is in flight form the next.
import { MillraceError, isMillraceError } from '../job/errors/errors.js'
import type { JobRecord, Millis } from '../job/job.js'
import { outside } from './transaction-context.js'
import {
  UNSENT_RETRY_TIME,
  isFinal,
  isGivenUp,
  isTooLarge,
  isNotApplied,
  isNotSent,
  unavailable,
} from './commit-errors.js'
import type { BatcherOptions } from './batcher-options.js'
import { halvesOf, withoutFaults } from './load.js'
import type { LoadOf } from './load.js'
import { Outage } from './outage.js'
import type { Runtime, Stop } from './runtime.js'
import type { Ask, Batch, Group, Receipt, Renewal, Store, Verdict } from './store.js'
import { BATCH_BYTES, bytesOf, bytesOfAsk, bytesOfRenewals, weightOf } from './batch-size.js'

/** Callbacks for the outcome of a group. */
export interface Caller {
  landed(verdict: Verdict): void
  failed(error: unknown): void
}

/** The part of a store that a batcher needs. */
export type Committer = Pick<Store, 'name' | 'commit'>

/** A group, or a function that makes it: a group made late can include what happens until its batch leaves. */
export type GroupSource = Group | (() => Group)

interface PendingGroup {
  /** Made once: a group that is sent again, or waits for the next batch, stays the same. */
  group: GroupSource
  readonly caller: Caller
  readonly number: number
  /** How often it is sent again while it is refused as busy. */
  readonly tries: number
  busy: number
}

/** The result of a claim. */
export interface ClaimResult {
  /** The jobs claimed. */
  readonly jobs: readonly JobRecord[]
  /** How long until a claim may find more: 0 if the answer was full. Absent where nothing was held back. */
  readonly again?: Millis
}

interface PendingCall<Request, ClaimResult> {
  readonly request: Request
  resolve(answer: ClaimResult): void
  reject(error: unknown): void
}

/** A claim that waits for its result. */
interface PendingClaim extends PendingCall<Ask, ClaimResult> {
  readonly unanswered: Unanswered | undefined
}

/**
 * Called when a claim, which may have taken jobs, got no answer; returns the pause before it is sent again. Once the
 * leases that it may have given are `over`, undefined gives the claim up.
 */
export type Unanswered = (error: unknown, over: boolean) => Millis | undefined

/** Claims whose batch got no answer. It is sent again before any other batch. */
interface LostClaims {
  readonly batch: Batch
  readonly asks: readonly PendingClaim[]
  /** When the first lease that it may have given expires, by this process's clock. */
  readonly until: Millis
  stop: Stop
}

type Load = LoadOf<PendingGroup, PendingCall<readonly Renewal[], readonly Verdict[]>, PendingClaim>

/** One stream of batches to a store, under one writer's name at a time. At most one batch is in flight. */
export class Batcher {
  readonly #store: Committer
  readonly #runtime: Runtime
  readonly #name: string
  readonly #options: Required<BatcherOptions>
  /** The writer's current name, how many names it had before, and the number of the last batch under this one. */
  #writer: string
  #renames = 0
  #seq = 0
  /** Whether the last batch was answered. */
  #lastAnswered = true
  /** When the last batch was first sent. */
  #sentAt: Millis = 0
  #groups: (PendingGroup | undefined)[] = []
  /** Groups before this index have left, and their slots are cleared so that they can be garbage-collected early. */
  #head = 0
  #renewals: PendingCall<readonly Renewal[], readonly Verdict[]>[] = []
  #asks: PendingClaim[] = []
  #lostClaims: LostClaims | undefined
  #inFlight = false
  #scheduled = false
  /** Groups submitted so far, and those of them without an answer. */
  #submitted = 0
  #unanswered = 0
  /** Callers of `flushed`, each waiting for all groups up to a number. */
  #flushes: { readonly upTo: number; left: number; readonly done: () => void }[] = []
  #roundTrip: Millis = 0

  constructor(store: Committer, runtime: Runtime, writer: string, options: BatcherOptions = {}) {
    this.#store = store
    this.#runtime = runtime
    this.#name = writer
    this.#writer = writer
    const broken = (error: unknown): void =>
      runtime.defer(() => {
        throw error
      })
    this.#options = {
      size: 500,
      bytes: BATCH_BYTES,
      eager: false,
      tenure: Infinity,
      replays: 5,
      patient: false,
      busyTries: 40,
      broken,
      outage: new Outage(store),
      ...options,
    }
  }

  /** Recent round-trip time: how long the store takes to answer a batch, as a moving average. */
  get roundTrip(): Millis {
    return this.#roundTrip
  }

  /** Sends a group with the next batch. The callbacks run when it is durable, refused or failed. */
  submit(group: GroupSource, caller: Caller): void {
    this.#submit(group, caller, this.#options.busyTries)
  }

  #submit(group: GroupSource, caller: Caller, tries: number): void {
    this.#unanswered++
    this.#groups.push({ group, caller, number: ++this.#submitted, tries, busy: 0 })
    this.#schedule()
  }

  /** As `submit`, with a promise. Rejects if the group cannot be made or the store gives no verdict on it. */
  commit(group: GroupSource): Promise<Verdict> {
    return new Promise((landed, failed) => this.submit(group, { landed, failed }))
  }

  /** As `commit`, but a group whose row a transaction holds is refused as `busy` at once: the caller tries again. */
  tryCommit(group: GroupSource): Promise<Verdict> {
    return new Promise((landed, failed) => this.#submit(group, { landed, failed }, 0))
  }

  /**
   * Claims jobs, after all else in the batch. If the answer is lost, no worker knows of the claimed jobs until their
   * leases expire. With `unanswered`, the claim is sent again until then at least, and rejects when that gives it up.
   */
  claim(request: Ask, unanswered?: Unanswered): Promise<ClaimResult> {
    return new Promise((resolve, reject) => {
      this.#asks.push({ request, resolve, reject, unanswered })
      this.#schedule()
    })
  }

  /** Renews leases. */
  renew(request: readonly Renewal[]): Promise<readonly Verdict[]> {
    return new Promise((resolve, reject) => {
      this.#renewals.push({ request, resolve, reject })
      this.#schedule()
    })
  }

  /** Resolves when every group submitted until now has been answered, regardless of later ones. */
  flushed(): Promise<void> {
    if (this.#unanswered === 0) return Promise.resolve()
    return new Promise((done) => this.#flushes.push({ upTo: this.#submitted, left: this.#unanswered, done }))
  }

  #hasWork(): boolean {
    return this.#groups.length > this.#head || this.#asks.length > 0 || this.#renewals.length > 0
  }

  #schedule(): void {
    if (this.#inFlight || this.#scheduled) return
    this.#scheduled = true
    // A batch serves many callers, so it does not run inside the transaction of the call that scheduled it.
    outside(() =>
      this.#runtime.defer(() => {
        this.#scheduled = false
        void this.#send()
      }),
    )
  }

  async #send(): Promise<void> {
    this.#inFlight = true // before groups are made: that may submit more, and must not start a second batch
    const down = this.#lostClaims === undefined ? undefined : await this.#resendClaims(this.#lostClaims)
    const load = this.#takeLoad()
    if (down !== undefined) this.#reject(load, down.error)
    if (down !== undefined || load.groups.length + load.renewals.length + load.asks.length === 0) return this.#finish()
    let receipt: Receipt
    try {
      receipt = await this.#deliver(this.#number(load))
    } catch (error) {
      await this.#handleRejection(load, error)
      return this.#finish()
    }
    this.#inFlight = false
    if (this.#isFull()) {
      // The next batch leaves first: callbacks may take long, and the store would be idle meanwhile.
      void this.#send()
      this.#runtime.defer(() => this.#answer(receipt, load))
      return
    }
    this.#answer(receipt, load)
    this.#continue()
  }

  /** Ends a batch: nothing is in flight any more. */
  #finish(): void {
    this.#inFlight = false
    this.#continue()
  }

  /** Makes a batch of a load, under the next number. */
  #number({ groups, renewals, asks }: Load): Batch {
    if (this.#seq >= this.#options.tenure && this.#lastAnswered) this.#rename()
    this.#sentAt = this.#runtime.elapsed()
    return {
      writer: this.#writer,
      seq: ++this.#seq,
      groups,
      renewals: renewals.length === 1 ? renewals[0]!.request : renewals.flatMap((each) => each.request),
      asks: asks.map((each) => each.request),
    }
  }

  /**
   * The store rejected a load. A load that is too large is sent in halves, one after the other and under new numbers,
   * so that a late original cannot be applied beside them; a single group that is too large fails its caller. So does what
   * the error names as refused, and the rest is sent without it.
   */
  async #handleRejection(load: Load, error: unknown): Promise<void> {
    const rest = withoutFaults(load, error)
    if (rest !== undefined) {
      this.#reject(rest.faulty, error)
      return this.#deliverPart(rest.others)
    }
    const halves = isTooLarge(error) ? halvesOf(load) : undefined
    if (halves === undefined) {
      const resend =
        isMillraceError(error, 'STORE_UNAVAILABLE') && load.asks.some((each) => each.unanswered !== undefined)
      if (resend) this.#keepClaims(load.asks, error)
      return this.#reject(
        resend ? { ...load, asks: load.asks.filter((each) => each.unanswered === undefined) } : load,
        error,
      )
    }
    for (const half of halves) await this.#deliverPart(half)
  }

  async #deliverPart(part: Load): Promise<void> {
    try {
      this.#answer(await this.#deliver(this.#number(part)), part)
    } catch (thrown) {
      await this.#handleRejection(part, thrown)
    }
  }

  /**
   * The last batch got no answer, and its claims may have taken jobs. It will be sent again under its number, but
   * without its groups: their callers learn that the outcome is unknown, so they must not be applied any more.
   */
  #keepClaims(asks: readonly PendingClaim[], error: unknown): void {
    const leases = asks.flatMap(({ request }) => request.handles.map(({ lease }) => lease))
    const batch = { writer: this.#writer, seq: this.#seq, groups: [], renewals: [] }
    const until = this.#sentAt + Math.min(...leases)
    this.#lostClaims = {
      batch: { ...batch, asks: asks.map(({ request }) => request) },
      asks,
      until,
      stop: () => {},
    }
    this.#waitToResend(this.#lostClaims, error)
  }

  /** Sends the claims again after a pause; or gives them up, if their leases have expired and no caller wants them. */
  #waitToResend(claims: LostClaims, error: unknown): void {
    const over = this.#runtime.elapsed() >= claims.until
    const pauses = claims.asks.map(({ unanswered }) => unanswered?.(error, over) ?? Infinity)
    const pause = Math.min(...pauses)
    if (over && pause === Infinity) return this.#giveUp(claims, error)
    claims.stop = this.#runtime.timer(pause, () => this.#schedule())
  }

  #giveUp({ asks }: LostClaims, error: unknown): void {
    this.#lostClaims = undefined
    for (const each of asks) each.reject(error)
  }

  /** Sends the unanswered claims once more; returns the error if the store is still unavailable. */
  async #resendClaims(claims: LostClaims): Promise<{ readonly error: unknown } | undefined> {
    claims.stop()
    try {
      const receipt = await this.#deliver(claims.batch)
      this.#lostClaims = undefined
      this.#answer(receipt, { taken: [], groups: [], renewals: [], asks: claims.asks })
      return undefined
    } catch (error) {
      const isOver = isFinal(error)
      if (isOver) this.#giveUp(claims, error)
      else this.#waitToResend(claims, error)
      return isOver ? undefined : { error }
    }
  }

  #reject({ taken, renewals, asks }: Load, error: unknown): void {
    for (const each of taken) this.#fail(each, error)
    for (const each of renewals) each.reject(error)
    for (const each of asks) each.reject(error)
  }

  /**
   * Changes the writer's name. Never after a batch without an answer: only the next batch under the same name makes
   * sure that it cannot be applied any more.
   */
  #rename(): void {
    this.#writer = `${this.#name}.${++this.#renames}`
    this.#seq = 0
  }

  /** Whether the next batch is full already, so that waiting for more is of no use. */
  #isFull(): boolean {
    return this.#options.eager && !this.#scheduled && this.#groups.length - this.#head >= this.#options.size
  }

  #continue(): void {
    if (this.#hasWork()) this.#schedule()
  }

  /** Takes all renewals and claims, and the groups that fit, in order; leaves out a group whose function throws. */
  #takeLoad(): Load {
    const renewals = this.#renewals
    const asks = this.#asks
    this.#renewals = []
    this.#asks = []
    const taken: PendingGroup[] = []
    const groups: Group[] = []
    let changes = 0
    let bytes = 0
    for (const { request } of renewals) bytes += bytesOfRenewals(request)
    for (const { request } of asks) bytes += bytesOfAsk(request)
    for (; this.#head < this.#groups.length; this.#head++) {
      const pending = this.#groups[this.#head]!
      let group: Group
      try {
        group = pending.group = typeof pending.group === 'function' ? pending.group() : pending.group
      } catch (error) {
        this.#groups[this.#head] = undefined
        this.#fail(pending, error)
        continue
      }
      const weight = weightOf(group)
      const length = bytesOf(group)
      if (changes > 0 && (changes + weight > this.#options.size || bytes + length > this.#options.bytes)) {
        this.#compact()
        return { taken, groups, renewals, asks }
      }
      this.#groups[this.#head] = undefined
      changes += weight
      bytes += length
      taken.push(pending)
      groups.push(group)
    }
    this.#groups = []
    this.#head = 0
    return { taken, groups, renewals, asks }
  }

  /** Drops the cleared slots now and then. */
  #compact(): void {
    if (this.#head < this.#options.size * 4 || this.#head < this.#groups.length / 2) return
    this.#groups = this.#groups.slice(this.#head)
    this.#head = 0
  }

  /** Sends a batch until the store answers: the store applies a number once, so a replay is safe. */
  async #deliver(batch: Batch): Promise<Receipt> {
    let unsure = false
    const startedAt = this.#runtime.elapsed()
    for (let tries = 0; ; tries++) {
      const sent = this.#runtime.elapsed()
      try {
        const receipt = await this.#store.commit(batch)
        this.#options.outage.answered(sent)
        const took = this.#runtime.elapsed() - sent
        this.#roundTrip = this.#roundTrip === 0 ? took : (3 * this.#roundTrip + took) / 4
        this.#lastAnswered = true
        return receipt
      } catch (error) {
        this.#lastAnswered = false
        // An error that says that nothing was applied is only about its own try.
        if (isNotApplied(error)) {
          throw unsure && !isFinal(error) ? unavailable(this.#store, error) : error
        }
        const unsent = isNotSent(error)
        unsure ||= !unsent
        if (this.#options.patient && isGivenUp(error)) {
          this.#options.outage.failed(error, this.#runtime.elapsed())
          throw unsure && unsent ? unavailable(this.#store, error) : error
        }
        if (tries >= this.#options.replays || (unsent && this.#runtime.elapsed() - startedAt >= UNSENT_RETRY_TIME)) {
          throw unsure ? unavailable(this.#store, error) : error
        }
        this.#options.outage.failed(error, this.#runtime.elapsed())
        await this.#pause(25 * 2 ** tries)
      }
    }
  }

  #answer(receipt: Receipt, { taken, renewals, asks }: Load): void {
    for (let at = 0; at < taken.length; at++) {
      const verdict = receipt.groups[at]!
      if (!verdict.ok && verdict.why === 'busy' && taken[at]!.tries > 0) this.#retryBusy(taken[at]!)
      else this.#settle(taken[at]!, verdict)
    }
    let from = 0
    for (const each of renewals) each.resolve(receipt.renewals.slice(from, (from += each.request.length)))
    const { again, now } = receipt
    const wait = again === undefined ? undefined : { again: Math.max(0, again - now) }
    for (let at = 0; at < asks.length; at++) asks[at]!.resolve({ jobs: receipt.asks[at]!, ...wait })
  }

  #countAnswered({ number }: PendingGroup): void {
    this.#unanswered--
    if (this.#flushes.length === 0) return
    for (const flush of this.#flushes) if (number <= flush.upTo) flush.left--
    for (const flush of this.#flushes) if (flush.left === 0) flush.done()
    this.#flushes = this.#flushes.filter((flush) => flush.left > 0)
  }

  #settle(pending: PendingGroup, verdict: Verdict): void {
    this.#countAnswered(pending)
    try {
      pending.caller.landed(verdict)
    } catch (error) {
      this.#options.broken(error)
    }
  }

  #fail(pending: PendingGroup, error: unknown): void {
    this.#countAnswered(pending)
    try {
      pending.caller.failed(error)
    } catch (thrown) {
      this.#options.broken(thrown)
    }
  }

  /** Sends a group whose row a transaction holds again later, with growing pauses. */
  #retryBusy(pending: PendingGroup): void {
    if (++pending.busy > pending.tries) {
      this.#fail(
        pending,
        new MillraceError(
          'STORE_BUSY',
          'A row stayed locked by an open transaction; end that transaction and try again.',
        ),
      )
      return
    }
    void this.#pause(Math.min(5 * 2 ** pending.busy, 250)).then(() => {
      this.#groups.push(pending)
      this.#schedule()
    })
  }

  #pause(delay: Millis): Promise<void> {
    return new Promise((resolve) => {
      this.#runtime.timer(delay * (0.5 + this.#runtime.random() / 2), resolve)
    })
  }
}

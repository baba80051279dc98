// store/batcher.ts: concurrent calls → one batch. What is asked for while a batch is in flight forms the next.
import { MillraceError, isMillraceError } from '../job/errors.js'
import type { JobRecord, Millis } from '../job/job.js'
import { outside } from './transaction-context.js'
import { UNSENT_TRIED, isFinal, isTooLarge, saysNothingLanded, saysNothingSent, unavailable } from './commit-errors.js'
import { Outage } from './outage.js'
import type { Runtime, Stop } from './runtime.js'
import type { Ask, Batch, Group, Receipt, Renewal, Store, Verdict } from './store.js'
import { BATCH_BYTES, bytesOf, bytesOfAsk, bytesOfRenewals, weightOf } from './batch-size.js'

/** How a lane behaves. */
export interface BatcherOptions {
  /** Changes a batch holds at most; a single larger group travels alone. Default 500. */
  readonly size?: number
  /** Whether a full batch follows at once, without a turn of the event loop between: where the store works elsewhere. Default false. */
  readonly eager?: boolean
  /** Bytes of text that a batch holds at most, about; a single larger group travels alone. Default 8 MiB. */
  readonly bytes?: number
  /** Batches after which another writer's name is taken. Default: one for all. */
  readonly tenure?: number
  /** How often a batch without an answer is sent again before its callers are told. Default 5. */
  readonly replays?: number
  /** How often a group refused as busy is sent again before its caller is told. Default 40, about ten seconds. */
  readonly busyTries?: number
  /** Told of a caller that threw, which none may. Default: thrown once more, where nobody catches it. */
  readonly broken?: (error: unknown) => void
  /** Told of batches that are sent again, together with other lanes to the same store. Default: one of its own. */
  readonly outage?: Outage
}

/** Told what became of a group. */
export interface Caller {
  landed(verdict: Verdict): void
  failed(error: unknown): void
}

/** The part of a store that a lane needs. */
export type Committer = Pick<Store, 'name' | 'commit'>

/** A group, or how to make it: one that is made late can still take in what happens before its batch leaves. */
export type GroupSource = Group | (() => Group)

interface Waiting {
  /** Made once: what is sent again, or has to wait for the next batch, goes as it is. */
  group: GroupSource
  readonly caller: Caller
  readonly number: number
  /** How often it is sent again while it is refused as busy. */
  readonly tries: number
  busy: number
}

/** What came of an ask. */
export interface Answer {
  /** The jobs claimed. */
  readonly jobs: readonly JobRecord[]
  /** How long until a rate lets more through that held some back; absent where none did. */
  readonly again?: Millis
}

interface Waiter<Request, Answer> {
  readonly request: Request
  resolve(answer: Answer): void
  reject(error: unknown): void
}

/** An ask that waits for its answer. */
interface Asking extends Waiter<Ask, Answer> {
  readonly unanswered: Unanswered | undefined
}

/**
 * Hears that the store gave no answer to an ask, which may have claimed jobs all the same; answers the pause before it is
 * sent again. Where the leases that it may have given are `over`, undefined gives it up.
 */
export type Unanswered = (error: unknown, over: boolean) => Millis | undefined

/** Asks whose batch got no answer, and that is sent again, before any other. */
interface Owed {
  readonly batch: Batch
  readonly asks: readonly Asking[]
  /** When the first lease that it may have given is over, by this process's clock. */
  readonly until: Millis
  stop: Stop
}

/** What one batch is made of. */
interface Load {
  readonly taken: readonly Waiting[]
  readonly groups: readonly Group[]
  readonly renewals: readonly Waiter<readonly Renewal[], readonly Verdict[]>[]
  readonly asks: readonly Asking[]
}

/** One stream of batches to a store, under one writer's name at a time, and never two at a time. */
export class Batcher {
  readonly #store: Committer
  readonly #runtime: Runtime
  readonly #name: string
  readonly #options: Required<BatcherOptions>
  /** Whose batches are sent now, how many names there were before, and the number of the last batch under this one. */
  #writer: string
  #before = 0
  #seq = 0
  /** The last batch was answered. */
  #sure = true
  /** When it was first sent. */
  #sentAt: Millis = 0
  #groups: (Waiting | undefined)[] = []
  /** Groups before this place have left, and nothing of them is held here: what a batch drops must be able to die young. */
  #head = 0
  #renewals: Waiter<readonly Renewal[], readonly Verdict[]>[] = []
  #asks: Asking[] = []
  #owed: Owed | undefined
  #inFlight = false
  #scheduled = false
  /** Groups so far, and those of them that are still to be answered. */
  #submitted = 0
  #unanswered = 0
  /** Those who wait for all groups up to one. */
  #flushes: { readonly upTo: number; left: number; readonly done: () => void }[] = []
  #trip: Millis = 0

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
      busyTries: 40,
      broken,
      outage: new Outage(store),
      ...options,
    }
  }

  /** How long the store has lately taken to answer a batch. */
  get trip(): Millis {
    return this.#trip
  }

  /** Sends a group with the next batch; the caller hears of it when it is durable or refused. */
  submit(group: GroupSource, caller: Caller): void {
    this.#submit(group, caller, this.#options.busyTries)
  }

  #submit(group: GroupSource, caller: Caller, tries: number): void {
    this.#unanswered++
    this.#groups.push({ group, caller, number: ++this.#submitted, tries, busy: 0 })
    this.#schedule()
  }

  /** As `submit`, for those who wait. Rejects only if the outcome is not known. */
  commit(group: GroupSource): Promise<Verdict> {
    return new Promise((landed, failed) => this.submit(group, { landed, failed }))
  }

  /** As `commit`, but for those who can come back later: a group whose row a transaction holds is refused as `busy` at once. */
  tryCommit(group: GroupSource): Promise<Verdict> {
    return new Promise((landed, failed) => this.#submit(group, { landed, failed }, 0))
  }

  /**
   * Asks for jobs, answered after everything else in the batch. Without an answer the jobs that it may have claimed would be
   * nobody's until their leases are over: with `unanswered`, it is sent again until then at least, and rejects when that
   * gives it up.
   */
  ask(request: Ask, unanswered?: Unanswered): Promise<Answer> {
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

  /** Resolves when every group submitted until now has been answered, whatever comes in meanwhile. */
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
    // A batch is for all who wait for it, so it is not inside the transaction of the one whose call began it.
    outside(() =>
      this.#runtime.defer(() => {
        this.#scheduled = false
        void this.#send()
      }),
    )
  }

  async #send(): Promise<void> {
    this.#inFlight = true // before groups are made, which may ask for more and must not start a batch beside this one
    const away = this.#owed === undefined ? undefined : await this.#recall(this.#owed)
    const load = this.#load()
    if (away !== undefined) this.#reject(load, away.error)
    if (away !== undefined || load.groups.length + load.renewals.length + load.asks.length === 0) return this.#rest()
    let receipt: Receipt
    try {
      receipt = await this.#deliver(this.#number(load))
    } catch (error) {
      await this.#refused(load, error)
      return this.#rest()
    }
    this.#inFlight = false
    if (this.#isFull()) {
      // The next one leaves first: those who are answered may have much to do, and the store nothing.
      void this.#send()
      this.#runtime.defer(() => this.#answer(receipt, load))
      return
    }
    this.#answer(receipt, load)
    this.#goOn()
  }

  /** Nothing is in flight any more. */
  #rest(): void {
    this.#inFlight = false
    this.#goOn()
  }

  /** Makes a batch of a load, under the next number. */
  #number({ groups, renewals, asks }: Load): Batch {
    if (this.#seq >= this.#options.tenure && this.#sure) this.#rename()
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
   * The store did not take a load. One that is too large goes in halves, one after the other and each under a number of its
   * own, so that a late original cannot land beside them; a single group that is too large fails its caller.
   */
  async #refused(load: Load, error: unknown): Promise<void> {
    const halves = isTooLarge(error) ? halvesOf(load) : undefined
    if (halves === undefined) {
      const owed =
        isMillraceError(error, 'STORE_UNAVAILABLE') && load.asks.some((each) => each.unanswered !== undefined)
      if (owed) this.#owe(load.asks, error)
      return this.#reject(
        owed ? { ...load, asks: load.asks.filter((each) => each.unanswered === undefined) } : load,
        error,
      )
    }
    for (const half of halves) {
      try {
        this.#answer(await this.#deliver(this.#number(half)), half)
      } catch (thrown) {
        await this.#refused(half, thrown)
      }
    }
  }

  /**
   * The last batch got no answer, and its asks may have claimed jobs. It will be sent again under its number, without its
   * groups, whose callers are told that their outcome is not known: they must not land any more.
   */
  #owe(asks: readonly Asking[], error: unknown): void {
    const leases = asks.flatMap(({ request }) => request.handles.map(({ lease }) => lease))
    const batch = { writer: this.#writer, seq: this.#seq, groups: [], renewals: [] }
    const until = this.#sentAt + Math.min(...leases)
    this.#owed = { batch: { ...batch, asks: asks.map(({ request }) => request) }, asks, until, stop: () => {} }
    this.#waitFor(this.#owed, error)
  }

  /** Sends what is owed again, after a while; or gives it up, if the leases that it may have given are over and nobody wants it. */
  #waitFor(owed: Owed, error: unknown): void {
    const over = this.#runtime.elapsed() >= owed.until
    const pauses = owed.asks.map(({ unanswered }) => unanswered?.(error, over) ?? Infinity)
    const pause = Math.min(...pauses)
    if (over && pause === Infinity) return this.#forget(owed, error)
    owed.stop = this.#runtime.timer(pause, () => this.#schedule())
  }

  #forget({ asks }: Owed, error: unknown): void {
    this.#owed = undefined
    for (const each of asks) each.reject(error)
  }

  /** Sends what is owed once more; answers the error, if the store is still away. */
  async #recall(owed: Owed): Promise<{ readonly error: unknown } | undefined> {
    owed.stop()
    try {
      const receipt = await this.#deliver(owed.batch)
      this.#owed = undefined
      this.#answer(receipt, { taken: [], groups: [], renewals: [], asks: owed.asks })
      return undefined
    } catch (error) {
      const isOver = isFinal(error)
      if (isOver) this.#forget(owed, error)
      else this.#waitFor(owed, error)
      return isOver ? undefined : { error }
    }
  }

  #reject({ taken, renewals, asks }: Load, error: unknown): void {
    for (const each of taken) this.#fail(each, error)
    for (const each of renewals) each.reject(error)
    for (const each of asks) each.reject(error)
  }

  /**
   * Goes on under another name. Never after a batch that nobody knows of: the next one under the same name sees to it that
   * it cannot land any more.
   */
  #rename(): void {
    this.#writer = `${this.#name}.${++this.#before}`
    this.#seq = 0
  }

  /** Whether there is no use in waiting for more. */
  #isFull(): boolean {
    return this.#options.eager && !this.#scheduled && this.#groups.length - this.#head >= this.#options.size
  }

  #goOn(): void {
    if (this.#hasWork()) this.#schedule()
  }

  /** All renewals and asks, and as many groups as fit, in the order in which they came; one whose making fails is left out. */
  #load(): Load {
    const renewals = this.#renewals
    const asks = this.#asks
    this.#renewals = []
    this.#asks = []
    const taken: Waiting[] = []
    const groups: Group[] = []
    let changes = 0
    let bytes = 0
    for (const { request } of renewals) bytes += bytesOfRenewals(request)
    for (const { request } of asks) bytes += bytesOfAsk(request)
    for (; this.#head < this.#groups.length; this.#head++) {
      const waiting = this.#groups[this.#head]!
      let group: Group
      try {
        group = waiting.group = typeof waiting.group === 'function' ? waiting.group() : waiting.group
      } catch (error) {
        this.#groups[this.#head] = undefined
        this.#fail(waiting, error)
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
      taken.push(waiting)
      groups.push(group)
    }
    this.#groups = []
    this.#head = 0
    return { taken, groups, renewals, asks }
  }

  /** Forgets the groups that have left, now and then. */
  #compact(): void {
    if (this.#head < this.#options.size * 4 || this.#head < this.#groups.length / 2) return
    this.#groups = this.#groups.slice(this.#head)
    this.#head = 0
  }

  /** Sends a batch until there is an answer: the store applies a number once, so sending again is safe. */
  async #deliver(batch: Batch): Promise<Receipt> {
    let unsure = false
    const began = this.#runtime.elapsed()
    for (let tries = 0; ; tries++) {
      const sent = this.#runtime.elapsed()
      try {
        const receipt = await this.#store.commit(batch)
        this.#options.outage.answered(sent)
        const took = this.#runtime.elapsed() - sent
        this.#trip = this.#trip === 0 ? took : (3 * this.#trip + took) / 4
        this.#sure = true
        return receipt
      } catch (error) {
        this.#sure = false
        // One that says that nothing landed speaks for its own try alone.
        if (saysNothingLanded(error)) {
          throw unsure && !isFinal(error) ? unavailable(this.#store, error) : error
        }
        const unsent = saysNothingSent(error)
        unsure ||= !unsent
        if (tries >= this.#options.replays || (unsent && this.#runtime.elapsed() - began >= UNSENT_TRIED)) {
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
      if (!verdict.ok && verdict.why === 'busy' && taken[at]!.tries > 0) this.#park(taken[at]!)
      else this.#land(taken[at]!, verdict)
    }
    let from = 0
    for (const each of renewals) each.resolve(receipt.renewals.slice(from, (from += each.request.length)))
    const { again, now } = receipt
    const wait = again === undefined ? undefined : { again: Math.max(0, again - now) }
    for (let at = 0; at < asks.length; at++) asks[at]!.resolve({ jobs: receipt.asks[at]!, ...wait })
  }

  #answeredOne({ number }: Waiting): void {
    this.#unanswered--
    if (this.#flushes.length === 0) return
    for (const flush of this.#flushes) if (number <= flush.upTo) flush.left--
    for (const flush of this.#flushes) if (flush.left === 0) flush.done()
    this.#flushes = this.#flushes.filter((flush) => flush.left > 0)
  }

  #land(waiting: Waiting, verdict: Verdict): void {
    this.#answeredOne(waiting)
    try {
      waiting.caller.landed(verdict)
    } catch (error) {
      this.#options.broken(error)
    }
  }

  #fail(waiting: Waiting, error: unknown): void {
    this.#answeredOne(waiting)
    try {
      waiting.caller.failed(error)
    } catch (thrown) {
      this.#options.broken(thrown)
    }
  }

  /** A group whose row is locked by somebody's transaction is sent again by itself, with growing pauses. */
  #park(waiting: Waiting): void {
    if (++waiting.busy > waiting.tries) {
      this.#fail(
        waiting,
        new MillraceError(
          'STORE_BUSY',
          'A row stayed locked by an open transaction; end that transaction and try again.',
        ),
      )
      return
    }
    void this.#pause(Math.min(5 * 2 ** waiting.busy, 250)).then(() => {
      this.#groups.push(waiting)
      this.#schedule()
    })
  }

  #pause(delay: Millis): Promise<void> {
    return new Promise((resolve) => {
      this.#runtime.timer(delay * (0.5 + this.#runtime.random() / 2), resolve)
    })
  }
}

/** A load as two that go one after the other; undefined where it cannot be parted. */
function halvesOf({ taken, groups, renewals, asks }: Load): readonly [Load, Load] | undefined {
  const rest = renewals.length + asks.length > 0
  if (groups.length === 0 || (groups.length === 1 && !rest)) return undefined
  const half = groups.length === 1 ? 1 : Math.ceil(groups.length / 2)
  return [
    { taken: taken.slice(0, half), groups: groups.slice(0, half), renewals: [], asks: [] },
    { taken: taken.slice(half), groups: groups.slice(half), renewals, asks },
  ]
}

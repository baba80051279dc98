// worker/attempt/transaction/attempt-transactions.ts: `ctx.prepare` and `ctx.complete`: the transactions of one attempt, and the rules of their order.
import { MillraceError } from '../../../job/errors.js'
import type { Millis } from '../../../job/job.js'
import { lock } from '../../../job/lifecycle.js'
import type { Returned } from '../../../job/lifecycle.js'
import { refuseUnknown } from '../../../job/names.js'
import { oneOf } from '../../../queue/add-options.js'
import { transactionIn } from '../../../queue/transactions.js'
import type { InTransaction } from '../../../queue/transactions.js'
import type { Adder, Prepared } from '../../../queue/add.js'
import type { JobOperations } from '../../../queue/operations/job-operations.js'
import { FollowUps, cannotContinue, outOfOrder } from '../../../queue/flows/follow-ups.js'
import {
  OpenTransaction,
  enter,
  joinedTransaction,
  refuseInside,
  refuseWithout,
  runInside,
} from '../../../store/transaction-context.js'
import type { TransactionPosition } from '../../../store/transaction-context.js'
import type { Connection } from '../../../store/connection.js'
import type { Stop } from '../../../store/runtime.js'
import type { Group, Tx, Verdict } from '../../../store/store.js'
import { returned } from '../children.js'
import type { Children } from '../children.js'
import { completeGiven } from './complete-given.js'
import type { AbortReason, Mode, PrepareOptions, Why } from '../context.js'
import { UnawaitedCalls } from '../unawaited.js'
import { checkCallback } from '../failure.js'
import { HeldTransaction } from './held-transaction.js'
import type { End } from './held-transaction.js'
import type { LastNote } from '../pending-notes.js'
import type { PhaseRun } from '../../phases/run.js'
import { reasonOf } from '../../leases.js'
import type { Leased, Leases } from '../../leases.js'
import { inTime, tooLong, watchTransaction } from './watchdog.js'

/** The attempt whose transactions these are. */
interface Transactor extends Leased {
  /** Whether the handler is running now. */
  readonly running: boolean
  /** Why it is no longer this worker's. */
  readonly lost: AbortReason | undefined
  /** The part of the handler before its first `await` is over. */
  readonly later: boolean
  /** Resolves when all that was said until now is durable or refused; undefined where nothing is under way. */
  readonly quiet: Promise<void> | undefined
  readonly children: Pick<Children, 'own'>
  readonly lastWords: LastNote | undefined
  readonly phases: PhaseRun | undefined
  /** A result as it is stored; rejects where its schema refuses it. */
  stored(value: unknown): Promise<Returned['result']>
  /** The error for what comes when the job is no longer this worker's. */
  notOurs(): MillraceError
  /** It took too long: it is told to stop, and fails with this. */
  stop(error: MillraceError): void
}

/** What they need of its worker. */
interface TransactingHost {
  readonly desk: JobOperations
  adder(queue: string): Adder
  leases(): Leases
  lost(attempt: Transactor, ...why: Why): void
}

/** How far `prepare` or `complete` has come. */
type Stage = 'ahead' | 'running' | 'done'

/** What a callback is given. */
type Inside = { readonly tx?: Tx }

/** A callback of the user's, whose types `JobContext` has told. */
type Work = (inside: Inside) => unknown

/** How long to wait before a lock is tried again that somebody else holds. */
const LOCK_AGAIN: Millis = 20

/** The transactions of one attempt. Made when a handler first asks for one. */
export class AttemptTransactions {
  /** Where the handler is: what it calls joins the transaction that is open there. */
  readonly place: TransactionPosition = { open: undefined }
  readonly #attempt: Transactor
  readonly #host: TransactingHost
  readonly #connection: Connection
  #accessed = false
  #mode: Mode | undefined
  #preparing: Stage = 'ahead'
  #completing: Stage = 'ahead'
  #held: HeldTransaction | undefined
  /** The innermost of its own transactions that is open. */
  #inner: OpenTransaction | undefined
  #watchdog: Stop | undefined
  /** UnawaitedCalls that the handler may not have waited for. */
  readonly #calls = new UnawaitedCalls()
  #successors: FollowUps | undefined
  #value: unknown
  /** What was written in a transaction of the user's, which may have been committed. */
  #given: Returned | undefined
  /** Why there is to be no further transaction. */
  #cut: { readonly reason: unknown } | undefined

  constructor(attempt: Transactor, host: TransactingHost) {
    this.#attempt = attempt
    this.#host = host
    this.#connection = host.desk.connection
  }

  /** What the callback of `complete` answered. */
  get value(): unknown {
    return this.#value
  }

  /** What was settled in a transaction that is the user's to commit. */
  get given(): Returned | undefined {
    return this.#given
  }

  /** What the callback of `complete` asked for. */
  get successors(): FollowUps | undefined {
    return this.#successors
  }

  /** The same, while it runs. */
  get planning(): FollowUps | undefined {
    return this.#completing === 'running' ? this.#successors : undefined
  }

  /** Adds jobs in the transaction that is open. */
  send(prepared: readonly Prepared[]): Promise<void> {
    return this.#sendIn(this.#held!.open, prepared)
  }

  async #sendIn(open: OpenTransaction, prepared: readonly Prepared[]): Promise<void> {
    const adder = this.#host.adder(this.#attempt.record.queue)
    for (const each of prepared) await runInside({ open }, () => adder.send(each))
  }

  /** Whether a transaction is open, in which the settlement belongs. */
  get isOpen(): boolean {
    return this.#held !== undefined
  }

  /** The transaction that a call of the handler joins. */
  get joined(): OpenTransaction | undefined {
    return joinedTransaction(this.#connection.store) ?? (this.#inner?.ended === false ? this.#inner : undefined)
  }

  /** Resolves when the transaction that is being opened is open, or is not to be; undefined where none is. */
  get opening(): Promise<void> | undefined {
    return this.place.opening?.until
  }

  /** Whether something was called that has not ended yet, or has failed without anybody knowing. */
  get isBusy(): boolean {
    return this.#calls.isBusy
  }

  /** `ctx.prepare` was looked at. */
  access(): void {
    if (!this.#accessed && (this.#attempt.later || this.#completing !== 'ahead')) {
      throw outOfOrder(
        "Prepare cannot be accessed after auto-setup: take it from ctx before the handler's first await and before ctx.complete",
      )
    }
    this.#accessed = true
  }

  /** `ctx.prepare(options, work)`. */
  prepare(options: PrepareOptions, work: (inside: never) => unknown): Promise<unknown> {
    return this.#track('ctx.prepare', async () => {
      refuseUnknown(options, ['mode'], 'ctx.prepare')
      const mode = oneOf(options.mode, ['atomic', 'staged'], 'ctx.prepare: mode')
      checkCallback(work, 'ctx.prepare({ mode }, work)')
      if (this.#completing !== 'ahead') throw outOfOrder('ctx.prepare was called after ctx.complete')
      if (this.#preparing !== 'ahead') throw outOfOrder('ctx.prepare was called twice')
      this.#preparing = 'running'
      try {
        this.#mode = mode
        const value = await this.#run((inside) => (work as Work)(inside))
        if (mode === 'staged') await this.#commitPrepared()
        this.#preparing = 'done'
        return value
      } catch (error) {
        this.#preparing = 'ahead'
        throw error
      }
    })
  }

  /** `ctx.complete(work)`. */
  complete(work: (inside: never) => unknown): Promise<unknown> {
    return this.#track('ctx.complete', async () => {
      checkCallback(work, 'ctx.complete(work)')
      if (this.#completing !== 'ahead') throw outOfOrder('ctx.complete was called twice')
      if (this.#preparing === 'running') throw outOfOrder('ctx.complete was called before ctx.prepare had ended')
      this.#completing = 'running'
      try {
        this.#mode ??= this.#attempt.later ? 'staged' : 'atomic'
        this.#value = await this.#run((inside) => this.#plan(inside, work as Work))
        this.#completing = 'done'
        return this.#value
      } catch (error) {
        this.#successors = undefined
        this.#completing = 'ahead'
        throw error
      }
    })
  }

  /** `ctx.complete({ tx }, work)`. */
  completeGiven(options: InTransaction, work: (inside: never) => unknown): Promise<unknown> {
    return this.#calls.track('ctx.complete', false, this.#completeGiven(options, work as Work))
  }

  async #completeGiven(options: InTransaction, work: Work): Promise<unknown> {
    const { store } = this.#connection
    checkCallback(work, 'ctx.complete({ tx }, work)')
    const tx = transactionIn(options, 'ctx.complete')
    refuseWithout(store)
    if (tx === undefined || tx === null) throw noTransaction()
    if (this.#completing === 'running' || (this.#completing === 'done' && this.#given === undefined)) {
      throw outOfOrder('ctx.complete was called twice')
    }
    if (this.#preparing === 'running') throw outOfOrder('ctx.complete was called before ctx.prepare had ended')
    if (this.#held !== undefined) throw outOfOrder('ctx.complete({ tx }) cannot settle beside an atomic ctx.prepare')
    this.#completing = 'running'
    this.#mode ??= 'staged'
    try {
      if (this.#attempt.lost !== undefined) throw this.#attempt.notOurs()
      const { quiet } = this.#attempt
      if (quiet !== undefined) await quiet
      if (this.#isTired()) await this.#host.leases().renew(this.#attempt)
      let value: unknown
      const given = await completeGiven(store, tx, this.#attempt, this.#givenHost(), async (open) => {
        const plan = (): Promise<unknown> => this.#plan({ tx }, work, open)
        value = await runInside({ open }, plan)
        const also = this.#attempt.children.own.also
        if (also.length > 0) await this.#sendIn(open, also)
        return returned(await this.#attempt.stored(value), this.#successors)
      })
      this.#given = given
      this.#value = value
      this.#completing = 'done'
      return value
    } catch (error) {
      this.#successors = undefined
      this.#completing = this.#given === undefined ? 'ahead' : 'done'
      throw error
    }
  }

  #givenHost(): Parameters<typeof completeGiven>[3] {
    return {
      again: () => this.#again(),
      renew: () => this.#host.leases().renew(this.#attempt),
      lost: (...why) => this.#host.lost(this.#attempt, ...why),
      settled: this.#given !== undefined,
      refusal: (verdict, outcome) => this.refusal(verdict, outcome),
    }
  }

  /** Waits for calls that the handler did not wait for; what fails of those fails the attempt. */
  settledDown(): Promise<void> {
    return this.#calls.settled()
  }

  /** Settles within the transaction and commits it. */
  async settle(group: Group): Promise<End> {
    this.#stopWatching()
    this.place.open = undefined // the handler's own code outlives it
    // What became of one that does not answer is found out by its fence.
    const late: End = { kind: 'unknown', error: tooLong(this.#attempt.record) }
    const end = await this.#inTime(this.#held!.commit(group), late)
    this.#close(end.kind === 'committed')
    return end
  }

  /** Ends all this without a trace; resolves when what is open has been rolled back. */
  async rollBack(reason: unknown): Promise<void> {
    this.#cut ??= { reason }
    await this.#undo(reason)
  }

  /** The same, for those who do not wait. */
  cut(reason: unknown): void {
    void this.rollBack(reason)
  }

  /** What an attempt fails with whose settlement was refused; undefined if the job is no longer this worker's. */
  refusal(verdict: Verdict & { ok: false }, { continuation }: Returned): MillraceError | undefined {
    const { record } = this.#attempt
    const aboutNext = verdict.id !== record.id || verdict.why === 'duplicate' || verdict.why === 'full'
    if (aboutNext && continuation !== undefined) return cannotContinue(record, continuation, verdict)
    const stillOurs = verdict.why === 'busy' || (verdict.job?.fence === record.fence && verdict.job.state === 'active')
    return stillOurs ? tooLong(record) : undefined
  }

  async #undo(reason: unknown): Promise<void> {
    const held = this.#held
    if (held === undefined) return
    this.#close(false)
    await this.#inTime(held.rollBack(reason), undefined)
    this.#renewIfTired()
  }

  #track<T>(call: string, work: () => Promise<T>): Promise<T> {
    const { store } = this.#connection
    if (store.can.transactions) {
      try {
        const open = joinedTransaction(store)
        if (open !== this.#held?.open && open !== this.#inner) refuseInside(store, call)
      } catch (error) {
        return this.#calls.track(call, false, Promise.reject(error))
      }
      enter(this.place)
    }
    return this.#calls.track(call, false, work())
  }

  /** Runs a callback in a savepoint of a transaction, new or open: if it fails, it is undone by itself. */
  async #run(work: Work): Promise<unknown> {
    if (!this.#connection.store.can.transactions) return work({})
    const held = (this.#held ??= await this.#begin())
    if (this.#cut !== undefined) {
      // It was broken off in the moment in which it was opened.
      await this.#undo(this.#cut.reason)
      throw this.#cut.reason
    }
    try {
      return await Promise.race([held.open.nest((tx) => this.#inSavepoint(tx, work)), held.broken])
    } catch (error) {
      // Where the next one has its own, there is nothing to keep this one open for.
      if (this.#mode === 'staged' && this.#held === held) await this.#undo(error)
      throw error
    }
  }

  async #inSavepoint(tx: Tx, work: Work): Promise<unknown> {
    const { store } = this.#connection
    const around = this.#inner
    const open = runInside(this.place, () => new OpenTransaction(store, tx))
    this.#inner = open
    try {
      const value = await runInside({ open }, () => work({ tx }))
      await open.over()
      open.committed()
      return value
    } finally {
      open.end()
      if (this.#inner === open) this.#inner = around
    }
  }

  async #plan(inside: Inside, work: Work, open = this.#inner): Promise<unknown> {
    const adder = this.#host.adder(this.#attempt.record.queue)
    const successors = new FollowUps(
      adder,
      this.#attempt.record,
      inside.tx === undefined ? undefined : (prepared) => runInside({ open }, () => adder.send(prepared)),
      () => this.#attempt.children.own.also,
    )
    this.#successors = successors
    const value = await work({ ...inside, ...successors.planning() })
    await successors.close()
    return value
  }

  /** Begins a transaction that holds the job: from here on, nobody else can touch it. */
  #begin(): Promise<HeldTransaction> {
    const begun = this.#beginHeld()
    const over = (): void => void (this.place.opening = undefined)
    this.place.opening = { store: this.#connection.store, until: begun.then(over, over) }
    return begun
  }

  async #beginHeld(): Promise<HeldTransaction> {
    // Nothing is waited for that need not be: until it is open, calls beside it cannot join it.
    if (this.#attempt.lost !== undefined) throw this.#attempt.notOurs()
    const { quiet } = this.#attempt
    if (quiet !== undefined) await quiet
    if (this.#isTired()) await this.#host.leases().renew(this.#attempt)
    for (let renewed = false; ; renewed = true) {
      const held = await HeldTransaction.begin(
        this.#connection.store,
        () => this.#again(),
        (opened) => {
          this.place.open = this.#inner = opened.open
          opened.open.settles = this.#attempt.record.id
          this.#watch(opened)
        },
      )
      const verdict = await this.#lock(held)
      if (verdict?.ok === true) return held
      this.#stopWatching()
      this.place.open = this.#inner = undefined
      await this.#inTime(held.rollBack(this.#cut?.reason ?? new Error('The job could not be held.')), undefined)
      if (verdict === undefined) throw this.#cut!.reason
      const { record } = this.#attempt
      const stillOurs = verdict.job?.fence === record.fence && verdict.job.state === 'active'
      if (!stillOurs || renewed) {
        this.#host.lost(this.#attempt, ...reasonOf(verdict))
        throw this.#attempt.notOurs()
      }
      await this.#host.leases().renew(this.#attempt) // it ran out, and nobody has taken the job
    }
  }

  /** Waits a moment; answers whether there is time for another try. */
  async #again(): Promise<boolean> {
    const { runtime } = this.#connection
    await new Promise<void>((resolve) => void runtime.timer(LOCK_AGAIN, resolve))
    return this.#cut === undefined && runtime.elapsed() < this.#host.leases().mustEnd(this.#attempt)
  }

  /** Whether much of the lease is over, so that a transaction would have little time. */
  #isTired(): boolean {
    const { leaseEnds, handler } = this.#attempt
    return leaseEnds - this.#connection.runtime.elapsed() < handler.lease / 2
  }

  /** While a transaction was open, the lease was not renewed; a handler that goes on needs it. */
  #renewIfTired(): void {
    if (this.#attempt.running && this.#attempt.lost === undefined && this.#isTired()) {
      void this.#host.leases().renew(this.#attempt)
    }
  }

  /** Undefined if there is to be no transaction any more. */
  async #lock(held: HeldTransaction): Promise<Verdict | undefined> {
    while (this.#cut === undefined) {
      const [verdict] = await Promise.race([held.open.commit([[lock(this.#attempt.record, true)]]), held.broken])
      if (this.#cut !== undefined) break
      if (verdict!.ok || verdict!.why !== 'busy') return verdict!
      const pause = new Promise<void>((resolve) => void this.#connection.runtime.timer(LOCK_AGAIN, resolve))
      await Promise.race([pause, held.broken])
    }
    return undefined
  }

  /** Ends a transaction that would cost leases: while it is open, they may not be renewed. */
  #watch(held: HeldTransaction): void {
    this.#watchdog = watchTransaction(this.#connection.runtime, this.#host.leases(), this.#attempt, () => {
      const error = tooLong(this.#attempt.record)
      if (this.#held !== held) void held.rollBack(error) // it is not even locked yet
      this.cut(error)
      this.#attempt.stop(error)
    })
  }

  #stopWatching(): void {
    this.#watchdog?.()
    this.#watchdog = undefined
  }

  /** Waits for the end of a transaction. */
  #inTime<T>(work: Promise<T>, late: T): Promise<T> {
    return inTime(this.#connection.runtime, this.#host.leases().mustEnd(this.#attempt), work, late)
  }

  async #commitPrepared(): Promise<void> {
    const held = this.#held
    if (held === undefined) return
    this.#stopWatching()
    this.place.open = undefined // the handler's own code outlives it
    const end = await held.commit(undefined)
    this.#close(end.kind === 'committed')
    this.#renewIfTired()
    if (end.kind === 'unknown') throw end.error
  }

  /** The transaction is over, or about to be. */
  #close(committed: boolean): void {
    this.#stopWatching()
    const open = this.#held?.open
    this.#held = undefined
    this.place.open = this.#inner = undefined
    if (committed) open?.committed()
  }
}

function noTransaction(): MillraceError {
  return new MillraceError(
    'INVALID_TRANSACTION',
    'ctx.complete({ tx }, work) was given no transaction. Pass the one that you have open, or leave the first argument out.',
  )
}

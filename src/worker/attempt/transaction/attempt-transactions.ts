// worker/attempt/transaction/attempt-transactions.ts: `ctx.prepare` and `ctx.complete`, and the rules of their order.
import type { MillraceError } from '../../../job/errors/errors.js'
import type { Millis } from '../../../job/job.js'
import { lock } from '../../../job/lifecycle.js'
import type { Returned } from '../../../job/lifecycle.js'
import { refuseUnknown } from '../../../job/values/names.js'
import { oneOf } from '../../../job/values/options.js'
import { transactionIn } from '../../../queue/transactions.js'
import type { InTransaction } from '../../../queue/transactions.js'
import type { Adder, Prepared } from '../../../queue/add.js'
import { FollowUps, outOfOrder } from '../../../queue/flows/follow-ups.js'
import {
  OpenTransaction,
  enterPosition,
  joinedTransaction,
  refuseInside,
  requireTransactions,
  runAtPosition,
} from '../../../store/transaction-context.js'
import type { TransactionPosition } from '../../../store/transaction-context.js'
import type { Connection } from '../../../store/connection.js'
import type { Stop } from '../../../store/runtime.js'
import type { Group, Tx, Verdict } from '../../../store/store.js'
import type { Attempt, Settled, Transactions } from '../attempt.js'
import { returned } from '../children.js'
import { completeInUserTransaction, noTransaction, notAwaitedInTransaction } from './complete-given.js'
import type { Mode, PrepareOptions } from '../context.js'
import { UnawaitedCalls } from '../unawaited.js'
import { checkCallback } from '../attempt-errors.js'
import { HeldTransaction, inTime, tooLong, watchTransaction } from './held-transaction.js'
import type { End } from './held-transaction.js'
import { storedResult } from '../payload.js'
import { reasonOf } from '../../leases.js'
import type { Leases } from '../../leases.js'

/** How far `prepare` or `complete` has come. */
type Stage = 'ahead' | 'running' | 'done'

/** The argument of a callback. */
type Inside = { readonly tx?: Tx }

/** A user's callback, which `JobContext` types. */
type Work = (inside: Inside) => unknown

/** The wait before a lock is tried again that another transaction holds. */
const LOCK_RETRY: Millis = 20

const IN_USER_TRANSACTION = 'ctx.complete({ tx })'

/** The transactions of one attempt. Created when a handler first uses one. */
export class AttemptTransactions implements Transactions {
  /** The handler's transaction context: its calls join the transaction that is open there. */
  readonly position: TransactionPosition = { open: undefined }
  readonly #attempt: Attempt
  readonly #leases: Leases
  readonly #connection: Connection
  #accessed = false
  #mode: Mode | undefined
  #preparing: Stage = 'ahead'
  #completing: Stage = 'ahead'
  #held: HeldTransaction | undefined
  /** The innermost of its own transactions that is open. */
  #inner: OpenTransaction | undefined
  #watchdog: Stop | undefined
  /** Calls that the handler may not have awaited. */
  readonly #calls = new UnawaitedCalls()
  #followUps: FollowUps | undefined
  #value: unknown
  #userSettlement: Settled | undefined
  /** Why no further transaction may begin. */
  #aborted: { readonly reason: unknown } | undefined

  constructor(attempt: Attempt, leases: Leases) {
    this.#attempt = attempt
    this.#leases = leases
    this.#connection = attempt.parts.connection
  }

  /** What the callback of `complete` returned. */
  get value(): unknown {
    return this.#value
  }

  /** The settlement that was written in a user transaction, which may have been committed. */
  get userSettlement(): Settled | undefined {
    return this.#userSettlement
  }

  /** The jobs that the callback of `complete` added. */
  get followUps(): FollowUps | undefined {
    return this.#followUps
  }

  /** The same, while the callback runs. */
  get planning(): FollowUps | undefined {
    return this.#completing === 'running' ? this.#followUps : undefined
  }

  /** Adds jobs in the open transaction. */
  send(prepared: readonly Prepared[]): Promise<void> {
    return this.#sendIn(this.#held!.open, prepared)
  }

  get #adder(): Adder {
    return this.#attempt.parts.adders.for(this.#attempt.record.queue)
  }

  /** The jobs added with `ctx.add`. */
  get #also(): readonly Prepared[] {
    return this.#attempt.children?.own.also ?? []
  }

  async #sendIn(open: OpenTransaction, prepared: readonly Prepared[]): Promise<void> {
    for (const each of prepared) await runAtPosition({ open }, () => this.#adder.send(each))
  }

  /** Whether a transaction is open, which the settlement must be part of. */
  get isOpen(): boolean {
    return this.#held !== undefined
  }

  /** The transaction that a call of the handler joins. */
  get joined(): OpenTransaction | undefined {
    return joinedTransaction(this.#connection.store) ?? (this.#inner?.ended === false ? this.#inner : undefined)
  }

  /** Resolves when the transaction that is being opened is open, or has failed to; undefined if none is. */
  get opening(): Promise<void> | undefined {
    return this.position.opening?.until
  }

  /** Whether a call is pending, or has failed without being awaited. */
  get isBusy(): boolean {
    return this.#calls.isBusy
  }

  /** The handler has read `ctx.prepare`. */
  access(): void {
    if (!this.#accessed && (this.#attempt.pastFirstAwait || this.#completing !== 'ahead')) {
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
        this.#mode ??= this.#attempt.pastFirstAwait ? 'staged' : 'atomic'
        this.#value = await this.#run((inside) => this.#plan(inside, work as Work))
        this.#completing = 'done'
        return this.#value
      } catch (error) {
        this.#followUps = undefined
        this.#completing = 'ahead'
        throw error
      }
    })
  }

  /** `ctx.complete({ tx }, work)`. */
  completeInUserTransaction(options: InTransaction, work: (inside: never) => unknown): Promise<unknown> {
    if (!this.#attempt.running) return Promise.reject(this.#attempt.lostError())
    return this.#calls.track(IN_USER_TRANSACTION, false, this.#completeInUserTransaction(options, work as Work))
  }

  async #completeInUserTransaction(options: InTransaction, work: Work): Promise<unknown> {
    const { store } = this.#connection
    checkCallback(work, 'ctx.complete({ tx }, work)')
    const tx = transactionIn(options, 'ctx.complete')
    requireTransactions(store)
    if (tx === undefined || tx === null) throw noTransaction()
    if (this.#completing === 'running' || (this.#completing === 'done' && this.#userSettlement === undefined)) {
      throw outOfOrder('ctx.complete was called twice')
    }
    if (this.#preparing === 'running') throw outOfOrder('ctx.complete was called before ctx.prepare had ended')
    if (this.#held !== undefined) throw outOfOrder('ctx.complete({ tx }) cannot settle beside an atomic ctx.prepare')
    this.#completing = 'running'
    this.#mode ??= 'staged'
    try {
      if (this.#attempt.lost !== undefined) throw this.#attempt.lostError()
      const notesSettled = this.#attempt.notes?.notesSettled
      if (notesSettled !== undefined) await notesSettled
      if (this.#isLeaseShort()) await this.#leases.renew(this.#attempt)
      let value: unknown
      const settleWork = async (open: OpenTransaction): Promise<Returned> => {
        if (!this.#attempt.running) throw this.#attempt.lostError()
        const plan = (): Promise<unknown> => this.#plan({ tx }, work, open)
        value = await runAtPosition({ open }, plan)
        if (this.#also.length > 0) await this.#sendIn(open, this.#also)
        return returned(await storedResult(this.#attempt.definition, value), this.#followUps)
      }
      const mayRetry = (): Promise<boolean> => this.#mayRetry()
      this.#userSettlement = await completeInUserTransaction(this.#attempt, this.#leases, tx, mayRetry, settleWork)
      this.#value = value
      this.#completing = 'done'
      return value
    } catch (error) {
      this.#followUps = undefined
      this.#completing = this.#userSettlement === undefined ? 'ahead' : 'done'
      throw error
    }
  }

  /** The error of a handler that has returned while a user transaction ends without its settlement. */
  get unawaitedFailure(): MillraceError | undefined {
    return this.#calls.isFloating(IN_USER_TRANSACTION) ? notAwaitedInTransaction(this.#attempt.record) : undefined
  }

  /** Waits for calls that the handler did not await; rejects if one of them fails. */
  callsSettled(): Promise<void> {
    return this.#calls.settled()
  }

  /** Settles in the transaction and commits it. */
  async settle(group: Group): Promise<End> {
    this.#stopWatching()
    this.position.open = undefined // the handler's code may run longer than the transaction
    // If the commit is not acknowledged in time, the fence later shows whether it was applied.
    const late: End = { kind: 'unknown', error: tooLong(this.#attempt.record) }
    const end = await this.#inTime(this.#held!.commit(group), late)
    this.#close(end.kind === 'committed')
    return end
  }

  /** Rolls back whatever is open, and allows no further transaction. Resolves when that is done. */
  async rollBack(reason: unknown): Promise<void> {
    this.#aborted ??= { reason }
    await this.#rollBackHeld(reason)
  }

  /** The same, without waiting. */
  abort(reason: unknown): void {
    void this.rollBack(reason)
  }

  async #rollBackHeld(reason: unknown): Promise<void> {
    const held = this.#held
    if (held === undefined) return
    this.#close(false)
    await this.#inTime(held.rollBack(reason), undefined)
    this.#renewIfShort()
  }

  #track<T>(call: string, work: () => Promise<T>): Promise<T> {
    if (!this.#attempt.running) return Promise.reject(this.#attempt.lostError())
    const { store } = this.#connection
    if (store.can.transactions) {
      try {
        const open = joinedTransaction(store)
        if (open !== this.#held?.open && open !== this.#inner) refuseInside(store, call)
      } catch (error) {
        return this.#calls.track(call, false, Promise.reject(error))
      }
      enterPosition(this.position)
    }
    return this.#calls.track(call, false, work())
  }

  /** Runs a callback in a savepoint of a transaction, new or open. An error rolls back the savepoint alone. */
  async #run(work: Work): Promise<unknown> {
    if (!this.#connection.store.can.transactions) return work({})
    const held = (this.#held ??= await this.#begin())
    if (this.#aborted !== undefined) {
      // Aborted at the very moment it was opened.
      await this.#rollBackHeld(this.#aborted.reason)
      throw this.#aborted.reason
    }
    try {
      return await Promise.race([held.open.nest((tx) => this.#inSavepoint(tx, work)), held.broken])
    } catch (error) {
      // The next call begins its own transaction, so this one is not needed any more.
      if (this.#mode === 'staged' && this.#held === held) await this.#rollBackHeld(error)
      throw error
    }
  }

  async #inSavepoint(tx: Tx, work: Work): Promise<unknown> {
    const { store } = this.#connection
    const outer = this.#inner
    const open = runAtPosition(this.position, () => new OpenTransaction(store, tx))
    this.#inner = open
    try {
      const value = await runAtPosition({ open }, () => work({ tx }))
      await open.over()
      open.committed()
      return value
    } finally {
      open.end()
      if (this.#inner === open) this.#inner = outer
    }
  }

  async #plan(inside: Inside, work: Work, open = this.#inner): Promise<unknown> {
    const adder = this.#adder
    const followUps = new FollowUps(
      adder,
      this.#attempt.record,
      inside.tx === undefined ? undefined : (prepared) => runAtPosition({ open }, () => adder.send(prepared)),
      () => this.#also,
    )
    this.#followUps = followUps
    const value = await work({ ...inside, ...followUps.planning((...call) => this.#attempt.guard(...call)) })
    await followUps.close()
    return value
  }

  /** Begins a transaction and locks the job in it: until its end, no other commit can change the job. */
  #begin(): Promise<HeldTransaction> {
    const begun = this.#beginHeld()
    const over = (): void => void (this.position.opening = undefined)
    this.position.opening = { store: this.#connection.store, until: begun.then(over, over) }
    return begun
  }

  async #beginHeld(): Promise<HeldTransaction> {
    // Awaits only what it must: until the transaction is open, concurrent calls cannot join it.
    if (this.#attempt.lost !== undefined) throw this.#attempt.lostError()
    const notesSettled = this.#attempt.notes?.notesSettled
    if (notesSettled !== undefined) await notesSettled
    if (this.#isLeaseShort()) await this.#leases.renew(this.#attempt)
    for (let renewed = false; ; renewed = true) {
      const held = await HeldTransaction.begin(
        this.#connection.store,
        () => this.#mayRetry(),
        (opened) => {
          this.position.open = this.#inner = opened.open
          opened.open.settles = this.#attempt.record.id
          this.#watch(opened)
        },
      )
      const verdict = await this.#lock(held)
      if (verdict?.ok === true) return held
      this.#stopWatching()
      this.position.open = this.#inner = undefined
      await this.#inTime(held.rollBack(this.#aborted?.reason ?? new Error('The job could not be held.')), undefined)
      if (verdict === undefined) throw this.#aborted!.reason
      const { record } = this.#attempt
      const stillOurs = verdict.job?.fence === record.fence && verdict.job.state === 'active'
      if (!stillOurs || renewed) {
        this.#leases.lose(this.#attempt, ...reasonOf(verdict))
        throw this.#attempt.lostError()
      }
      await this.#leases.renew(this.#attempt) // the lease expired, and no other worker has taken the job
    }
  }

  /** Waits a moment; returns whether there is time for another try. */
  async #mayRetry(): Promise<boolean> {
    const { runtime } = this.#connection
    await new Promise<void>((resolve) => void runtime.timer(LOCK_RETRY, resolve))
    return this.#aborted === undefined && runtime.elapsed() < this.#leases.mustEnd(this.#attempt)
  }

  /** Whether more than half of the lease has passed, which leaves little time for a transaction. */
  #isLeaseShort(): boolean {
    const { leaseEnds, handler } = this.#attempt
    return leaseEnds - this.#connection.runtime.elapsed() < handler.lease / 2
  }

  /** The lease was not renewed while a transaction was open. A handler that continues needs it renewed. */
  #renewIfShort(): void {
    if (this.#attempt.running && this.#attempt.lost === undefined && this.#isLeaseShort()) {
      void this.#leases.renew(this.#attempt)
    }
  }

  /** Locks the job; undefined if transactions were aborted meanwhile. */
  async #lock(held: HeldTransaction): Promise<Verdict | undefined> {
    while (this.#aborted === undefined) {
      const [verdict] = await Promise.race([held.open.commit([[lock(this.#attempt.record, true)]]), held.broken])
      if (this.#aborted !== undefined) break
      if (verdict!.ok || verdict!.why !== 'busy') return verdict!
      const pause = new Promise<void>((resolve) => void this.#connection.runtime.timer(LOCK_RETRY, resolve))
      await Promise.race([pause, held.broken])
    }
    return undefined
  }

  /** Rolls back a transaction that would cost leases, because they may not be renewed while it is open. */
  #watch(held: HeldTransaction): void {
    this.#watchdog = watchTransaction(this.#connection.runtime, this.#leases, this.#attempt, () => {
      const error = tooLong(this.#attempt.record)
      if (this.#held !== held) void held.rollBack(error) // the job is not even locked yet
      this.abort(error)
      this.#attempt.stop(error)
    })
  }

  #stopWatching(): void {
    this.#watchdog?.()
    this.#watchdog = undefined
  }

  /** Waits for the end of a transaction, but not beyond the leases. */
  #inTime<T>(work: Promise<T>, late: T): Promise<T> {
    return inTime(this.#connection.runtime, this.#leases.mustEnd(this.#attempt), work, late)
  }

  async #commitPrepared(): Promise<void> {
    const held = this.#held
    if (held === undefined) return
    this.#stopWatching()
    this.position.open = undefined // the handler's code may run longer than the transaction
    const end = await held.commit(undefined)
    this.#close(end.kind === 'committed')
    this.#renewIfShort()
    if (end.kind === 'unknown') throw end.error
  }

  /** The transaction has ended, or is about to. */
  #close(committed: boolean): void {
    this.#stopWatching()
    const open = this.#held?.open
    this.#held = undefined
    this.position.open = this.#inner = undefined
    if (committed) open?.committed()
  }
}

/**
 * The error of a job that is both rescheduled and completed: rescheduling would silently undo what ctx.complete did.
 */
export function sentBack(): MillraceError {
  return outOfOrder(
    'job.update({ delay }) and ctx.complete exclude each other: a job that is sent back is not completed',
  )
}

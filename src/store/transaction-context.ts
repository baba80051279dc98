// store/transaction-context.ts: the transaction that the running code is inside of. Calls to the same store join it.
import { AsyncLocalStorage } from 'node:async_hooks'
import { MillraceError } from '../job/errors/errors.js'
import type { Time } from '../job/job.js'
import type { Group, Store, Tx, Verdict } from './store.js'

/** A job of an add that shows, if it is found later, that the add's transaction was committed. */
export interface Evidence {
  readonly id: string
  readonly queue: string
  /** When it was added: another job of the same id proves nothing. */
  readonly createdAt: Time
  /** Whether it existed already. */
  readonly duplicate: boolean
  /** How many jobs the report is about. */
  readonly jobs: number
  /** About how many bytes the report holds. */
  readonly bytes: number
}

/** Holds reports back until a transaction is committed. */
export interface AfterCommit {
  /** Reports once it has been committed; never if it is rolled back. */
  afterCommit(report: () => void, evidence?: Evidence): void
}

/** An open transaction, joined by calls of the code inside it. */
export class OpenTransaction implements AfterCommit {
  readonly store: Store
  readonly tx: Tx
  /** The transaction that was open where this one was created: on another store, or the one that this is a savepoint of. */
  readonly outer: OpenTransaction | undefined
  /** The job that the transaction itself settles at its end; nothing else may move that job inside it. */
  settles: string | undefined
  #ended = false
  /** The open savepoint inside it. Savepoints run one after the other: two that overlap would end each other. */
  #nested: Promise<unknown> | undefined
  /** Calls made in it that have no result yet. */
  readonly #calls = new Set<Promise<unknown>>()
  readonly #reports: (readonly [report: () => void, evidence: Evidence | undefined])[] = []
  /** Finds out whether it was committed, where the user ends it. */
  readonly #outcomes: AfterCommit | undefined

  constructor(store: Store, tx: Tx, outcomes?: AfterCommit) {
    this.store = store
    this.tx = tx
    this.#outcomes = outcomes
    this.outer = positions.getStore()?.open
  }

  /** Whether it has ended: later calls are refused. */
  get ended(): boolean {
    return this.#ended
  }

  /** Whether the user ends it, or the one enclosing it: the library does not learn whether it is committed. */
  get endedByUser(): boolean {
    if (this.#outcomes !== undefined) return true
    return this.outer?.store === this.store && !this.outer.ended && this.outer.endedByUser
  }

  /** Marks it as about to be committed or rolled back: no call joins it any more. */
  end(): void {
    this.#ended = true
  }

  /** Throws if it has ended. */
  refuseEnded(): void {
    if (!this.#ended) return
    throw new MillraceError(
      'TRANSACTION_ENDED',
      'The code that made this call was begun inside a transaction that has ended since. Nothing was done; await the call inside the transaction, or begin what makes it outside.',
    )
  }

  /** Throws if a group would move the job that this transaction, or one enclosing it, settles itself. */
  refuseOwn(groups: readonly Group[], on = this.store): void {
    const id = this.store === on ? this.settles : undefined
    if (id !== undefined && groups.some((group) => group.some((each) => each.kind === 'move' && each.id === id))) {
      throw new MillraceError(
        'OWN_JOB',
        `Job ${id} cannot be cancelled, removed or completed inside the transaction in which its own handler settles it. Throw an UnrecoverableError to fail it for good, or cancel it outside of ctx.prepare and ctx.complete.`,
        { details: { id } },
      )
    }
    this.outer?.refuseOwn(groups, on)
  }

  /** Tracks a call made in it until it is answered. */
  during<T>(call: Promise<T>): Promise<T> {
    this.#calls.add(call)
    const over = (): void => void this.#calls.delete(call)
    call.then(over, over)
    return call
  }

  /**
   * Lets no further call join, and waits for the answers to all calls that have joined, awaited or not: sent after the
   * end, a call would run outside of any transaction, or in the next one on the same connection.
   */
  async over(): Promise<void> {
    this.end()
    if (this.#calls.size > 0) await Promise.allSettled(this.#calls)
  }

  /** Reports once it has been committed; never if it is rolled back. */
  afterCommit(report: () => void, evidence?: Evidence): void {
    if (this.#outcomes === undefined) this.#reports.push([report, evidence])
    else this.#outcomes.afterCommit(report, evidence)
  }

  /** Runs its reports after its commit. The reports of a savepoint wait for the transaction enclosing it. */
  committed(): void {
    const enclosing = this.outer?.store === this.store && !this.outer.ended ? this.outer : undefined
    for (const [report, evidence] of this.#reports.splice(0)) {
      if (enclosing === undefined) report()
      else enclosing.afterCommit(report, evidence)
    }
  }

  /**
   * Resolves when no savepoint is open inside it; undefined where none is. A write made meanwhile would become part of
   * the savepoint.
   */
  get busy(): Promise<unknown> | undefined {
    return this.#nested
  }

  /** Sends groups in it. Where the driver is synchronous, they are written before this returns. */
  async commit(groups: readonly Group[]): Promise<readonly Verdict[]> {
    while (this.#nested !== undefined) await this.#nested
    this.refuseEnded()
    return (await this.during(commitWithin(this.store, this.tx, groups))).groups
  }

  /** Sends its last group, when all calls that joined it have been answered. */
  async conclude(last: Group): Promise<Verdict> {
    await this.over()
    while (this.#nested !== undefined) await this.#nested
    return (await commitWithin(this.store, this.tx, [last])).groups[0]!
  }

  /** Runs work in a savepoint of it, after the savepoints that are open. */
  async nest<T>(work: (tx: Tx) => Promise<T>): Promise<T> {
    while (this.#nested !== undefined) await this.#nested
    this.refuseEnded()
    const result = this.store.transact!(work, this.tx)
    const over = result.then(ignore, ignore)
    this.#nested = over
    try {
      return await result
    } finally {
      this.#nested = undefined
    }
  }
}

const ignore = (): void => {}

/** Sends groups in a user transaction. */
export function commitWithin(store: Store, tx: Tx, groups: readonly Group[]): ReturnType<Store['commit']> {
  return store.commit({ writer: '', seq: 0, groups, renewals: [], asks: [] }, tx)
}

/** Holds the open transaction, if any, of an attempt or a call. */
export interface TransactionPosition {
  open: OpenTransaction | undefined
  /** A transaction is being opened: calls to its store wait until it is open, otherwise they would wait for its end. */
  opening?: { readonly store: Store; readonly until: Promise<void> } | undefined
}

const positions = new AsyncLocalStorage<TransactionPosition | undefined>()

/** The open transaction on this store that the code running now is inside of. */
export function openTransaction(store: Store): OpenTransaction | undefined {
  for (let open = positions.getStore()?.open; open !== undefined; open = open.outer) {
    if (open.store === store && !open.ended) return open
  }
  return undefined
}

/**
 * The transaction on this store that a call made now joins: the one that the calling code is inside of, if the call
 * names none or that one. Throws if that transaction has ended, or is about to: it would be unknown whether the write
 * counts.
 */
export function joinedTransaction(store: Store, named?: Tx): OpenTransaction | undefined {
  let open = positions.getStore()?.open
  while (open !== undefined && open.store !== store) open = open.outer
  if (named !== undefined && open?.tx !== named) return undefined
  open?.refuseEnded()
  return open
}

/** Resolves when the transaction on this store that the running code is opening is open, or could not be opened. */
export function openingTransaction(store: Store): Promise<void> | undefined {
  const opening = positions.getStore()?.opening
  return opening?.store === store ? opening.until : undefined
}

/**
 * Throws, inside a transaction on this store, for a call that would wait for something that happens only after the
 * transaction's end.
 */
export function refuseInside(store: Store, call: string): void {
  if (openTransaction(store) === undefined) return
  throw new MillraceError(
    'IN_TRANSACTION',
    `${call} was called inside a transaction, and would wait for what can happen only after that. Call it when the transaction has ended.`,
  )
}

/** Runs work at a transaction position. */
export function runAtPosition<T>(position: TransactionPosition, work: () => T): T {
  return positions.run(position, work)
}

/**
 * Puts the running code, and everything it starts, at a transaction position from here on. The caller of that code
 * restores its own with `restorePosition`.
 */
export function enterPosition(position: TransactionPosition): void {
  positions.enterWith(position)
}

/** The transaction position of the running code. */
export function currentPosition(): TransactionPosition | undefined {
  return positions.getStore()
}

/** Restores a transaction position that `currentPosition` returned. */
export function restorePosition(position: TransactionPosition | undefined): void {
  if (positions.getStore() !== position) positions.enterWith(position)
}

/** Runs work outside of any transaction: loops and timers belong to no caller, whichever call happened to wake them. */
export function outside<T>(work: () => T): T {
  return positions.getStore() === undefined ? work() : positions.run(undefined, work)
}

/** Throws if the store has no transactions. */
export function requireTransactions(store: Store): void {
  if (store.can.transactions) return
  throw new MillraceError(
    'INVALID_TRANSACTION',
    `The ${store.name} store has no transactions. Leave \`tx\` out, or use a store that has them: sqlite or postgres.`,
  )
}

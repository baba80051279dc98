// store/transaction-context.ts: the transaction that the code running now is inside of. Calls to the same store join it.
import { AsyncLocalStorage } from 'node:async_hooks'
import { MillraceError } from '../job/errors.js'
import type { Time } from '../job/job.js'
import type { Group, Store, Tx, Verdict } from './store.js'

/** A job of an add by which it can be seen that the transaction of the add was committed. */
export interface Evidence {
  readonly id: string
  readonly queue: string
  /** When it was added: another one of the same id proves nothing. */
  readonly createdAt: Time
  /** Whether it stood already. */
  readonly duplicate: boolean
  /** How many jobs the report is about. */
  readonly jobs: number
}

/** Holds reports until a transaction was committed. */
export interface AfterCommit {
  /** Reports once it has been committed; never if it is rolled back. */
  afterCommit(report: () => void, evidence?: Evidence): void
}

/** A transaction that calls of the code inside it join. */
export class OpenTransaction implements AfterCommit {
  readonly store: Store
  readonly tx: Tx
  /** The one that was open where this one was made: on another store, or the one that this is a savepoint of. */
  readonly outer: OpenTransaction | undefined
  /** The job that it will settle by itself, which nothing else may move inside of it. */
  settles: string | undefined
  #ended = false
  /** The savepoints inside it, one after the other: two that overlap would end each other. */
  #nested: Promise<unknown> | undefined
  /** Calls that were made in it and have no answer yet. */
  readonly #calls = new Set<Promise<unknown>>()
  readonly #told: (readonly [report: () => void, evidence: Evidence | undefined])[] = []
  /** Finds out whether it was committed, where it is the user's to end. */
  readonly #outcomes: AfterCommit | undefined

  constructor(store: Store, tx: Tx, outcomes?: AfterCommit) {
    this.store = store
    this.tx = tx
    this.#outcomes = outcomes
    this.outer = places.getStore()?.open
  }

  /** Whether it has ended: calls that come later are refused. */
  get ended(): boolean {
    return this.#ended
  }

  /** It is about to be committed or rolled back: nothing joins it any more. */
  end(): void {
    this.#ended = true
  }

  /** Refuses what comes when it has ended. */
  refuseEnded(): void {
    if (!this.#ended) return
    throw new MillraceError(
      'TRANSACTION_ENDED',
      'The code that made this call was begun inside a transaction that has ended since. Nothing was done; await the call inside the transaction, or begin what makes it outside.',
    )
  }

  /** Refuses groups that would move the job which this transaction, or one around it, settles by itself. */
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

  /** Keeps count of a call made in it. */
  during<T>(call: Promise<T>): Promise<T> {
    this.#calls.add(call)
    const over = (): void => void this.#calls.delete(call)
    call.then(over, over)
    return call
  }

  /**
   * Nothing joins it any more, and what has joined it, whether or not anybody waits for that, has its answer: sent after
   * the end, it would run outside of any transaction, or within the next one on the same connection.
   */
  async over(): Promise<void> {
    this.end()
    if (this.#calls.size > 0) await Promise.allSettled(this.#calls)
  }

  /** Tells once it has been committed; never if it is rolled back. */
  afterCommit(report: () => void, evidence?: Evidence): void {
    if (this.#outcomes === undefined) this.#told.push([report, evidence])
    else this.#outcomes.afterCommit(report, evidence)
  }

  /** It was committed. What a savepoint has to tell waits for the transaction around it. */
  committed(): void {
    const around = this.outer?.store === this.store && !this.outer.ended ? this.outer : undefined
    for (const [report, evidence] of this.#told.splice(0)) {
      if (around === undefined) report()
      else around.afterCommit(report, evidence)
    }
  }

  /** Resolves when no savepoint is open inside it; undefined where none is: what is written now would belong to it. */
  get busy(): Promise<unknown> | undefined {
    return this.#nested
  }

  /** Sends groups within it. Where the driver is synchronous, they are written before this returns. */
  async commit(groups: readonly Group[]): Promise<readonly Verdict[]> {
    while (this.#nested !== undefined) await this.#nested
    this.refuseEnded()
    return (await this.during(commitWithin(this.store, this.tx, groups))).groups
  }

  /** Sends its last group, when all that has joined it is over. */
  async conclude(last: Group): Promise<Verdict> {
    await this.over()
    while (this.#nested !== undefined) await this.#nested
    return (await commitWithin(this.store, this.tx, [last])).groups[0]!
  }

  /** Runs work in a savepoint of it, after those that are open. */
  async nest<T>(work: (tx: Tx) => Promise<T>): Promise<T> {
    while (this.#nested !== undefined) await this.#nested
    this.refuseEnded()
    const answer = this.store.transact!(work, this.tx)
    const over = answer.then(ignore, ignore)
    this.#nested = over
    try {
      return await answer
    } finally {
      this.#nested = undefined
    }
  }
}

const ignore = (): void => {}

/** Sends groups within a transaction of the user's. */
export function commitWithin(store: Store, tx: Tx, groups: readonly Group[]): ReturnType<Store['commit']> {
  return store.commit({ writer: '', seq: 0, groups, renewals: [], asks: [] }, tx)
}

/** Where an attempt or a call keeps the transaction that it has open, if any. */
export interface TransactionPosition {
  open: OpenTransaction | undefined
  /** One is being opened: calls to its store wait until it is, or they would wait for its end. */
  opening?: { readonly store: Store; readonly until: Promise<void> } | undefined
}

const places = new AsyncLocalStorage<TransactionPosition | undefined>()

/** The open transaction on this store that the code running now is inside of. */
export function openTransaction(store: Store): OpenTransaction | undefined {
  for (let open = places.getStore()?.open; open !== undefined; open = open.outer) {
    if (open.store === store && !open.ended) return open
  }
  return undefined
}

/**
 * The transaction on this store that a call made now joins: the one that the calling code is inside of, if the call names
 * none or that one. Refused where it has ended, or is about to: nobody could say whether what is written should stand.
 */
export function joinedTransaction(store: Store, named?: Tx): OpenTransaction | undefined {
  let open = places.getStore()?.open
  while (open !== undefined && open.store !== store) open = open.outer
  if (named !== undefined && open?.tx !== named) return undefined
  open?.refuseEnded()
  return open
}

/** Resolves when the transaction on this store that the code running now is about to be inside of is open, or is not to be. */
export function openingTransaction(store: Store): Promise<void> | undefined {
  const opening = places.getStore()?.opening
  return opening?.store === store ? opening.until : undefined
}

/** Refuses, inside a transaction on this store, a call that would wait for what itself waits for the transaction's end. */
export function refuseInside(store: Store, call: string): void {
  if (openTransaction(store) === undefined) return
  throw new MillraceError(
    'IN_TRANSACTION',
    `${call} was called inside a transaction, and would wait for what can happen only after that. Call it when the transaction has ended.`,
  )
}

/** Runs work inside a place. */
export function runInside<T>(place: TransactionPosition, work: () => T): T {
  return places.run(place, work)
}

/**
 * The code running now, and all that follows from it, is inside a place from here on. Whoever called that code goes back
 * to where it was with `leaveTo`.
 */
export function enter(place: TransactionPosition): void {
  places.enterWith(place)
}

/** The place that the code running now is inside of. */
export function placeNow(): TransactionPosition | undefined {
  return places.getStore()
}

/** Goes back to a place that `placeNow` gave. */
export function leaveTo(place: TransactionPosition | undefined): void {
  if (places.getStore() !== place) places.enterWith(place)
}

/** Runs work outside of any place: what loops and timers do is nobody's, whoever happened to wake them. */
export function outside<T>(work: () => T): T {
  return places.getStore() === undefined ? work() : places.run(undefined, work)
}

/** Refuses a transaction where there can be none. */
export function refuseWithout(store: Store): void {
  if (store.can.transactions) return
  throw new MillraceError(
    'INVALID_TRANSACTION',
    `The ${store.name} store has no transactions. Leave \`tx\` out, or use a store that has them: sqlite or postgres.`,
  )
}

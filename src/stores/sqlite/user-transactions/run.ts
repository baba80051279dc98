// stores/sqlite/user-transactions/run.ts: what the store does inside transactions that are somebody else's to end.
import { MillraceError, isMillraceError } from '../../../job/errors.js'
import type { Runtime } from '../../../store/runtime.js'
import { step, stepwise } from '../../../store/maybe-sync.js'
import type { Steps } from '../../../store/maybe-sync.js'
import type { Batch, Receipt, Tx } from '../../../store/store.js'
import { secondCopy } from '../library-copies.js'
import type { SqliteHandle } from '../driver.js'
import { nameOf } from '../errors.js'
import type { EventFeed } from '../events.js'
import type { UserTransaction, TransactionWork } from './adapter.js'
import { UserTransactions } from './detect.js'
import { reduceWithin } from '../reduce.js'
import { VERSION } from '../schema.js'
import { Transaction } from '../transaction.js'
import { TransactionWatch } from './watch.js'

/** The store that is visited from. */
export interface Home {
  readonly runtime: Runtime
  /** Where it is: a file, or the one handle through which its memory can be reached. */
  readonly path: string | undefined
  readonly handle: SqliteHandle | undefined
  /** Changes whenever another connection has committed; undefined where that cannot be seen. */
  readonly version: unknown
  /** Whether the store's own connection sees that another one of this process holds the lock to write. */
  seesLock(): boolean
  /** Looks what has come of transactions; `ended`: one of them is over, and others may have to be woken. */
  visited(ended: boolean): void
}

/** Writes and reads in transactions of others. Nothing is remembered from one call to the next: they may be rolled back. */
export class TransactionRunner {
  readonly #home: Home
  /** Nobody listens here: it tells the store's own listeners as those of any other handle. */
  readonly #feed: EventFeed
  readonly #guests: UserTransactions
  readonly #vigil: TransactionWatch
  #tells = false

  constructor(home: Home, feed: EventFeed) {
    this.#home = home
    this.#feed = feed
    this.#guests = new UserTransactions(home)
    this.#vigil = new TransactionWatch(home.runtime, (ended) => home.visited(ended))
  }

  /** Applies groups in a transaction. `watched`: somebody else sees to it that the others are woken when it has ended. */
  *committing(tx: Tx, batch: Batch, watched: boolean): Steps<Receipt> {
    const guest = yield* this.#guests.of(tx)
    const now = this.#home.runtime.now()
    const feed = this.#feed
    const { receipt, wakes } = yield* step(
      guest.write((ground) => {
        this.#checkLock(guest)
        const transaction = new Transaction(ground, new Map(), now, feed.recording(ground, now))
        const answer = reduceWithin(transaction, batch)
        const tells = feed.record(transaction)
        transaction.keep()
        return { receipt: answer, wakes: tells }
      }),
    )
    if (wakes) {
      this.#tells = true
      if (!watched) this.#vigil.keep(this.#watched(guest))
    }
    return receipt
  }

  /**
   * A transaction that has the lock to write, and whose lock the store's own connection does not see, belongs to another copy
   * of SQLite. Looked at once for each transaction that could not be told by its handle.
   */
  #checkLock(guest: UserTransaction): void {
    const { path, handle } = this.#home
    if (path === undefined || handle === undefined || this.#guests.isProven(guest)) return
    if (!this.#home.seesLock()) throw secondCopy(path)
    this.#guests.proven(guest)
  }

  /** Whether others may have to be woken for what was written since this was last asked. */
  tells(): boolean {
    const tells = this.#tells
    this.#tells = false
    return tells
  }

  /** Reads in a transaction. */
  *reading<T>(tx: Tx, work: TransactionWork<T>): Steps<T> {
    const guest = yield* this.#guests.of(tx)
    return yield* step(guest.read(work))
  }

  /** Runs work in a savepoint of a transaction; `isOver`: whether that has ended, where the connection alone does not tell. */
  async savepoint<T>(tx: Tx, work: () => Promise<T>, isOver?: () => boolean): Promise<T> {
    const guest = await stepwise(this.#guests.of(tx))
    return guest.savepoint(work, isOver)
  }

  /** Makes sure that the tables are there, before the store has been opened: nobody can wait for that in a transaction. */
  *checking(tx: Tx): Steps<void> {
    let found: unknown
    try {
      found = yield* this.reading(tx, ({ sql }) => sql.schemaVersion.get()?.[0])
    } catch (error) {
      if (!isMillraceError(error, 'DATABASE_FAILED')) throw error
    }
    if (found === VERSION) return
    throw new MillraceError(
      'STORE_NOT_OPEN',
      `The store in ${nameOf(this.#home.path)} has not been opened, and its tables are not there as they should be. Call await store.open() before the transaction begins.`,
    )
  }

  close(): void {
    this.#vigil.close()
  }

  /** One that cannot tell whether it is over is taken to be when anybody has committed. */
  #watched(guest: UserTransaction): { readonly over: boolean | undefined } {
    if (guest.over !== undefined) return guest
    const home = this.#home
    const before = home.version
    return {
      get over(): boolean | undefined {
        return before !== home.version || undefined
      },
    }
  }
}

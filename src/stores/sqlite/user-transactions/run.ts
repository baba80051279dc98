// stores/sqlite/user-transactions/run.ts: the store's commits and reads inside transactions that the user ends.
import { MillraceError, isMillraceError } from '../../../job/errors/errors.js'
import type { Runtime } from '../../../store/runtime.js'
import { step, runSteps } from '../../../store/maybe-sync.js'
import type { Steps } from '../../../store/maybe-sync.js'
import type { Batch, Receipt, Tx } from '../../../store/store.js'
import { Notices } from '../../../engine/notices.js'
import { applyChanges } from '../../../engine/reduce.js'
import { secondCopy } from '../file/library-copies.js'
import type { DatabaseClass, SqliteHandle } from '../file/driver.js'
import { nameOf } from '../file/errors.js'
import type { EventFeed } from '../watchers.js'
import { fastPaths } from '../fast-paths.js'
import type { UserTransaction, TransactionWork } from './adapter.js'
import { UserTransactions } from './detect.js'
import { checkSchema } from '../file/migrate.js'
import { schema } from '../schema.js'
import { SqliteWorkspace } from '../workspace.js'
import { TransactionWatch } from './watch.js'

/** The store that works in user transactions. */
export interface HostStore {
  readonly runtime: Runtime
  /** Where it is: a file, or the only handle that reaches its memory. */
  readonly path: string | undefined
  readonly handle: SqliteHandle | undefined
  /** Changes whenever another connection has committed; undefined if that cannot be detected. */
  readonly version: unknown
  /**
   * Whether the store's own connection sees that a connection which has the write lock does have it. Another handle of
   * the store's copy that has the lock, too, cannot be distinguished from it, unless it is the store's own.
   */
  seesLock(): boolean
  /** Publishes the commits of user transactions; `ended`: one has ended, and other processes may have to be woken. */
  publishUserCommits(ended: boolean): void
}

/** Writes and reads in user transactions. Nothing is cached between calls, because transactions may be rolled back. */
export class TransactionRunner {
  readonly #store: HostStore
  /** Has no watchers: it notifies the store's own watchers as another handle would. */
  readonly #feed: EventFeed
  readonly #transactions: UserTransactions
  readonly #watch: TransactionWatch
  #hasNotices = false

  constructor(store: HostStore, feed: EventFeed) {
    this.#store = store
    this.#feed = feed
    this.#transactions = new UserTransactions(store)
    this.#watch = new TransactionWatch(store.runtime, (ended) => store.publishUserCommits(ended))
  }

  /** Applies groups in a transaction. `watched`: the caller wakes other processes when the transaction has ended. */
  *committing(tx: Tx, batch: Batch, watched: boolean): Steps<Receipt> {
    const userTransaction = yield* this.#transactions.of(tx)
    const now = this.#store.runtime.now()
    const feed = this.#feed
    const { receipt, wakes } = yield* step(
      userTransaction.write((cache) => {
        this.#checkLock(userTransaction)
        checkSchema(cache.sql.schemaVersion.get(), schema, this.#store.path)
        const workspace = new SqliteWorkspace(cache, new Map(), now)
        const notices = new Notices(workspace, now, feed.recording(cache, now))
        const result = applyChanges({ workspace, now, notices, fast: fastPaths(workspace) }, batch)
        const hasNotices = feed.record(workspace, notices)
        workspace.writeNumbers()
        return { receipt: result, wakes: hasNotices }
      }),
    )
    if (wakes) {
      this.#hasNotices = true
      if (!watched) this.#watch.add(this.#watched(userTransaction))
    }
    return receipt
  }

  /**
   * A transaction with the write lock whose lock the store's own connection does not see uses another copy of SQLite.
   * Checked once for each transaction whose handle did not show this.
   */
  #checkLock(userTransaction: UserTransaction): void {
    const { path, handle } = this.#store
    if (path === undefined || handle === undefined || this.#transactions.isSameCopy(userTransaction)) return
    if (!this.#store.seesLock()) throw secondCopy(path)
    this.#transactions.markSameCopy(userTransaction)
  }

  /** Whether notices were written since the last call, for which other processes may have to be woken. */
  takeNotices(): boolean {
    const hasNotices = this.#hasNotices
    this.#hasNotices = false
    return hasNotices
  }

  /** Reads in a transaction. */
  *reading<T>(tx: Tx, work: TransactionWork<T>): Steps<T> {
    const userTransaction = yield* this.#transactions.of(tx)
    return yield* step(userTransaction.read(work))
  }

  /** Runs work in a savepoint of a transaction; `isOver` reports its end where the connection alone does not show it. */
  async savepoint<T>(tx: Tx, work: () => Promise<T>, isOver?: () => boolean): Promise<T> {
    const userTransaction = await runSteps(this.#transactions.of(tx))
    return userTransaction.savepoint(work, isOver)
  }

  /** Checks that the tables exist, before the store is open: a transaction cannot wait for the store to open. */
  *checking(tx: Tx): Steps<void> {
    let found: unknown
    try {
      found = yield* this.reading(tx, ({ sql }) => sql.schemaVersion.get()?.[0])
    } catch (error) {
      if (!isMillraceError(error, 'DATABASE_FAILED')) throw error
    }
    if (typeof found === 'number' && found >= schema.version) return
    throw new MillraceError(
      'STORE_NOT_OPEN',
      `The store in ${nameOf(this.#store.path)} has not been opened, and its tables are not there as they should be. Call await store.open() before the transaction begins.`,
    )
  }

  /** Throws if an open transaction is known to use another copy of SQLite than a driver that is about to open the file. */
  checkDriver(path: string, Driver: DatabaseClass): Promise<void> {
    return this.#transactions.checkDriver(path, Driver, this.#store.runtime)
  }

  close(): void {
    this.#watch.close()
  }

  /** A transaction that cannot report its end counts as ended when any connection has committed. */
  #watched(userTransaction: UserTransaction): { readonly over: boolean | undefined } {
    if (userTransaction.over !== undefined) return userTransaction
    const store = this.#store
    const before = store.version
    return {
      get over(): boolean | undefined {
        return before !== store.version || undefined
      },
    }
  }
}

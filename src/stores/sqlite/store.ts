// stores/sqlite/store.ts: the store in a SQLite file. A commit is one synchronous transaction.
import { MillraceError } from '../../job/errors/errors.js'
import type { JobRecord, Millis } from '../../job/job.js'
import { flag } from '../../job/values/options.js'
import { openTransaction, refuseInside } from '../../store/transaction-context.js'
import type { Runtime, Stop } from '../../store/runtime.js'
import { runSteps } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Batch, DisposableStore, Receipt, Store, Tx } from '../../store/store.js'
import { PRESENCE_EVERY } from '../listeners.js'
import { Waits, ReadLoop } from '../read-loop.js'
import type { Database, SqliteHandle } from './file/driver.js'
import { isBusy, toStoreError } from './file/errors.js'
import { EventFeed } from './watchers.js'
import { isFiltered } from '../../store/read-pages.js'
import { find } from './find.js'
import { findFiltered } from './find-filtered.js'
import type { SqliteTransaction, SqliteTx } from './user-transactions/detect.js'
import { CommitQueue } from './commits/commit-queue.js'
import { Connection } from './connection.js'
import type { ReadSource } from './connection.js'
import { checkTarget, openAnother, openDatabase } from './file/open.js'
import { parseOptions } from './options.js'
import type { Settings, SqliteOptions } from './options.js'
import { retryWhileBusy } from './file/busy-retry.js'
import { details, due, getSome, tally } from './read.js'
import { schema } from './schema.js'
import { OwnTransactions } from './user-transactions/own.js'
import { TransactionRunner } from './user-transactions/run.js'
import { ThreadStore } from './thread/store.js'
import { startThread } from './thread/start.js'
import { listenForWakeups, wakeOthers } from './file/wakeup.js'

/**
 * Maximum number of changes in a batch, and of jobs claimed beyond free slots: a few milliseconds of work; more gains
 * little.
 */
const PORTION = 250

/** A read that took this long is followed by a turn of the event loop. */
const LONG_READ: Millis = 5

/** The handle that `queue.transaction` passes: of the same class as the handle that the store was given. */
type GivenFor<Target> = Target extends SqliteHandle ? Target : SqliteTransaction

/**
 * A store in one SQLite file that runs in a thread of this process, so that a sync of the disk never holds the event loop.
 * It has no transactions.
 */
export function sqlite(path: string, options: SqliteOptions & { readonly thread: true }): DisposableStore<never>
/**
 * A store in one SQLite file, for all processes of a machine. `path` is created if it does not exist; `':memory:'` is a
 * store for this process alone. Instead of a path it takes an open handle of `better-sqlite3` or `node:sqlite`, and
 * opens its own connection to the same file.
 */
export function sqlite<Target extends string | SqliteHandle>(
  target: Target,
  options?: SqliteOptions,
): DisposableStore<GivenFor<Target>, SqliteTx>
export function sqlite(target: string | SqliteHandle, options: SqliteOptions = {}): Store & AsyncDisposable {
  return threadOf(target, options) ?? new SqliteStore(target, options)
}

/** The store in a thread of its own, if that is what the options say. */
function threadOf(
  target: string | SqliteHandle,
  { thread = false, ...options }: SqliteOptions,
): ThreadStore | undefined {
  if (!flag(thread, 'sqlite: thread')) return undefined
  parseOptions(options)
  const path = checkTarget(target, { synchronous: options.synchronous, driver: options.driver })
  if (typeof target !== 'string' || options.runtime !== undefined) throw staysHere(typeof target === 'string')
  const share = path === undefined ? 'process' : 'machine'
  return new ThreadStore({ share, portion: PORTION, start: () => startThread({ path: path ?? target, options }) })
}

function staysHere(runtime: boolean): MillraceError {
  const what = runtime ? 'a runtime of your own' : 'an open handle'
  return new MillraceError(
    'INVALID_OPTION',
    `sqlite: { thread: true } takes a path and the system's clock, because ${what} cannot be handed to a thread. Leave one of the two out.`,
  )
}

class SqliteStore implements DisposableStore {
  readonly name = 'sqlite'
  readonly can
  readonly runtime: Runtime
  readonly #target: string | SqliteHandle
  readonly #path: string | undefined
  readonly #settings: Settings
  readonly #waits: Waits
  readonly #feed: EventFeed
  readonly #userTransactions: TransactionRunner
  readonly #ownTransactions: OwnTransactions
  readonly #commits: CommitQueue
  #opening: Promise<Connection> | undefined
  #connection: Connection | undefined
  #closed = false
  #closing: Promise<void> | undefined
  #stopListening: Stop | undefined

  constructor(target: string | SqliteHandle, options: SqliteOptions) {
    this.#settings = parseOptions(options)
    const { runtime, patience } = this.#settings
    this.#path = checkTarget(target, { synchronous: options.synchronous, driver: options.driver })
    // An absolute path stays valid if the working directory changes.
    this.#target = typeof target === 'string' ? (this.#path ?? target) : target
    this.runtime = runtime
    const share = this.#path === undefined ? 'process' : 'machine'
    this.can = { transactions: true, share, portion: PORTION, synchronous: true } as const
    this.#waits = new Waits(runtime)
    const readLoop = new ReadLoop(() => this.#readNotices(), this.#waits)
    this.#feed = new EventFeed(runtime.id(), this.#settings, {
      readSoon: () => readLoop.want(),
      page: (after) => this.#onConnection((connection) => connection.page(this.#feed, after)),
      waits: this.#waits,
    })
    this.#userTransactions = new TransactionRunner(this, new EventFeed(runtime.id(), this.#settings))
    this.#ownTransactions = new OwnTransactions(runtime, patience, this.#path, () => this.#connectAnother())
    this.#commits = new CommitQueue({
      runtime,
      patience,
      connection: () => this.#connection,
      open: () => this.#open(),
      prepare: (connection) => this.#prepareCommit(connection),
      commit: (connection, batch) => connection.commit(batch, this.#feed),
      commitTogether: (connection, next) => connection.commitTogether(next, this.#feed),
      ownTransaction: () => this.#ownTransactions.open,
    })
  }

  async open(): Promise<void> {
    await this.#open()
  }

  /** Not an async function: inside a user transaction everything must be written when this returns. */
  commit(batch: Batch, tx?: Tx): Promise<Receipt> {
    return tx === undefined ? this.#commits.commit(batch) : this.#within(this.#committing(tx, batch))
  }

  #prepareCommit(connection: Connection): void {
    this.#check()
    if (this.#feed.isNew) this.#announceNow(connection)
  }

  get: Store['get'] = (ids, tx) => {
    // With a synchronous driver, reads inside a transaction are done before this returns.
    if (tx !== undefined || ids.length <= 1)
      return this.#readIn(({ cache }) => ids.map((id) => cache.byId(id)?.job), tx)
    return this.#getMany(ids)
  }

  /** Yields to the event loop between portions. */
  async #getMany(ids: readonly string[]): Promise<readonly (JobRecord | undefined)[]> {
    const found: (JobRecord | undefined)[] = []
    for (;;) {
      found.push(...(await this.#readIn(({ cache }) => getSome(cache, ids.slice(found.length)))))
      if (found.length >= ids.length) return found
      await new Promise<void>((next) => this.runtime.defer(next))
    }
  }

  find: Store['find'] = (query, tx) =>
    this.#readIn(({ cache, list }) => (isFiltered(query) ? findFiltered : find)(cache, list, query), tx)
  details: Store['details'] = (query, tx) => this.#readIn(({ cache }) => details(cache, query), tx)
  tally: Store['tally'] = (queues, tx, { heads = false } = {}) =>
    this.#readIn(({ cache }) => tally(cache, queues, heads ? this.runtime.now() : undefined), tx)
  due: Store['due'] = (query) => this.#readIn(({ cache }) => due(cache, query, this.runtime.now()))

  watch: Store['watch'] = (what, listener) => {
    this.#check()
    const stop = this.#feed.watch(what, listener, () => this.#watcherLeft())
    void this.#announce()
    return stop
  }

  async transact<T>(work: (tx: unknown) => Promise<T>, within?: Tx): Promise<T> {
    if (within !== undefined) {
      const handle = await this.#within(this.#handleFor(within))
      if (!this.#ownTransactions.isOwn(within)) return this.#userTransactions.savepoint(handle, () => work(within))
      return this.#ownTransactions.nested(within, work, (inside, isOver) =>
        this.#userTransactions.savepoint(handle, inside, isOver),
      )
    }
    refuseInside(this, 'store.transact()')
    const connection = this.#connection ?? (await this.#open())
    const begin = (): void => {
      this.#check()
      connection.checkFile()
      if (this.#feed.isNew) this.#announceNow(connection)
    }
    return this.#ownTransactions.run(work, begin, () => {
      connection.checkpointer?.afterCommit()
      this.publishUserCommits(true)
    })
  }

  /** Runs work inside a user transaction. If the driver is synchronous, all of it must be done when this returns. */
  #within<T>(work: Steps<T>): Promise<T> {
    try {
      this.#check()
    } catch (error) {
      return Promise.reject(error)
    }
    return runSteps(work)
  }

  /** The connection of a transaction, after checking that the tables exist. */
  *#handleFor(tx: Tx): Steps<Tx> {
    const handle = this.#ownTransactions.handleOf(tx)
    if (this.#connection === undefined) yield* this.#userTransactions.checking(handle)
    if (this.path === undefined) this.#connection?.invalidate()
    return handle
  }

  *#committing(tx: Tx, batch: Batch): Steps<Receipt> {
    return yield* this.#userTransactions.committing(yield* this.#handleFor(tx), batch, this.#ownTransactions.isOwn(tx))
  }

  *#reading<T>(tx: Tx, work: (from: ReadSource) => T): Steps<T> {
    return yield* this.#userTransactions.reading(yield* this.#handleFor(tx), (cache, list) => work({ cache, list }))
  }

  /** Reads in the transaction given, or on the store's own connection. */
  #readIn<T>(work: (from: ReadSource) => T, tx?: Tx): Promise<T> {
    // In memory there is no other connection, and a caller inside a transaction must not wait for its end.
    const inside = tx === undefined && this.path === undefined ? openTransaction(this)?.tx : tx
    return inside === undefined ? this.#read(work) : this.#within(this.#reading(inside, work))
  }

  /** @internal */
  get path(): string | undefined {
    return this.#connection?.path ?? this.#path
  }

  /** @internal */
  get handle(): SqliteHandle | undefined {
    return this.#connection?.db.handle
  }

  /** @internal */
  get version(): unknown {
    return this.#connection?.cache.sql.dataVersion.get()?.[0]
  }

  /** @internal */
  seesLock(): boolean {
    const { db } = this.#connection!
    if (this.#ownTransactions.open !== undefined) return false // that one has the lock
    try {
      db.exec('BEGIN IMMEDIATE')
    } catch (error) {
      if (isBusy(error)) return true
      throw error
    }
    db.exec('ROLLBACK')
    return false
  }

  /** @internal Publishes the commits of user transactions here, and wakes other processes if one may have committed. */
  publishUserCommits(ended: boolean): void {
    const connection = this.#connection
    let found = false
    try {
      if (connection !== undefined && this.#feed.watched && !connection.db.inTransaction)
        found = connection.readNotices(this.#feed)
    } catch {
      // It is read again soon.
    }
    const wakesOthers = ended ? this.#userTransactions.takeNotices() : found
    if (wakesOthers && this.path !== undefined) wakeOthers(this.path)
  }

  /** A connection for transactions of the store's own. */
  #connectAnother(): Database {
    const { db } = this.#connection!
    return db.path === undefined ? db : openAnother(db, this.#settings.synchronous)
  }

  close(): Promise<void> {
    try {
      refuseInside(this, 'store.close()')
    } catch (error) {
      return Promise.reject(error)
    }
    return (this.#closing ??= this.#close())
  }

  /** The same as `close()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #close(): Promise<void> {
    this.#commits.flush()
    this.#closed = true
    this.#feed.close()
    this.#waits.close()
    this.publishUserCommits(true)
    this.#userTransactions.close()
    this.#stopListening?.()
    const connection = await this.#opening?.catch(() => undefined)
    await this.#ownTransactions.close(connection?.path === undefined ? connection?.db : undefined)
    this.#connection = undefined
    if (connection === undefined) return
    connection.checkpointer?.close()
    try {
      connection.transaction(() => this.#feed.announce(connection.cache, this.runtime.now()))
    } catch {
      // The announcement expires by itself.
    }
    connection.db.close()
  }

  #check(): void {
    if (!this.#closed) return
    throw new MillraceError(
      'STORE_CLOSED',
      'The SQLite store was used after it was closed. Close workers and queues first; shutdown([...]) does.',
    )
  }

  async #open(): Promise<Connection> {
    this.#check()
    this.#opening ??= this.#openNow().catch((error: unknown) => {
      this.#opening = undefined // so that the next call tries again
      throw error
    })
    const connection = await this.#opening
    this.#check()
    return connection
  }

  async #openNow(): Promise<Connection> {
    const { synchronous, driver, patience } = this.#settings
    const settings = { synchronous, driver, patience, schema }
    const db = await openDatabase(this.#target, settings, this.runtime, (path, Driver) =>
      this.#userTransactions.checkDriver(path, Driver),
    )
    let connection: Connection
    try {
      connection = new Connection(db, this.runtime)
    } catch (error) {
      db.close()
      throw toStoreError(error, db.path)
    }
    if (!this.#closed) this.#connection = connection
    return connection
  }

  /** Runs work when the file is not locked; fails only if another program keeps it locked for long. */
  #retryWhileBusy<T>(work: () => T): Promise<T> {
    return retryWhileBusy(
      this.runtime,
      this.#connection?.path,
      () => {
        this.#check()
        return work()
      },
      this.#settings.patience,
      () => this.#ownTransactions.open,
    )
  }

  async #read<T>(work: (from: ReadSource) => T): Promise<T> {
    let took = 0
    const result = await this.#onConnection((connection) => {
      const began = this.runtime.elapsed()
      const found = connection.snapshot(() => work(connection))
      took = this.runtime.elapsed() - began
      return found
    })
    // Otherwise a caller that reads one page after the other would block the event loop until the last.
    if (took >= LONG_READ) await this.#waits.nextLoopTurn()
    return result
  }

  async #onConnection<T>(work: (connection: Connection) => T): Promise<T> {
    const connection = this.#connection ?? (await this.#open())
    return this.#retryWhileBusy(() => {
      // A caller that watches and then reads must get all notices after what it read.
      if (this.#feed.isNew) this.#announceNow(connection)
      return work(connection)
    })
  }

  /**
   * Reads the next notices of other handles, in a turn of the event loop of its own. The feed requests another read if
   * there is more.
   */
  async #readNotices(): Promise<boolean> {
    await this.#waits.nextLoopTurn()
    if (!this.#closed && this.#feed.watched) this.#connection?.readNotices(this.#feed)
    return false
  }

  /** Announces to other handles that this one watches. */
  async #announce(): Promise<void> {
    try {
      const connection = this.#connection ?? (await this.#open())
      await this.#retryWhileBusy(() => {
        if (this.#feed.isNew) this.#announceNow(connection)
      })
    } catch {
      // Callers of the store get this error themselves; a commit announces before anything else.
      if (!this.#closed && this.#feed.isNew) this.runtime.timer(1_000, () => void this.#announce())
    }
  }

  #announceNow(connection: Connection): void {
    connection.transaction(() => this.#feed.announce(connection.cache, this.runtime.now()))()
    this.#listen(connection)
  }

  /** Listens for wake-ups of other processes, and renews the announcement, as long as there are watchers here. */
  #listen(connection: Connection): void {
    const { path } = connection
    if (this.#stopListening !== undefined || path === undefined || this.#closed || !this.#feed.watched) return
    const version = connection.db.prepare('PRAGMA data_version')
    let last: unknown
    const look = (): boolean => {
      try {
        const [now] = version.get()!
        if (now === last) return false
        const found = connection.readNotices(this.#feed)
        last = now
        return found
      } catch {
        return false // it is read again soon
      }
    }
    const stopWakeups = listenForWakeups(path, this.runtime, look)
    let stopTimer: Stop
    const arm = (): void => {
      stopTimer = this.runtime.timer(PRESENCE_EVERY, () => {
        void this.#retryWhileBusy(() => {
          if (this.#feed.watched) this.#announceNow(connection)
        }).catch(() => {})
        arm()
      })
    }
    arm()
    this.#stopListening = () => {
      this.#stopListening = undefined
      stopWakeups()
      stopTimer()
    }
  }

  /** After the last watcher has left, stops listening and announces that. */
  #watcherLeft(): void {
    if (this.#feed.watched || this.#closed) return
    this.#stopListening?.()
    const connection = this.#connection
    if (connection === undefined) return
    void this.#retryWhileBusy(() => {
      connection.transaction(() => this.#feed.announce(connection.cache, this.runtime.now()))()
    }).catch(() => {})
  }
}

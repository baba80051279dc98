// stores/sqlite/store.ts: the store in a SQLite file. A commit is one transaction, made without waiting inside it.
import { MillraceError } from '../../job/errors.js'
import type { JobRecord } from '../../job/job.js'
import { openTransaction, refuseInside } from '../../store/transaction-context.js'
import type { Runtime, Stop } from '../../store/runtime.js'
import { stepwise } from '../../store/maybe-sync.js'
import type { Steps } from '../../store/maybe-sync.js'
import type { Batch, Receipt, Store, Tx } from '../../store/store.js'
import { PRESENT_EVERY } from '../listeners.js'
import { Waits, ReadLoop } from '../read-loop.js'
import type { Database, SqliteHandle } from './driver.js'
import { isBusy, toStoreError } from './errors.js'
import { EventFeed } from './events.js'
import { find } from './find.js'
import type { SqliteTransaction, SqliteTx } from './user-transactions/detect.js'
import { Connection } from './connection.js'
import type { Reading } from './connection.js'
import { checkTarget, openAnother, openDatabase } from './open.js'
import { parseOptions } from './options.js'
import type { Settings, SqliteOptions } from './options.js'
import { whenFree } from './busy-retry.js'
import { details, due, getSome, tally } from './read.js'
import { schema, steps, VERSION } from './schema.js'
import { OwnTransactions } from './user-transactions/own.js'
import { TransactionRunner } from './user-transactions/run.js'
import { wakeOthers, wakeups } from './wakeup.js'

/** Changes in a batch, and jobs claimed with it beyond free slots: a few milliseconds of work, and little is won with more. */
const PORTION = 250

/** What `queue.transaction` gives: a handle of the same class as the one that the store was given. */
type GivenFor<Target> = Target extends SqliteHandle ? Target : SqliteTransaction

/**
 * A store in one SQLite file, for all processes of a machine. `path` is created if need be; `':memory:'` is a store for
 * this process alone. Instead of a path it takes an open handle of `better-sqlite3` or `node:sqlite`, and opens a
 * connection of its own to the same file.
 */
export function sqlite<Target extends string | SqliteHandle>(
  target: Target,
  options: SqliteOptions = {},
): Store<GivenFor<Target>, SqliteTx> {
  return new SqliteStore(target, options) as Store<GivenFor<Target>, SqliteTx>
}

class SqliteStore implements Store {
  readonly name = 'sqlite'
  readonly can
  readonly runtime: Runtime
  readonly #target: string | SqliteHandle
  readonly #path: string | undefined
  readonly #settings: Settings
  readonly #pauses: Waits
  readonly #feed: EventFeed
  readonly #visits: TransactionRunner
  readonly #transactions: OwnTransactions
  #opening: Promise<Connection> | undefined
  #opened: Connection | undefined
  #closed = false
  #closing: Promise<void> | undefined
  #stopListening: Stop | undefined

  constructor(target: string | SqliteHandle, options: SqliteOptions) {
    this.#settings = parseOptions(options)
    const { runtime, patience } = this.#settings
    this.#path = checkTarget(target, { synchronous: options.synchronous, driver: options.driver })
    this.#target = typeof target === 'string' ? (this.#path ?? target) : target // found even if the working folder changes
    this.runtime = runtime
    const share = this.#path === undefined ? 'process' : 'machine'
    this.can = { transactions: true, share, portion: PORTION, synchronous: true } as const
    this.#pauses = new Waits(runtime)
    const reading = new ReadLoop(() => this.#readOn(), this.#pauses)
    this.#feed = new EventFeed(runtime.id(), this.#settings, {
      soon: () => reading.want(),
      page: (after) => this.#reached((opened) => opened.page(this.#feed, after)),
      pauses: this.#pauses,
    })
    this.#visits = new TransactionRunner(this, new EventFeed(runtime.id(), this.#settings))
    this.#transactions = new OwnTransactions(runtime, patience, this.#path, () => this.#another())
  }

  async open(): Promise<void> {
    await this.#open()
  }

  /** Not an async function: within a transaction of the user's, all must be written when it returns. */
  commit(batch: Batch, tx?: Tx): Promise<Receipt> {
    return tx === undefined ? this.#commitBatch(batch) : this.#within(this.#committing(tx, batch))
  }

  async #commitBatch(batch: Batch): Promise<Receipt> {
    const opened = this.#opened ?? (await this.#open())
    if (opened.isTired) await opened.rest()
    return this.#whenFree(() => this.#commit(opened, batch))
  }

  #commit(opened: Connection, batch: Batch): Receipt {
    if (this.#feed.isNew) this.#announceNow(opened)
    return opened.commit(batch, this.#feed)
  }

  get: Store['get'] = (ids, tx) => {
    // With a synchronous driver, all that is asked for within a transaction is read before this returns.
    if (tx !== undefined || ids.length <= 1)
      return this.#look(({ ground }) => ids.map((id) => ground.byId(id)?.job), tx)
    return this.#getMany(ids)
  }

  /** Between portions, the event loop has its turn. */
  async #getMany(ids: readonly string[]): Promise<readonly (JobRecord | undefined)[]> {
    const found: (JobRecord | undefined)[] = []
    for (;;) {
      found.push(...(await this.#look(({ ground }) => getSome(ground, ids.slice(found.length)))))
      if (found.length >= ids.length) return found
      await new Promise<void>((next) => this.runtime.defer(next))
    }
  }

  find: Store['find'] = (query, tx) => this.#look(({ ground, list }) => find(ground, list, query), tx)
  details: Store['details'] = (query, tx) => this.#look(({ ground }) => details(ground, query), tx)
  tally: Store['tally'] = (queues, tx) => this.#look(({ ground }) => tally(ground, queues), tx)
  due: Store['due'] = (query) => this.#look(({ ground }) => due(ground, query, this.runtime.now()))

  watch: Store['watch'] = (what, listener) => {
    this.#check()
    const stop = this.#feed.watch(what, listener, () => this.#left())
    void this.#announce()
    return stop
  }

  async transact<T>(work: (tx: unknown) => Promise<T>, within?: Tx): Promise<T> {
    if (within !== undefined) {
      const handle = await this.#within(this.#ready(within))
      if (!this.#transactions.isOwn(within)) return this.#visits.savepoint(handle, () => work(within))
      return this.#transactions.nested(within, work, (inside, isOver) => this.#visits.savepoint(handle, inside, isOver))
    }
    refuseInside(this, 'store.transact()')
    const opened = this.#opened ?? (await this.#open())
    const begin = (): void => {
      this.#check()
      opened.glance()
      if (this.#feed.isNew) this.#announceNow(opened)
    }
    return this.#transactions.run(work, begin, () => {
      opened.log?.committed()
      this.visited(true)
    })
  }

  /** Works in somebody's transaction, where all must be done when this returns if the driver is synchronous. */
  #within<T>(work: Steps<T>): Promise<T> {
    try {
      this.#check()
    } catch (error) {
      return Promise.reject(error)
    }
    return stepwise(work)
  }

  /** The connection of a transaction, once what is needed there is known to be there. */
  *#ready(tx: Tx): Steps<Tx> {
    const handle = this.#transactions.handleOf(tx)
    if (this.#opened === undefined) yield* this.#visits.checking(handle)
    if (this.path === undefined) this.#opened?.suspect()
    return handle
  }

  *#committing(tx: Tx, batch: Batch): Steps<Receipt> {
    return yield* this.#visits.committing(yield* this.#ready(tx), batch, this.#transactions.isOwn(tx))
  }

  *#reading<T>(tx: Tx, work: (from: Reading) => T): Steps<T> {
    return yield* this.#visits.reading(yield* this.#ready(tx), (ground, list) => work({ ground, list }))
  }

  /** Reads in the transaction given, or on the store's own connection. */
  #look<T>(work: (from: Reading) => T, tx?: Tx): Promise<T> {
    // In memory there is no other connection, and who is inside a transaction must not wait for its end.
    const inside = tx === undefined && this.path === undefined ? openTransaction(this)?.tx : tx
    return inside === undefined ? this.#read(work) : this.#within(this.#reading(inside, work))
  }

  /** @internal */
  get path(): string | undefined {
    return this.#opened?.path ?? this.#path
  }

  /** @internal */
  get handle(): SqliteHandle | undefined {
    return this.#opened?.db.handle
  }

  /** @internal */
  get version(): unknown {
    return this.#opened?.ground.sql.dataVersion.get()?.[0]
  }

  /** @internal */
  seesLock(): boolean {
    const { db } = this.#opened!
    try {
      db.exec('BEGIN IMMEDIATE')
    } catch (error) {
      if (isBusy(error)) return true
      throw error
    }
    db.exec('ROLLBACK')
    return false
  }

  /** @internal Looks what has come of transactions that were not the store's own, and wakes others if one was committed. */
  visited(ended: boolean): void {
    const opened = this.#opened
    let found = false
    try {
      if (opened !== undefined && this.#feed.watched && !opened.db.inTransaction) found = opened.lookAround(this.#feed)
    } catch {
      // It is looked at again in a moment.
    }
    const wakes = ended ? this.#visits.tells() : found
    if (wakes && this.path !== undefined) wakeups(this.path)
  }

  /** A connection for transactions. */
  #another(): Database {
    const { db } = this.#opened!
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

  async #close(): Promise<void> {
    this.#closed = true
    this.#feed.close()
    this.#pauses.close()
    this.visited(true)
    this.#visits.close()
    this.#stopListening?.()
    const opened = await this.#opening?.catch(() => undefined)
    await this.#transactions.close(opened?.path === undefined ? opened?.db : undefined)
    this.#opened = undefined
    if (opened === undefined) return
    opened.log?.close()
    try {
      opened.transaction(() => this.#feed.announce(opened.ground, this.runtime.now()))
    } catch {
      // The others will find out that nobody is here.
    }
    opened.db.close()
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
    const opened = await this.#opening
    this.#check()
    return opened
  }

  async #openNow(): Promise<Connection> {
    const { synchronous, driver, patience } = this.#settings
    const settings = { synchronous, driver, patience, schema: { sql: schema, steps, version: VERSION } }
    const db = await openDatabase(this.#target, settings, this.runtime)
    let opened: Connection
    try {
      opened = new Connection(db, this.runtime)
    } catch (error) {
      db.close()
      throw toStoreError(error, db.path)
    }
    if (!this.#closed) this.#opened = opened
    return opened
  }

  /** Runs work while the file is free; it fails only if somebody holds it for long. */
  #whenFree<T>(work: () => T): Promise<T> {
    return whenFree(
      this.runtime,
      this.#opened?.path,
      () => {
        this.#check()
        return work()
      },
      this.#settings.patience,
      () => this.#transactions.open,
    )
  }

  async #read<T>(work: (from: Reading) => T): Promise<T> {
    return this.#reached((opened) => opened.snapshot(() => work(opened)))
  }

  async #reached<T>(work: (opened: Connection) => T): Promise<T> {
    const opened = this.#opened ?? (await this.#open())
    return this.#whenFree(() => {
      // Whoever watches and then reads must be told of everything that comes after what was read.
      if (this.#feed.isNew) this.#announceNow(opened)
      return work(opened)
    })
  }

  /** Reads the next of what others have told, in a turn of the event loop of its own. Whether there is more, the feed says. */
  async #readOn(): Promise<boolean> {
    await this.#pauses.turn()
    if (!this.#closed && this.#feed.watched) this.#opened?.lookAround(this.#feed)
    return false
  }

  /** Tells the other handles that somebody watches here, now and as long as that is so. */
  async #announce(): Promise<void> {
    try {
      const opened = this.#opened ?? (await this.#open())
      await this.#whenFree(() => {
        if (this.#feed.isNew) this.#announceNow(opened)
      })
    } catch {
      // Whoever uses the store hears of it there; a commit announces before anything else.
      if (!this.#closed && this.#feed.isNew) this.runtime.timer(1_000, () => void this.#announce())
    }
  }

  #announceNow(opened: Connection): void {
    opened.transaction(() => this.#feed.announce(opened.ground, this.runtime.now()))()
    this.#listen(opened)
  }

  /** Listens to other processes as long as anybody watches here. */
  #listen(opened: Connection): void {
    const { path } = opened
    if (this.#stopListening !== undefined || path === undefined || this.#closed || !this.#feed.watched) return
    const version = opened.db.prepare('PRAGMA data_version')
    let last: unknown
    const look = (): boolean => {
      try {
        const [now] = version.get()!
        if (now === last) return false
        const any = opened.lookAround(this.#feed)
        last = now
        return any
      } catch {
        return false // it is looked at again in a moment
      }
    }
    const stopWaking = wakeOthers(path, this.runtime, look)
    let stopTimer: Stop
    const arm = (): void => {
      stopTimer = this.runtime.timer(PRESENT_EVERY, () => {
        void this.#whenFree(() => {
          if (this.#feed.watched) this.#announceNow(opened)
        }).catch(() => {})
        arm()
      })
    }
    arm()
    this.#stopListening = () => {
      this.#stopListening = undefined
      stopWaking()
      stopTimer()
    }
  }

  /** A watcher has left; with the last one, so does this handle. */
  #left(): void {
    if (this.#feed.watched || this.#closed) return
    this.#stopListening?.()
    const opened = this.#opened
    if (opened === undefined) return
    void this.#whenFree(() => {
      opened.transaction(() => this.#feed.announce(opened.ground, this.runtime.now()))()
    }).catch(() => {})
  }
}

// stores/sqlite/connection.ts: the store's own connection: its transactions, and what it caches between them.
import { isMillraceError } from '../../job/errors/errors.js'
import type { MillraceError } from '../../job/errors/errors.js'
import type { Millis } from '../../job/job.js'
import type { Runtime } from '../../store/runtime.js'
import type { Batch, Receipt } from '../../store/store.js'
import { Notices } from '../../engine/notices.js'
import { applyBatch } from '../../engine/reduce.js'
import type { EventPage } from '../event-pages.js'
import { fileNumber } from './file/library-copies.js'
import { checkSchema } from './file/migrate.js'
import type { Database } from './file/driver.js'
import { busyHere, fileGone, isBusy, overwritten } from './file/errors.js'
import type { EventFeed } from './watchers.js'
import { fastPaths } from './fast-paths.js'
import { lister } from './find.js'
import type { Lister } from './find.js'
import type { LeasedById } from './fast-settle.js'
import { Cache } from './cache.js'
import { Checkpointer } from './file/checkpoint.js'
import { schema } from './schema.js'
import { prepareAll } from './statements.js'
import { wakeOthers } from './file/wakeup.js'
import { SqliteWorkspace } from './workspace.js'
import { Writers, writeReceipt } from './writers.js'

/** A commit of another handle within this time means that the file is shared at present. In milliseconds. */
const SHARED_WITHIN: Millis = 200

/** How long a handle may use a shared file before it yields to others, and for how long it yields. In milliseconds. */
const BUSY_LIMIT: Millis = 10
const YIELD_FOR: Millis = 2

/**
 * The shortest interval between checks that the file still exists, in milliseconds: a check costs as much as a small
 * statement.
 */
const FILE_CHECK_EVERY: Millis = 10

/** What reads run on. */
export interface ReadSource {
  readonly cache: Cache
  readonly list: Lister
}

/** What a batch came to inside its transaction; without notices it had been applied before. */
interface Applied {
  readonly receipt: Receipt
  readonly notices?: Notices
  readonly wakesOthers?: boolean
}

/** What became of one of several batches in a transaction. */
export type Outcome = Applied | { readonly error: unknown }

/** The next batch of a transaction, after what became of the one before it; undefined if there is no further one. */
export type NextBatch = (before: Outcome | undefined) => Batch | undefined

/** A connection of the store's own. */
export class Connection implements ReadSource {
  readonly db: Database
  readonly cache: Cache
  readonly list: Lister
  /** Undefined in memory. */
  readonly checkpointer: Checkpointer | undefined
  readonly #runtime: Runtime
  /** The identity of the file (device and inode), which shows if another file takes its path. */
  readonly #file: string | undefined
  readonly #leased: LeasedById = new Map()
  readonly #writers: Writers
  /** When another handle last wrote, and how long this one has used the file since it last yielded. */
  #othersWroteAt = -Infinity
  #busyTime: Millis = 0
  /** When the file was last seen to exist. */
  #fileCheckedAt = -Infinity
  #stale = false
  /** The last number assigned in a commit of this connection. */
  #number = 0
  /** Set once commits of this connection were found missing: nothing is written any more. */
  #overwritten: MillraceError | undefined

  constructor(db: Database, runtime: Runtime) {
    this.db = db
    this.#runtime = runtime
    this.cache = new Cache(prepareAll(db))
    this.list = lister((text) => db.prepare(text))
    this.checkpointer = db.path === undefined ? undefined : new Checkpointer(db.path, this.cache.sql, runtime)
    this.#writers = new Writers(db.path)
    this.#file = db.path === undefined ? undefined : fileNumber(db.path)
  }

  get path(): string | undefined {
    return this.db.path
  }

  /** Whether it has used the file for long enough to yield. */
  get shouldYield(): boolean {
    return this.#busyTime >= BUSY_LIMIT
  }

  /** Yields to other handles, if there are any: a handle that came back at once would always be first. */
  async yieldToOthers(): Promise<void> {
    this.#busyTime = 0
    const runtime = this.#runtime
    if (runtime.elapsed() - this.#othersWroteAt > SHARED_WITHIN) return
    await new Promise<void>((resolve) => void runtime.timer(1 + runtime.random() * YIELD_FOR, resolve))
  }

  /** Checks at intervals that the file still exists. */
  checkFile(): void {
    const now = this.#runtime.elapsed()
    if (this.#file === undefined || now - this.#fileCheckedAt < FILE_CHECK_EVERY) return
    if (fileNumber(this.path!) !== this.#file) throw fileGone(this.path!)
    this.#fileCheckedAt = now
  }

  /** Invalidates the cache: others may have written through this very connection, which SQLite does not report. */
  invalidate(): void {
    this.#stale = true
  }

  /** Runs work in one transaction. If it throws, the transaction has been rolled back. */
  transaction<T>(work: () => T): T {
    const { db, cache } = this
    this.#refuseNested()
    const { sql } = cache
    const began = this.#runtime.elapsed()
    this.checkFile()
    if (this.#overwritten !== undefined) throw this.#overwritten
    sql.begin.run()
    try {
      const change = cache.refresh()
      if (change !== 'same') {
        checkSchema(sql.schemaVersion.get(), schema, this.path)
        this.#writers.invalidate()
        if (this.path !== undefined && cache.numbers.number < this.#number) throw overwritten(this.path)
      }
      if (change === 'changed') this.#othersWroteAt = this.#runtime.elapsed()
      const result = work()
      sql.commit.run()
      this.#number = cache.numbers.number
      this.checkpointer?.afterCommit()
      return result
    } catch (error) {
      if (isMillraceError(error, 'DATABASE_OVERWRITTEN')) this.#overwritten = error
      if (db.inTransaction) sql.rollback.run()
      cache.forget()
      this.#leased.clear()
      throw error
    } finally {
      this.#busyTime += this.#runtime.elapsed() - began
    }
  }

  /** Applies a batch in a transaction of its own, and publishes its notices. */
  commit(batch: Batch, feed: EventFeed): Receipt {
    const applied = this.transaction(() => this.#apply(batch, feed))
    this.#committed([applied], feed)
    return applied.receipt
  }

  /**
   * Applies the batches that `next` returns in one transaction, each whole or, if it throws, not at all, and publishes
   * their notices once all are durable. No two may be of the same writer. If this throws, nothing was applied.
   */
  commitTogether(next: NextBatch, feed: EventFeed): readonly Outcome[] {
    const outcomes: Outcome[] = []
    this.transaction(() => {
      for (let batch = next(undefined); batch !== undefined; batch = next(outcomes.at(-1))) {
        outcomes.push(this.#applyApart(batch, feed))
      }
    })
    this.#committed(
      outcomes.filter((outcome) => 'receipt' in outcome),
      feed,
    )
    return outcomes
  }

  /** Applies a batch inside the open transaction. */
  #apply(batch: Batch, feed: EventFeed): Applied {
    const { cache } = this
    const before = this.#writers.replay(cache, batch)
    if (before !== undefined) return { receipt: before }
    const now = this.#runtime.now()
    const workspace = new SqliteWorkspace(cache, this.#leased, now)
    const notices = new Notices(workspace, now, feed.recording(cache, now))
    const { highestFence } = workspace
    const receipt = applyBatch({ workspace, now, notices, fast: fastPaths(workspace) }, batch)
    writeReceipt(workspace, batch, receipt, highestFence)
    const wakesOthers = feed.record(workspace, notices)
    workspace.writeNumbers()
    return { receipt, notices, wakesOthers }
  }

  /** Applies a batch inside the open transaction, which goes on without it if it fails. */
  #applyApart(batch: Batch, feed: EventFeed): Outcome {
    const { db, cache } = this
    const { sql } = cache
    sql.beginBatch.run()
    try {
      const applied = this.#apply(batch, feed)
      sql.keepBatch.run()
      return applied
    } catch (error) {
      // Some failures end the transaction, and some concern all of it.
      if (!db.inTransaction || isBusy(error) || isMillraceError(error, 'DATABASE_OVERWRITTEN')) throw error
      sql.rollbackBatch.run()
      sql.keepBatch.run()
      cache.forget()
      this.#leased.clear()
      return { error }
    }
  }

  /** Keeps the receipts of a transaction that is durable, and publishes its notices. */
  #committed(batches: readonly Applied[], feed: EventFeed): void {
    if (this.path !== undefined && batches.some(({ wakesOthers }) => wakesOthers)) wakeOthers(this.path)
    for (const { receipt, notices } of batches) {
      if (notices === undefined) continue
      this.#writers.keep(receipt)
      feed.publish(notices)
    }
  }

  /** Runs reads on one consistent snapshot. */
  snapshot<T>(work: () => T): T {
    const { db, cache } = this
    this.#refuseNested()
    cache.sql.beginRead.run()
    try {
      return work()
    } finally {
      // There is nothing to commit, and some failures have ended the transaction already.
      if (db.inTransaction) cache.sql.rollback.run()
    }
  }

  /** Reads the notices of other handles. Returns whether there were any. */
  readNotices(feed: EventFeed): boolean {
    return this.#refreshed(() => feed.readNotices(this.cache))
  }

  /** Reads a page of events. */
  page(feed: EventFeed, after: number): EventPage {
    return this.#refreshed(() => feed.page(this.cache, after))
  }

  /** Reads after refreshing the cache. */
  #refreshed<T>(work: () => T): T {
    return this.snapshot(() => {
      if (this.cache.refresh() !== 'same') this.#writers.invalidate()
      return work()
    })
  }

  #refuseNested(): void {
    if (this.db.inTransaction) throw busyHere('A transaction is open on this connection.')
    if (!this.#stale) return
    this.#stale = false
    this.cache.forget()
    this.#leased.clear()
    this.#writers.invalidate()
  }
}

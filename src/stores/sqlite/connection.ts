// stores/sqlite/connection.ts: the store's own connection: its transactions, and what it caches between them.
import { isMillraceError } from '../../job/errors.js'
import type { MillraceError } from '../../job/errors.js'
import type { Millis } from '../../job/job.js'
import type { Runtime } from '../../store/runtime.js'
import type { Batch, Receipt } from '../../store/store.js'
import { Notices } from '../../engine/notices.js'
import { applyBatch } from '../../engine/reduce.js'
import type { EventPage } from '../event-pages.js'
import { fileNumber } from './file/library-copies.js'
import { checkSchema } from './file/migrate.js'
import type { Database } from './file/driver.js'
import { busyHere, fileGone, overwritten } from './file/errors.js'
import type { EventFeed } from './events.js'
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

  /** Applies a batch, and publishes its notices. */
  commit(batch: Batch, feed: EventFeed): Receipt {
    const { cache } = this
    let wakesOthers = false
    let notices: Notices | undefined
    const receipt = this.transaction(() => {
      const before = this.#writers.replay(cache, batch)
      if (before !== undefined) return before
      const now = this.#runtime.now()
      const workspace = new SqliteWorkspace(cache, this.#leased, now)
      notices = new Notices(workspace, now, feed.recording(cache, now))
      const { highestFence } = workspace
      const result = applyBatch({ workspace, now, notices, fast: fastPaths(workspace) }, batch)
      writeReceipt(workspace, batch, result, highestFence)
      wakesOthers = feed.record(workspace, notices)
      workspace.writeNumbers()
      return result
    })
    if (notices === undefined) return receipt
    this.#writers.keep(receipt)
    if (wakesOthers && this.path !== undefined) wakeOthers(this.path)
    feed.publish(notices)
    return receipt
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

// stores/sqlite/connection.ts: the store's own connection, once it is open: its transactions, and what is remembered between them.
import { isMillraceError } from '../../job/errors.js'
import type { MillraceError } from '../../job/errors.js'
import type { Millis } from '../../job/job.js'
import type { Runtime } from '../../store/runtime.js'
import type { Batch, Receipt } from '../../store/store.js'
import type { EventPage } from '../event-pages.js'
import { fileNumber } from './library-copies.js'
import type { Database } from './driver.js'
import { busyHere, gone, overwritten } from './errors.js'
import type { EventFeed } from './events.js'
import { lister } from './find.js'
import type { Lister } from './find.js'
import { Cache } from './cache.js'
import { Checkpointer } from './checkpoint.js'
import { reduce } from './reduce.js'
import { prepareAll } from './statements.js'
import { Transaction } from './transaction.js'
import type { Held } from './transaction.js'
import { wakeups } from './wakeup.js'
import { Writers } from './writers.js'

/** Another's commits within this time mean that the file is shared just now. */
const COMPANY: Millis = 200

/** Time at the file after which a handle in company lets the others go first, and for how long. */
const TURN: Millis = 10
const YIELD: Millis = 2

/** How often, at most, to look whether the file is still there: a look costs as much as a small statement. */
const GLANCE: Millis = 10

/** What is read from. */
export interface Reading {
  readonly ground: Cache
  readonly list: Lister
}

/** A connection of the store's own. */
export class Connection implements Reading {
  readonly db: Database
  readonly ground: Cache
  readonly list: Lister
  /** None in memory. */
  readonly log: Checkpointer | undefined
  readonly #runtime: Runtime
  /** The file's own number, by which it is known if another takes its name. */
  readonly #file: string | undefined
  readonly #held: Held = new Map()
  readonly #writers: Writers
  /** When another handle was last seen to write, and how long this one has been at the file since it let others go first. */
  #company = -Infinity
  #atFile: Millis = 0
  /** When it was last seen that the file is still there. */
  #looked = -Infinity
  #suspect = false
  /** The last number given out in a commit of this connection. */
  #number = 0
  /** Commits of this connection were found to be missing: nothing is written any more. */
  #overwritten: MillraceError | undefined

  constructor(db: Database, runtime: Runtime) {
    this.db = db
    this.#runtime = runtime
    this.ground = new Cache(prepareAll(db))
    this.list = lister((text) => db.prepare(text))
    this.log = db.path === undefined ? undefined : new Checkpointer(db.path, this.ground.sql, runtime)
    this.#writers = new Writers(db.path)
    this.#file = db.path === undefined ? undefined : fileNumber(db.path)
  }

  get path(): string | undefined {
    return this.db.path
  }

  /** Whether it has been at the file for long. */
  get isTired(): boolean {
    return this.#atFile >= TURN
  }

  /** Lets others at the file, if there are any: whoever comes back at once would always be first. */
  async rest(): Promise<void> {
    this.#atFile = 0
    const runtime = this.#runtime
    if (runtime.elapsed() - this.#company > COMPANY) return
    await new Promise<void>((resolve) => void runtime.timer(1 + runtime.random() * YIELD, resolve))
  }

  /** Looks now and then whether the file is still there. */
  glance(): void {
    const now = this.#runtime.elapsed()
    if (this.#file === undefined || now - this.#looked < GLANCE) return
    if (fileNumber(this.path!) !== this.#file) throw gone(this.path!)
    this.#looked = now
  }

  /** Others may have written through this very connection, which does not show by itself. */
  suspect(): void {
    this.#suspect = true
  }

  /** One transaction. What it throws has been undone. */
  transaction<T>(work: () => T): T {
    const { db, ground } = this
    this.#refuseNested()
    const { sql } = ground
    const began = this.#runtime.elapsed()
    this.glance()
    if (this.#overwritten !== undefined) throw this.#overwritten
    sql.begin.run()
    try {
      const seen = ground.refresh()
      if (seen !== 'same') {
        this.#writers.suspect()
        if (this.path !== undefined && ground.numbers.number < this.#number) throw overwritten(this.path)
      }
      if (seen === 'changed') this.#company = this.#runtime.elapsed()
      const answer = work()
      sql.commit.run()
      this.#number = ground.numbers.number
      this.log?.committed()
      return answer
    } catch (error) {
      if (isMillraceError(error, 'DATABASE_OVERWRITTEN')) this.#overwritten = error
      if (db.inTransaction) sql.rollback.run()
      ground.forget()
      this.#held.clear()
      throw error
    } finally {
      this.#atFile += this.#runtime.elapsed() - began
    }
  }

  /** Applies a batch, and tells those who listen. */
  commit(batch: Batch, feed: EventFeed): Receipt {
    const { ground } = this
    let wakes = false
    let done: Transaction | undefined
    const receipt = this.transaction(() => {
      const before = this.#writers.replay(ground, batch)
      if (before !== undefined) return before
      const now = this.#runtime.now()
      done = new Transaction(ground, this.#held, now, feed.recording(ground, now))
      const answer = reduce(done, batch)
      wakes = feed.record(done)
      done.keep()
      return answer
    })
    if (done === undefined) return receipt
    this.#writers.keep(receipt)
    if (wakes && this.path !== undefined) wakeups(this.path)
    feed.publish(done.news)
    return receipt
  }

  /** Reads everything as it is at one moment. */
  snapshot<T>(work: () => T): T {
    const { db, ground } = this
    this.#refuseNested()
    ground.sql.beginRead.run()
    try {
      return work()
    } finally {
      if (db.inTransaction) ground.sql.rollback.run() // there is nothing to keep; and some failures have ended it by themselves
    }
  }

  /** Reads what others have told. Answers whether there was anything. */
  lookAround(feed: EventFeed): boolean {
    return this.#anew(() => feed.look(this.ground))
  }

  /** Reads a page of events. */
  page(feed: EventFeed, after: number): EventPage {
    return this.#anew(() => feed.page(this.ground, after))
  }

  /** Reads with the numbers of the file read anew. */
  #anew<T>(work: () => T): T {
    return this.snapshot(() => {
      if (this.ground.refresh() !== 'same') this.#writers.suspect()
      return work()
    })
  }

  #refuseNested(): void {
    if (this.db.inTransaction) throw busyHere('A transaction is open on this connection.')
    if (!this.#suspect) return
    this.#suspect = false
    this.ground.forget()
    this.#held.clear()
    this.#writers.suspect()
  }
}

// stores/sqlite/transactions.ts: transactions of the store's own, on a connection of their own, one at a time.
import { MillraceError } from '../../job/errors.js'
import type { Millis } from '../../job/job.js'
import type { Runtime } from '../../store/runtime.js'
import type { Tx } from '../../store/store.js'
import type { Database, SqliteHandle } from './driver.js'
import { busyHere } from './failures.js'
import { whenFree } from './patience.js'

/** Runs work in transactions, each in its turn. */
export class Transactions {
  readonly #runtime: Runtime
  readonly #patience: Millis
  readonly #path: string | undefined
  readonly #connect: () => Database
  #db: Database | undefined
  /** The last one in line. */
  #last: Promise<unknown> = Promise.resolve()
  #open: Promise<void> | undefined
  /** How many savepoints are open in the one that is. */
  #depth = { savepoints: 0 }

  /** `connect` gives the connection for them, when it is needed: at first, and after one had to be given up. */
  constructor(runtime: Runtime, patience: Millis, path: string | undefined, connect: () => Database) {
    this.#runtime = runtime
    this.#patience = patience
    this.#path = path
    this.#connect = connect
  }

  /** Resolves when the one that is open now has ended; undefined where none is. */
  get open(): Promise<void> | undefined {
    return this.#open
  }

  /** Whether one of them is open, and is this. */
  isOpen(tx: Tx): boolean {
    return this.#open !== undefined && this.#db?.handle === tx
  }

  /** Runs work in a transaction; `before` may refuse it when its turn comes, and `done` is called when it has ended. */
  run<T>(work: (tx: SqliteHandle) => Promise<T>, before: () => void, done: () => void): Promise<T> {
    const turn = this.#last.then(() => this.#run(work, before, done))
    this.#last = turn.catch(() => {})
    return turn
  }

  /** Runs work that is a savepoint of the one that is open. */
  async nested<T>(work: () => Promise<T>): Promise<T> {
    const depth = this.#depth
    depth.savepoints++
    try {
      return await work()
    } finally {
      depth.savepoints--
    }
  }

  async #run<T>(work: (tx: SqliteHandle) => Promise<T>, before: () => void, done: () => void): Promise<T> {
    const begin = (): Database => {
      before()
      const connection = (this.#db ??= this.#connect())
      if (connection.inTransaction) throw busyHere('A transaction of the user is open on this connection.')
      connection.exec('BEGIN IMMEDIATE')
      return connection
    }
    const db = await whenFree(this.#runtime, this.#path, begin, this.#patience)
    let over = (): void => {}
    this.#open = new Promise((resolve) => (over = resolve))
    const depth = (this.#depth = { savepoints: 0 })
    let committed = false
    try {
      const answer = await work(db.handle)
      if (!db.inTransaction) throw endedByItself()
      await whenFree(this.#runtime, db.path, () => db.exec('COMMIT'), this.#patience)
      committed = true
      return answer
    } finally {
      if (!committed && db.inTransaction) db.exec('ROLLBACK')
      if (!committed && depth.savepoints > 0) this.#giveUp(db)
      this.#open = undefined
      done()
      over()
    }
  }

  /** It was broken off while somebody was at work in it, who goes on with its handle and must not write by it any more. */
  #giveUp(db: Database): void {
    if (db.path === undefined) return // in memory there is no other
    this.#db = undefined
    db.exec('PRAGMA query_only = ON') // statements prepared before may outlive the handle
    db.close()
  }

  /** Waits for those in line, and lets go of the connection, unless it is the store's only one. */
  async close(only: Database | undefined): Promise<void> {
    await this.#last
    if (this.#db !== only) this.#db?.close()
  }
}

function endedByItself(): MillraceError {
  return new MillraceError(
    'TRANSACTION_ENDED',
    'The transaction ended before its work did: it was committed or rolled back inside, or SQLite rolled it back after an error that was not passed on. Let the work answer to commit, and throw to roll back.',
  )
}

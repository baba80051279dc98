// stores/sqlite/user-transactions/own.ts: transactions of the store's own, on a connection of their own, one at a time.
import { MillraceError } from '../../../job/errors.js'
import type { Millis } from '../../../job/job.js'
import type { Runtime } from '../../../store/runtime.js'
import type { Tx } from '../../../store/store.js'
import { Scope, givenOf, guarded, guardingAll } from '../../transaction-scope.js'
import type { Database, SqliteHandle } from '../driver.js'
import { busyHere } from '../errors.js'
import { whenFree } from '../busy-retry.js'

/** Runs work in transactions, each in its turn. */
export class OwnTransactions {
  readonly #runtime: Runtime
  readonly #patience: Millis
  readonly #path: string | undefined
  readonly #connect: () => Database
  #db: Database | undefined
  /** The last one in line. */
  #last: Promise<unknown> = Promise.resolve()
  #open: Promise<void> | undefined

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

  /** Whether this was given out here. */
  isOwn(tx: Tx): boolean {
    const given = givenOf(tx as SqliteHandle)
    return given !== undefined && given.target === this.#db?.handle
  }

  /** The connection behind a `tx`: that of an open transaction given out here, or the user's own as it is. */
  handleOf(tx: Tx): Tx {
    const given = givenOf(tx as SqliteHandle)
    given?.scope.check()
    return given === undefined ? tx : given.target
  }

  /** Runs work in a transaction; `before` may refuse it when its turn comes, and `done` is called when it has ended. */
  run<T>(work: (tx: SqliteHandle) => Promise<T>, before: () => void, done: () => void): Promise<T> {
    const turn = this.#last.then(() => this.#run(work, before, done))
    this.#last = turn.catch(() => {})
    return turn
  }

  /** Runs work in a savepoint of one that is open; `savepoint` makes it. */
  async nested<T>(
    tx: Tx,
    work: (tx: SqliteHandle) => Promise<T>,
    savepoint: (work: () => Promise<T>, isOver: () => boolean) => Promise<T>,
  ): Promise<T> {
    const { target, scope: around } = givenOf(tx as SqliteHandle)!
    around.check()
    const closed = around.opening()
    const scope = new Scope(around)
    const inside = async (): Promise<T> => {
      try {
        return await work(guarded(target, scope, guardingAll))
      } finally {
        scope.end()
      }
    }
    try {
      return await savepoint(inside, () => around.isOver)
    } finally {
      scope.end()
      closed()
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
    const scope = new Scope()
    let committed = false
    try {
      const answer = await work(guarded(db.handle, scope, guardingAll))
      scope.end() // the COMMIT may have to wait, and the connection is used again after it
      if (!db.inTransaction) throw endedByItself()
      await whenFree(this.#runtime, db.path, () => db.exec('COMMIT'), this.#patience)
      committed = true
      return answer
    } finally {
      scope.end()
      if (!committed && db.inTransaction) db.exec('ROLLBACK')
      if (!committed && scope.savepoints > 0) this.#giveUp(db)
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

// stores/sqlite/user-transactions/own.ts: transactions that the store opens for its user, one at a time.
import { MillraceError } from '../../../job/errors/errors.js'
import type { Millis } from '../../../job/job.js'
import type { Runtime } from '../../../store/runtime.js'
import type { Tx } from '../../../store/store.js'
import { Scope, unguarded, guarded, guardResults } from '../../transaction-scope.js'
import type { Database, SqliteHandle } from '../file/driver.js'
import { busyHere } from '../file/errors.js'
import { retryWhileBusy } from '../file/busy-retry.js'

/** Runs work in transactions on a separate connection, one after the other. */
export class OwnTransactions {
  readonly #runtime: Runtime
  readonly #patience: Millis
  readonly #path: string | undefined
  readonly #connect: () => Database
  #db: Database | undefined
  /** Resolves when the last transaction in the queue has ended. */
  #last: Promise<unknown> = Promise.resolve()
  #open: Promise<void> | undefined

  /** `connect` opens their connection when it is needed: at first, and after one was discarded. */
  constructor(runtime: Runtime, patience: Millis, path: string | undefined, connect: () => Database) {
    this.#runtime = runtime
    this.#patience = patience
    this.#path = path
    this.#connect = connect
  }

  /** Resolves when the open transaction has ended; undefined if none is open. */
  get open(): Promise<void> | undefined {
    return this.#open
  }

  /** Whether a `tx` is a handle that was given out here. */
  isOwn(tx: Tx): boolean {
    const given = unguarded(tx as SqliteHandle)
    return given !== undefined && given.target === this.#db?.handle
  }

  /** The connection behind a `tx`: of an open transaction that was given out here, or else the `tx` itself. */
  handleOf(tx: Tx): Tx {
    const given = unguarded(tx as SqliteHandle)
    given?.scope.check()
    return given === undefined ? tx : given.target
  }

  /** Runs work in a transaction. `before` may refuse it when its turn comes, and `done` is called when it has ended. */
  run<T>(work: (tx: SqliteHandle) => Promise<T>, before: () => void, done: () => void): Promise<T> {
    const turn = this.#last.then(() => this.#run(work, before, done))
    this.#last = turn.catch(() => {})
    return turn
  }

  /** Runs work in a savepoint of an open transaction; `savepoint` creates it. */
  async nested<T>(
    tx: Tx,
    work: (tx: SqliteHandle) => Promise<T>,
    savepoint: (work: () => Promise<T>, isOver: () => boolean) => Promise<T>,
  ): Promise<T> {
    const { target, scope: outer } = unguarded(tx as SqliteHandle)!
    outer.check()
    const closeSavepoint = outer.opening()
    const scope = new Scope(outer)
    const inside = async (): Promise<T> => {
      try {
        return await work(guarded(target, scope, guardResults))
      } finally {
        scope.end()
      }
    }
    try {
      return await savepoint(inside, () => outer.isOver)
    } finally {
      scope.end()
      closeSavepoint()
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
    const db = await retryWhileBusy(this.#runtime, this.#path, begin, this.#patience)
    let resolveOpen = (): void => {}
    this.#open = new Promise((resolve) => (resolveOpen = resolve))
    const scope = new Scope()
    let committed = false
    try {
      const result = await work(guarded(db.handle, scope, guardResults))
      scope.end() // the COMMIT may have to wait, and the connection is used again after it
      if (!db.inTransaction) throw endedEarly()
      await retryWhileBusy(this.#runtime, db.path, () => db.exec('COMMIT'), this.#patience)
      committed = true
      return result
    } finally {
      scope.end()
      if (!committed && db.inTransaction) db.exec('ROLLBACK')
      if (!committed && scope.savepoints > 0) this.#discard(db)
      this.#open = undefined
      done()
      resolveOpen()
    }
  }

  /**
   * Discards the connection of a transaction that was aborted while work in a savepoint was still running: that work
   * still has the handle, and must not write through it any more.
   */
  #discard(db: Database): void {
    if (db.path === undefined) return // in memory there is no other connection
    this.#db = undefined
    db.exec('PRAGMA query_only = ON') // statements prepared before may outlive the handle
    db.close()
  }

  /** Waits for the queued transactions, and closes the connection unless it is the store's only one. */
  async close(only: Database | undefined): Promise<void> {
    await this.#last
    if (this.#db !== only) this.#db?.close()
  }
}

function endedEarly(): MillraceError {
  return new MillraceError(
    'TRANSACTION_ENDED',
    'The transaction ended before its work did: it was committed or rolled back inside, or SQLite rolled it back after an error that was not passed on. Let the work answer to commit, and throw to roll back.',
  )
}

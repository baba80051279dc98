// stores/sqlite/user-transactions/adapter.ts: runs the store's reads and writes inside a transaction that the user has open.
import { MillraceError } from '../../../job/errors/errors.js'
import { resolved, step, runSteps } from '../../../store/maybe-sync.js'
import type { Steps } from '../../../store/maybe-sync.js'
import type { Database } from '../file/driver.js'
import { staleError, toStoreError } from '../file/errors.js'
import { lister } from '../find.js'
import { READ_HEAP_LIMIT } from '../file/library-copies.js'
import type { Lister } from '../find.js'
import { Cache } from '../cache.js'
import { sql } from '../statement-texts.js'
import { prepareWhenUsed } from '../statements.js'
import type { Statements } from '../statements.js'
import { executing, replaying } from './replay.js'
import type { Execute } from './replay.js'

/** Work inside a transaction. It may be restarted, and must then do the same. */
export type TransactionWork<T> = (cache: Cache, list: Lister) => T

/** A transaction that the user has open. */
export interface UserTransaction {
  /** Reads in it. With a synchronous driver the read is done when this returns. */
  read<T>(work: TransactionWork<T>): Promise<T>
  /** Writes in it, whole or not at all. With a synchronous driver the write is done when this returns. */
  write<T>(work: TransactionWork<T>): Promise<T>
  /**
   * Runs work in a savepoint, which is released if the work resolves and rolled back if it throws. Nothing is sent once
   * the transaction has ended. `isOver` reports that where another transaction may be open on the same connection by
   * then.
   */
  savepoint<T>(work: () => Promise<T>, isOver?: () => boolean): Promise<T>
  /** The file, or undefined in memory. */
  file(): Promise<string | undefined>
  /** Whether it has ended; undefined if that cannot be detected. */
  readonly over: boolean | undefined
}

/** A transaction on a handle of one of the drivers. */
export class HandleTransaction implements UserTransaction {
  readonly #db: Database
  readonly #sql: Statements
  readonly #list: Lister
  #savepoints = 0

  constructor(db: Database) {
    this.#db = db
    this.#sql = prepareWhenUsed((text) => db.prepare(text))
    this.#list = lister((text) => db.prepare(text))
  }

  get over(): boolean {
    try {
      return !this.#db.inTransaction
    } catch {
      return true // the handle was closed
    }
  }

  file(): Promise<string | undefined> {
    return resolved(this.#db.path)
  }

  read<T>(work: TransactionWork<T>): Promise<T> {
    return this.#run(() => work(new Cache(this.#sql), this.#list))
  }

  write<T>(work: TransactionWork<T>): Promise<T> {
    return this.#run(() => {
      const sql = this.#sql
      sql.beginNested.run()
      try {
        sql.lock.run() // before anything is read: a snapshot may be too old to write to
        const result = work(new Cache(sql), this.#list)
        sql.keepNested.run()
        return result
      } catch (error) {
        if (this.#db.inTransaction) {
          sql.rollbackNested.run()
          sql.keepNested.run()
        }
        throw error
      }
    })
  }

  async savepoint<T>(work: () => Promise<T>, isOver: () => boolean = () => false): Promise<T> {
    const check = (): void => {
      if (isOver() || this.over) throw transactionEnded()
    }
    check()
    const db = this.#db
    const name = `millrace_${++this.#savepoints}`
    db.exec(`SAVEPOINT ${name}`)
    try {
      const result = await work()
      check()
      db.exec(`RELEASE ${name}`)
      return result
    } catch (error) {
      if (!isOver() && !this.over) db.exec(`ROLLBACK TO ${name}; RELEASE ${name}`)
      throw error
    } finally {
      this.#savepoints--
    }
  }

  #run<T>(work: () => T): Promise<T> {
    try {
      this.#check()
      return resolved(work())
    } catch (error) {
      return Promise.reject(transactionError(error, this.#db.path))
    }
  }

  #check(): void {
    if (this.over) throw transactionEnded()
  }
}

/** A transaction of a library that runs statements one by one, synchronously or not. */
export class ExecutorTransaction implements UserTransaction {
  readonly #withConnection: <T>(work: (execute: Execute) => Promise<T>) => Promise<T>
  readonly over = undefined
  #savepoints = 0

  /** `withConnection` lets no other statements in between, if the library can do that. */
  constructor(withConnection: <T>(work: (execute: Execute) => Promise<T>) => Promise<T>) {
    this.#withConnection = withConnection
  }

  file(): Promise<string | undefined> {
    return this.#run(function* (execute) {
      const rows = yield* executing(execute, 'PRAGMA database_list')
      const file = rows.find(([, name]) => name === 'main')?.[2]
      return typeof file === 'string' && file !== '' ? file : undefined
    })
  }

  /** The heap limit of its copy of SQLite; undefined if it cannot be read. */
  heapLimit(): Promise<number | undefined> {
    return this.#run(function* (execute) {
      try {
        const limit = (yield* executing(execute, READ_HEAP_LIMIT))[0]?.[0]
        return typeof limit === 'number' ? limit : undefined
      } catch {
        return undefined
      }
    })
  }

  read<T>(work: TransactionWork<T>): Promise<T> {
    return this.#run((execute) => replaying(execute, withCache(work)))
  }

  write<T>(work: TransactionWork<T>): Promise<T> {
    return this.#run((execute) =>
      inSavepoint(execute, 'millrace_visit', function* () {
        yield* executing(execute, sql.lock)
        return yield* replaying(execute, withCache(work))
      }),
    )
  }

  /** Does not reserve the connection, because the work inside the savepoint uses it too. */
  async savepoint<T>(work: () => Promise<T>): Promise<T> {
    const name = `millrace_${++this.#savepoints}`
    const run = (sql: string): Promise<unknown> => this.#run((execute) => executing(execute, sql))
    await run(`SAVEPOINT ${name}`)
    try {
      const result = await work()
      await run(`RELEASE ${name}`)
      return result
    } catch (error) {
      await run(`ROLLBACK TO ${name}`)
      await run(`RELEASE ${name}`)
      throw error
    } finally {
      this.#savepoints--
    }
  }

  #run<T>(work: (execute: Execute) => Steps<T>): Promise<T> {
    return runSteps(
      (function* (withConnection): Steps<T> {
        try {
          return yield* step(withConnection((execute) => runSteps(checkingOpen(execute, work(execute)))))
        } catch (error) {
          throw transactionError(error, undefined)
        }
      })(this.#withConnection),
    )
  }
}

function withCache<T>(work: TransactionWork<T>): Parameters<typeof replaying<T>>[1] {
  return (prepare) => work(new Cache(prepareWhenUsed(prepare)), lister(prepare))
}

function* inSavepoint<T>(execute: Execute, name: string, work: () => Steps<T>): Steps<T> {
  yield* executing(execute, `SAVEPOINT ${name}`)
  let result: T
  try {
    result = yield* work()
  } catch (error) {
    yield* executing(execute, `ROLLBACK TO ${name}`)
    yield* executing(execute, `RELEASE ${name}`)
    throw error
  }
  yield* executing(execute, `RELEASE ${name}`)
  return result
}

/** Checks that a transaction is open: only inside one does another BEGIN fail. */
function* checkingOpen<T>(execute: Execute, work: Steps<T>): Steps<T> {
  let failure: unknown
  try {
    yield* executing(execute, 'BEGIN')
  } catch (error) {
    failure = error
  }
  if (failure === undefined) {
    yield* executing(execute, 'ROLLBACK')
    throw transactionEnded()
  }
  if (!String((failure as Error).message).includes('within a transaction')) throw transactionEnded(failure)
  return yield* work
}

/** The error for a `tx` that has no open transaction. */
export function transactionEnded(cause?: unknown): MillraceError {
  return new MillraceError(
    'TRANSACTION_ENDED',
    'The `tx` given has no transaction open: it has ended, or was not begun. Nothing was written; begin one, and await each call before it ends.',
    { cause },
  )
}

/** The error for a failure inside a user transaction. */
function transactionError(error: unknown, path: string | undefined): MillraceError {
  return staleError(error, path) ?? toStoreError(error, path)
}

// stores/sqlite/user-transactions/adapter.ts: a transaction that somebody else has open, as the store can work in it.
import { MillraceError } from '../../../job/errors.js'
import { answered, step, stepwise } from '../../../store/maybe-sync.js'
import type { Steps } from '../../../store/maybe-sync.js'
import type { Database } from '../driver.js'
import { staleError, toStoreError } from '../errors.js'
import { lister } from '../find.js'
import type { Lister } from '../find.js'
import { Cache } from '../cache.js'
import { sql } from '../sql.js'
import { prepareWhenUsed } from '../statements.js'
import type { Statements } from '../statements.js'
import { asking, playing } from './replay.js'
import type { Execute } from './replay.js'

/** What is done in a transaction; may be begun anew, and then has to do the same. */
export type TransactionWork<T> = (ground: Cache, list: Lister) => T

/** Somebody else's transaction. */
export interface UserTransaction {
  /** Reads in it. Where the driver is synchronous, that is done when this returns. */
  read<T>(work: TransactionWork<T>): Promise<T>
  /** Writes in it, whole or not at all. Where the driver is synchronous, that is done when this returns. */
  write<T>(work: TransactionWork<T>): Promise<T>
  /**
   * Runs work in a savepoint, which is kept if it answers and undone if it throws. Nothing is sent once the transaction is over,
   * which `isOver` says where another may be open on the same connection by then.
   */
  savepoint<T>(work: () => Promise<T>, isOver?: () => boolean): Promise<T>
  /** The file, or undefined in memory. */
  file(): Promise<string | undefined>
  /** Whether it is over; undefined where nobody can tell. */
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
      return true // it was closed
    }
  }

  file(): Promise<string | undefined> {
    return answered(this.#db.path)
  }

  read<T>(work: TransactionWork<T>): Promise<T> {
    return this.#run(() => work(new Cache(this.#sql), this.#list))
  }

  write<T>(work: TransactionWork<T>): Promise<T> {
    return this.#run(() => {
      const sql = this.#sql
      sql.beginVisit.run()
      try {
        sql.lock.run() // before anything is read: what was read may be too old to be written upon
        const answer = work(new Cache(sql), this.#list)
        sql.keepVisit.run()
        return answer
      } catch (error) {
        if (this.#db.inTransaction) {
          sql.rollbackVisit.run()
          sql.keepVisit.run()
        }
        throw error
      }
    })
  }

  async savepoint<T>(work: () => Promise<T>, isOver: () => boolean = () => false): Promise<T> {
    const check = (): void => {
      if (isOver() || this.over) throw ended()
    }
    check()
    const db = this.#db
    const name = `millrace_${++this.#savepoints}`
    db.exec(`SAVEPOINT ${name}`)
    try {
      const answer = await work()
      check()
      db.exec(`RELEASE ${name}`)
      return answer
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
      return answered(work())
    } catch (error) {
      return Promise.reject(told(error, this.#db.path))
    }
  }

  #check(): void {
    if (this.over) throw ended()
  }
}

/** A transaction of a library that runs statements one by one, now or later. */
export class ExecutorTransaction implements UserTransaction {
  readonly #hold: <T>(work: (execute: Execute) => Promise<T>) => Promise<T>
  readonly over = undefined
  #savepoints = 0

  /** `hold` lets nobody else in between, if the library can. */
  constructor(hold: <T>(work: (execute: Execute) => Promise<T>) => Promise<T>) {
    this.#hold = hold
  }

  file(): Promise<string | undefined> {
    return this.#run(function* (execute) {
      const rows = yield* asking(execute, 'PRAGMA database_list')
      const file = rows.find(([, name]) => name === 'main')?.[2]
      return typeof file === 'string' && file !== '' ? file : undefined
    })
  }

  read<T>(work: TransactionWork<T>): Promise<T> {
    return this.#run((execute) => playing(execute, visiting(work)))
  }

  write<T>(work: TransactionWork<T>): Promise<T> {
    return this.#run((execute) =>
      inSavepoint(execute, 'millrace_visit', function* () {
        yield* asking(execute, sql.lock)
        return yield* playing(execute, visiting(work))
      }),
    )
  }

  /** Holds nobody off: what is done within the savepoint goes the same way. */
  async savepoint<T>(work: () => Promise<T>): Promise<T> {
    const name = `millrace_${++this.#savepoints}`
    const run = (sql: string): Promise<unknown> => this.#run((execute) => asking(execute, sql))
    await run(`SAVEPOINT ${name}`)
    try {
      const answer = await work()
      await run(`RELEASE ${name}`)
      return answer
    } catch (error) {
      await run(`ROLLBACK TO ${name}`)
      await run(`RELEASE ${name}`)
      throw error
    } finally {
      this.#savepoints--
    }
  }

  #run<T>(work: (execute: Execute) => Steps<T>): Promise<T> {
    return stepwise(
      (function* (hold): Steps<T> {
        try {
          return yield* step(hold((execute) => stepwise(checked(execute, work(execute)))))
        } catch (error) {
          throw told(error, undefined)
        }
      })(this.#hold),
    )
  }
}

function visiting<T>(work: TransactionWork<T>): Parameters<typeof playing<T>>[1] {
  return (prepare) => work(new Cache(prepareWhenUsed(prepare)), lister(prepare))
}

function* inSavepoint<T>(execute: Execute, name: string, work: () => Steps<T>): Steps<T> {
  yield* asking(execute, `SAVEPOINT ${name}`)
  let answer: T
  try {
    answer = yield* work()
  } catch (error) {
    yield* asking(execute, `ROLLBACK TO ${name}`)
    yield* asking(execute, `RELEASE ${name}`)
    throw error
  }
  yield* asking(execute, `RELEASE ${name}`)
  return answer
}

/** Makes sure that a transaction is open: only inside one does another BEGIN fail. */
function* checked<T>(execute: Execute, work: Steps<T>): Steps<T> {
  let failure: unknown
  try {
    yield* asking(execute, 'BEGIN')
  } catch (error) {
    failure = error
  }
  if (failure === undefined) {
    yield* asking(execute, 'ROLLBACK')
    throw ended()
  }
  if (!String((failure as Error).message).includes('within a transaction')) throw ended(failure)
  return yield* work
}

/** The error for a transaction that is none. */
export function ended(cause?: unknown): MillraceError {
  return new MillraceError(
    'TRANSACTION_ENDED',
    'The `tx` given has no transaction open: it has ended, or was not begun. Nothing was written; begin one, and await each call before it ends.',
    { cause },
  )
}

/** The error for what failed in somebody's transaction. */
function told(error: unknown, path: string | undefined): MillraceError {
  return staleError(error, path) ?? toStoreError(error, path)
}

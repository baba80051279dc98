// stores/sqlite/user-transactions/detect.ts: detects what kind of `tx` the user passed, and recognises it again.
import { MillraceError, quote } from '../../../job/errors/errors.js'
import type { Millis } from '../../../job/job.js'
import { prismaIn } from '../../../store/sql-transaction.js'
import type { PrismaTransaction, SqlTransaction } from '../../../store/sql-transaction.js'
import { step, runSteps } from '../../../store/maybe-sync.js'
import type { Steps } from '../../../store/maybe-sync.js'
import type { Runtime, Stop } from '../../../store/runtime.js'
import type { Tx } from '../../../store/store.js'
import {
  fileNumber,
  LOCKS_BELONG_TO_PROCESS,
  refuseSecondCopy,
  remember,
  sameCopyThrough,
  secondCopy,
} from '../file/library-copies.js'
import { adopt } from '../file/driver.js'
import type { DatabaseClass, SqliteHandle } from '../file/driver.js'
import { nameOf } from '../file/errors.js'
import { ExecutorTransaction, HandleTransaction, transactionEnded } from './adapter.js'
import type { UserTransaction } from './adapter.js'
import type { Execute } from './replay.js'

/** A transaction as `queue.transaction` passes it if the store chose the driver: the driver's own handle. */
export interface SqliteTransaction {
  /** Prepares one statement. */
  prepare(sql: string): {
    run(...values: SqliteValue[]): {
      readonly changes: number | bigint
      readonly lastInsertRowid: number | bigint
    }
    get(...values: SqliteValue[]): unknown
    all(...values: SqliteValue[]): unknown[]
  }
  /** Runs statements that return nothing. */
  exec(sql: string): unknown
}

/** The values that a statement takes. */
export type SqliteValue = string | number | bigint | null | Uint8Array

/** A transaction of Drizzle on better-sqlite3, as far as types show. */
export interface DrizzleSqliteTransaction {
  /** Runs a query that returns nothing. */
  run(query: never): unknown
  /** Runs a query and returns its rows. */
  all(query: never): unknown
  /** Runs a query and returns its rows as arrays. */
  values(query: never): unknown
  /** Rolls it back; only transactions have this method. */
  rollback(): never
}

/** A transaction of Kysely, as far as types show. */
export interface KyselyTransaction {
  /** Distinguishes it from a Kysely that is no transaction. */
  readonly isTransaction: true
  /** Runs its queries on the connection of the transaction. */
  getExecutor(): { provideConnection<T>(consumer: (connection: unknown) => Promise<T>): Promise<T> }
}

/** Everything that a SQLite store takes as `tx`. */
export type SqliteTx =
  | SqliteTransaction
  | Pick<SqliteHandle, 'prepare' | 'exec'>
  | DrizzleSqliteTransaction
  | KyselyTransaction
  | PrismaTransaction
  | SqlTransaction

/** A connection of Kysely. */
interface KyselyConnection {
  executeQuery(query: object): Promise<{ readonly rows: readonly Record<string, unknown>[] }>
}

/** Unchecked transactions to keep: only one can have the write lock, and a store that is never opened must not keep all. */
const UNCHECKED_KEPT = 16

/** How long to wait for a library that may not answer any more because its transaction has ended, in milliseconds. */
const ANSWERS_WITHIN: Millis = 1_000

/** The user transactions of one store. */
export class UserTransactions {
  readonly #known = new WeakMap<object, UserTransaction>()
  /** Transactions that are known to be on the store's own database. */
  readonly #onDatabase = new WeakSet<UserTransaction>()
  /** Transactions that are known to use the store's own copy of SQLite. */
  readonly #sameCopy = new WeakSet<UserTransaction>()
  /** Transactions without a handle that were accepted before the store had one to compare them with. */
  readonly #unchecked = new Set<ExecutorTransaction>()
  /** Where the store is: a file, or the only handle that reaches its memory. */
  readonly #store: { readonly path: string | undefined; readonly handle: SqliteHandle | undefined }

  constructor(store: { readonly path: string | undefined; readonly handle: SqliteHandle | undefined }) {
    this.#store = store
  }

  /** The user transaction for a `tx`. Throws for an unknown kind, and for another database. */
  *of(tx: Tx): Steps<UserTransaction> {
    if (typeof tx !== 'object' || tx === null) throw unknownTransaction(tx)
    const handle = handleIn(tx)
    const key = handle ?? tx
    let transaction = this.#known.get(key)
    if (transaction === undefined) {
      transaction = handle === undefined ? executorTransaction(tx) : handleTransaction(handle)
      this.#known.set(key, transaction)
    }
    if (!this.#onDatabase.has(transaction)) {
      yield* this.#check(transaction, handle)
      this.#onDatabase.add(transaction)
    }
    return transaction
  }

  /** Whether a transaction is known to use the store's own copy of SQLite. */
  isSameCopy(transaction: UserTransaction): boolean {
    return this.#sameCopy.has(transaction)
  }

  /** Records that a transaction uses the store's own copy of SQLite. */
  markSameCopy(transaction: UserTransaction): void {
    this.#sameCopy.add(transaction)
  }

  /**
   * Throws if a transaction that was accepted before the store was opened, and is still open, uses another copy of SQLite
   * than the driver that is about to open the file.
   */
  async checkDriver(path: string, Driver: DatabaseClass, { timer }: Runtime): Promise<void> {
    if (!LOCKS_BELONG_TO_PROCESS || this.#unchecked.size === 0) return
    const inMemory = new Driver(':memory:')
    try {
      for (const transaction of this.#unchecked) {
        const checked = runSteps(sameCopyThrough(inMemory, () => transaction.heapLimit())).catch(() => undefined)
        let stop: Stop | undefined
        const timeout = new Promise<undefined>(
          (resolve) => void (stop = timer(ANSWERS_WITHIN, () => resolve(undefined))),
        )
        const same = await Promise.race([checked, timeout]).finally(() => stop?.())
        if (same === false) throw secondCopy(path)
        this.#unchecked.delete(transaction)
      }
    } finally {
      inMemory.close()
    }
  }

  /** Where the copy cannot be read, the lock is checked when the transaction writes. */
  *#checkCopy(transaction: ExecutorTransaction, path: string): Steps<void> {
    const { handle } = this.#store
    if (handle === undefined) {
      this.#unchecked.add(transaction)
      for (const oldest of this.#unchecked) if (this.#unchecked.size > UNCHECKED_KEPT) this.#unchecked.delete(oldest)
      return
    }
    if (!LOCKS_BELONG_TO_PROCESS) return
    const same = yield* sameCopyThrough(handle, () => transaction.heapLimit())
    if (same === false) throw secondCopy(path)
    if (same) this.#sameCopy.add(transaction)
  }

  *#check(transaction: UserTransaction, handle: SqliteHandle | undefined): Steps<void> {
    const store = this.#store
    if (store.path === undefined) {
      if (handle !== undefined && handle === store.handle) return
      throw otherDatabase('this store is in memory, where only its own handle reaches it')
    }
    const file = yield* step(transaction.file())
    if (file === undefined) throw otherDatabase(`it is in memory, and this store is in ${nameOf(store.path)}`)
    if (!isSame(file, store.path)) throw otherDatabase(`it is on ${file}, and this store is in ${nameOf(store.path)}`)
    if (transaction instanceof ExecutorTransaction) return yield* this.#checkCopy(transaction, store.path)
    if (handle === undefined) return
    if (refuseSecondCopy(file, handle) && store.handle !== undefined) this.#sameCopy.add(transaction)
    remember(file, handle)
  }
}

function isSame(file: string, path: string): boolean {
  if (file === path) return true
  const number = fileNumber(file)
  return number !== undefined && number === fileNumber(path)
}

/** The driver's handle, passed as it is or inside a transaction of Drizzle. */
function handleIn(tx: object): SqliteHandle | undefined {
  if (isHandle(tx)) return tx
  const { client } = (tx as { session?: { client?: unknown } }).session ?? {}
  return isHandle(client) ? client : undefined
}

function isHandle(value: unknown): value is SqliteHandle {
  if (typeof value !== 'object' || value === null) return false
  const { prepare, exec } = value as Partial<SqliteHandle>
  return typeof prepare === 'function' && typeof exec === 'function'
}

function handleTransaction(handle: SqliteHandle): UserTransaction {
  try {
    return new HandleTransaction(adopt(handle))
  } catch (error) {
    throw transactionEnded(error) // the handle was closed
  }
}

function executorTransaction(given: object): UserTransaction {
  const tx = prismaIn(given) ?? given
  const { isTransaction, getExecutor, execute } = tx as Partial<KyselyTransaction & SqlTransaction>
  if (typeof getExecutor === 'function') {
    if (isTransaction !== true) throw transactionEnded()
    const executor = (tx as KyselyTransaction).getExecutor()
    return new ExecutorTransaction((work) => withKyselyConnection(executor, work))
  }
  if (typeof execute !== 'function') throw unknownTransaction(tx)
  const { session, _ } = tx as { session?: unknown; _?: unknown }
  if (session !== undefined || _ !== undefined) throw unknownTransaction(tx) // a Drizzle of another database
  return new ExecutorTransaction((work) => work((sql, params) => (tx as SqlTransaction).execute(sql, params)))
}

/** Kysely gives its connection to one consumer at a time. */
async function withKyselyConnection<T>(
  executor: ReturnType<KyselyTransaction['getExecutor']>,
  work: (execute: Execute) => Promise<T>,
): Promise<T> {
  let began = false
  try {
    return await executor.provideConnection((given) => {
      const connection = given as KyselyConnection
      began = true
      return work(async (sql, parameters) => {
        const query = { kind: 'RawNode', sqlFragments: [sql], parameters: [] }
        return (await connection.executeQuery({ query, queryId: { queryId: 'millrace' }, sql, parameters })).rows
      })
    })
  } catch (error) {
    throw began ? error : transactionEnded(error)
  }
}

function unknownTransaction(tx: unknown): MillraceError {
  return new MillraceError(
    'INVALID_TRANSACTION',
    `The sqlite store cannot write to the \`tx\` given, ${quote(tx)}. It takes a handle of better-sqlite3, node:sqlite or @photostructure/sqlite, a transaction of Drizzle or Kysely on better-sqlite3, one of Prisma, or { execute(sql, params) }.`,
  )
}

function otherDatabase(why: string): MillraceError {
  return new MillraceError(
    'OTHER_DATABASE',
    `The \`tx\` given is not on the database of this store: ${why}. Open the transaction on the same file.`,
  )
}

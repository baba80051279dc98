// stores/sqlite/user-transactions/detect.ts: what may be given as `tx`, told apart, and known again.
import { MillraceError } from '../../../job/errors.js'
import { quote } from '../../../job/quote.js'
import { prismaIn } from '../../../store/sql.js'
import type { PrismaTransaction, SqlTransaction } from '../../../store/sql.js'
import { step } from '../../../store/maybe-sync.js'
import type { Steps } from '../../../store/maybe-sync.js'
import type { Tx } from '../../../store/store.js'
import { fileNumber, refuseSecondCopy, remember } from '../library-copies.js'
import { adopt } from '../driver.js'
import type { SqliteHandle } from '../driver.js'
import { nameOf } from '../errors.js'
import { ExecutorTransaction, HandleTransaction, ended } from './adapter.js'
import type { UserTransaction } from './adapter.js'
import type { Execute } from './replay.js'

/** A transaction as `queue.transaction` gives it where the driver is the store's choice: the driver's own handle. */
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
  /** Runs statements that answer nothing. */
  exec(sql: string): unknown
}

/** What a statement takes. */
export type SqliteValue = string | number | bigint | null | Uint8Array

/** A transaction of Drizzle on better-sqlite3, as far as types tell. */
export interface DrizzleSqliteTransaction {
  /** Runs a query that answers nothing. */
  run(query: never): unknown
  /** Runs a query and gives its rows. */
  all(query: never): unknown
  /** Runs a query and gives its rows as arrays. */
  values(query: never): unknown
  /** Rolls it back; only transactions have it. */
  rollback(): never
}

/** A transaction of Kysely, as far as types tell. */
export interface KyselyTransaction {
  /** Tells it from a Kysely that is no transaction. */
  readonly isTransaction: true
  /** What runs its queries, on the connection of the transaction. */
  getExecutor(): { provideConnection<T>(consumer: (connection: unknown) => Promise<T>): Promise<T> }
}

/** All that a SQLite store takes as `tx`. */
export type SqliteTx =
  | SqliteTransaction
  | Pick<SqliteHandle, 'prepare' | 'exec'>
  | DrizzleSqliteTransaction
  | KyselyTransaction
  | PrismaTransaction
  | SqlTransaction

/** A connection of Kysely's. */
interface KyselyConnection {
  executeQuery(query: object): Promise<{ readonly rows: readonly Record<string, unknown>[] }>
}

/** The guests of one store. */
export class UserTransactions {
  readonly #known = new WeakMap<object, UserTransaction>()
  /** Those that are known to be on the store's own database. */
  readonly #own = new WeakSet<UserTransaction>()
  /** Those that are known to belong to the store's own copy of SQLite. */
  readonly #proven = new WeakSet<UserTransaction>()
  /** Where the store is: a file, or the one handle through which its memory can be reached. */
  readonly #home: { readonly path: string | undefined; readonly handle: SqliteHandle | undefined }

  constructor(home: { readonly path: string | undefined; readonly handle: SqliteHandle | undefined }) {
    this.#home = home
  }

  /** The guest that a `tx` is; refuses one of another kind, and one on another database. */
  *of(tx: Tx): Steps<UserTransaction> {
    if (typeof tx !== 'object' || tx === null) throw unknown(tx)
    const handle = handleIn(tx)
    const key = handle ?? tx
    let guest = this.#known.get(key)
    if (guest === undefined) {
      guest = handle === undefined ? executing(tx) : adopted(handle)
      this.#known.set(key, guest)
    }
    if (!this.#own.has(guest)) {
      yield* this.#check(guest, handle)
      this.#own.add(guest)
    }
    return guest
  }

  /** Whether a guest is known to belong to the store's own copy of SQLite. */
  isProven(guest: UserTransaction): boolean {
    return this.#proven.has(guest)
  }

  /** It was seen that a guest belongs to the store's own copy of SQLite. */
  proven(guest: UserTransaction): void {
    this.#proven.add(guest)
  }

  *#check(guest: UserTransaction, handle: SqliteHandle | undefined): Steps<void> {
    const home = this.#home
    if (home.path === undefined) {
      if (handle !== undefined && handle === home.handle) return
      throw other('this store is in memory, where only its own handle reaches it')
    }
    const file = yield* step(guest.file())
    if (file === undefined) throw other(`it is in memory, and this store is in ${nameOf(home.path)}`)
    if (!isSame(file, home.path)) throw other(`it is on ${file}, and this store is in ${nameOf(home.path)}`)
    if (handle === undefined) return // its lock is looked at when it writes
    if (refuseSecondCopy(file, handle) && home.handle !== undefined) this.#proven.add(guest)
    remember(file, handle)
  }
}

function isSame(file: string, path: string): boolean {
  if (file === path) return true
  const number = fileNumber(file)
  return number !== undefined && number === fileNumber(path)
}

/** The driver's handle, given as it is or inside a transaction of Drizzle. */
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

function adopted(handle: SqliteHandle): UserTransaction {
  try {
    return new HandleTransaction(adopt(handle))
  } catch (error) {
    throw ended(error) // it was closed
  }
}

function executing(given: object): UserTransaction {
  const tx = prismaIn(given) ?? given
  const { isTransaction, getExecutor, execute } = tx as Partial<KyselyTransaction & SqlTransaction>
  if (typeof getExecutor === 'function') {
    if (isTransaction !== true) throw ended()
    const executor = (tx as KyselyTransaction).getExecutor()
    return new ExecutorTransaction((work) => heldByKysely(executor, work))
  }
  if (typeof execute !== 'function') throw unknown(tx)
  const { session, _ } = tx as { session?: unknown; _?: unknown }
  if (session !== undefined || _ !== undefined) throw unknown(tx) // a Drizzle of another database
  return new ExecutorTransaction((work) => work((sql, params) => (tx as SqlTransaction).execute(sql, params)))
}

/** Kysely gives its connection to one at a time. */
async function heldByKysely<T>(
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
    throw began ? error : ended(error)
  }
}

function unknown(tx: unknown): MillraceError {
  return new MillraceError(
    'INVALID_TRANSACTION',
    `The sqlite store cannot write to the \`tx\` given, ${quote(tx)}. It takes a handle of better-sqlite3, node:sqlite or @photostructure/sqlite, a transaction of Drizzle or Kysely on better-sqlite3, one of Prisma, or { execute(sql, params) }.`,
  )
}

function other(why: string): MillraceError {
  return new MillraceError(
    'OTHER_DATABASE',
    `The \`tx\` given is not on the database of this store: ${why}. Open the transaction on the same file.`,
  )
}

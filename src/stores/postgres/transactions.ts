// stores/postgres/transactions.ts: runs calls in user transactions of any supported driver or library.
import { MillraceError } from '../../job/errors/errors.js'
import { describeError } from '../../job/errors/failure.js'
import { prismaIn } from '../../store/sql-transaction.js'
import type { PrismaTransaction, SqlTransaction } from '../../store/sql-transaction.js'
import type { Call } from './drivers/driver.js'
import { isPool } from './drivers/open.js'
import { LANE_LOST, isMissing, isolationIn, sqlStateOf } from './errors.js'
import { quoteIdentifier } from './migrate.js'

/** A client of `pg` in a transaction. */
export interface PgTransaction {
  /** Runs a statement, and returns its rows. */
  query(text: string, values?: unknown[]): Promise<{ readonly rows: Record<string, unknown>[] }>
}

/** A transaction of `postgres`, as `sql.begin` passes it to its callback. */
export interface PostgresJsSql {
  /** Runs a statement, and returns its rows. */
  unsafe(text: string, values?: never[]): PromiseLike<readonly Record<string, unknown>[]>
  /** Begins a savepoint. */
  savepoint: unknown
}

/** A transaction of Drizzle over one of these drivers. */
export interface DrizzleTransaction {
  /** Rolls it back. */
  rollback(): never
  /** Runs a statement. */
  execute(query: never): unknown
}

/** A transaction of Kysely on PostgreSQL. */
export interface KyselyTransaction {
  /** True for a transaction, false for a `Kysely` itself. */
  readonly isTransaction: boolean
  /** Runs a statement. */
  executeQuery(query: never): Promise<{ readonly rows: readonly unknown[] }>
}

/** The types that a queue on PostgreSQL accepts as `tx`. */
export type PostgresTransaction =
  | PgTransaction
  | PostgresJsSql
  | DrizzleTransaction
  | KyselyTransaction
  | PrismaTransaction
  | SqlTransaction

type Fields = Readonly<Record<string, unknown>>

const ACCEPTED =
  "a client of 'pg' in a transaction, the sql of postgres.js's begin(), a transaction of Drizzle, Kysely or Prisma, or an object with execute(sql, params)"

/** The schema of a store, and its id in `meta`. */
interface StoreIdentity {
  readonly schema: string
  readonly id: string
}

/** Runs a call in a user transaction. */
type CallInTransaction = (call: Call) => Promise<string | null>

/** The answers of a call that was made in no transaction, or on another database. */
const NO_TRANSACTION = '!'
const OTHER_DATABASE = '?'

/**
 * Calls in user transactions. Each transaction gets a mark, a setting that ends with it. A call made after the transaction has
 * ended would run in autocommit mode; it finds no mark, and does nothing.
 */
export class Transactions {
  readonly #marks = new WeakMap<object, string>()
  /** The last call of each transaction: drivers expect one at a time. */
  readonly #calls = new WeakMap<object, Promise<unknown>>()
  readonly #id: () => string

  /** `id` generates the marks. */
  constructor(id: () => string) {
    this.#id = id
  }

  /**
   * Runs a call in a transaction. Throws if `tx` is not a transaction, has ended, or is on another database than the store.
   */
  async call(tx: unknown, call: Call, store: StoreIdentity): Promise<string | null> {
    const run = callerFor(tx)
    const previous = this.#calls.get(tx as object)
    const work = (): Promise<string | null> => this.#call(tx as object, run, call, store)
    const current = previous === undefined ? work() : previous.then(work, work)
    this.#calls.set(tx as object, current)
    return current
  }

  async #call(
    tx: object,
    run: CallInTransaction,
    { name, text, values }: Call,
    { schema, id }: StoreIdentity,
  ): Promise<string | null> {
    const callIfMarked = async (mark: string): Promise<string | null> => {
      const parameter = values.length + 1
      const sameDatabase = `exists (select 1 from ${quoteIdentifier(schema)}.meta where id = $${parameter + 1}::text::uuid)`
      const guarded = `select case when current_setting('millrace.tx', true) = $${parameter} then
        (select case when ${sameDatabase} then (${text}) else '${OTHER_DATABASE}' end) else '${NO_TRANSACTION}' end`
      const answer = await run({ name, text: guarded, values: [...values, mark, id] })
      if (answer === OTHER_DATABASE) throw otherDatabase(schema)
      return answer
    }
    const known = this.#marks.get(tx)
    if (known !== undefined) {
      const answer = await callIfMarked(known)
      if (answer !== NO_TRANSACTION) return answer
    }
    // Keeps a mark that is already set: a caller may pass the same transaction in a new wrapper object each time.
    const setMark = `select set_config('millrace.tx', coalesce(nullif(current_setting('millrace.tx', true), ''), $1), true)`
    const mark = (await run({ name: '', text: setMark, values: [this.#id()] }))!
    this.#marks.set(tx, mark)
    const answer = await callIfMarked(mark)
    if (answer !== NO_TRANSACTION) return answer
    throw ended()
  }
}

/** Returns how to run calls in a user transaction; throws if `tx` is not one. */
function callerFor(tx: unknown): CallInTransaction {
  const isObject = (typeof tx === 'object' && tx !== null) || typeof tx === 'function'
  if (!isObject) throw wrongKind(tx === null ? 'null' : `a value of type ${typeof tx}`)
  const fields = tx as Fields
  if (isPool(tx)) throw wrongKind("a Pool of 'pg', which runs each statement on another connection")
  if (typeof tx === 'function') {
    if (typeof fields.unsafe !== 'function') throw wrongKind('a function')
    if (typeof fields.savepoint !== 'function') throw wrongKind("postgres.js's sql itself; give it what begin() gives")
    const { unsafe } = fields as { unsafe: (text: string, values: unknown) => Promise<readonly Fields[]> }
    return async ({ text, values }) => firstValue(await unsafe.call(tx, text, values))
  }
  const prisma = prismaIn(tx)
  if (prisma !== undefined) return callerFor(prisma)
  if (typeof fields.execute === 'function' && typeof fields.transaction === 'function' && 'session' in fields) {
    if (typeof fields.rollback !== 'function') throw wrongKind('a Drizzle that is in no transaction')
    const { client } = fields.session as { client?: unknown }
    if (client === undefined)
      throw wrongKind("a transaction of Drizzle whose driver it does not know; pass the driver's own")
    return callerFor(client)
  }
  if (typeof fields.executeQuery === 'function') {
    if (fields.isTransaction !== true) throw wrongKind('a Kysely that is in no transaction')
    return async ({ text, values }) =>
      firstValue((await runInKysely(tx as KyselyTransaction, text, values)).rows as Fields[])
  }
  if (typeof fields.query === 'function') {
    const { query } = fields as { query: (config: object) => Promise<{ rows: readonly (readonly unknown[])[] }> }
    return async ({ text, values }) => {
      const { rows } = await query.call(tx, { text, values, rowMode: 'array' })
      return (rows[0]?.[0] as string | null | undefined) ?? null
    }
  }
  if (typeof fields.execute === 'function') {
    const { execute } = tx as SqlTransaction
    return async ({ text, values }) => {
      const rows: unknown = await execute.call(tx, text, values)
      if (!Array.isArray(rows)) throw wrongKind('an object whose execute() did not answer an array of rows')
      return firstValue(rows as Fields[])
    }
  }
  throw wrongKind('something else')
}

/** Runs SQL in Kysely as a query that is already compiled. */
function runInKysely(
  tx: KyselyTransaction,
  sql: string,
  parameters: readonly unknown[],
): Promise<{ rows: readonly unknown[] }> {
  const query = { kind: 'RawNode', sqlFragments: [sql], parameters: [] }
  return tx.executeQuery({ sql, parameters, query, queryId: { queryId: 'millrace' } } as never)
}

function firstValue(rows: readonly Fields[]): string | null {
  const [row] = rows
  return row === undefined ? null : ((Object.values(row)[0] as string | null | undefined) ?? null)
}

function wrongKind(got: string): MillraceError {
  return new MillraceError('INVALID_TRANSACTION', `tx must be ${ACCEPTED}; it was given ${got}.`)
}

/** Converts an error in a user transaction to one of the catalogue. */
export function toTransactionError(error: unknown, schema: string): unknown {
  const state = sqlStateOf(error)
  if (state === undefined) {
    // Kysely and Prisma throw errors of their own when a transaction has ended.
    const { code, message } = describeError(error)
    if (code === 'P2028' || message.startsWith('Transaction is already ')) return ended(error)
  }
  if (state === '25P02') {
    return new MillraceError(
      'TRANSACTION_ENDED',
      'A statement in this transaction has failed before, so that PostgreSQL takes no more. Nothing was written; roll it back, or begin again from a savepoint.',
      { cause: error },
    )
  }
  if (state === 'MR003') {
    return new MillraceError(
      'INVALID_TRANSACTION',
      `tx is at the isolation level '${isolationIn(error)}', which does not show who has come to wait for this job. Nothing was written; end jobs in a transaction at read committed.`,
      { cause: error },
    )
  }
  if (state === LANE_LOST) {
    return new MillraceError(
      'TRANSACTION_STALE',
      'The server has lost what this process remembers of its queues, as after a failover. Nothing was written; roll the transaction back and run it again.',
      { cause: error },
    )
  }
  return state === 'MR005' || isMissing(error) ? otherDatabase(schema, error) : error
}

function otherDatabase(schema: string, cause?: unknown): MillraceError {
  return new MillraceError(
    'OTHER_DATABASE',
    `tx is a transaction on another database: schema '${schema}' of this store is not there. Nothing was written.`,
    { cause },
  )
}

function ended(cause?: unknown): MillraceError {
  return new MillraceError(
    'TRANSACTION_ENDED',
    'tx is in no transaction: it was committed or rolled back, or never begun. Nothing was written; await every call made with it before it ends.',
    { cause },
  )
}

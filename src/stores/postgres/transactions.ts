// stores/postgres/transactions.ts: whatever a user has as a transaction, as something that can be asked.
import { MillraceError } from '../../job/errors.js'
import { describeError } from '../../job/failure.js'
import { prismaIn } from '../../store/sql.js'
import type { PrismaTransaction, SqlTransaction } from '../../store/sql.js'
import type { Call } from './drivers/driver.js'
import { isPool } from './drivers/open.js'
import { LANE_LOST, isMissing, levelIn, stateOf } from './errors.js'
import { quoted } from './migrate.js'

/** A client of `pg` in a transaction. */
export interface PgTransaction {
  /** Runs a statement, and answers its rows. */
  query(text: string, values?: unknown[]): Promise<{ readonly rows: Record<string, unknown>[] }>
}

/** A transaction of `postgres`, as `sql.begin` gives it. */
export interface PostgresJsSql {
  /** Runs a statement, and answers its rows. */
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
  /** Only a transaction of Kysely says so. */
  readonly isTransaction: boolean
  /** Runs a statement. */
  executeQuery(query: never): Promise<{ readonly rows: readonly unknown[] }>
}

/** Whatever can be given as `tx` to a queue on PostgreSQL. */
export type PostgresTransaction =
  | PgTransaction
  | PostgresJsSql
  | DrizzleTransaction
  | KyselyTransaction
  | PrismaTransaction
  | SqlTransaction

type Fields = Readonly<Record<string, unknown>>

const TAKES =
  "a client of 'pg' in a transaction, the sql of postgres.js's begin(), a transaction of Drizzle, Kysely or Prisma, or an object with execute(sql, params)"

/** A store, by its schema and its id there. */
interface Whose {
  readonly schema: string
  readonly id: string
}

/** Asks within a user's transaction. */
export type Asker = (call: Call) => Promise<string | null>

/** What a call answers that found itself in no transaction, or on another database. */
const NOWHERE = '!'
const ELSEWHERE = '?'

/**
 * The users' transactions. A mark is set in each that lasts as long as it does, so that a call made after it has ended, on
 * a connection that commits each statement by itself, finds no mark and does nothing.
 */
export class Transactions {
  readonly #marks = new WeakMap<object, string>()
  /** The call under way in each: drivers want one at a time. */
  readonly #turns = new WeakMap<object, Promise<unknown>>()
  readonly #id: () => string

  /** `id` makes the marks. */
  constructor(id: () => string) {
    this.#id = id
  }

  /**
   * Calls a function within a transaction; refuses what is none, what has ended, and what is on another database than the
   * store.
   */
  async call(tx: unknown, call: Call, store: Whose): Promise<string | null> {
    const ask = askerOf(tx)
    const before = this.#turns.get(tx as object)
    const work = (): Promise<string | null> => this.#call(tx as object, ask, call, store)
    const turn = before === undefined ? work() : before.then(work, work)
    this.#turns.set(tx as object, turn)
    return turn
  }

  async #call(tx: object, ask: Asker, { name, text, values }: Call, { schema, id }: Whose): Promise<string | null> {
    const marked = async (mark: string): Promise<string | null> => {
      const place = values.length + 1
      const there = `exists (select 1 from ${quoted(schema)}.meta where id = $${place + 1}::text::uuid)`
      const within = `select case when current_setting('millrace.tx', true) = $${place} then
        (select case when ${there} then (${text}) else '${ELSEWHERE}' end) else '${NOWHERE}' end`
      const answer = await ask({ name, text: within, values: [...values, mark, id] })
      if (answer === ELSEWHERE) throw otherDatabase(schema)
      return answer
    }
    const known = this.#marks.get(tx)
    if (known !== undefined) {
      const answer = await marked(known)
      if (answer !== NOWHERE) return answer
    }
    // One that stands stays: the same transaction may be given wrapped in one object after the other.
    const marking = `select set_config('millrace.tx', coalesce(nullif(current_setting('millrace.tx', true), ''), $1), true)`
    const mark = (await ask({ name: '', text: marking, values: [this.#id()] }))!
    this.#marks.set(tx, mark)
    const answer = await marked(mark)
    if (answer !== NOWHERE) return answer
    throw ended()
  }
}

/** How to ask within a user's transaction; refuses what is none. */
function askerOf(tx: unknown): Asker {
  const isObject = (typeof tx === 'object' && tx !== null) || typeof tx === 'function'
  if (!isObject) throw wrongKind(tx === null ? 'null' : `a value of type ${typeof tx}`)
  const fields = tx as Fields
  if (isPool(tx)) throw wrongKind("a Pool of 'pg', which runs each statement on another connection")
  if (typeof tx === 'function') {
    if (typeof fields.unsafe !== 'function') throw wrongKind('a function')
    if (typeof fields.savepoint !== 'function') throw wrongKind("postgres.js's sql itself; give it what begin() gives")
    const { unsafe } = fields as { unsafe: (text: string, values: unknown) => Promise<readonly Fields[]> }
    return async ({ text, values }) => first(await unsafe.call(tx, text, values))
  }
  const prisma = prismaIn(tx)
  if (prisma !== undefined) return askerOf(prisma)
  if (typeof fields.execute === 'function' && typeof fields.transaction === 'function' && 'session' in fields) {
    if (typeof fields.rollback !== 'function') throw wrongKind('a Drizzle that is in no transaction')
    const { client } = fields.session as { client?: unknown }
    if (client === undefined)
      throw wrongKind("a transaction of Drizzle whose driver it does not know; pass the driver's own")
    return askerOf(client)
  }
  if (typeof fields.executeQuery === 'function') {
    if (fields.isTransaction !== true) throw wrongKind('a Kysely that is in no transaction')
    return async ({ text, values }) => first((await kysely(tx as KyselyTransaction, text, values)).rows as Fields[])
  }
  if (typeof fields.query === 'function') {
    const { query } = fields as { query: (asked: object) => Promise<{ rows: readonly (readonly unknown[])[] }> }
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
      return first(rows as Fields[])
    }
  }
  throw wrongKind('something else')
}

/** Asks Kysely by a query that is compiled already. */
function kysely(
  tx: KyselyTransaction,
  sql: string,
  parameters: readonly unknown[],
): Promise<{ rows: readonly unknown[] }> {
  const query = { kind: 'RawNode', sqlFragments: [sql], parameters: [] }
  return tx.executeQuery({ sql, parameters, query, queryId: { queryId: 'millrace' } } as never)
}

function first(rows: readonly Fields[]): string | null {
  const [row] = rows
  return row === undefined ? null : ((Object.values(row)[0] as string | null | undefined) ?? null)
}

function wrongKind(got: string): MillraceError {
  return new MillraceError('INVALID_TRANSACTION', `tx must be ${TAKES}; it was given ${got}.`)
}

/** What an error within a user's transaction means. */
export function toTransactionError(error: unknown, schema: string): unknown {
  const state = stateOf(error)
  if (state === undefined) {
    // Kysely and Prisma know by themselves.
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
      `tx is at the isolation level '${levelIn(error)}', which does not show who has come to wait for this job. Nothing was written; end jobs in a transaction at read committed.`,
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

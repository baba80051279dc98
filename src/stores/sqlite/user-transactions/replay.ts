// stores/sqlite/user-transactions/replay.ts: runs synchronous work over a connection that may be asynchronous.
//
// Whenever a result is missing, the work is aborted, and restarted once the result is there; earlier results are
// replayed. So the same code serves both kinds of drivers.
import { step } from '../../../store/maybe-sync.js'
import type { Steps } from '../../../store/maybe-sync.js'
import type { SqlRow as NamedRow } from '../../../store/sql-transaction.js'
import type { SqlRow, Statement, Value } from '../file/driver.js'

/** Runs one statement, with its parameters in the order of their `?`. */
export type Execute = (sql: string, params: readonly Value[]) => Promise<readonly NamedRow[]> | readonly NamedRow[]

/** Thrown for a statement whose result is not recorded yet. */
class MissingResult extends Error {
  readonly sql: string
  readonly params: readonly Value[]

  constructor(sql: string, params: readonly Value[]) {
    super('wanted')
    this.sql = sql
    this.params = params
  }
}

type Result = { readonly rows: readonly SqlRow[] } | { readonly failure: unknown }

/**
 * Runs work on the statements that it prepares. The work must be deterministic, given the same results: no clock, no
 * randomness, no state of its own.
 */
export function* replaying<T>(execute: Execute, work: (prepare: (sql: string) => Statement) => T): Steps<T> {
  const results: Result[] = []
  for (;;) {
    let at = 0
    const rowsOf = (sql: string, params: readonly Value[]): readonly SqlRow[] => {
      const result = results[at++]
      if (result === undefined) throw new MissingResult(sql, params)
      if ('failure' in result) throw result.failure
      return result.rows
    }
    try {
      return work((sql) => statement(sql, rowsOf))
    } catch (error) {
      if (!(error instanceof MissingResult)) throw error
      results.push(yield* resultOf(execute, error.sql, error.params))
    }
  }
}

/** Runs one statement by itself. */
export function* executing(execute: Execute, sql: string, params: readonly Value[] = []): Steps<readonly SqlRow[]> {
  const result = yield* resultOf(execute, sql, params)
  if ('failure' in result) throw result.failure
  return result.rows
}

function* resultOf(execute: Execute, sql: string, params: readonly Value[]): Steps<Result> {
  try {
    const returned = execute(sql, params)
    const rows = isPromise(returned) ? yield* step(returned) : returned
    return { rows: Array.isArray(rows) ? rows.map(toArray) : [] }
  } catch (failure) {
    return { failure: constraintError(failure) }
  }
}

function isPromise<T>(value: Promise<T> | T): value is Promise<T> {
  return typeof (value as { then?: unknown } | undefined)?.then === 'function'
}

/** Our columns have distinct names that are not numbers, so that `Object.values` keeps their order. */
function toArray(row: NamedRow): SqlRow {
  return Object.values(row).map((value) => (typeof value === 'bigint' ? Number(value) : (value as Value)))
}

/**
 * Libraries wrap SQLite's errors in errors of their own; a violated uniqueness constraint must be recognised all the
 * same.
 */
function constraintError(failure: unknown): unknown {
  const { message, code } = (failure ?? {}) as { message?: unknown; code?: unknown }
  if (typeof code === 'string' && code.startsWith('SQLITE_')) return failure
  if (!/(UNIQUE|PRIMARY KEY) constraint failed/i.test(String(message))) return failure
  return Object.assign(new Error(String(message), { cause: failure }), { code: 'SQLITE_CONSTRAINT' })
}

function statement(sql: string, rowsOf: (sql: string, params: readonly Value[]) => readonly SqlRow[]): Statement {
  const { text, order } = positional(sql)
  const inOrder = (values: readonly Value[]): readonly Value[] => order?.map((at) => values[at]!) ?? values
  return {
    run: (...values) => {
      rowsOf(text, inOrder(values))
      return {
        get changes(): number {
          return rowsOf('SELECT changes() AS n', [])[0]![0] as number
        },
      }
    },
    get: (...values) => rowsOf(text, inOrder(values))[0],
    all: (...values) => [...rowsOf(text, inOrder(values))],
  }
}

/** Replaces numbered parameters by plain ones; `order` holds the index of the value of each. */
function positional(sql: string): { readonly text: string; readonly order: readonly number[] | undefined } {
  if (!/\?\d/.test(sql)) return { text: sql, order: undefined }
  const order: number[] = []
  const text = sql.replace(/\?(\d+)/g, (_, number: string) => {
    order.push(Number(number) - 1)
    return '?'
  })
  return { text, order }
}

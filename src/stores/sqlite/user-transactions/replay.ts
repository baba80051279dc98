// stores/sqlite/user-transactions/replay.ts: synchronous work over a connection that may answer later. Whenever an answer is not there, the work
// is broken off, and begun anew once it is; what was answered before comes from the tape. So one set of rules does for all.
import { step } from '../../../store/maybe-sync.js'
import type { Steps } from '../../../store/maybe-sync.js'
import type { SqlRow as NamedRow } from '../../../store/sql.js'
import type { SqlRow, Statement, Value } from '../driver.js'

/** Runs one statement, with its parameters in the order of their `?`. */
export type Execute = (sql: string, params: readonly Value[]) => Promise<readonly NamedRow[]> | readonly NamedRow[]

/** A statement whose answer is not on the tape yet. */
class Wanted extends Error {
  readonly sql: string
  readonly params: readonly Value[]

  constructor(sql: string, params: readonly Value[]) {
    super('wanted')
    this.sql = sql
    this.params = params
  }
}

type Answer = { readonly rows: readonly SqlRow[] } | { readonly failure: unknown }

/**
 * Runs work that asks through the statements it prepares. It must do the same again if it is given the same answers: no
 * clock, no chance, no memory of its own.
 */
export function* playing<T>(execute: Execute, work: (prepare: (sql: string) => Statement) => T): Steps<T> {
  const tape: Answer[] = []
  for (;;) {
    let at = 0
    const ask = (sql: string, params: readonly Value[]): readonly SqlRow[] => {
      const answer = tape[at++]
      if (answer === undefined) throw new Wanted(sql, params)
      if ('failure' in answer) throw answer.failure
      return answer.rows
    }
    try {
      return work((sql) => statement(sql, ask))
    } catch (error) {
      if (!(error instanceof Wanted)) throw error
      tape.push(yield* answering(execute, error.sql, error.params))
    }
  }
}

/** Runs one statement by itself. */
export function* asking(execute: Execute, sql: string, params: readonly Value[] = []): Steps<readonly SqlRow[]> {
  const answer = yield* answering(execute, sql, params)
  if ('failure' in answer) throw answer.failure
  return answer.rows
}

function* answering(execute: Execute, sql: string, params: readonly Value[]): Steps<Answer> {
  try {
    const said = execute(sql, params)
    const rows = isPromise(said) ? yield* step(said) : said
    return { rows: Array.isArray(rows) ? rows.map(toArray) : [] }
  } catch (failure) {
    return { failure: recognised(failure) }
  }
}

function isPromise<T>(value: Promise<T> | T): value is Promise<T> {
  return typeof (value as { then?: unknown } | undefined)?.then === 'function'
}

/** The columns of our rows have names of their own, which are not numbers, so that they come in their order. */
function toArray(row: NamedRow): SqlRow {
  return Object.values(row).map((value) => (typeof value === 'bigint' ? Number(value) : (value as Value)))
}

/** Libraries put errors of their own around those of SQLite; what must be known is whether a row was there already. */
function recognised(failure: unknown): unknown {
  const { message, code } = (failure ?? {}) as { message?: unknown; code?: unknown }
  if (typeof code === 'string' && code.startsWith('SQLITE_')) return failure
  if (!/(UNIQUE|PRIMARY KEY) constraint failed/i.test(String(message))) return failure
  return Object.assign(new Error(String(message), { cause: failure }), { code: 'SQLITE_CONSTRAINT' })
}

function statement(sql: string, ask: (sql: string, params: readonly Value[]) => readonly SqlRow[]): Statement {
  const { text, order } = positional(sql)
  const inOrder = (values: readonly Value[]): readonly Value[] => order?.map((at) => values[at]!) ?? values
  return {
    run: (...values) => {
      ask(text, inOrder(values))
      return {
        get changes(): number {
          return ask('SELECT changes() AS n', [])[0]![0] as number
        },
      }
    },
    get: (...values) => ask(text, inOrder(values))[0],
    all: (...values) => [...ask(text, inOrder(values))],
  }
}

/** A statement whose parameters have no numbers, and the places of its values in their stead. */
function positional(sql: string): { readonly text: string; readonly order: readonly number[] | undefined } {
  if (!/\?\d/.test(sql)) return { text: sql, order: undefined }
  const order: number[] = []
  const text = sql.replace(/\?(\d+)/g, (_, number: string) => {
    order.push(Number(number) - 1)
    return '?'
  })
  return { text, order }
}

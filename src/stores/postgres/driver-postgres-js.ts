// stores/postgres/driver-postgres-js.ts: the driver `postgres` (postgres.js), on the user's own client.
import { MillraceError } from '../../job/errors.js'
import type { Call, Driver, DriverOptions, Ear, Listening } from './connection.js'
import { isServersWord, isUnpreparable } from './failures.js'
import { quoted } from './migrate.js'
import { NoAnswer, inTime } from './patience.js'

type Row = Readonly<Record<string, unknown>>

/** What the store needs of a transaction of `postgres`. */
export interface PostgresJsTransaction {
  unsafe(text: string, values?: readonly unknown[], options?: { prepare: boolean }): Promise<readonly Row[]>
  savepoint<T>(work: (sql: PostgresJsTransaction) => Promise<T>): Promise<T>
}

/** What the store needs of a client of `postgres`. */
export interface PostgresJs extends PostgresJsTransaction {
  /** What it was made with, parsed. */
  readonly options: object
  begin<T>(options: string, work: (sql: PostgresJsTransaction) => Promise<T>): Promise<T>
  end(options: { timeout: number }): Promise<void>
}

/** Makes a client with the options of another: the one that `postgres` opens by itself to listen cannot be closed. */
async function another(sql: PostgresJs, options: object): Promise<PostgresJs> {
  try {
    const { default: make } = (await import('postgres')) as unknown as { default: (options: object) => PostgresJs }
    return make({ ...sql.options, ...options })
  } catch (cause) {
    throw new MillraceError(
      'MISSING_DRIVER',
      "The package 'postgres' cannot be loaded here, as it must to listen. Install it: npm install postgres",
      { cause },
    )
  }
}

/** Connections by `postgres`. It finds lost connections and opens others by itself. */
export function postgresJsDriver(sql: PostgresJs, { patience, timer }: DriverOptions): Driver<PostgresJsTransaction> {
  let prepares = true

  const within = <T>(asked: Promise<T>): Promise<T> => inTime(asked, patience, timer)
  const ask = async (on: PostgresJs, { text, values }: Call, prepare: boolean): Promise<string | null> => {
    const [row] = await within(on.unsafe(text, values, { prepare }))
    return row === undefined ? null : ((Object.values(row)[0] as string | null) ?? null)
  }

  return {
    name: 'postgres',
    async call(asked) {
      try {
        return await ask(sql, asked, prepares)
      } catch (error) {
        if (!prepares || !isUnpreparable(error)) throw error
        prepares = false
        return ask(sql, asked, prepares)
      }
    },
    async script(statements) {
      await sql.begin('isolation level read committed', async (tx) => {
        for (const statement of statements) await tx.unsafe(statement)
      })
    },
    transact: (work) => sql.begin('isolation level read committed', (tx) => whileOpen(tx, work)),
    savepoint: (tx, work) => tx.savepoint((inner) => whileOpen(inner, work, tx)),
    async listen(channel: string, ear: Ear): Promise<Listening> {
      let over = false
      const own = await another(sql, {
        max: 1,
        idle_timeout: null,
        max_lifetime: null,
        fetch_types: false,
        onnotify: (_channel: string, payload: string) => ear.heard(payload),
        onclose: () => lose(new NoAnswer('The connection that listens was closed.')),
      })
      const end = (): Promise<void> => own.end({ timeout: 0 }).catch(() => {})
      const lose = (error: unknown): void => {
        if (over) return
        over = true
        void end()
        ear.lost(error)
      }
      try {
        await within(own.unsafe(`listen ${quoted(channel)}`))
      } catch (error) {
        over = true
        void end()
        throw error
      }
      return {
        call: async (asked) => {
          try {
            return await ask(own, asked, false)
          } catch (error) {
            if (!isServersWord(error)) lose(error)
            throw error
          }
        },
        close: () => {
          over = true
          return end()
        },
      }
    },
    close: async () => {},
  }
}

/** Whether each transaction that was given out is over. */
const over = new WeakMap<object, () => boolean>()

/**
 * Gives work a transaction that refuses whatever is asked once the work is over, or broken off: postgres.js would run it on
 * the same connection, outside of any transaction or inside the next one.
 */
async function whileOpen<T>(
  tx: PostgresJsTransaction,
  work: (tx: PostgresJsTransaction) => Promise<T>,
  around?: PostgresJsTransaction,
): Promise<T> {
  let ended = false
  const isOver = (): boolean => ended || (around !== undefined && over.get(around)?.() === true)
  const call = (run: () => unknown): unknown => {
    if (!isOver()) return run()
    throw new MillraceError(
      'TRANSACTION_ENDED',
      'This transaction has ended. Nothing was written; await every call made with it.',
    )
  }
  const guarded = new Proxy(tx as unknown as (...args: unknown[]) => unknown, {
    apply: (target, self, args) => call(() => Reflect.apply(target, self, args)),
    get: (target, key) => {
      const value: unknown = Reflect.get(target, key)
      return typeof value === 'function'
        ? (...args: unknown[]) => call(() => Reflect.apply(value, target, args))
        : value
    },
  }) as unknown as PostgresJsTransaction
  over.set(guarded, isOver)
  try {
    return await work(guarded)
  } finally {
    ended = true
  }
}

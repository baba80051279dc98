// stores/postgres/driver-postgres-js.ts: the driver `postgres` (postgres.js), on the user's own client.
import { MillraceError } from '../../job/errors.js'
import type { Call, Driver, DriverOptions, Ear, Listening } from './connection.js'
import { isUnpreparable } from './failures.js'

type Row = Readonly<Record<string, unknown>>

/** What the store needs of a transaction of `postgres`. */
export interface PostgresJsTransaction {
  unsafe(text: string, values?: readonly unknown[], options?: { prepare: boolean }): Promise<readonly Row[]>
  savepoint<T>(work: (sql: PostgresJsTransaction) => Promise<T>): Promise<T>
}

/** What the store needs of a client of `postgres`. */
export interface PostgresJs extends PostgresJsTransaction {
  begin<T>(options: string, work: (sql: PostgresJsTransaction) => Promise<T>): Promise<T>
  listen(channel: string, heard: (payload: string) => void, began?: () => void): Promise<{ unlisten(): Promise<void> }>
}

/** Connections by `postgres`. It finds lost connections and opens others by itself. */
export function postgresJsDriver(sql: PostgresJs, { patience, timer }: DriverOptions): Driver<PostgresJsTransaction> {
  let prepares = true

  const ask = async ({ text, values }: Call): Promise<string | null> => {
    const [row] = await sql.unsafe(text, values, { prepare: prepares })
    return row === undefined ? null : ((Object.values(row)[0] as string | null) ?? null)
  }
  const within = <T>(asked: Promise<T>): Promise<T> => {
    let stop = (): void => {}
    return new Promise<T>((resolve, reject) => {
      stop = timer(patience, () => reject(new Error(`PostgreSQL did not answer within ${patience} ms.`)))
      asked.then(resolve, reject)
    }).finally(() => stop())
  }
  const call = async (asked: Call): Promise<string | null> => {
    try {
      return await within(ask(asked))
    } catch (error) {
      if (!prepares || !isUnpreparable(error)) throw error
      prepares = false
      return within(ask(asked))
    }
  }

  return {
    name: 'postgres',
    call,
    async script(statements) {
      await sql.begin('isolation level read committed', async (tx) => {
        for (const statement of statements) await tx.unsafe(statement)
      })
    },
    transact: (work) => sql.begin('isolation level read committed', (tx) => whileOpen(tx, work)),
    savepoint: (tx, work) => tx.savepoint((inner) => whileOpen(inner, work, tx)),
    async listen(channel: string, ear: Ear): Promise<Listening> {
      let began = 0
      let over = false
      const listening = await within(
        sql.listen(channel, ear.heard, () => {
          // It has found its connection lost and opened another: what was told meanwhile is to be read.
          if (began++ === 0 || over) return
          over = true
          listening.unlisten().catch(() => {}) // whoever is told so listens anew
          ear.lost(new Error('The connection that listens was lost.'))
        }),
      )
      return {
        call,
        close: async () => {
          over = true
          await within(listening.unlisten()).catch(() => {})
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

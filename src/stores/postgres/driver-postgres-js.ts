// stores/postgres/driver-postgres-js.ts: the driver `postgres` (postgres.js), on the user's own client.
import { MillraceError } from '../../job/errors.js'
import type { Millis } from '../../job/job.js'
import type { Call, Driver, DriverOptions, Ear, Listening } from './connection.js'
import { isServersWord, isUnpreparable } from './failures.js'
import { lookout, LOOKS } from './lookout.js'
import { quoted } from './migrate.js'
import { NoAnswer, inTime } from './patience.js'

/** How long to wait for a statement that was told to end, before it is told again. */
const AGAIN: Millis = 100

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

  const call: Driver['call'] = async (asked) => {
    try {
      return await ask(sql, asked, prepares)
    } catch (error) {
      if (!prepares || !isUnpreparable(error)) throw error
      prepares = false
      return ask(sql, asked, prepares)
    }
  }
  const looks = lookout(call)

  /**
   * Ends the statements that are under way in a transaction which was broken off: the connection stays, and ROLLBACK would
   * wait behind them. One may still be on its way to the server, where a signal that comes before it is forgotten, so it is
   * sent until all of them have ended. It has been sent when this resolves, so that it cannot meet what comes next.
   */
  const cancel = async (tx: PostgresJsTransaction, backend: Promise<readonly Row[]>): Promise<void> => {
    const ended = (): boolean => true
    const last = tx.unsafe('select 1').then(ended, ended) // behind all of them
    try {
      const [row] = await within(backend)
      const signal = { name: '', text: 'select pg_cancel_backend($1::text::int)::text', values: [String(row?.pid)] }
      for (let waited = 0; waited < patience; waited += AGAIN) {
        await call(signal)
        if (await inTime(last, AGAIN, timer).catch(() => false)) return
      }
    } catch {
      // It is rolled back when the lock is released.
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
    async transact(work) {
      const also = (await looks()) ? `, ${LOOKS}` : ''
      return sql.begin('isolation level read committed', async (tx) => {
        const backend = tx.unsafe(`select pg_backend_pid() as pid${also}`) // nobody waits for it
        backend.catch(() => {})
        return whileOpen(tx, work, () => cancel(tx, backend))
      })
    },
    savepoint: (tx, work) => tx.savepoint((inner) => whileInside(tx, inner, work)),
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

/** A transaction, or a savepoint, that was given out. */
interface Given {
  /** Whether it is over, or one around it. */
  isOver(): boolean
  /** Savepoints that are open in the whole transaction. */
  readonly open: { savepoints: number }
}

const givens = new WeakMap<object, Given>()

/** Runs work in a transaction; if it is broken off, calls `brokenOff` before it is rolled back. */
async function whileOpen<T>(
  tx: PostgresJsTransaction,
  work: (tx: PostgresJsTransaction) => Promise<T>,
  brokenOff: () => Promise<void>,
): Promise<T> {
  let ended = false
  const open = { savepoints: 0 }
  try {
    return await work(guarded(tx, { isOver: () => ended, open }))
  } catch (error) {
    ended = true
    if (open.savepoints > 0) await brokenOff()
    throw error
  } finally {
    ended = true
  }
}

/** Runs work in a savepoint of a transaction that was given out. */
async function whileInside<T>(
  around: PostgresJsTransaction,
  tx: PostgresJsTransaction,
  work: (tx: PostgresJsTransaction) => Promise<T>,
): Promise<T> {
  let ended = false
  const outer = givens.get(around)
  const open = outer?.open ?? { savepoints: 0 }
  open.savepoints++
  try {
    return await work(guarded(tx, { isOver: () => ended || outer?.isOver() === true, open }))
  } finally {
    ended = true
    open.savepoints--
  }
}

/**
 * A transaction that refuses whatever is asked once it is over: postgres.js would run it on the same connection, outside of
 * any transaction or inside the next one.
 */
function guarded(tx: PostgresJsTransaction, given: Given): PostgresJsTransaction {
  const call = (run: () => unknown): unknown => {
    if (!given.isOver()) return run()
    throw new MillraceError(
      'TRANSACTION_ENDED',
      'This transaction has ended. Nothing was written; await every call made with it.',
    )
  }
  const proxy = new Proxy(tx as unknown as (...args: unknown[]) => unknown, {
    apply: (target, self, args) => call(() => Reflect.apply(target, self, args)),
    get: (target, key) => {
      const value: unknown = Reflect.get(target, key)
      return typeof value === 'function'
        ? (...args: unknown[]) => call(() => Reflect.apply(value, target, args))
        : value
    },
  }) as unknown as PostgresJsTransaction
  givens.set(proxy, given)
  return proxy
}

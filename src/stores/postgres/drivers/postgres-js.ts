// stores/postgres/drivers/postgres-js.ts: the driver `postgres` (postgres.js), on the user's own client.
import { isInstance } from '../../../job/errors.js'
import type { Millis } from '../../../job/job.js'
import { importPackage } from '../../../store/packages.js'
import { Scope, givenOf, guarded, transactionOver } from '../../transaction-scope.js'
import type { Call, Driver, DriverOptions, NotificationListener, Listening } from './driver.js'
import { isServersWord, isUnpreparable } from '../errors.js'
import { clientCheck, CLIENT_CHECK } from './client-check.js'
import { quoted } from '../migrate.js'
import { NoAnswer, inTime } from './timeout.js'
import { TransactionSlots } from './transaction-slots.js'
import { exhausted, unreachable } from './unreachable.js'

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
  const wanted = { name: 'postgres', neededBy: 'Listening beside your client of postgres.js' }
  const module = await importPackage(wanted, () => import('postgres'))
  return (module as { default: (options: object) => PostgresJs }).default({ ...sql.options, ...options })
}

/** Errors of a connection that was never made. */
const NO_CONNECTION: ReadonlySet<unknown> = new Set([
  ...['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH', 'ETIMEDOUT'],
  ...['CONNECT_TIMEOUT', '53300', '57P03'],
])

/** What a failed call means: where it has not been sent, it never will be, and nothing was written. */
function unsent(sql: PostgresJs, query: object, error: unknown): unknown {
  const { state, cancel } = query as { state?: unknown; cancel?: () => unknown }
  if (NO_CONNECTION.has((error as { code?: unknown }).code)) return unreachable(sql.options, error)
  if (!isInstance(error, NoAnswer) || state !== null || typeof cancel !== 'function') return error
  cancel.call(query) // it stands in the queue of the client, and is taken out
  const { max } = sql.options as { max: number }
  return exhausted(max, undefined, error)
}

/** Connections by `postgres`. It finds lost connections and opens others by itself. */
export function postgresJsDriver(sql: PostgresJs, { patience, timer }: DriverOptions): Driver<PostgresJsTransaction> {
  let prepares = true
  const { max = 10 } = sql.options as { max?: number }
  const slots = new TransactionSlots(max)

  const within = <T>(asked: Promise<T>): Promise<T> => inTime(asked, patience, timer)
  const ask = async (on: PostgresJs, { text, values }: Call, prepare: boolean): Promise<string | null> => {
    const query = on.unsafe(text, values, { prepare })
    const [row] = await within(query).catch((error: unknown) => {
      throw unsent(on, query, error)
    })
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
  const looks = clientCheck(call)

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
      const also = (await looks()) ? `, ${CLIENT_CHECK}` : ''
      const scope = new Scope()
      const begin = <T>(run: (tx: PostgresJsTransaction) => Promise<T>): Promise<T> =>
        sql.begin('isolation level read committed', run).catch((error: unknown) => {
          scope.lose(error) // also where the connection was lost while no statement was under way
          throw error
        })
      const inside = (tx: PostgresJsTransaction): ReturnType<typeof work> => {
        const backend = tx.unsafe(`select pg_backend_pid() as pid${also}`) // nobody waits for it
        backend.catch(() => {})
        return whileOpen(tx, scope, work, () => cancel(tx, backend))
      }
      return slots.run(() => waitedFor(begin, () => scope.unknown !== undefined, inside))
    },
    savepoint: inSavepoint,
    async listen(channel: string, ear: NotificationListener): Promise<Listening> {
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

/**
 * Runs work that postgres.js waits for: a transaction, or a savepoint. Once the connection is lost or the transaction around is
 * over, postgres.js must not learn how the work ended. It would send its COMMIT, ROLLBACK or ROLLBACK TO all the same, on a
 * connection where the next transaction may be open.
 */
function waitedFor<T, Sql>(
  begin: (work: (sql: Sql) => Promise<T>) => Promise<T>,
  isLost: () => boolean,
  work: (sql: Sql) => Promise<T>,
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const inside = (sql: Sql): Promise<T> =>
      new Promise<T>((keep, undo) => {
        work(sql).then(
          (value) => (isLost() ? reject(transactionOver()) : keep(value)),
          (error: unknown) => (isLost() ? reject(error) : undo(error)),
        )
      })
    begin(inside).then(resolve, reject)
  })
}

/** Runs work in a transaction; if it is broken off, calls `brokenOff` before it is rolled back. */
async function whileOpen<T>(
  tx: PostgresJsTransaction,
  scope: Scope,
  work: (tx: PostgresJsTransaction) => Promise<T>,
  brokenOff: () => Promise<void>,
): Promise<T> {
  try {
    return await work(given(tx, scope))
  } catch (error) {
    scope.end()
    if (scope.savepoints > 0) await brokenOff()
    throw error
  } finally {
    scope.end()
  }
}

/** Runs work in a savepoint of a transaction that was given out, or of the user's own. */
async function inSavepoint<T>(
  outer: PostgresJsTransaction,
  work: (tx: PostgresJsTransaction) => Promise<T>,
): Promise<T> {
  const known = givenOf(outer)
  const around = known?.scope ?? new Scope()
  around.check()
  const scope = new Scope(around)
  const inside = async (inner: PostgresJsTransaction): Promise<T> => {
    around.check() // it may have ended while the savepoint was made: then there is nothing to cancel, and nothing begins
    const closed = around.opening()
    try {
      return await work(given(inner, scope))
    } finally {
      scope.end()
      closed()
    }
  }
  try {
    return await waitedFor(
      (run) => (known?.target ?? outer).savepoint(run),
      () => around.isOver,
      inside,
    )
  } finally {
    scope.end()
  }
}

/** A transaction or a savepoint as a user is given it. */
function given(tx: PostgresJsTransaction, scope: Scope): PostgresJsTransaction {
  const own: PostgresJsTransaction = guarded(tx, scope, {
    returned: watched,
    // The savepoints that a user makes are guarded as well.
    methods: { savepoint: (...args: readonly unknown[]) => inSavepoint(own, args.at(-1) as never) },
  })
  return own
}

/** What is used of a statement of postgres.js, which it sends by `handle` when it is first awaited. */
interface LazyQuery {
  executed?: boolean
  handle?: () => unknown
  reject?: (error: unknown) => void
}

/**
 * Refuses a statement that was made in a scope and is sent, because it is awaited only then, after its end. And ends a scope at
 * the first statement of it that fails with the connection: postgres.js uses the connection again when it has been opened
 * anew, and whatever is asked for here would run there.
 */
function watched(value: unknown, scope: Scope): unknown {
  const query = value as LazyQuery | undefined
  if (!(value instanceof Promise) || typeof query?.reject !== 'function') return value
  const { reject, handle } = query
  query.reject = (error) => {
    if (isLoss(error)) scope.lose(error)
    reject(error)
  }
  if (typeof handle === 'function') {
    query.handle = () => {
      if (query.executed === true || !scope.isOver) return handle.call(query)
      query.executed = true
      return query.reject?.(transactionOver())
    }
  }
  return value
}

/** Whether an error says that the connection is gone, or about to go. */
function isLoss(error: unknown): boolean {
  const { code, severity, syscall } = error as { code?: unknown; severity?: unknown; syscall?: unknown }
  return severity === 'FATAL' || syscall !== undefined || (typeof code === 'string' && code.startsWith('CONNECTION_'))
}

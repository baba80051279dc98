// stores/postgres/drivers/postgres-js.ts: the driver `postgres` (postgres.js), on the user's own client.
import { setImmediate, setTimeout } from 'node:timers'
import { isInstance } from '../../../job/errors/errors.js'
import type { Millis } from '../../../job/job.js'
import { importPackage } from '../../../store/packages.js'
import { Scope, unguarded, guarded, transactionOver } from '../../transaction-scope.js'
import type { Call, Driver, DriverOptions, NotificationListener, ListeningConnection } from './driver.js'
import { isServerError, isPreparedStatementLost } from '../errors.js'
import { clientCheck, CLIENT_CHECK } from './client-check.js'
import { quoteIdentifier } from '../migrate.js'
import { NoAnswer, answerWithin } from './timeout.js'
import { TransactionSlots } from './transaction-slots.js'
import { connectionProbe, exhausted, isActionable, unreachable } from './unreachable.js'

/** How long to wait for a cancelled statement to end, before the cancellation is sent again. */
const CANCEL_RETRY: Millis = 100

type Row = Readonly<Record<string, unknown>>

/** Limits how long to wait for an answer. */
type WithTimeout = <T>(answer: Promise<T>) => Promise<T>

/** What the store needs of a transaction of `postgres`. */
export interface PostgresJsTransaction {
  unsafe(text: string, values?: readonly unknown[], options?: { prepare: boolean }): Promise<readonly Row[]>
  savepoint<T>(work: (sql: PostgresJsTransaction) => Promise<T>): Promise<T>
}

/** What the store needs of a client of `postgres`. */
export interface PostgresJs extends PostgresJsTransaction {
  /** Its parsed options. */
  readonly options: object
  /** Settings that the server has reported: none before the first connection. */
  readonly parameters?: object
  begin<T>(options: string, work: (sql: PostgresJsTransaction) => Promise<T>): Promise<T>
  end(options: { timeout: number }): Promise<void>
}

/**
 * Creates a client with the options of another: the one that `postgres` itself opens to listen cannot be closed. It does
 * not query array types: nothing handles the error of that query, and a connection that is lost during it would end the
 * process.
 */
async function cloneClient(sql: PostgresJs, options: object): Promise<PostgresJs> {
  const wanted = { name: 'postgres', neededBy: 'Listening beside your client of postgres.js' }
  const module = await importPackage(wanted, () => import('postgres'))
  const make = (module as { default: (options: object) => PostgresJs }).default
  return make({ ...sql.options, max: 1, max_lifetime: null, fetch_types: false, ...options })
}

/**
 * The parts of a postgres.js statement that are used here. postgres.js sends a statement by `handle` when it is first
 * awaited.
 */
interface LazyQuery {
  executed?: boolean
  handle?: () => unknown
  reject?: (error: unknown) => void
  /** The connection on which it was sent; null before that. */
  state?: unknown
  cancel?: () => unknown
  cancelled?: unknown
  strings?: readonly string[]
  args?: readonly unknown[]
  options?: object
}

/** Withdraws a statement that has not been sent, so that it is never sent; returns whether that was possible. */
function withdraw(query: LazyQuery): boolean {
  if (query.state !== null || typeof query.cancel !== 'function') return false
  query.cancel() // removes it from the queue of the client
  // While a connection is being opened for a statement, the statement is not in the queue. postgres.js only uses that
  // connection after it has sent the statement, so a statement without effect replaces it.
  query.strings = ['select 1']
  query.args = []
  query.options = { simple: true, prepare: false }
  query.cancelled = null
  return true
}

/** Opens the driver `postgres`. It detects lost connections and opens new ones by itself. */
export function postgresJsDriver(sql: PostgresJs, { patience, timer }: DriverOptions): Driver<PostgresJsTransaction> {
  let prepares = true
  const { max = 10 } = sql.options as { max?: number }
  const slots = new TransactionSlots(max)

  const withTimeout: WithTimeout = (answer) => answerWithin(answer, patience, timer)
  const canConnect = connectionProbe(async () => {
    const own = await cloneClient(sql, { idle_timeout: 1, connect_timeout: patience / 1000, onclose: undefined })
    try {
      await withTimeout(own.unsafe('select 1'))
    } finally {
      void own.end({ timeout: 0 }).catch(() => {})
    }
  })

  /** The error for a statement that was not sent: all connections were in use, or the server cannot be reached. */
  const unsentError = async (error: unknown): Promise<unknown> => {
    if (isActionable(error)) return error
    const everConnected = Object.keys(sql.parameters ?? {}).length > 0
    const inUse = isInstance(error, NoAnswer) && everConnected && (await canConnect())
    return inUse ? exhausted(max, undefined, error) : unreachable(sql.options, error)
  }

  /**
   * Resolves when the sockets that have just failed are closed. postgres.js still uses them between their error and their
   * close. A statement that it sends then never ends, or counts as answered once the connection is reopened, or gets the
   * answers to other statements there; after such a BEGIN, statements run outside of any transaction.
   */
  let closing: Promise<void> | undefined
  const noticeLoss = (): void => {
    closing ??= new Promise<void>((closed) => {
      setImmediate(() => setImmediate(closed)) // a socket is closed at the end of the event loop turn in which it failed
    }).finally(() => void (closing = undefined))
  }

  const send = async (on: PostgresJs, { text, values }: Call, prepare: boolean): Promise<string | null> => {
    if (closing !== undefined) await closing
    const query = on.unsafe(text, values, { prepare })
    const rows = await withTimeout(query).catch(async (error: unknown) => {
      if (isConnectionLoss(error)) noticeLoss()
      throw withdraw(query as LazyQuery) ? await unsentError(error) : error
    })
    return valueOf(rows, text)
  }

  const call: Driver['call'] = async (statement) => {
    try {
      return await send(sql, statement, prepares)
    } catch (error) {
      if (!prepares || !isPreparedStatementLost(error)) throw error
      prepares = false
      return send(sql, statement, prepares)
    }
  }
  const checksClients = clientCheck(call)

  /**
   * Cancels the statements that are running in an aborted transaction: the connection stays open, and ROLLBACK would wait
   * for them. A statement may still be on its way to the server, which ignores a cancellation that arrives before it. So
   * the cancellation is sent until all of them have ended. None is pending when this resolves, so that it cannot hit the
   * next statement.
   */
  const cancel = async (tx: PostgresJsTransaction, backend: Promise<readonly Row[]>): Promise<void> => {
    const ended = (): boolean => true
    const last = tx.unsafe('select 1').then(ended, ended) // runs after all of them
    try {
      const [row] = await withTimeout(backend)
      const signal = { name: '', text: 'select pg_cancel_backend($1::text::int)::text', values: [String(row?.pid)] }
      for (let waited = 0; waited < patience; waited += CANCEL_RETRY) {
        await call(signal).catch((error: unknown) => {
          if (!isConnectionLoss(error)) throw error // if its connection was lost, the next try uses another
        })
        if (await answerWithin(last, CANCEL_RETRY, timer).catch(() => false)) return
      }
    } catch {
      // The transaction is rolled back when the lock is released.
    }
  }

  /** Runs work in a transaction. If it has not begun in time, it fails, and is rolled back in case it begins later. */
  const begin = async <T>(scope: Scope, work: (tx: PostgresJsTransaction) => Promise<T>): Promise<T> => {
    await closing
    await nextTurn() // failed sockets are closed by now, also those without a running statement
    const has = { begun: false, beenGivenUp: false, ended: false }
    let begun = (): void => {}
    const beginning = new Promise<void>((resolve) => void (begun = resolve))
    const whole = runUnlessLost(
      (run: (tx: PostgresJsTransaction) => Promise<T>) =>
        sql.begin('isolation level read committed', run).catch((error: unknown) => {
          has.ended = true
          if (isConnectionLoss(error)) noticeLoss()
          scope.lose(error) // also if the connection was lost while no statement was running
          throw error
        }),
      // A connection that only does not answer is not lost: postgres.js has to roll back there, and would keep it otherwise.
      () => has.ended || (scope.unknown !== undefined && !isInstance(scope.unknown.error, NoAnswer)),
      async (tx) => {
        if (has.beenGivenUp) throw transactionOver()
        has.begun = true
        begun()
        const result = await work(tx)
        if (scope.unknown !== undefined) throw scope.unknown.error
        return result
      },
      (ended, failure) =>
        withTimeout(ended).catch((error: unknown) => {
          throw isInstance(error, NoAnswer) && failure !== undefined ? failure.error : error
        }),
    )
    try {
      await withTimeout(Promise.race([beginning, whole]))
    } catch (error) {
      if (has.begun) throw error
      has.beenGivenUp = true
      throw await unsentError(error)
    }
    return whole
  }

  return {
    name: 'postgres',
    call,
    async exchange(first, decide) {
      const scope = new Scope()
      const exchanged = (tx: PostgresJsTransaction): Promise<string | null> => {
        const run: Driver['call'] = async ({ text, values }) => {
          const rows = await withTimeout(tx.unsafe(text, values, { prepare: prepares })).catch((error: unknown) => {
            if (!isServerError(error)) scope.lose(error)
            throw error
          })
          return valueOf(rows, text)
        }
        return run(first).then(async (answer) => {
          const second = await decide(answer, run)
          return second === undefined ? answer : run(second)
        })
      }
      try {
        return await begin(scope, exchanged)
      } catch (error) {
        if (!prepares || !isPreparedStatementLost(error)) throw error
        prepares = false
        return begin(new Scope(), exchanged)
      }
    },
    async alone(text) {
      await sql.unsafe(text).catch((error: unknown) => {
        if (isConnectionLoss(error)) noticeLoss()
        throw error
      })
    },
    script: (statements) =>
      begin(new Scope(), async (tx) => {
        for (const statement of statements) await tx.unsafe(statement)
      }),
    async transact(work) {
      const checkSql = (await checksClients()) ? `, ${CLIENT_CHECK}` : ''
      const scope = new Scope()
      const inside = (tx: PostgresJsTransaction): ReturnType<typeof work> => {
        const backend = tx.unsafe(`select pg_backend_pid() as pid${checkSql}`) // not awaited
        backend.catch(() => {})
        return whileOpen(tx, scope, withTimeout, work, () => cancel(tx, backend))
      }
      return slots.run(() => begin(scope, inside))
    },
    savepoint: (outer, work) => inSavepoint(outer, withTimeout, work),
    async listen(channel: string, listener: NotificationListener): Promise<ListeningConnection> {
      let closed = false
      const own = await cloneClient(sql, {
        idle_timeout: null,
        onnotify: (_channel: string, payload: string) => listener.notified(payload),
        onclose: () => lose(new NoAnswer('The connection that listens was closed.')),
      })
      const end = (): Promise<void> => own.end({ timeout: 0 }).catch(() => {})
      const lose = (error: unknown): void => {
        noticeLoss() // other connections may have been lost with it
        if (closed) return
        closed = true
        void end()
        listener.lost(error)
      }
      try {
        await withTimeout(own.unsafe(`listen ${quoteIdentifier(channel)}`))
      } catch (error) {
        if (isConnectionLoss(error)) noticeLoss()
        closed = true
        void end()
        throw error
      }
      return {
        call: async (statement) => {
          try {
            return await send(own, statement, false)
          } catch (error) {
            if (!isServerError(error)) lose(error)
            throw error
          }
        },
        close: () => {
          closed = true
          return end()
        },
      }
    },
    close: async () => {},
  }
}

/** The value that a statement has returned; throws if it was not answered. */
function valueOf(rows: readonly Row[], text: string): string | null {
  if (isLostAnswer(rows, text)) throw new NoAnswer('The connection was lost before PostgreSQL answered.')
  return (Object.values(rows[0] ?? {})[0] as string | null | undefined) ?? null
}

/** Resolves in the next turn of the event loop, before its poll phase. */
function nextTurn(): Promise<void> {
  return new Promise((begins) => void setTimeout(begins, 0))
}

/**
 * Whether rows are not the answer to a statement, which postgres.js may have lost together with its connection: it then
 * ends without an answer, or with that to another statement. The statements of a store are selects, and one without FROM
 * returns a row.
 */
function isLostAnswer(rows: readonly Row[], text: string): boolean {
  const { command } = rows as { command?: unknown }
  if (command === null || !/^select\s/i.test(text)) return command === null
  if (rows.length > 0) return command !== 'SELECT' || rows[0] === undefined // it counted rows of another statement
  return command !== 'SELECT' || !/\sfrom\s/i.test(text)
}

/**
 * Runs work that postgres.js waits for: a transaction, or a savepoint. Once the connection is lost or the outer
 * transaction is over, the work must not settle for postgres.js: it would still send its COMMIT, ROLLBACK or ROLLBACK TO,
 * on a connection where the next transaction may be open. After the work, `ending` limits how long to wait for the answer
 * to that statement.
 */
function runUnlessLost<T, Sql>(
  begin: (work: (sql: Sql) => Promise<T>) => Promise<T>,
  isLost: () => boolean,
  work: (sql: Sql) => Promise<T>,
  ending: (whole: Promise<T>, failure: { readonly error: unknown } | undefined) => Promise<T>,
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    const inside = (sql: Sql): Promise<T> =>
      new Promise<T>((keep, undo) => {
        work(sql).then(
          (value) => {
            if (isLost()) return reject(transactionOver())
            keep(value)
            ending(whole, undefined).catch(reject)
          },
          (error: unknown) => {
            if (isLost()) return reject(error)
            undo(error)
            ending(whole, { error }).catch(reject)
          },
        )
      })
    const whole = begin(inside)
    whole.then(resolve, reject)
  })
}

/** Runs work in a transaction; if it is aborted, calls `onAbort` before the rollback. */
async function whileOpen<T>(
  tx: PostgresJsTransaction,
  scope: Scope,
  withTimeout: WithTimeout,
  work: (tx: PostgresJsTransaction) => Promise<T>,
  onAbort: () => Promise<void>,
): Promise<T> {
  try {
    return await work(guardedTransaction(tx, scope, withTimeout))
  } catch (error) {
    scope.end()
    if (scope.savepoints > 0) await onAbort()
    throw error
  } finally {
    scope.end()
  }
}

/** Runs work in a savepoint of a transaction of this driver, or of the user's own. */
async function inSavepoint<T>(
  outer: PostgresJsTransaction,
  withTimeout: WithTimeout,
  work: (tx: PostgresJsTransaction) => Promise<T>,
): Promise<T> {
  const guardedOuter = unguarded(outer)
  const outerScope = guardedOuter?.scope ?? new Scope()
  outerScope.check()
  const scope = new Scope(outerScope)
  let begun = (): void => {}
  const beginning = new Promise<void>((resolve) => void (begun = resolve))
  const inside = async (inner: PostgresJsTransaction): Promise<T> => {
    begun()
    outerScope.check() // it may have ended while the savepoint was opened: then nothing has to be cancelled
    const closed = outerScope.opening()
    try {
      return await work(guardedTransaction(inner, scope, withTimeout))
    } finally {
      scope.end()
      closed()
    }
  }
  /** A savepoint without an answer may or may not exist: only ROLLBACK may be sent after it. */
  const answered = <U>(answer: Promise<U>): Promise<U> =>
    withTimeout(answer).catch((error: unknown) => {
      if (isInstance(error, NoAnswer)) outerScope.lose(error)
      throw error
    })
  try {
    const whole = runUnlessLost(
      (run) => (guardedOuter?.target ?? outer).savepoint(run),
      () => outerScope.isOver,
      inside,
      (ended, failure) => (failure === undefined ? ended : answered(ended)),
    )
    await answered(Promise.race([beginning, whole]))
    return await whole
  } finally {
    scope.end()
  }
}

/** A transaction or savepoint as the user receives it. */
function guardedTransaction(tx: PostgresJsTransaction, scope: Scope, withTimeout: WithTimeout): PostgresJsTransaction {
  const own: PostgresJsTransaction = guarded(tx, scope, {
    returned: guardStatement,
    // The user's own savepoints are guarded as well.
    methods: { savepoint: (...args: readonly unknown[]) => inSavepoint(own, withTimeout, args.at(-1) as never) },
  })
  return own
}

/**
 * Refuses a statement that was created in a scope but is first awaited, and so sent, after its end. Ends a scope at its
 * first statement that fails together with the connection: postgres.js reuses the connection after it has reopened it,
 * and later statements of this scope would run there.
 */
function guardStatement(value: unknown, scope: Scope): unknown {
  const query = value as LazyQuery | undefined
  if (!(value instanceof Promise) || typeof query?.reject !== 'function') return value
  const { reject, handle } = query
  query.reject = (error) => {
    if (isConnectionLoss(error)) scope.lose(error)
    reject(error)
  }
  if (typeof handle === 'function') {
    query.handle = () => {
      if (query.executed === true || !scope.isOver) return handle.call(query)
      query.executed = true
      value.catch(() => {}) // a statement that is not awaited must not end the process
      return query.reject?.(transactionOver())
    }
  }
  return value
}

/** Whether an error means that the connection is lost, or about to be. */
function isConnectionLoss(error: unknown): boolean {
  const { code, severity, syscall } = error as { code?: unknown; severity?: unknown; syscall?: unknown }
  return severity === 'FATAL' || syscall !== undefined || (typeof code === 'string' && code.startsWith('CONNECTION_'))
}

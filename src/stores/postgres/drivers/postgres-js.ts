// stores/postgres/drivers/postgres-js.ts: the driver `postgres` (postgres.js), on the user's own client.
import { isInstance } from '../../../job/errors.js'
import type { Millis } from '../../../job/job.js'
import { importPackage } from '../../../store/packages.js'
import { Scope, unguarded, guarded, transactionOver } from '../../transaction-scope.js'
import type { Call, Driver, DriverOptions, NotificationListener, Listening } from './driver.js'
import { isServerError, isPreparedStatementLost } from '../errors.js'
import { clientCheck, CLIENT_CHECK } from './client-check.js'
import { quoteIdentifier } from '../migrate.js'
import { NoAnswer, inTime } from './timeout.js'
import { TransactionSlots } from './transaction-slots.js'
import { connectable, exhausted, isAnswer, unreachable } from './unreachable.js'

/** How long to wait for a statement that was told to end, before it is told again. */
const AGAIN: Millis = 100

type Row = Readonly<Record<string, unknown>>

/** Waits for an answer, but not for ever. */
type Within = <T>(asked: Promise<T>) => Promise<T>

/** What the store needs of a transaction of `postgres`. */
export interface PostgresJsTransaction {
  unsafe(text: string, values?: readonly unknown[], options?: { prepare: boolean }): Promise<readonly Row[]>
  savepoint<T>(work: (sql: PostgresJsTransaction) => Promise<T>): Promise<T>
}

/** What the store needs of a client of `postgres`. */
export interface PostgresJs extends PostgresJsTransaction {
  /** What it was made with, parsed. */
  readonly options: object
  /** Settings that the server has reported: none before the first connection. */
  readonly parameters?: object
  begin<T>(options: string, work: (sql: PostgresJsTransaction) => Promise<T>): Promise<T>
  end(options: { timeout: number }): Promise<void>
}

/**
 * Makes a client with the options of another: the one that `postgres` opens by itself to listen cannot be closed. It does not ask
 * for array types: nobody handles the error of that query, and a connection that is lost during it would end the process.
 */
async function another(sql: PostgresJs, options: object): Promise<PostgresJs> {
  const wanted = { name: 'postgres', neededBy: 'Listening beside your client of postgres.js' }
  const module = await importPackage(wanted, () => import('postgres'))
  const make = (module as { default: (options: object) => PostgresJs }).default
  return make({ ...sql.options, max: 1, max_lifetime: null, fetch_types: false, ...options })
}

/** What is used of a statement of postgres.js, which it sends by `handle` when it is first awaited. */
interface LazyQuery {
  executed?: boolean
  handle?: () => unknown
  reject?: (error: unknown) => void
  /** The connection it was sent on; null before that. */
  state?: unknown
  cancel?: () => unknown
  cancelled?: unknown
  strings?: readonly string[]
  args?: readonly unknown[]
  options?: object
}

/** Takes back a statement that has not been sent; returns whether that could be done. It is never sent then. */
function withdraw(query: LazyQuery): boolean {
  if (query.state !== null || typeof query.cancel !== 'function') return false
  query.cancel() // removes it from the queue of the client
  // A statement for which a connection is being opened is not in the queue. postgres.js never uses that connection unless it
  // is sent, so one takes its place that does nothing.
  query.strings = ['select 1']
  query.args = []
  query.options = { simple: true, prepare: false }
  query.cancelled = null
  return true
}

/** Connections by `postgres`. It finds lost connections and opens others by itself. */
export function postgresJsDriver(sql: PostgresJs, { patience, timer }: DriverOptions): Driver<PostgresJsTransaction> {
  let prepares = true
  const { max = 10 } = sql.options as { max?: number }
  const slots = new TransactionSlots(max)

  const within: Within = (asked) => inTime(asked, patience, timer)
  const connects = connectable(async () => {
    const own = await another(sql, { idle_timeout: 1, connect_timeout: patience / 1000, onclose: undefined })
    try {
      await within(own.unsafe('select 1'))
    } finally {
      void own.end({ timeout: 0 }).catch(() => {})
    }
  })

  /** What it means that nothing could be sent: all connections were in use, or the server cannot be reached. */
  const unsent = async (error: unknown): Promise<unknown> => {
    if (isAnswer(error)) return error
    const everConnected = Object.keys(sql.parameters ?? {}).length > 0
    const inUse = isInstance(error, NoAnswer) && everConnected && (await connects())
    return inUse ? exhausted(max, undefined, error) : unreachable(sql.options, error)
  }

  /**
   * Resolves when the sockets that have just failed are closed. postgres.js still uses them between their error and their end.
   * What it sends then never ends, or is taken for answered once the connection is opened anew, or gets the answers to other
   * statements there; after such a BEGIN, statements run outside of any transaction.
   */
  let closing: Promise<void> | undefined
  const noticeLoss = (): void => {
    closing ??= new Promise<void>((closed) => {
      setImmediate(() => setImmediate(closed)) // a socket is closed at the end of the turn of the event loop in which it failed
    }).finally(() => void (closing = undefined))
  }

  const ask = async (on: PostgresJs, { text, values }: Call, prepare: boolean): Promise<string | null> => {
    if (closing !== undefined) await closing
    const query = on.unsafe(text, values, { prepare })
    const rows = await within(query).catch(async (error: unknown) => {
      if (isLoss(error)) noticeLoss()
      throw withdraw(query as LazyQuery) ? await unsent(error) : error
    })
    if (isLost(rows)) throw new NoAnswer('The connection was lost before PostgreSQL answered.')
    return (Object.values(rows[0] ?? {})[0] as string | null | undefined) ?? null
  }

  const call: Driver['call'] = async (asked) => {
    try {
      return await ask(sql, asked, prepares)
    } catch (error) {
      if (!prepares || !isPreparedStatementLost(error)) throw error
      prepares = false
      return ask(sql, asked, prepares)
    }
  }
  const checksClients = clientCheck(call)

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
        await call(signal).catch((error: unknown) => {
          if (!isLoss(error)) throw error // where the connection for it was lost, the next has another
        })
        if (await inTime(last, AGAIN, timer).catch(() => false)) return
      }
    } catch {
      // It is rolled back when the lock is released.
    }
  }

  /** Runs work in a transaction. One that has not begun in time is given up: it is rolled back should it begin later. */
  const begin = async <T>(scope: Scope, work: (tx: PostgresJsTransaction) => Promise<T>): Promise<T> => {
    await closing
    await nextTurn() // sockets that had failed are closed now, also where nothing was under way on them
    const has = { begun: false, beenGivenUp: false, ended: false }
    let begun = (): void => {}
    const beginning = new Promise<void>((resolve) => void (begun = resolve))
    const whole = waitedFor(
      (run: (tx: PostgresJsTransaction) => Promise<T>) =>
        sql.begin('isolation level read committed', run).catch((error: unknown) => {
          has.ended = true
          if (isLoss(error)) noticeLoss()
          scope.lose(error) // also where the connection was lost while no statement was under way
          throw error
        }),
      // A connection that only does not answer is not lost: postgres.js must roll back there, and keeps it otherwise.
      () => has.ended || (scope.unknown !== undefined && !isInstance(scope.unknown.error, NoAnswer)),
      async (tx) => {
        if (has.beenGivenUp) throw transactionOver()
        has.begun = true
        begun()
        const answer = await work(tx)
        if (scope.unknown !== undefined) throw scope.unknown.error
        return answer
      },
      (ended, failure) =>
        within(ended).catch((error: unknown) => {
          throw isInstance(error, NoAnswer) && failure !== undefined ? failure.error : error
        }),
    )
    try {
      await within(Promise.race([beginning, whole]))
    } catch (error) {
      if (has.begun) throw error
      has.beenGivenUp = true
      throw await unsent(error)
    }
    return whole
  }

  return {
    name: 'postgres',
    call,
    script: (statements) =>
      begin(new Scope(), async (tx) => {
        for (const statement of statements) await tx.unsafe(statement)
      }),
    async transact(work) {
      const also = (await checksClients()) ? `, ${CLIENT_CHECK}` : ''
      const scope = new Scope()
      const inside = (tx: PostgresJsTransaction): ReturnType<typeof work> => {
        const backend = tx.unsafe(`select pg_backend_pid() as pid${also}`) // nobody waits for it
        backend.catch(() => {})
        return whileOpen(tx, scope, within, work, () => cancel(tx, backend))
      }
      return slots.run(() => begin(scope, inside))
    },
    savepoint: (outer, work) => inSavepoint(outer, within, work),
    async listen(channel: string, ear: NotificationListener): Promise<Listening> {
      let over = false
      const own = await another(sql, {
        idle_timeout: null,
        onnotify: (_channel: string, payload: string) => ear.heard(payload),
        onclose: () => lose(new NoAnswer('The connection that listens was closed.')),
      })
      const end = (): Promise<void> => own.end({ timeout: 0 }).catch(() => {})
      const lose = (error: unknown): void => {
        noticeLoss() // others may have been lost with it
        if (over) return
        over = true
        void end()
        ear.lost(error)
      }
      try {
        await within(own.unsafe(`listen ${quoteIdentifier(channel)}`))
      } catch (error) {
        if (isLoss(error)) noticeLoss()
        over = true
        void end()
        throw error
      }
      return {
        call: async (asked) => {
          try {
            return await ask(own, asked, false)
          } catch (error) {
            if (!isServerError(error)) lose(error)
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

/** Resolves in the next turn of the event loop, before that looks for what has arrived. */
function nextTurn(): Promise<void> {
  return new Promise((begins) => void setTimeout(begins, 0))
}

/** Whether rows are no answer: a statement that postgres.js lost together with its connection may end like this. */
function isLost(rows: readonly Row[]): boolean {
  const { command } = rows as { command?: unknown }
  return command === null
}

/**
 * Runs work that postgres.js waits for: a transaction, or a savepoint. Once the connection is lost or the transaction around is
 * over, postgres.js must not learn how the work ended. It would send its COMMIT, ROLLBACK or ROLLBACK TO all the same, on a
 * connection where the next transaction may be open. After the work, `ending` limits how long to wait for the answer to that
 * statement.
 */
function waitedFor<T, Sql>(
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

/** Runs work in a transaction; if it is broken off, calls `brokenOff` before it is rolled back. */
async function whileOpen<T>(
  tx: PostgresJsTransaction,
  scope: Scope,
  within: Within,
  work: (tx: PostgresJsTransaction) => Promise<T>,
  brokenOff: () => Promise<void>,
): Promise<T> {
  try {
    return await work(given(tx, scope, within))
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
  within: Within,
  work: (tx: PostgresJsTransaction) => Promise<T>,
): Promise<T> {
  const known = unguarded(outer)
  const around = known?.scope ?? new Scope()
  around.check()
  const scope = new Scope(around)
  let begun = (): void => {}
  const beginning = new Promise<void>((resolve) => void (begun = resolve))
  const inside = async (inner: PostgresJsTransaction): Promise<T> => {
    begun()
    around.check() // it may have ended while the savepoint was made: then there is nothing to cancel, and nothing begins
    const closed = around.opening()
    try {
      return await work(given(inner, scope, within))
    } finally {
      scope.end()
      closed()
    }
  }
  /** What comes of a savepoint that got no answer is not known: nothing may be sent behind it but ROLLBACK. */
  const answered = <U>(asked: Promise<U>): Promise<U> =>
    within(asked).catch((error: unknown) => {
      if (isInstance(error, NoAnswer)) around.lose(error)
      throw error
    })
  try {
    const whole = waitedFor(
      (run) => (known?.target ?? outer).savepoint(run),
      () => around.isOver,
      inside,
      (ended, failure) => (failure === undefined ? ended : answered(ended)),
    )
    await answered(Promise.race([beginning, whole]))
    return await whole
  } finally {
    scope.end()
  }
}

/** A transaction or a savepoint as a user is given it. */
function given(tx: PostgresJsTransaction, scope: Scope, within: Within): PostgresJsTransaction {
  const own: PostgresJsTransaction = guarded(tx, scope, {
    returned: watched,
    // The savepoints that a user makes are guarded as well.
    methods: { savepoint: (...args: readonly unknown[]) => inSavepoint(own, within, args.at(-1) as never) },
  })
  return own
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
      value.catch(() => {}) // one that nobody waits for must not end the process
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

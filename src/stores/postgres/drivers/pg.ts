// stores/postgres/drivers/pg.ts: the driver `pg`, on a URL or on the user's own pool.
import { MillraceError, isInstance } from '../../../job/errors/errors.js'
import { importPackage } from '../../../store/packages.js'
import { microtask } from '../../../store/runtime.js'
import { Scope, unguarded, guarded } from '../../transaction-scope.js'
import type { Guarding } from '../../transaction-scope.js'
import type { Call, Decide, Driver, DriverOptions, NotificationListener, ListeningConnection } from './driver.js'
import { isServerError, isPreparedStatementLost } from '../errors.js'
import { atReadCommitted, isReadCommitted, needReadCommitted } from './isolation.js'
import { clientCheck, CLIENT_CHECK } from './client-check.js'
import { quoteIdentifier } from '../migrate.js'
import { literalText } from './literals.js'
import { NoAnswer, answerWithin } from './timeout.js'
import { TransactionSlots } from './transaction-slots.js'
import { connectionProbe, exhausted, isActionable, unreachable } from './unreachable.js'

interface QueryResult {
  readonly rows: readonly (readonly unknown[])[]
}

/** What the store needs of a client of `pg`. */
export interface PgClient {
  query(query: { name?: string; text: string; values?: readonly unknown[]; rowMode: 'array' }): Promise<QueryResult>
  query(text: string): Promise<unknown>
  on(event: 'notification', listener: (message: { payload?: string }) => void): unknown
  on(event: 'error' | 'end', listener: (error?: Error) => void): unknown
  removeListener(event: 'error', listener: (error?: Error) => void): unknown
  connect(): Promise<unknown>
  end(): Promise<void>
  release(error?: Error | boolean): void
  readonly connection?: { readonly stream?: { destroy(): void } }
}

/** What the store needs of a pool of `pg`. */
export interface PgPool {
  readonly options: object
  readonly totalCount: number
  readonly idleCount: number
  readonly Client: new (options: object) => PgClient
  connect(connected: (error: Error | undefined, client: PgClient | undefined) => void): unknown
  on(event: 'error', listener: (error: Error) => void): unknown
  end(): Promise<void>
}

async function loadPg(): Promise<{ Pool: new (options: object) => PgPool }> {
  const module = await importPackage({ name: 'pg', neededBy: 'postgres(url)' }, () => import('pg'))
  return (module as { default: { Pool: new (options: object) => PgPool } }).default
}

/** Opens the driver `pg`; the store's own connections are set to the required isolation level. */
export async function pgDriver(target: string | PgPool, options: DriverOptions): Promise<Driver<PgClient>> {
  if (typeof target !== 'string') return needReadCommitted(new PgDriver(target, false, options))
  const driver = await ownDriver(target, options)
  try {
    if (await isReadCommitted(driver)) return driver
  } catch (error) {
    await driver.close().catch(() => {})
    throw error
  }
  await driver.close()
  return ownDriver(atReadCommitted(target), options)
}

async function ownDriver(url: string, options: DriverOptions): Promise<PgDriver> {
  const { Pool } = await loadPg()
  const pool = new Pool({
    connectionString: url,
    max: options.connections,
    connectionTimeoutMillis: options.patience,
    keepAlive: true,
    application_name: 'millrace',
  })
  pool.on('error', () => {}) // an idle connection was lost; the next call opens another
  return new PgDriver(pool, true, options)
}

/** After the end of a transaction, its client fails as `pg` does: with a rejected promise, or through a callback. */
const guarding: Guarding = {
  refuse: (method, args, error) => {
    const callback = args.at(-1)
    if (method !== 'query' || isSubmittable(args[0])) throw error
    if (typeof callback === 'function') return microtask(() => void callback(error))
    const refused = Promise.reject(error)
    refused.catch(() => {}) // a statement that is not awaited must not end the process
    return refused
  },
}

/** Whether `pg` would run the query as it is: a cursor, or a stream. */
function isSubmittable(query: unknown): boolean {
  return typeof query === 'object' && query !== null && 'submit' in query
}

class PgDriver implements Driver<PgClient> {
  readonly name = 'pg'
  readonly #pool: PgPool
  readonly #own: boolean
  readonly #options: DriverOptions
  /**
   * Whether to prepare statements; not behind a pooler that mixes connections, where a prepared statement is not found
   * again.
   */
  #prepares = true
  #savepoints = 0
  readonly #slots: TransactionSlots
  readonly #checksClients = clientCheck((call) => this.call(call))
  readonly #canConnect = connectionProbe(async () => {
    const { Client, options } = this.#pool
    const client = new Client(options)
    client.on('error', () => {})
    try {
      await this.#withTimeout(client.connect())
    } finally {
      client.connection?.stream?.destroy()
    }
  })

  constructor(pool: PgPool, own: boolean, options: DriverOptions) {
    this.#pool = pool
    this.#own = own
    this.#options = options
    const { max = 10 } = pool.options as { max?: number }
    this.#slots = new TransactionSlots(max)
  }

  async call(call: Call): Promise<string | null> {
    let broken: unknown
    const fail = (error: unknown): void => void (broken = error) // the caller receives the error from its query
    const client = await this.#connect(fail)
    try {
      return await this.#query(client, call)
    } catch (error) {
      if (!isServerError(error)) broken = error
      else if (this.#prepares && isPreparedStatementLost(error)) {
        this.#prepares = false
        return await this.#query(client, call)
      }
      throw error
    } finally {
      client.removeListener('error', fail)
      client.release(broken === undefined ? undefined : true)
    }
  }

  async exchange(first: Call, decide: Decide): Promise<string | null> {
    let broken = false
    const fail = (): void => void (broken = true) // the caller receives the error from its query
    const client = await this.#connect(fail)
    try {
      // Several statements in one message: BEGIN and COMMIT take no round trip of their own.
      const answer = await this.#send(client, `BEGIN ISOLATION LEVEL READ COMMITTED; ${literalText(first)}`)
      const second = await decide(answer, (call) => this.#query(client, { ...call, name: '' }))
      if (second !== undefined) return await this.#send(client, `${literalText(second)}; COMMIT`)
      await this.#send(client, 'ROLLBACK')
      return answer
    } catch (error) {
      if (isInstance(error, NoAnswer)) fail()
      else await this.#withTimeout(client.query('ROLLBACK')).catch(fail)
      throw error
    } finally {
      client.removeListener('error', fail)
      client.release(broken)
    }
  }

  /** Sends statements in one message; returns the first value that one of them returns. */
  async #send(client: PgClient, text: string): Promise<string | null> {
    const answered = await this.#withTimeout(client.query({ text, rowMode: 'array' }))
    const [row] = [answered].flat().flatMap(({ rows }) => rows)
    return (row?.[0] as string | null | undefined) ?? null
  }

  async alone(text: string): Promise<void> {
    let broken: unknown
    const fail = (error: unknown): void => void (broken = error) // the caller receives the error from its query
    const client = await this.#connect(fail)
    try {
      await client.query(text)
    } catch (error) {
      if (!isServerError(error)) broken = error
      throw error
    } finally {
      client.removeListener('error', fail)
      client.release(broken === undefined ? undefined : true)
    }
  }

  async script(statements: readonly string[]): Promise<void> {
    await this.transact(async (client) => {
      for (const statement of statements) await client.query(statement)
    })
  }

  transact<T>(work: (tx: PgClient) => Promise<T>): Promise<T> {
    return this.#slots.run(() => this.#transact(work))
  }

  async #transact<T>(work: (tx: PgClient) => Promise<T>): Promise<T> {
    const begin = `BEGIN ISOLATION LEVEL READ COMMITTED${(await this.#checksClients()) ? `; SELECT ${CLIENT_CHECK}` : ''}`
    let broken = false
    const fail = (): void => void (broken = true) // the work receives the error from its query
    const client = await this.#connect(fail)
    const scope = new Scope()
    try {
      await this.#withTimeout(client.query(begin))
      const result = await work(guarded(client, scope, guarding))
      scope.end() // a later statement of the work would run after the COMMIT, outside of any transaction
      if (scope.unknown !== undefined) throw scope.unknown.error
      const { command } = (await this.#withTimeout(client.query('COMMIT'))) as { command?: string }
      if (command === 'ROLLBACK') throw rolledBack() // PostgreSQL rolled back without an error
      return result
    } catch (error) {
      scope.end()
      // Aborted: a savepoint is open or being opened, and a statement in it may still run. A ROLLBACK would wait for that
      // statement; closing the connection ends both at once.
      if (isInstance(error, NoAnswer) || scope.unknown !== undefined || scope.savepoints > 0) fail()
      else await this.#withTimeout(client.query('ROLLBACK')).catch(fail)
      throw error
    } finally {
      client.removeListener('error', fail)
      client.release(broken)
    }
  }

  async savepoint<T>(tx: PgClient, work: (tx: PgClient) => Promise<T>): Promise<T> {
    const guardedTx = unguarded(tx)
    const client = guardedTx?.target ?? tx
    const outer = guardedTx?.scope ?? new Scope() // of the user's own client
    outer.check()
    const name = `millrace_${++this.#savepoints}`
    // Counted before it is sent: code that ends the transaction meanwhile must know that this work is about to begin.
    const closed = outer.opening()
    const run = async (statement: string): Promise<void> => {
      outer.check()
      await this.#withTimeout(client.query(`${statement} ${name}`)).catch((error: unknown) => {
        if (!isServerError(error)) outer.lose(error)
        throw error
      })
    }
    const scope = new Scope(outer)
    try {
      await run('SAVEPOINT')
      try {
        outer.check()
        const result = await work(guarded(client, scope, guarding))
        scope.end()
        await run('RELEASE SAVEPOINT')
        return result
      } catch (error) {
        scope.end()
        if (!outer.isOver) await run('ROLLBACK TO SAVEPOINT')
        throw error
      }
    } finally {
      scope.end()
      closed()
    }
  }

  async listen(channel: string, listener: NotificationListener): Promise<ListeningConnection> {
    const { Client, options } = this.#pool
    const client = new Client(options)
    let closed = false
    const lose = (error: unknown): void => {
      if (closed) return
      closed = true
      client.connection?.stream?.destroy()
      listener.lost(error)
    }
    client.on('error', lose)
    client.on('end', () => lose(new NoAnswer('The connection that listens was closed.')))
    client.on('notification', ({ payload }) => listener.notified(payload ?? ''))
    const query = (call: Call): Promise<string | null> => this.#query(client, { ...call, name: '' })
    try {
      await this.#withTimeout(client.connect())
      await this.#withTimeout(client.query(`LISTEN ${quoteIdentifier(channel)}`))
    } catch (error) {
      closed = true
      client.connection?.stream?.destroy()
      throw error
    }
    return {
      call: async (call) => {
        try {
          return await query(call)
        } catch (error) {
          if (!isServerError(error)) lose(error)
          throw error
        }
      },
      close: async () => {
        closed = true
        await this.#withTimeout(client.end()).catch(() => client.connection?.stream?.destroy())
      },
    }
  }

  async close(): Promise<void> {
    if (this.#own) await this.#pool.end()
  }

  /**
   * A connection of the pool, with `fail` as its error listener. A connection that comes too late is released. The
   * listener is added immediately: a server that is being stopped may send an error together with its greeting, and an
   * error without a listener ends the process.
   */
  async #connect(fail: (error?: Error) => void): Promise<PgClient> {
    const connecting = new Promise<PgClient>((resolve, reject) => {
      this.#pool.connect((error, client) => {
        client?.on('error', fail)
        if (client === undefined) reject(error)
        else resolve(client)
      })
    })
    try {
      return await this.#withTimeout(connecting)
    } catch (error) {
      const releaseClient = (client: PgClient): void => {
        client.removeListener('error', fail)
        client.release()
      }
      connecting.then(releaseClient).catch(() => {})
      throw await this.#connectError(error)
    }
  }

  /** The error for a missing connection: the pool was in use, or the server cannot be reached. */
  async #connectError(error: unknown): Promise<unknown> {
    if (isActionable(error)) return error
    const { options, totalCount, idleCount } = this.#pool
    const { max = 10 } = options as { max?: number }
    // The connections of the pool may all be waiting for the server.
    const inUse = totalCount >= max && idleCount === 0 && isConnectTimeout(error) && (await this.#canConnect())
    return inUse ? exhausted(max, undefined, error) : unreachable(options, error)
  }

  async #query(client: PgClient, { name, text, values }: Call): Promise<string | null> {
    const prepared = this.#prepares && name !== ''
    const query = prepared
      ? { name, text, values, rowMode: 'array' as const }
      : { text, values, rowMode: 'array' as const }
    const { rows } = await this.#withTimeout(client.query(query))
    return (rows[0]?.[0] as string | null | undefined) ?? null
  }

  /** Limits how long to wait for an answer. */
  #withTimeout<T>(answer: Promise<T>): Promise<T> {
    const { patience, timer } = this.#options
    return answerWithin(answer, patience, timer)
  }
}

/** Whether an error is a timeout of waiting for a connection. */
function isConnectTimeout(error: unknown): boolean {
  return isInstance(error, NoAnswer) || (error as Error).message === 'timeout exceeded when trying to connect'
}

function rolledBack(): MillraceError {
  return new MillraceError(
    'TRANSACTION_ENDED',
    'A statement in this transaction failed and its error was not passed on, so that PostgreSQL rolled all of it back. Nothing was written; let the error reach queue.transaction, or run what may fail in one inside it, which is a savepoint.',
  )
}

// stores/postgres/drivers/driver.ts: what the store needs of a driver: calls, transactions, and one connection that listens.
import type { Millis } from '../../../job/job.js'
import type { Stop } from '../../../store/runtime.js'

/** A parameter of a statement. */
export type Value = string | number | null

/** A statement that returns at most one value. */
export interface Call {
  /** The name under which it may be prepared. */
  readonly name: string
  readonly text: string
  readonly values: readonly Value[]
}

/** Makes the second call of an exchange, if there is to be one. */
export type Decide = (answer: string | null, call: Driver['call']) => Promise<Call | undefined>

/** Receives what happens on the connection that listens. */
export interface NotificationListener {
  /** A notification has arrived. */
  notified(payload: string): void
  /** The connection is lost. */
  lost(error: unknown): void
}

/** A connection that listens. */
export interface ListeningConnection {
  /** Runs a statement, to check whether the connection still works. */
  call(call: Call): Promise<string | null>
  close(): Promise<void>
}

/** One driver with its connections. */
export interface Driver<Native = unknown> {
  readonly name: 'pg' | 'postgres'
  /** Calls a function of the schema on any connection, and returns its text. Fails if there is no answer in time. */
  call(call: Call): Promise<string | null>
  /**
   * Calls a function in a transaction, then the one that `decide` makes of its answer, and commits; without a second one it
   * rolls back. Returns the last answer. `decide` may make calls in the transaction by `call`.
   */
  exchange(first: Call, decide: Decide): Promise<string | null>
  /** Runs a statement that must not be in a transaction, however long it takes. */
  alone(text: string): Promise<void>
  /** Runs statements in one transaction. */
  script(statements: readonly string[]): Promise<void>
  /** Runs work in a transaction. */
  transact<T>(work: (tx: Native) => Promise<T>): Promise<T>
  /** Runs work in a savepoint of a transaction of `transact`. */
  savepoint<T>(tx: Native, work: (tx: Native) => Promise<T>): Promise<T>
  /** Opens a connection of its own and listens on it. */
  listen(channel: string, listener: NotificationListener): Promise<ListeningConnection>
  close(): Promise<void>
}

/** The options of a driver. */
export interface DriverOptions {
  /** How long to wait for an answer, in milliseconds. */
  readonly patience: Millis
  /** The maximum number of connections, if the store opens them. */
  readonly connections: number
  readonly timer: (delay: Millis, work: () => void) => Stop
}

// stores/postgres/drivers/driver.ts: what the store needs of a driver: calls, transactions, and one connection that listens.
import type { Millis } from '../../../job/job.js'
import type { Stop } from '../../../store/runtime.js'

/** A value that a statement is given. */
export type Value = string | number | null

/** A statement that answers one value at most. */
export interface Call {
  /** Its name, under which it may be prepared. */
  readonly name: string
  readonly text: string
  readonly values: readonly Value[]
}

/** What the listening connection tells. */
export interface NotificationListener {
  /** Somebody has told something. */
  heard(payload: string): void
  /** The connection is gone. */
  lost(error: unknown): void
}

/** A connection that listens. */
export interface Listening {
  /** Asks for something, to find out whether anybody is still there. */
  call(call: Call): Promise<string | null>
  close(): Promise<void>
}

/** One driver with its connections. */
export interface Driver<Native = unknown> {
  readonly name: 'pg' | 'postgres'
  /** Calls a function of the schema on any connection, and answers its text. Fails when there is no answer in time. */
  call(call: Call): Promise<string | null>
  /** Runs statements in one transaction. */
  script(statements: readonly string[]): Promise<void>
  /** Runs work in a transaction. */
  transact<T>(work: (tx: Native) => Promise<T>): Promise<T>
  /** Runs work in a savepoint of a transaction that `transact` gave. */
  savepoint<T>(tx: Native, work: (tx: Native) => Promise<T>): Promise<T>
  /** Begins to listen on a connection of its own. */
  listen(channel: string, ear: NotificationListener): Promise<Listening>
  close(): Promise<void>
}

/** What a driver is made with. */
export interface DriverOptions {
  /** How long an answer may take. */
  readonly patience: Millis
  /** Connections at most, where the store opens them. */
  readonly connections: number
  readonly timer: (delay: Millis, work: () => void) => Stop
}

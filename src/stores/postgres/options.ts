// stores/postgres/options.ts: options of a PostgreSQL store, and their check.
import { parseDuration } from '../../job/values/duration.js'
import type { Duration } from '../../job/values/duration.js'
import { MillraceError } from '../../job/errors/errors.js'
import type { Millis, Time } from '../../job/job.js'
import { refuseUnknown } from '../../job/values/names.js'
import { systemRuntime } from '../../store/runtime.js'
import type { Runtime } from '../../store/runtime.js'
import { checkRing, RING_BYTES, RING_EVENTS } from '../event-pages.js'

/** Options of a PostgreSQL store. */
export interface PostgresOptions {
  /** The database schema that holds the tables and functions of the store. Default `'millrace'`. */
  readonly schema?: string
  /**
   * Whether `open` creates the schema, or migrates an older one to this version. If false, a schema that is missing or too
   * old is an error, and `migrationSql()` returns the SQL that its owner has to run. Default true.
   */
  readonly migrate?: boolean
  /** How long the server may take to answer before the connection is closed. Default 10 s. */
  readonly patience?: Duration
  /** The maximum number of connections, if the store is given a URL; one more listens for notifications. Default 10. */
  readonly connections?: number
  /** The number of events to keep for listeners that resume. Default 10,000. */
  readonly ring?: number
  /** The maximum size of these events in bytes; the oldest are dropped first. Default 64 MiB. */
  readonly ringBytes?: number
  /** Time, timers, randomness and ids. Default: the system's. */
  readonly runtime?: Runtime
  /** For tests: a clock in place of the server's. Default: the server's. */
  readonly clock?: () => Time
}

/** A `Pool` of the package `pg`. */
export interface PgPoolLike<Client> {
  /** Returns a connection. */
  connect(): Promise<Client>
  /** The number of connections; only a pool has it, a client does not. */
  readonly totalCount: number
}

/** The client type of a pool. `connect` of `pg` has a callback overload, which hides the promise from a simple `infer`. */
export type ClientOf<Pool> = Pool extends { connect(): Promise<infer Client> }
  ? unknown extends Client
    ? Pool extends { connect: { (): Promise<infer Promised>; (callback: never): void } }
      ? Promised
      : unknown
    : Client
  : unknown

/** A client of the package `postgres`. */
export interface PostgresJsLike {
  /** Runs a statement. */
  unsafe: unknown
  /** Begins a transaction. */
  begin: unknown
  /** Listens on a channel. */
  listen: unknown
}

/** The options with their defaults. */
export interface CheckedOptions {
  readonly schema: string
  readonly migrate: boolean
  readonly patience: Millis
  readonly connections: number
  readonly ring: number
  readonly ringBytes: number
  readonly runtime: Runtime
  readonly clock: (() => Time) | undefined
}

/** Checks the options and applies the defaults; throws `INVALID_OPTION`. */
export function checkOptions(options: PostgresOptions): CheckedOptions {
  const names = ['schema', 'migrate', 'patience', 'connections', 'ring', 'ringBytes', 'runtime', 'clock']
  refuseUnknown(options, names, 'postgres options')
  const { runtime = systemRuntime(), patience = 10_000, schema = 'millrace', connections = 10 } = options
  const { ring = RING_EVENTS, ringBytes = RING_BYTES } = options
  checkRing('postgres', { ring, ringBytes })
  if (!Number.isSafeInteger(connections) || connections < 1) {
    throw new MillraceError(
      'INVALID_OPTION',
      `postgres: connections must be a whole number from 1 up, not ${String(connections)}.`,
    )
  }
  if (typeof schema !== 'string' || !/^[A-Za-z_][A-Za-z0-9_]{0,50}$/.test(schema)) {
    throw new MillraceError(
      'INVALID_OPTION',
      `postgres: schema must be a name of letters, digits and _, at most 51 long, not '${String(schema)}'.`,
    )
  }
  const { migrate = true, clock } = options
  const timeout = parseDuration(patience, 'postgres: patience')
  return { schema, migrate, patience: timeout, connections, ring, ringBytes, runtime, clock }
}

// stores/postgres/options.ts: what can be said about a PostgreSQL store, checked.
import { parseDuration } from '../../job/duration.js'
import type { Duration } from '../../job/duration.js'
import { MillraceError } from '../../job/errors.js'
import type { Millis, Time } from '../../job/job.js'
import { refuseUnknown } from '../../job/names.js'
import { systemRuntime } from '../../store/runtime.js'
import type { Runtime } from '../../store/runtime.js'
import { checkRing, RING_BYTES, RING_EVENTS } from '../event-pages.js'

/** Settings of a PostgreSQL store. */
export interface PostgresOptions {
  /** The schema that holds everything of the store. Default `'millrace'`. */
  readonly schema?: string
  /**
   * Whether `open` creates the schema, or leads an older one to this version. Without it, a schema that is missing or too
   * old is an error, and `migrationSql()` gives what its owner has to run. Default true.
   */
  readonly migrate?: boolean
  /** How long an answer of the server may take before the connection is given up. Default 10 s. */
  readonly patience?: Duration
  /** Connections at most, where the store is given a URL; one more listens. Default 10. */
  readonly connections?: number
  /** How many events are kept for watchers that resume. Default 10,000. */
  readonly ring?: number
  /** How many bytes these events may have; the oldest go first. Default 64 MiB. */
  readonly ringBytes?: number
  /** The world it lives in. Default: the system's. */
  readonly runtime?: Runtime
  /** For tests: a clock in place of the server's. Default: the server's. */
  readonly clock?: () => Time
}

/** A `Pool` of the package `pg`. */
export interface PgPoolLike<Client> {
  /** Gives a connection. */
  connect(): Promise<Client>
  /** How many connections it has: what tells a pool from a client. */
  readonly totalCount: number
}

/** What a pool gives. That of `pg` can also be given a callback, which hides the promise from a plain look at `connect`. */
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

/** The same, with what holds where nothing is said. */
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

/** Refuses what no store could go by. */
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
  const waits = parseDuration(patience, 'postgres: patience')
  return { schema, migrate, patience: waits, connections, ring, ringBytes, runtime, clock }
}

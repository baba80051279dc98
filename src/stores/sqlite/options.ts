// stores/sqlite/options.ts: the settings of a SQLite store.
import { parseDuration } from '../../job/values/duration.js'
import type { Duration } from '../../job/values/duration.js'
import type { Millis } from '../../job/job.js'
import { refuseUnknown } from '../../job/values/names.js'
import { systemRuntime } from '../../store/runtime.js'
import type { Runtime } from '../../store/runtime.js'
import { checkRing, RING_BYTES, RING_EVENTS } from '../event-pages.js'
import type { DriverName } from './file/driver.js'
import type { Synchronous } from './file/open.js'

/** Settings of a SQLite store. */
export interface SqliteOptions {
  /**
   * What an acknowledged commit survives: `'full'` everything, including power cuts; `'normal'` a crash of the process,
   * while a power cut may undo the last commits, each as a whole; `'off'` is for tests. Default `'full'`.
   */
  readonly synchronous?: Synchronous
  /** Which driver opens the path. Default: Node's own if it has one (22.13 and later), else `@photostructure/sqlite`. */
  readonly driver?: DriverName
  /** How long to wait while another program has the file locked before a call fails. Default 5 s. */
  readonly patience?: Duration
  /** How many events are kept for watchers that resume. Default 10,000. */
  readonly ring?: number
  /** Maximum size of these events, in bytes of JSON; the oldest are dropped first. Default 64 MiB. */
  readonly ringBytes?: number
  /** Time, timers, randomness and ids. Default: the system's. */
  readonly runtime?: Runtime
  /**
   * Run the store in a thread of this process, so that a sync of the disk never holds the event loop. It takes a path and
   * no `runtime`, has no transactions, and is slower. Default false.
   */
  readonly thread?: boolean
}

/** The settings with their defaults. */
export interface Settings {
  readonly synchronous: Synchronous
  readonly driver: DriverName | undefined
  readonly patience: Millis
  readonly ring: number
  readonly ringBytes: number
  readonly runtime: Runtime
}

/** Parses the settings. `checkTarget` checks `synchronous` and `driver`. */
export function parseOptions(options: SqliteOptions): Settings {
  refuseUnknown(
    options,
    ['synchronous', 'driver', 'patience', 'ring', 'ringBytes', 'runtime', 'thread'],
    'sqlite options',
  )
  const { synchronous = 'full', driver, runtime = systemRuntime(), patience = 5_000 } = options
  const { ring = RING_EVENTS, ringBytes = RING_BYTES } = options
  checkRing('sqlite', { ring, ringBytes })
  return { synchronous, driver, patience: parseDuration(patience, 'sqlite: patience'), ring, ringBytes, runtime }
}

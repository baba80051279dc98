// stores/sqlite/options.ts: the settings of a SQLite store.
import { parseDuration } from '../../job/duration.js'
import type { Duration } from '../../job/duration.js'
import { MillraceError } from '../../job/errors.js'
import type { Millis } from '../../job/job.js'
import { refuseUnknown } from '../../job/names.js'
import { systemRuntime } from '../../store/runtime.js'
import type { Runtime } from '../../store/runtime.js'
import type { DriverName } from './driver.js'
import type { Synchronous } from './opening.js'

/** Settings of a SQLite store. */
export interface SqliteOptions {
  /**
   * What an acknowledged commit survives: `'full'` everything, power cuts included; `'normal'` the death of the process,
   * while a power cut may undo the last commits, each whole; `'off'` is for tests. Default `'full'`.
   */
  readonly synchronous?: Synchronous
  /** Which driver opens the path. Default: Node's own where it has one (22.13 and later), else `@photostructure/sqlite`. */
  readonly driver?: DriverName
  /** How long to wait for another program that holds the file locked before a call fails. Default 5 s. */
  readonly patience?: Duration
  /** How many events are kept for watchers that resume. Default 10,000. */
  readonly ring?: number
  /** The world it lives in. Default: the system's. */
  readonly runtime?: Runtime
}

/** The settings as they hold. */
export interface Settings {
  readonly synchronous: Synchronous
  readonly driver: DriverName | undefined
  readonly patience: Millis
  readonly ring: number
  readonly runtime: Runtime
}

/** Reads the settings; what is wrong with `synchronous` and `driver` is told when the target is looked at. */
export function parseOptions(options: SqliteOptions): Settings {
  refuseUnknown(options, ['synchronous', 'driver', 'patience', 'ring', 'runtime'], 'sqlite options')
  const { synchronous = 'full', driver, runtime = systemRuntime(), ring = 10_000, patience = 5_000 } = options
  if (!Number.isSafeInteger(ring) || ring < 1) {
    throw new MillraceError('INVALID_OPTION', `sqlite: ring must be a whole number from 1 up, not ${String(ring)}.`)
  }
  return { synchronous, driver, patience: parseDuration(patience, 'sqlite: patience'), ring, runtime }
}

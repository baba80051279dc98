// stores/postgres/functions/fast-parts.ts: the values that several SQL functions have in common: separators, bounds and settings.
import type { PauseCell } from '../../../job/limits.js'
import { READ_BYTES } from '../../../store/read-pages.js'

/** Separates values in a text; neither ids nor JSON contain it. */
export const UNIT = 'chr(31)'
/** Separates rows in a text. */
export const ROW = 'chr(30)'

/** Separates an answer from the rows after it: inside the JSON of the answer, every quote in the rows would be escaped. */
export const GROUP = 'chr(29)'

/** Separates the events of different commits. */
export const FILE = 'chr(28)'

/** Milliseconds until the next claim, if another transaction's lock kept a claim from a waiting job. */
export const CLAIM_RETRY = 250

/**
 * The search path of functions that are called from outside. Without it, PostgreSQL may resolve a call to a function of
 * the same name in a schema of the caller's search path, if its arguments fit better, and in PostgreSQL 14 any role may
 * create one in `public`. Functions that only other functions call inherit it.
 */
export const searchPath = 'set search_path = {S}, pg_temp'

/**
 * The settings of every function that writes: plans do not depend on statistics, and ordered reads use the index of that
 * order.
 */
export const writeSettings = `${searchPath} set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
  set enable_mergejoin = off set enable_sort = off set plan_cache_mode = force_generic_plan set jit = off set lock_timeout = '5s'`

/** The approximate bytes of text of a row in `job`. */
export const rowBytes = (j: string): string => `row_bytes_{V}(${j})`

/** From this many bytes on, the size of a job's data is checked before the data is read. */
export const LARGE = 8_192

/** More jobs than this may exceed the size of an answer even if the data of each is small. */
export const MANY = READ_BYTES / LARGE

/** How the cell of a queue begins in which nothing is paused: at most it has holds, which adds do not heed. */
export const NOT_PAUSED = JSON.stringify({ all: false, names: [] } satisfies PauseCell).slice(0, -1)

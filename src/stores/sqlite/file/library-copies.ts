// stores/sqlite/file/library-copies.ts: keeps two copies of the SQLite library in one process from opening the same file.
//
// File locks belong to the process, so that the locks of two copies do not exclude each other, and one copy overwrites
// what the other has committed.
import { randomInt } from 'node:crypto'
import { statSync } from 'node:fs'
import { MillraceError } from '../../../job/errors/errors.js'
import { step } from '../../../store/maybe-sync.js'
import type { Steps } from '../../../store/maybe-sync.js'
import { firstValue } from './driver.js'
import type { DatabaseClass, SqliteHandle } from './driver.js'
import { nameOf } from './errors.js'

/** On Windows a lock belongs to a file handle, and two copies exclude each other like two processes. */
export const LOCKS_BELONG_TO_PROCESS = process.platform !== 'win32'

/** A limit on SQLite's heap that limits nothing: 4 PiB, and below 2^53. */
const NO_LIMIT = 2 ** 52

/** Reads the heap limit of a copy. */
export const READ_HEAP_LIMIT = 'PRAGMA soft_heap_limit'

/** A thread may probe the same copy at the same moment; "another copy" counts only after this many such results in a row. */
const PROBES = 3

/** The identity of a file, whatever its path (device and inode); undefined if it does not exist. */
export function fileNumber(path: string): string | undefined {
  const stat = statSync(path, { throwIfNoEntry: false })
  return stat && `${stat.dev}:${stat.ino}`
}

/**
 * Whether two open handles belong to the same copy of SQLite; undefined if that cannot be detected. The heap limit is
 * one variable per copy: a value set through one handle can be read through all others of the copy. The probe needs and
 * takes no lock, and may run inside a transaction.
 */
export function sameCopy(a: SqliteHandle, b: SqliteHandle): boolean | undefined {
  if (a === b) return true
  const before = heapLimit(a)
  if (before === undefined || heapLimit(b) === undefined) return undefined
  for (let probe = 0; probe < PROBES; probe++) {
    const mark = heapLimit(b) === NO_LIMIT ? NO_LIMIT - 1 : NO_LIMIT
    try {
      a.exec(`PRAGMA soft_heap_limit = ${mark}`)
      if (heapLimit(b) === mark) return true
      if (heapLimit(a) !== mark) return undefined // a hard limit keeps it down
    } finally {
      a.exec(`PRAGMA soft_heap_limit = ${before}`)
    }
  }
  return false
}

/**
 * As `sameCopy`, for an open handle and a connection that a library has open, which may answer later. `read` reads the
 * heap limit there; undefined if it cannot.
 */
export function* sameCopyThrough(
  handle: SqliteHandle,
  read: () => Promise<number | undefined>,
): Steps<boolean | undefined> {
  const before = heapLimit(handle)
  if (before === undefined) return undefined
  for (let probe = 0; probe < PROBES; probe++) {
    const mark = NO_LIMIT + 1 + randomInt(2 ** 47)
    handle.exec(`PRAGMA soft_heap_limit = ${mark}`)
    try {
      const found = yield* step(read())
      if (found === undefined || found === mark) return found === undefined ? undefined : true
      if (heapLimit(handle) !== mark) return undefined // another probe set it meanwhile
    } finally {
      // A mark that was there before belongs to another probe, which may have ended.
      if (heapLimit(handle) === mark) handle.exec(`PRAGMA soft_heap_limit = ${before < NO_LIMIT ? before : 0}`)
    }
  }
  return false
}

function heapLimit(handle: SqliteHandle): number | undefined {
  const limit = firstValue(handle, READ_HEAP_LIMIT)
  return typeof limit === 'number' ? limit : undefined
}

/** The handles that are known to be open in this process, by file. */
type Files = Map<string, Set<WeakRef<SqliteHandle>>>

/** One per process, not per module: two copies of Millrace must share it. */
function files(): Files {
  const key = Symbol.for('millrace.sqlite.files.1')
  const holder = globalThis as { [key]?: Files }
  return (holder[key] ??= new Map())
}

/**
 * Registers that a handle is open on a file, until the returned function is called, or the handle is closed or
 * garbage-collected.
 */
export function remember(path: string, handle: SqliteHandle): () => void {
  const file = fileNumber(path)
  if (file === undefined) return () => {}
  const known = files()
  const handles = known.get(file) ?? new Set()
  for (const each of handles) if (each.deref() === handle) return () => {}
  const entry = new WeakRef(handle)
  known.set(file, handles.add(entry))
  return () => void handles.delete(entry)
}

/**
 * Throws for a handle, or a class that is about to open a file, if this process has that file open through another copy
 * of SQLite. Returns whether it is known to be the same copy as those that have it open. A class is probed in memory:
 * opening and closing the file itself would drop the locks of the other copy.
 */
export function refuseSecondCopy(path: string, candidate: SqliteHandle | DatabaseClass): boolean {
  if (!LOCKS_BELONG_TO_PROCESS) return false
  const file = fileNumber(path)
  const handles = file === undefined ? undefined : files().get(file)
  if (handles === undefined || handles.size === 0) return false
  const inMemory = typeof candidate === 'function' ? new candidate(':memory:') : undefined
  try {
    for (const entry of handles) {
      const handle = entry.deref()
      if (handle === undefined || !isOpen(handle)) {
        handles.delete(entry)
        continue
      }
      const same = sameCopy(handle, inMemory ?? (candidate as SqliteHandle))
      if (same === false) throw secondCopy(path)
      if (same) return true // and so are all other known handles
    }
    return false
  } finally {
    inMemory?.close()
  }
}

function isOpen(handle: SqliteHandle): boolean {
  try {
    handle.prepare(READ_HEAP_LIMIT)
    return true
  } catch {
    return false
  }
}

/** The error for a second copy of SQLite on a file. */
export function secondCopy(path: string): MillraceError {
  return new MillraceError(
    'SECOND_SQLITE',
    `This process has ${nameOf(path)} open through another copy of SQLite (another driver, or the same one installed twice), and inside one process two copies do not see each other's locks: each would overwrite what the other commits. Nothing was written. Use one driver for the file: open the store with your own handle, sqlite(db).`,
    { details: { path } },
  )
}

// stores/sqlite/library-copies.ts: keeps two copies of SQLite in one process from the same file: their locks belong to the process
// and do not exclude each other, so that one overwrites what the other has committed.
import { statSync } from 'node:fs'
import { MillraceError } from '../../job/errors.js'
import { firstValue } from './driver.js'
import type { DatabaseClass, SqliteHandle } from './driver.js'
import { nameOf } from './errors.js'

/** On Windows a lock belongs to a handle of the file, and two copies exclude each other like two processes. */
const LOCKS_BY_PROCESS = process.platform !== 'win32'

/** A limit on SQLite's heap that is none: 4 PiB, and below 2^53. */
const MARK = 2 ** 52

/** A thread may probe the same copy at the same moment; "another copy" counts only if this many probes in a row say so. */
const PROBES = 3

/** What identifies a file beyond its names; undefined where it is gone. */
export function fileNumber(path: string): string | undefined {
  const stat = statSync(path, { throwIfNoEntry: false })
  return stat && `${stat.dev}:${stat.ino}`
}

/**
 * Whether two open handles belong to the same copy of SQLite; undefined where that does not show. The limit on the heap is
 * one variable of each copy: what is set through one handle is read through all others of the copy. It neither needs nor
 * takes a lock, and may be done inside a transaction.
 */
export function sameCopy(a: SqliteHandle, b: SqliteHandle): boolean | undefined {
  if (a === b) return true
  const before = heapLimit(a)
  if (before === undefined || heapLimit(b) === undefined) return undefined
  for (let probe = 0; probe < PROBES; probe++) {
    const mark = heapLimit(b) === MARK ? MARK - 1 : MARK
    try {
      a.exec(`PRAGMA soft_heap_limit = ${mark}`)
      if (heapLimit(b) === mark) return true
      if (heapLimit(a) !== mark) return undefined // a hard limit holds it down
    } finally {
      a.exec(`PRAGMA soft_heap_limit = ${before}`)
    }
  }
  return false
}

function heapLimit(handle: SqliteHandle): number | undefined {
  const limit = firstValue(handle, 'PRAGMA soft_heap_limit')
  return typeof limit === 'number' ? limit : undefined
}

/** The handles that are known to be open in this process, by file. */
type Files = Map<string, Set<WeakRef<SqliteHandle>>>

/** One for the process, not for the module: two copies of Millrace must know of each other. */
function files(): Files {
  const key = Symbol.for('millrace.sqlite.files.1')
  const holder = globalThis as { [key]?: Files }
  return (holder[key] ??= new Map())
}

/** Remembers that a handle is open on a file, until the answer is called, or the handle is closed or collected as garbage. */
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
 * Refuses a handle, or a class that is about to open a file, if this process has that file open through another copy of
 * SQLite; answers whether it is known to be of the same copy as those that have it open. A class is tried in memory:
 * opening and closing the file itself would drop the locks of the other copy.
 */
export function refuseSecondCopy(path: string, candidate: SqliteHandle | DatabaseClass): boolean {
  if (!LOCKS_BY_PROCESS) return false
  const file = fileNumber(path)
  const handles = file === undefined ? undefined : files().get(file)
  if (handles === undefined || handles.size === 0) return false
  const own = typeof candidate === 'function' ? new candidate(':memory:') : undefined
  try {
    for (const entry of handles) {
      const handle = entry.deref()
      if (handle === undefined || !isOpen(handle)) {
        handles.delete(entry)
        continue
      }
      const same = sameCopy(handle, own ?? (candidate as SqliteHandle))
      if (same === false) throw secondCopy(path)
      if (same) return true // as are all others that are known
    }
    return false
  } finally {
    own?.close()
  }
}

function isOpen(handle: SqliteHandle): boolean {
  try {
    handle.prepare('PRAGMA soft_heap_limit')
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

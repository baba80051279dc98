// stores/sqlite/file/thread-copies.ts: keeps two copies of the SQLite library in different threads of one process from
// opening the same file.
//
// File locks belong to the process, but `globalThis` belongs to a thread. So each store has a mark: an empty temporary
// file of its own, on which it holds an exclusive lock through its copy of SQLite. Inside one process only the same copy
// respects that lock: a store that can read the mark of another one uses another copy. No thread has to answer.
import { randomUUID } from 'node:crypto'
import { closeSync, fstatSync, lstatSync, mkdirSync, openSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Millis } from '../../../job/job.js'
import type { Runtime } from '../../../store/runtime.js'
import type { DatabaseClass, SqliteHandle } from './driver.js'
import { fileNumber, LOCKS_BELONG_TO_PROCESS, secondCopy } from './library-copies.js'

/** How long another copy must be seen before the file is refused: its store may be opening or closing. In milliseconds. */
const SEEN_FOR: Millis = 1_000

/** The longest pause between two checks, in milliseconds. */
const PAUSE: Millis = 50

/** The mark of an open store. */
interface Mark {
  readonly file: string
  readonly handle: SqliteHandle
}

/**
 * Marks a file as open through a driver's copy of SQLite, until the returned function is called. Throws SECOND_SQLITE if
 * a store in this process, whatever its thread, has the file open through another copy. Creates the file if it is new.
 * Does nothing where there is no folder for marks.
 */
export async function markFile(path: string, Driver: DatabaseClass, runtime: Runtime): Promise<() => void> {
  const folder = LOCKS_BELONG_TO_PROCESS ? markFolder() : undefined
  if (folder === undefined) return () => {}
  create(path)
  const number = fileNumber(path)
  if (number === undefined) return () => {}
  const prefix = `${process.pid}-${number.replace(':', '-')}-`
  for (const began = runtime.elapsed(); ;) {
    const mark = setMark(join(folder, prefix + randomUUID()), Driver)
    if (mark === undefined) return () => {}
    if (!hasOtherCopy(folder, prefix, mark.file, Driver)) return () => removeMark(mark)
    removeMark(mark)
    if (runtime.elapsed() - began >= SEEN_FOR) throw secondCopy(path)
    await new Promise<void>((resolve) => void runtime.timer(1 + runtime.random() * PAUSE, resolve))
  }
}

/** Creates the file if there is none: a mark needs its identity. The call that opens it reports a failure. */
function create(path: string): void {
  try {
    closeSync(openSync(path, 'wx', 0o644))
  } catch {
    // It exists, or cannot be created.
  }
}

/** The folder of the marks, which belongs to this user alone; undefined if there can be none. */
function markFolder(): string | undefined {
  const user = process.getuid!()
  const folder = join(tmpdir(), `millrace-${user}`)
  try {
    mkdirSync(folder, { mode: 0o700, recursive: true })
    const stat = lstatSync(folder)
    return stat.isDirectory() && stat.uid === user && (stat.mode & 0o022) === 0 ? folder : undefined
  } catch {
    return undefined
  }
}

function setMark(file: string, Driver: DatabaseClass): Mark | undefined {
  let handle: SqliteHandle | undefined
  try {
    // Only `exec`: `@photostructure/sqlite` 1 closes a connection only when its statements are garbage-collected.
    handle = new Driver(file)
    handle.exec('PRAGMA busy_timeout = 1000; PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE')
    return { file, handle }
  } catch {
    handle?.close()
    remove(file)
    return undefined
  }
}

function removeMark({ file, handle }: Mark): void {
  handle.close()
  remove(file)
}

/** What cannot be removed is left: this process may not have the rights any more with which it created it. */
function remove(file: string): void {
  try {
    rmSync(file, { force: true })
  } catch {
    // A later process tries again.
  }
}

/** Whether a store of this process marked the same file through another copy. Removes marks of ended processes. */
function hasOtherCopy(folder: string, prefix: string, own: string, Driver: DatabaseClass): boolean {
  let found = false
  for (const name of namesIn(folder)) {
    const file = join(folder, name)
    if (!name.startsWith(prefix)) removeIfEnded(file, Number.parseInt(name, 10))
    else if (file !== own && isReadable(file, Driver)) {
      if (isOpenHere(file)) found = true
      else remove(file) // of an ended process with the same number, or of an ended thread
    }
  }
  return found
}

/** Whether a mark can be read through this copy, where its lock is not respected. Readers do not exclude each other. */
function isReadable(file: string, Driver: DatabaseClass): boolean {
  let handle: SqliteHandle | undefined
  try {
    handle = new Driver(file)
    handle.exec('PRAGMA busy_timeout = 0; SELECT 1 FROM sqlite_master')
    return true
  } catch {
    return false
  } finally {
    handle?.close()
  }
}

/** Whether any thread of this process has the file open. */
function isOpenHere(file: string): boolean {
  const number = fileNumber(file)
  return number !== undefined && namesIn('/dev/fd').some((fd) => descriptorNumber(Number(fd)) === number)
}

/** The names in a folder; none where it cannot be read. */
function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

function descriptorNumber(fd: number): string | undefined {
  try {
    const { dev, ino } = fstatSync(fd)
    return `${dev}:${ino}`
  } catch {
    return undefined // closed meanwhile
  }
}

function removeIfEnded(file: string, pid: number): void {
  if (!(pid > 0) || pid === process.pid) return
  try {
    process.kill(pid, 0)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') remove(file)
  }
}

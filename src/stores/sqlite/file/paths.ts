// stores/sqlite/file/paths.ts: finds out what is wrong with a path; drivers only report "unable to open database file".
import { accessSync, constants, rmSync, statSync } from 'node:fs'
import type { Stats } from 'node:fs'
import { dirname } from 'node:path'
import { MillraceError } from '../../../job/errors/errors.js'

const READ_WRITE = constants.R_OK | constants.W_OK

/** What keeps the file at this absolute path from being opened or created for writing; undefined if no problem is found. */
export function problemWithFile(path: string, cause?: unknown): MillraceError | undefined {
  const folder = dirname(path)
  const folderStats = statOf(folder)
  if (folderStats === 'absent') {
    return problem('DATABASE_PATH_MISSING', path, `its folder ${folder} does not exist. Create it first`, cause)
  }
  if (folderStats === 'unknown') return noFolder(path, cause)
  if (!folderStats.isDirectory()) {
    return problem('DATABASE_PATH_MISSING', path, `${folder} is a file, not a folder. Correct the path`, cause)
  }

  const stats = statOf(path)
  if (stats === 'absent') return allows(folder, constants.W_OK | constants.X_OK) ? undefined : noFolder(path, cause)
  if (stats === 'unknown') return allows(folder, constants.X_OK) ? undefined : noFolder(path, cause)
  if (stats.isDirectory()) {
    return problem('DATABASE_IS_DIRECTORY', path, 'it is a folder. Give the path of a file in it', cause)
  }
  if (!stats.isFile()) return problem('DATABASE_INVALID', path, 'it is no ordinary file. Correct the path', cause)
  return allows(path, READ_WRITE) ? undefined : noAccess(path, 'it', cause)
}

/**
 * What keeps the files beside a database, its WAL and the index of that, from being created or written. Checked only
 * after a failure, because a folder that cannot be written to does no harm while both files exist.
 */
export function problemWithNeighbours(path: string, cause?: unknown): MillraceError | undefined {
  for (const neighbour of [`${path}-wal`, `${path}-shm`]) {
    if (typeof statOf(neighbour) === 'object' && !allows(neighbour, READ_WRITE)) return noAccess(path, neighbour, cause)
  }
  return allows(dirname(path), constants.W_OK | constants.X_OK) ? undefined : noFolder(path, cause)
}

/** Removes the file that a failed open has created, unless another program has started to use it. */
export function removeEmpty(path: string): void {
  const stats = statOf(path)
  if (typeof stats !== 'object' || stats.size > 0) return
  if (statOf(`${path}-wal`) !== 'absent' || statOf(`${path}-journal`) !== 'absent') return
  try {
    rmSync(path)
  } catch {
    // The failure to open is what matters.
  }
}

function noAccess(path: string, what: string, cause: unknown): MillraceError {
  const reason = `${what} may not be read and written by this process. Change its owner or its permissions`
  return problem('DATABASE_NOT_WRITABLE', path, reason, cause)
}

function noFolder(path: string, cause: unknown): MillraceError {
  const reason = `its folder ${dirname(path)} may not be written to by this process, and SQLite keeps a log beside the file. Change the folder's owner or permissions`
  return problem('DATABASE_NOT_WRITABLE', path, reason, cause)
}

type PathProblem = 'DATABASE_PATH_MISSING' | 'DATABASE_IS_DIRECTORY' | 'DATABASE_INVALID' | 'DATABASE_NOT_WRITABLE'

function problem(code: PathProblem, path: string, reason: string, cause: unknown): MillraceError {
  return new MillraceError(code, `The database file ${path} cannot be opened: ${reason}.`, { cause, details: { path } })
}

/** What is at a path; 'unknown' if access is denied. */
function statOf(path: string): Stats | 'absent' | 'unknown' {
  try {
    return statSync(path)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    return code === 'ENOENT' || code === 'ENOTDIR' ? 'absent' : 'unknown'
  }
}

/** Never checked by opening the file: closing it again would drop the locks that SQLite holds on it in this process. */
function allows(path: string, mode: number): boolean {
  try {
    accessSync(path, mode)
    return true
  } catch {
    return false
  }
}

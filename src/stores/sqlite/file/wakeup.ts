// stores/sqlite/file/wakeup.ts: wakes other processes after a commit, and listens for theirs, by a file beside the database.
import { chmodSync, closeSync, openSync, statSync, watch, writeSync } from 'node:fs'
import type { FSWatcher } from 'node:fs'
import type { Millis } from '../../../job/job.js'
import type { Runtime, Stop } from '../../../store/runtime.js'

/** How often to poll without a wake-up, as a safety net. In milliseconds. */
const POLL_EVERY: Millis = 1_000

/** How often to poll if wake-ups do not work. In milliseconds. */
const POLL_WITHOUT_WAKEUPS: Millis = 100

/** After this many consecutive polls that found what a wake-up missed, wake-ups do not work on this file system. */
const MAX_MISSES = 3

/** The file that is written to. */
const fileOf = (path: string): string => `${path}-wake`

/** Wakes the processes that listen on the same file. Never fails: they poll at intervals. */
export function wakeOthers(path: string): void {
  // A byte is overwritten, because only the owner of a file may set its times.
  if (!writeByte(fileOf(path)) && createFile(path)) writeByte(fileOf(path))
}

function writeByte(file: string): boolean {
  try {
    const fd = openSync(file, 'r+')
    writeSync(fd, '.', 0)
    closeSync(fd)
    return true
  } catch {
    return false
  }
}

/** Creates the file, with the permissions of the database. */
function createFile(path: string): boolean {
  try {
    const file = fileOf(path)
    if (statSync(file, { throwIfNoEntry: false })?.isFile()) return true
    closeSync(openSync(file, 'a'))
    chmodSync(file, statSync(path).mode & 0o666)
    return true
  } catch {
    return false
  }
}

/**
 * Calls `look` whenever another process may have committed: at once if the file system reports it, and every second in
 * any case, or ten times a second if wake-ups do not work. `look` returns whether it found anything.
 */
export function listenForWakeups(path: string, runtime: Runtime, look: () => boolean): Stop {
  const file = fileOf(path)
  let stopped = false
  let misses = 0
  let watcher: FSWatcher | undefined
  let stopTimer: Stop = () => {}

  const onWakeup = (): void => {
    if (stopped) return
    if (look()) misses = 0
  }
  const listen = (): void => {
    watcher?.close()
    watcher = undefined
    if (!createFile(path)) return
    try {
      watcher = watch(file, (event) => {
        onWakeup()
        if (event === 'rename' && !stopped) listen() // the file was removed or replaced, and is no longer watched
      })
      watcher.on('error', () => {
        watcher?.close()
        watcher = undefined
      })
    } catch {
      watcher = undefined // too many watchers, or no support in this file system: polling goes on
    }
  }
  const arm = (): void => {
    const every = watcher === undefined || misses >= MAX_MISSES ? POLL_WITHOUT_WAKEUPS : POLL_EVERY
    stopTimer = runtime.timer(every, () => {
      if (stopped) return
      if (look() && every === POLL_EVERY) misses++
      arm()
    })
  }
  listen()
  arm()
  return () => {
    stopped = true
    stopTimer()
    watcher?.close()
  }
}

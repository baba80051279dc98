// stores/sqlite/wakeup.ts: wakes other processes after a commit, and is woken by theirs: a byte is written beside the database.
import { chmodSync, closeSync, openSync, statSync, watch, writeSync } from 'node:fs'
import type { FSWatcher } from 'node:fs'
import type { Millis } from '../../job/job.js'
import type { Runtime, Stop } from '../../store/runtime.js'

/** How often to look without being woken: the net under the push. */
const NET: Millis = 1_000

/** How often to look where the push has proved not to work. */
const DEAF: Millis = 100

/** So many times in a row the net caught what the push had missed: it does not work on this file system. */
const MISSES = 3

/** The file that is touched. */
const fileOf = (path: string): string => `${path}-wake`

/** Wakes whoever waits on the same file in another process. Never fails: they look by themselves before long. */
export function wakeups(path: string): void {
  // A byte is written over: to set its times, one would have to own the file.
  if (!write(fileOf(path)) && make(path)) write(fileOf(path))
}

function write(file: string): boolean {
  try {
    const fd = openSync(file, 'r+')
    writeSync(fd, '.', 0)
    closeSync(fd)
    return true
  } catch {
    return false
  }
}

/** Makes the file, for those who may use the database. */
function make(path: string): boolean {
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
 * Calls `look` whenever another process may have committed: at once where the file system tells, and every second in any
 * case, or ten times a second where it has proved to tell nothing. `look` answers whether there was something to see.
 */
export function wakeOthers(path: string, runtime: Runtime, look: () => boolean): Stop {
  const file = fileOf(path)
  let stopped = false
  let misses = 0
  let watcher: FSWatcher | undefined
  let stopTimer: Stop = () => {}

  const told = (): void => {
    if (stopped) return
    if (look()) misses = 0
  }
  const listen = (): void => {
    watcher?.close()
    watcher = undefined
    if (!make(path)) return
    try {
      watcher = watch(file, (event) => {
        told()
        if (event === 'rename' && !stopped) listen() // it was removed or replaced, and is watched no longer
      })
      watcher.on('error', () => {
        watcher?.close()
        watcher = undefined
      })
    } catch {
      watcher = undefined // too many watchers, or none on this file system: the net holds
    }
  }
  const arm = (): void => {
    const every = watcher === undefined || misses >= MISSES ? DEAF : NET
    stopTimer = runtime.timer(every, () => {
      if (stopped) return
      if (look() && every === NET) misses++
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

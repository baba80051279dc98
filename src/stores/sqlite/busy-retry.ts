// stores/sqlite/busy-retry.ts: waits for a locked file without ever blocking the event loop.
import { MillraceError } from '../../job/errors.js'
import type { Millis } from '../../job/job.js'
import type { Runtime } from '../../store/runtime.js'
import { isBusy, nameOf, toStoreError } from './errors.js'

/** The most to wait before trying again: at first, and when it has lasted long. */
const FIRST_WAIT: Millis = 2
const LONGEST_WAIT: Millis = 25

/** The longest single wait, as a part of the time waited already: it begins to grow after 80 ms and is full after 1 s. */
const GROWTH = 1 / 40

/**
 * Runs `work`, and again as long as it fails because the file is locked; gives up with DATABASE_LOCKED after
 * `patience`. The first try is made at once, before this returns. Work that fails must have undone what it did.
 * Any other failure is answered as the error a user should see.
 *
 * A lock is released after some milliseconds and nobody says when, so it waits by chance: two that wait at the same
 * pace would go on meeting each other. A busy timeout of SQLite's would hold the event loop meanwhile. Only of `own`, a
 * transaction of this process that holds the file, is it known when it ends: that is waited for, however long it takes.
 */
export async function whenFree<T>(
  runtime: Runtime,
  path: string | undefined,
  work: () => T,
  patience: Millis,
  own: () => Promise<void> | undefined = () => undefined,
): Promise<T> {
  let since: Millis | undefined
  for (;;) {
    try {
      return work()
    } catch (error) {
      if (!isBusy(error)) throw toStoreError(error, path)
      const ours = own()
      if (ours !== undefined) {
        await ours
        since = undefined
        continue
      }
      since ??= runtime.elapsed()
      const waited = runtime.elapsed() - since
      if (waited >= patience) throw lockedFor(waited, path, error)
      const most = Math.min(LONGEST_WAIT, Math.max(FIRST_WAIT, waited * GROWTH))
      const wait = Math.min(Math.round(runtime.random() * most), patience - waited)
      await new Promise<void>((resolve) => void runtime.timer(wait, resolve))
    }
  }
}

function lockedFor(waited: Millis, path: string | undefined, cause: unknown): MillraceError {
  return new MillraceError(
    'DATABASE_LOCKED',
    `Another program has held ${nameOf(path)} locked for ${Math.round(waited)} ms. Nothing was written; find the program that keeps a transaction open on it, and try again.`,
    { cause, details: { ...(path !== undefined && { path }), waited } },
  )
}

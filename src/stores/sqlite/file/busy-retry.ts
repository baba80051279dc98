// stores/sqlite/file/busy-retry.ts: retries while the file is locked, without blocking the event loop.
import { MillraceError } from '../../../job/errors/errors.js'
import type { Millis } from '../../../job/job.js'
import type { Runtime } from '../../../store/runtime.js'
import { isBusy, nameOf, toStoreError } from './errors.js'

/** The longest wait before a retry: at first, and after a long time. In milliseconds. */
const FIRST_WAIT: Millis = 2
const LONGEST_WAIT: Millis = 25

/** The longest single wait, as a fraction of the time waited so far: it starts to grow after 80 ms and is full after 1 s. */
const GROWTH = 1 / 40

/**
 * Runs `work`, and retries it as long as it fails because the file is locked. Gives up with DATABASE_LOCKED after
 * `patience`. The first try runs synchronously, before this returns. Work that fails must have undone its writes. Any
 * other failure rejects with the error that a user should see.
 *
 * Locks are usually released within milliseconds, but SQLite does not notify waiters, so the waits are random: two
 * waiters with the same interval would keep colliding. SQLite's own busy timeout would block the event loop. Only the
 * end of `ownTransaction`, a transaction of this process that holds the lock, is known: it is awaited, however long it
 * takes.
 */
export async function retryWhileBusy<T>(
  runtime: Runtime,
  path: string | undefined,
  work: () => T,
  patience: Millis,
  ownTransaction: () => Promise<void> | undefined = () => undefined,
): Promise<T> {
  let since: Millis | undefined
  for (;;) {
    try {
      return work()
    } catch (error) {
      if (!isBusy(error)) throw toStoreError(error, path)
      const transaction = ownTransaction()
      if (transaction !== undefined) {
        await transaction
        since = undefined
        continue
      }
      since ??= runtime.elapsed()
      const waited = runtime.elapsed() - since
      if (waited >= patience) throw lockedFor(waited, path, error)
      const maxWait = Math.min(LONGEST_WAIT, Math.max(FIRST_WAIT, waited * GROWTH))
      const wait = Math.min(Math.round(runtime.random() * maxWait), patience - waited)
      await new Promise<void>((resolve) => void runtime.timer(wait, resolve))
    }
  }
}

/** The error for a file that another program has kept locked for longer than the caller waits. */
export function lockedFor(waited: Millis, path: string | undefined, cause: unknown): MillraceError {
  return new MillraceError(
    'DATABASE_LOCKED',
    `Another program has held ${nameOf(path)} locked for ${Math.round(waited)} ms. Nothing was written; find the program that keeps a transaction open on it, and try again.`,
    { cause, details: { ...(path !== undefined && { path }), waited } },
  )
}

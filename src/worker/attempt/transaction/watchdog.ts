// worker/attempt/transaction/watchdog.ts: rolls back a transaction before it costs a lease.
import { MillraceError } from '../../../job/errors.js'
import type { Millis } from '../../../job/job.js'
import type { Runtime, Stop } from '../../../store/runtime.js'
import type { Leases } from '../../leases.js'
import type { Attempt } from '../attempt.js'

/** Calls `expired` when the transaction of an attempt has become so long that leases would expire because of it. */
export function watchTransaction(runtime: Runtime, leases: Leases, attempt: Attempt, expired: () => void): Stop {
  let stop: Stop
  const check = (): void => {
    const left = leases.mustEnd(attempt) - runtime.elapsed()
    if (left > 0) stop = runtime.timer(left, check)
    else expired()
  }
  stop = runtime.timer(leases.spare(attempt), check)
  return () => stop()
}

/** Waits, but not beyond the attempt's leases: a store that does not respond must not keep a slot for ever. */
export async function inTime<T>(runtime: Runtime, until: Millis, work: Promise<T>, late: T): Promise<T> {
  let stop: Stop = () => {}
  const timer = new Promise<T>((resolve) => {
    stop = runtime.timer(Math.max(0, until - runtime.elapsed()), () => resolve(late))
  })
  const first = await Promise.race([work, timer])
  stop()
  return first
}

/** The error of a transaction that was rolled back for its length. */
export function tooLong({ id, name }: { readonly id: string; readonly name: string }): MillraceError {
  return new MillraceError(
    'TRANSACTION_TOO_LONG',
    `The transaction of job ${id} ('${name}') was still open when a lease was about to run out, and was rolled back. ` +
      'Do slow work before ctx.complete, let the handler end soon after it, or lengthen the lease.',
    { details: { id } },
  )
}

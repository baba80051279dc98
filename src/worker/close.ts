// worker/close.ts: closes a worker: stop claiming, wait, abort, wait again, drain deliveries, release everything.
import { parseDuration } from '../job/duration.js'
import type { Duration } from '../job/duration.js'
import { MillraceError, isMillraceError } from '../job/errors.js'
import type { Millis } from '../job/job.js'
import type { Deliveries } from '../queue/settings/webhook.js'
import { refuseUnknown } from '../job/names.js'
import type { Runtime } from '../store/runtime.js'
import type { Settlements } from './settlements.js'
import type { Slots } from './slots.js'

/** How long closing waits. */
export interface CloseOptions {
  /** How long running handlers may take before their signals abort. Default 30 s. */
  readonly timeout?: Duration
  /** How long they may take after that. Default 5 s. */
  readonly grace?: Duration
}

/** What closing needs of the worker. */
export interface ClosingWorker {
  readonly runtime: Runtime
  readonly slots: Slots
  readonly settlements: Settlements
  stopClaiming(): Promise<void>
  /** Its webhook deliveries, if it sends any. */
  deliveries(): Deliveries | undefined
  stopped(): Promise<void>
}

/** `CloseOptions` in milliseconds. */
export interface CloseTimeouts {
  readonly timeout: Millis
  readonly grace: Millis
}

/** Checks the options of a close, before anything is closed. */
export function parseClose(options: CloseOptions, where: string): CloseTimeouts {
  refuseUnknown(options, ['timeout', 'grace'], where)
  return {
    timeout: parseDuration(options.timeout ?? 30_000, `${where}: timeout`),
    grace: parseDuration(options.grace ?? 5_000, `${where}: grace`),
  }
}

/** Closes a worker. Rejects only after everything is released. */
export async function closeWorker({ timeout, grace }: CloseTimeouts, worker: ClosingWorker): Promise<void> {
  const { runtime, slots, settlements } = worker
  const began = runtime.elapsed()
  // Not awaited yet: the last claim may be waiting for a transaction of the very handlers that are awaited below.
  const stoppedClaiming = within(runtime, grace, worker.stopClaiming())
  const inTime = await within(runtime, timeout, slots.whenIdle())
  let left = 0
  if (!inTime) {
    for (const attempt of [...slots.running]) attempt.abort('shutdown')
    await within(runtime, grace, slots.whenIdle())
    left = slots.running.length
    for (const attempt of [...slots.running]) if (attempt.isHeldByItself) attempt.abandon()
  }
  await stoppedClaiming
  const settled = await within(runtime, grace, settlements.idle())
  settlements.giveUp()
  // The last settlements are durable now, and so are the deliveries that they add.
  const drainTimeout = Math.max(grace, timeout - (runtime.elapsed() - began))
  const undelivered = await drain(worker.deliveries(), { timeout: drainTimeout, grace })
  await within(runtime, grace, worker.stopped())
  if (inTime && settled && undelivered === undefined) return
  if (inTime && settled) throw undelivered
  if (inTime) {
    throw new MillraceError(
      'SHUTDOWN_TIMEOUT',
      'The store did not take what the last jobs came to; they run again when their leases have run out.',
      { details: { timeout, left: 0 } },
    )
  }
  throw new MillraceError(
    'SHUTDOWN_TIMEOUT',
    `Handlers were still running after ${timeout} ms and were told to stop; ` +
      (left === 0
        ? 'all of them ended, and their jobs were handed back or settled.'
        : `${left} ignored their signal, and their jobs will be taken over when the leases run out.`),
    { details: { timeout, left } },
  )
}

/** Waits for deliveries in flight; returns the error if that took too long. */
async function drain(deliveries: Deliveries | undefined, timeouts: CloseTimeouts): Promise<unknown> {
  try {
    await deliveries?.close(timeouts)
    return undefined
  } catch (error) {
    if (!isMillraceError(error, 'SHUTDOWN_TIMEOUT')) return error
    return new MillraceError(
      'SHUTDOWN_TIMEOUT',
      `Deliveries to webhooks were still under way after ${timeouts.timeout} ms and were broken off; whoever sends them next begins anew.`,
      { details: { timeout: timeouts.timeout, left: 0 } },
    )
  }
}

/** Whether a promise resolves in time. */
async function within(runtime: Runtime, limit: Millis, work: Promise<void>): Promise<boolean> {
  let stop = (): void => {}
  const late = new Promise<boolean>((resolve) => {
    stop = runtime.timer(limit, () => resolve(false))
  })
  const done = await Promise.race([work.then(() => true), late])
  stop()
  return done
}
